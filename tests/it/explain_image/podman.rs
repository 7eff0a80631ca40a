//! podman's images, in its storage and in the three forms that `podman save` writes.

use std::process::Command;

use super::{ask, check_built, dockerfile, set_by, text};
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
        check_built(&ask(host.cudaview(), &format!("{}:built", text(&path))), place, 1);
    }
    let ran = run(host.cudaview().args(["explain", "--image", "bilt"])).failed_with(1);
    assert!(ran.stderr.contains("storage (no such image)"), "{ran}");
    assert!(ran.stderr.contains("did you mean --image built?"), "{ran}");
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
