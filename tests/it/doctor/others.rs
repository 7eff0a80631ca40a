//! Running containers of podman and containerd, from outside.

use std::process::Command;

use serde_json::Value;

use crate::world::command::run;
use crate::world::containerd::{Containerd, Door, GPUS_1_3};
use crate::world::podman::{IMAGE, Podman, Setup};
use crate::world::{A100X4, Install, require};

/// The exit code, and each check by its name: its status and its line.
fn inside(mut command: Command, name: &str) -> (i32, Vec<(String, String, String)>) {
    let ran = run(command.args(["doctor", "--container", name, "--format", "json"]));
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = json["checks"].as_array().unwrap().iter();
    (ran.code, checks.map(|check| (text(&check["name"]), text(&check["status"]), text(&check["line"]))).collect())
}

#[track_caller]
fn says(found: &(i32, Vec<(String, String, String)>), name: &str, status: &str, line: &str) {
    let is_it = |check: &&(String, String, String)| check.0 == name && check.1 == status && check.2.contains(line);
    assert!(found.1.iter().any(|check| is_it(&check)), "{name} is not {status}, {line}: {found:#?}");
}

fn podman(setup: Setup) {
    require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
    let install = Install::new(A100X4, "");
    let podman = Podman::start(&install, setup);
    let gpus = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3", "-e", "CUDA_VISIBLE_DEVICES=3"];
    podman.up("trainer", &gpus, IMAGE);
    let command = || {
        let mut command = podman.command(install.bin("cudaview"));
        command.env("CONTAINERD_ADDRESS", "/nobody/listens/here").env("DOCKER_HOST", "unix:///nobody/listens/here");
        command
    };
    let found = inside(command(), "trainer");
    assert_eq!(found.0, 0, "{found:#?}");
    says(&found, "cudaview", "ok", "decided for host GPU 3");
    says(&found, "nodes", "ok", "are there, with the right numbers");
    // An ordinary user's runtime cannot set any.
    if setup.rootless {
        says(&found, "device rules", "skipped", "nobody enforces any");
    } else {
        says(&found, "device rules", "ok", "they let it open each of them");
    }
    says(&found, "variables", "ok", "has what was decided");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_containers_seen_from_outside() {
    podman(Setup { runtime: "cudaview", ..Setup::PLAIN });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_containers_of_an_ordinary_user_seen_from_outside() {
    podman(Setup { runtime: "cudaview", rootless: true, ..Setup::PLAIN });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_containers_seen_from_outside() {
    require(&["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun", "jq", "nsenter", "unshare", "setpriv"]);
    let containerd = Containerd::start("runc", "");
    containerd.import("default", "box", &[]);
    containerd.up(Door::Cudaview, "looked-into", &GPUS_1_3, "box");
    let command = || {
        let mut command = Command::new(containerd.install.bin("cudaview"));
        command.env("CONTAINERD_ADDRESS", containerd.socket()).env("DOCKER_HOST", "unix:///nobody/listens/here");
        command
    };
    let found = inside(command(), "looked-into");
    assert_eq!(found.0, 0, "{found:#?}");
    says(&found, "cudaview", "ok", "decided for host GPUs 1 and 3");
    for (name, line) in [("nodes", "are there"), ("device rules", "they let it"), ("variables", "what was decided")] {
        says(&found, name, "ok", line);
    }
    let ran = run(command().args(["doctor", "--container", "nobody"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran}");
    assert!(ran.stderr.contains("cudaview: found no container \"nobody\"") && ran.stderr.contains("hint: "), "{ran}");
}
