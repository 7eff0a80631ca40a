//! Docker's images, on both image stores and in what `docker save` writes.

use std::process::Command;

use serde_json::{Value, json};

use super::{ask, check_built, check_linted, dockerfile, set_by, text, visible, without};
use crate::world::command::run;
use crate::world::count::{COUNT, Count};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, require};

const CVD: &str = "CUDA_VISIBLE_DEVICES";
const NVD: &str = "NVIDIA_VISIBLE_DEVICES";

struct Host {
    docker: Dockerd,
    install: Install,
}

impl Host {
    /// `store` is a setting of the daemon's. Docker before version 25 has one store only, which both tests use there.
    #[track_caller]
    fn new(store: &Value) -> Host {
        require(&["dockerd", "docker", "containerd", "runc", "tar"]);
        let install = Install::new(A100X4, "");
        let old = json!({"storage-driver": "overlay2"});
        let settings = if Dockerd::program_version() < 25 { &old } else { store };
        let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, settings);
        docker.import(A100X4, IMAGE, &[]);
        docker.import(A100X4, "imported", &["ENV NVIDIA_VISIBLE_DEVICES=all"]);
        docker.build("built", &dockerfile("imported"));
        docker.docker(&["create", "--name", "source", "built", "sleep", "1000"]).ok();
        docker.docker(&["commit", "--change", "ENV CUDA_VISIBLE_DEVICES=2", "source", "committed"]).ok();
        docker.docker(&["rm", "source"]).ok();
        Host { docker, install }
    }

    fn cudaview(&self) -> Command {
        let mut command = Command::new(self.install.bin("cudaview"));
        command.env("DOCKER_HOST", format!("unix://{}", self.docker.path().join("docker.sock").display()));
        command.env("CONTAINERS_STORAGE_CONF", "/nobody/is/here").env("COLUMNS", "1000");
        command
    }

    /// The same where no engine can be asked.
    fn alone(&self) -> Command {
        let mut command = self.cudaview();
        command.env("DOCKER_HOST", "unix:///nobody/listens/here");
        command
    }
}

fn images(store: &Value) {
    let host = Host::new(store);
    let answer = ask(host.cudaview(), "built");
    check_built(&answer, "in Docker's store", 1);
    assert_eq!(set_by(&answer, NVD), ("all", None, None), "an import has no instruction: {answer:#}");
    let answer = ask(host.cudaview(), "committed:latest");
    assert_eq!(set_by(&answer, CVD), ("2", None, None), "nor has a commit: {answer:#}");
    check_linted(host.cudaview(), "built", 1);
    let id = host.docker.inspect("built")["Id"].as_str().unwrap().to_owned();
    check_built(&ask(host.cudaview(), &id), "in Docker's store", 1);

    // Saved, and read where no engine is.
    let file = host.docker.path().join("saved.tar");
    host.docker.docker(&["save", "--output", text(&file), "built", "committed"]).ok();
    check_built(&ask(host.alone(), &format!("{}:built", text(&file))), "a docker save archive", 1);
    let answer = ask(host.alone(), &format!("docker-archive:{}:committed", text(&file)));
    assert_eq!(set_by(&answer, CVD), ("2", None, None), "{answer:#}");
    let ran = run(host.alone().args(["explain", "--image", text(&file)])).failed_with(4);
    assert!(ran.stderr.contains("there are 2 images in it"), "{ran}");
    let one = host.docker.path().join("one.tar");
    host.docker.docker(&["save", "--output", text(&one), "built"]).ok();
    check_built(&ask(host.alone(), text(&one)), "a docker save archive", 1);
    check_linted(host.alone(), text(&one), 1);
    let folder = host.docker.path().join("unpacked");
    std::fs::create_dir(&folder).unwrap();
    run(Command::new("tar").arg("-xf").arg(&one).arg("-C").arg(&folder)).ok();
    check_built(&ask(host.alone(), text(&folder)), "a docker save archive", 1);
    if Dockerd::program_version() >= 25 {
        // Since version 25 it is an OCI layout as well.
        std::fs::remove_file(folder.join("manifest.json")).unwrap();
        check_built(&ask(host.alone(), text(&folder)), "an OCI layout", 1);
    }

    let ran = run(host.cudaview().args(["explain", "--image", "bilt"])).failed_with(1);
    assert!(ran.stderr.contains("did you mean --image built?"), "{ran}");
    host.docker.docker(&["rmi", "committed"]).ok();
    let ran = run(host.cudaview().args(["explain", "--image", "committed"])).failed_with(1);
    assert!(ran.stderr.contains("docker.sock (no such image)"), "{ran}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_docker_graphdriver() {
    images(&json!({"storage-driver": "overlay2"}));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_docker_containerd_store() {
    images(&json!({"features": {"containerd-snapshotter": true}}));
}

/// What is said of an image is what its containers see, with cudaview and without.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_docker_is_what_a_container_sees() {
    let host = Host::new(&json!({"storage-driver": "overlay2"}));
    let answer = ask(host.cudaview(), "built");
    let gpus = ["--gpus", "\"device=1,3\""];
    let nodes = host.install.docker_devices(&[1, 3]);
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let plain = Count::of(host.docker.run(&[&gpus[..], &nodes].concat(), "built", &COUNT));
    assert_eq!(plain.cuda, without(&answer), "{answer:#}");
    assert_eq!(plain.cuda.len(), 1, "the image hides one of the two");
    let count = Count::of(host.docker.run(&[&["--runtime", "cudaview"], &gpus[..]].concat(), "built", &COUNT));
    assert_eq!(count.cuda, visible(&answer), "{answer:#}");
    assert_eq!(count.cuda.len(), 2, "{answer:#}");
}

/// The command as it is typed: explained first, then run.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_docker_run_is_explained_as_typed() {
    let host = Host::new(&json!({"storage-driver": "overlay2"}));
    let rest = [&["built"], &COUNT[..]].concat();
    for flags in [
        &["--gpus", "\"device=1,3\""][..],
        &["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=3"],
        &["--gpus=2", "--env", "CUDA_VISIBLE_DEVICES=1,0"],
        &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES"],
        &["--gpus", "device=2", "-e", "NVIDIA_VISIBLE_DEVICES=all"],
    ] {
        let flags = [&["--runtime", "cudaview", "--network=none"], flags].concat();
        let mut command = host.cudaview();
        command.args(["explain", "--format", "json", "--", "docker", "run", "--rm"]).args(&flags).args(&rest);
        let ran = run(command.env_remove(CVD)).ok();
        assert_eq!(ran.stderr, "", "{ran}");
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer["image"]["place"], "in Docker's store", "{answer:#}");
        assert_eq!(set_by(&answer, CVD).1, Some(4), "{answer:#}");
        let count = Count::of(host.docker.docker(&[&["run", "--rm"], &flags[..], &rest].concat()));
        assert_eq!(count.cuda, visible(&answer), "{flags:?}: {answer:#}");
        assert!(!count.cuda.is_empty(), "{flags:?}");
    }
    let mut command = host.cudaview();
    command.args(["explain", "--", "docker", "run", "--runtime", "cudaview", "--gpus", "all", "absent"]);
    let ran = run(&mut command).ok();
    assert!(ran.stdout.contains("The image absent\n  its ENV is not known: no image \"absent\" was found"), "{ran}");
}
