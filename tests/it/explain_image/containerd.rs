//! containerd's images, as root: who may talk to its socket.

use std::process::Command;

use serde_json::Value;

use super::{ask, set_by};
use crate::world::command::run;
use crate::world::containerd::Containerd;
use crate::world::require;

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_image_containerd() {
    require(&["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun", "jq"]);
    let containerd = Containerd::start("runc", "");
    containerd.import("default", "cvd-0", &["PATH=/bin", "CUDA_VISIBLE_DEVICES=0"]);
    let command = || {
        let mut command = Command::new(containerd.install.bin("cudaview"));
        command.env("CONTAINERD_ADDRESS", containerd.socket()).env("DOCKER_HOST", "unix:///nobody/listens/here");
        command.env("CONTAINERS_STORAGE_CONF", "/nobody/is/here").env("COLUMNS", "1000");
        command
    };
    let answer = ask(command(), "cvd-0");
    assert_eq!(answer["image"]["place"], "in containerd's store", "{answer:#}");
    // What was imported has no history.
    assert_eq!(set_by(&answer, "CUDA_VISIBLE_DEVICES"), ("0", None, None), "{answer:#}");
    let mut typed = command();
    typed.args(["explain", "--format", "json", "--", "nerdctl", "run", "--gpus", "all", "docker.io/library/cvd-0"]);
    let answer: Value = serde_json::from_str(&run(&mut typed).ok().stdout).unwrap();
    // A runtime cannot be told whose it is there, and a value of nobody's in particular narrows.
    assert_eq!(answer["provenance"]["CUDA_VISIBLE_DEVICES"], "unknown", "{answer:#}");
    assert_eq!(answer["visible"].as_array().unwrap().len(), 1, "{answer:#}");
    let mut typed = command();
    typed.args(["explain", "--", "nerdctl", "--namespace=k8s.io", "run", "--gpus", "all", "cvd-0"]);
    let ran = run(&mut typed).ok();
    assert!(ran.stdout.contains("namespace k8s.io (no such image)"), "{ran}");
}
