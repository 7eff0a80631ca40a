//! podman as an ordinary user: the same results, with bind mounts and no device rules.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use super::{Expected, GPUS_1_3, Host, PLAIN, PRECREATE, Setup, WRAPPER};
use crate::world::podman::IMAGE;

#[track_caller]
fn rootless(setup: Setup, config: &str) {
    let setup = Setup { rootless: true, ..setup };
    let host = Host::new(setup, config);
    host.podman.import("cvd-0", &["ENV CUDA_VISIBLE_DEVICES=0"]);
    let check = |flags: &[&str], image: &str, view: &[usize], value: &str| {
        host.check(flags, image, &Expected { view, nodes: view, value });
    };
    check(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat(), IMAGE, &[1, 3], "0,1");
    check(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE, &[3], "0");
    check(&GPUS_1_3, "cvd-0", &[1, 3], "0,1");
    // A raw --device is a bind mount there.
    check(&["--device", "/dev/nvidia1", "--device", "/dev/nvidia3", "-e", "CUDA_VISIBLE_DEVICES=3"], IMAGE, &[3], "0");
    check(&["-e", "NVIDIA_VISIBLE_DEVICES=2"], IMAGE, &[2], "0");
    check(&[&GPUS_1_3[..], &["--userns", "keep-id", "-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE, &[3], "0");
    let ran = host.podman.run(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=5"]].concat(), IMAGE, &["true"]);
    assert!(ran.failed_with(126).stderr.contains("names none of the granted GPUs"));
    if setup.runtime == "cudaview" {
        host.podman.up("one", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), IMAGE);
        let count = host.podman.exec_count(&[], "one");
        host.compare(&count, &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" }, "exec");
        let count = host.podman.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=3"], "one");
        host.compare(&count, &Expected { view: &[3], nodes: &[1, 3], value: "1" }, "exec -e");
        // podman's own rules, which nobody can enforce there, are left as they are; none is added.
        let ours = |name: &str| {
            let rules = host.podman.spec_of(name)["linux"]["resources"]["devices"].clone();
            let rules = rules.as_array().cloned().unwrap_or_default();
            rules.into_iter().filter(|rule| rule["access"] == "rw").collect::<Vec<_>>()
        };
        assert_eq!(ours("one"), [Value::Null; 0]);
        host.podman.up("two", &["-e", "NVIDIA_VISIBLE_DEVICES=2"], IMAGE);
        assert_eq!(ours("two"), [Value::Null; 0]);
    }
    assert_eq!(host.podman.strays(), [""; 0], "files outside the user's own directories");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_without_cudaview_counts_two_ways() {
    let host = Host::new(Setup { rootless: true, ..PLAIN }, "");
    let count = host.podman.count(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat(), IMAGE);
    assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{count:?}");
    assert_eq!(count.cuda, host.uuids_of(&[3]), "{count:?}");
    let storage = host.podman.path().join("storage");
    assert_ne!(Path::new(&storage).metadata().unwrap().uid(), 0, "it is the user's podman");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_wrapper_on_runc() {
    rootless(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_wrapper_on_crun() {
    rootless(WRAPPER, "low_level_runtime = [\"crun\"]");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_precreate() {
    rootless(PRECREATE, "");
}
