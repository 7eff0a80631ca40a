//! podman's images, in its storage and in the three forms that `podman save` writes.

use std::process::Command;

use serde_json::Value;

use super::{ask, check_built, check_linted, dockerfile, set_by, text, visible};
use crate::world::command::run;
use crate::world::podman::{IMAGE, Podman, Setup};
use crate::world::{A100X4, Install, require};

struct Host {
    podman: Podman,
    install: Install,
}

impl Host {
    /// cudaview as podman's user, in podman's world.
    fn cudaview(&self) -> Command {
        let mut command = self.podman.command(self.install.bin("cudaview"));
        command.env("DOCKER_HOST", "unix:///nobody/listens/here").env("COLUMNS", "1000");
        command
    }
}

fn images(setup: Setup) {
    require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
    let install = Install::new(A100X4, "");
    let podman = Podman::start(&install, setup);
    let host = Host { podman, install };
    host.podman.build("built", &dockerfile(IMAGE), &[]);
    host.podman.build("flat", &dockerfile(IMAGE), &["--layers=false"]);
    host.podman.build("docker-format", &dockerfile(IMAGE), &["--format", "docker"]);
    for name in ["built", "localhost/built:latest", "flat", "docker-format", "containers-storage:built"] {
        check_built(&ask(host.cudaview(), name), "in podman's storage", 1);
    }
    check_linted(host.cudaview(), "built", 1);
    let id = host.podman.inspect("built")["Id"].as_str().unwrap().to_owned();
    check_built(&ask(host.cudaview(), &id[..12]), "in podman's storage", 1);
    host.podman.podman(&["create", "--name", "source", "built", "sleep", "1000"]).ok();
    host.podman.podman(&["commit", "--quiet", "--change", "ENV CUDA_VISIBLE_DEVICES=2", "source", "committed"]).ok();
    let answer = ask(host.cudaview(), "committed");
    assert_eq!(set_by(&answer, "CUDA_VISIBLE_DEVICES"), ("2", None, None), "{answer:#}");

    for (format, place) in
        [("oci-archive", "an OCI layout"), ("oci-dir", "an OCI layout"), ("docker-archive", "a docker save archive")]
    {
        let path = host.podman.path().join("home").join(format);
        host.podman.podman(&["save", "--quiet", "--format", format, "--output", text(&path), "built"]).ok();
        check_built(&ask(host.cudaview(), text(&path)), place, 1);
        check_linted(host.cudaview(), text(&path), 1);
        check_built(&ask(host.cudaview(), &format!("{}:built", text(&path))), place, 1);
    }
    let ran = run(host.cudaview().args(["explain", "--image", "bilt"])).failed_with(1);
    assert!(ran.stderr.contains("storage (no such image)"), "{ran}");
    assert!(ran.stderr.contains("did you mean --image built?"), "{ran}");
}

/// The command as it is typed: explained first, then run.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_podman_run_is_explained_as_typed() {
    require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
    let install = Install::new(A100X4, "");
    let podman = Podman::start(&install, Setup { runtime: "cudaview", ..Setup::PLAIN });
    let host = Host { podman, install };
    host.podman.build("built", &dockerfile(IMAGE), &[]);
    for flags in [
        &["--device", "nvidia.com/gpu=1", "--device=nvidia.com/gpu=3"][..],
        &["--device", "nvidia.com/gpu=all", "-e", "CUDA_VISIBLE_DEVICES=3,1"],
        // podman keeps no order, and takes what equals the image's for the image's.
        &["--device", "nvidia.com/gpu=all", "-e", "CUDA_VISIBLE_DEVICES=0"],
        // podman leaves a name out that has no value, and the image's stays.
        &["--device", "nvidia.com/gpu=all", "-e", "CUDA_VISIBLE_DEVICES"],
    ] {
        let mut command = host.cudaview();
        command.args(["explain", "--format", "json", "--", "podman", "run"]).args(flags).args(["built", "sleep", "1"]);
        let ran = run(command.env_remove("CUDA_VISIBLE_DEVICES")).ok();
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer["image"]["place"], "in podman's storage", "{answer:#}");
        let count = host.podman.count(flags, "built");
        assert_eq!(count.cuda, visible(&answer), "{flags:?}: {answer:#}");
        assert!(!count.cuda.is_empty(), "{flags:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_podman_rootful() {
    images(Setup::PLAIN);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_podman_rootless_by_its_owner() {
    images(Setup { rootless: true, ..Setup::PLAIN });
}
