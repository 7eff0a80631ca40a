//! The same containers through the wrapper, the precreate hook, and both.

use super::{BOTH, Expected, GPUS_1_3, Host, PRECREATE, Setup, WRAPPER};
use crate::world::CUDA_ERROR_NO_DEVICE;
use crate::world::podman::IMAGE;

/// What `podman run` gives is the same through every door.
#[track_caller]
fn numbers(setup: Setup, config: &str) {
    let host = Host::new(setup, config);
    host.podman.import("cvd-0", &["ENV CUDA_VISIBLE_DEVICES=0"]);
    let check = |flags: &[&str], image: &str, view: &[usize], nodes: &[usize], value: &str| {
        host.check(&[&GPUS_1_3, flags].concat(), image, &Expected { view, nodes, value });
    };
    check(&[], IMAGE, &[1, 3], &[1, 3], "0,1");
    check(&["-e", "CUDA_VISIBLE_DEVICES=1,3"], IMAGE, &[1, 3], &[1, 3], "0,1");
    check(&["-e", "CUDA_VISIBLE_DEVICES=3,1"], IMAGE, &[3, 1], &[1, 3], "1,0");
    check(&["-e", "CUDA_VISIBLE_DEVICES=3"], IMAGE, &[3], &[3], "0");
    // The image's default yields to GPUs that were named; the same value as a user's is the image's.
    check(&[], "cvd-0", &[1, 3], &[1, 3], "0,1");
    check(&["-e", "CUDA_VISIBLE_DEVICES=1"], "cvd-0", &[3], &[3], "0");
    let count = host.podman.count(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=-1"]].concat(), IMAGE);
    assert_eq!((count.cuda_error, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (CUDA_ERROR_NO_DEVICE, "-1"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_numbers_on_runc() {
    numbers(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_numbers_on_crun() {
    numbers(WRAPPER, "low_level_runtime = [\"crun\"]");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_numbers_on_runc() {
    numbers(PRECREATE, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_numbers_on_crun() {
    numbers(Setup { runtime: "crun", ..PRECREATE }, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_numbers() {
    numbers(BOTH, "");
}
