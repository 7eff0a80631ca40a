//! What the person at the terminal reads.

use super::{BOTH, GPUS_1_3, Host, PRECREATE, Setup, WRAPPER};
use crate::world::podman::IMAGE;

const FIRST_LINE: &str = "cudaview: refused, CUDA_VISIBLE_DEVICES=\"5\" names none of the granted GPUs";

#[track_caller]
fn refused(setup: Setup) {
    let host = Host::new(setup, "");
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=5"]].concat();
    let ran = host.podman.run(&flags, IMAGE, &["true"]).failed_with(126);
    assert!(ran.stderr.contains(FIRST_LINE), "{ran}");
    assert!(ran.stderr.contains("hint: for host GPUs 1 and 3, leave CUDA_VISIBLE_DEVICES out"), "{ran}");
    if setup.precreate {
        assert!(ran.stderr.contains("(the reason: above, or in the audit record)"), "{ran}");
        let place = format!("; recorded in {})", host.install.audit().display());
        assert!(ran.stderr.contains(&place), "{place}: {ran}");
    }
    let record = host.last_audit();
    assert_eq!(
        (record["verdict"].as_str(), record["provenance"].as_str()),
        (Some("refused"), Some("user")),
        "{record}"
    );
    assert_eq!(record["engine"], "podman");
    assert_eq!(record["image"], "localhost/box:latest");
    // The next container is none the worse for it.
    host.podman.run(&GPUS_1_3, IMAGE, &["true"]).ok();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_refuses() {
    refused(WRAPPER);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_refuses() {
    refused(PRECREATE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_refuse() {
    refused(BOTH);
}

/// The whole text, through podman.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_shows_a_refusal_whole() {
    let text = "cudaview: refused, CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs\n  \
        --device nvidia.com/gpu=0 grants host GPU 0, which is number 0 inside\n  \
        -e CUDA_VISIBLE_DEVICES=\"1\" is neither that number nor that host GPU\n  \
        hint: for host GPU 1, --device nvidia.com/gpu=1 and no CUDA_VISIBLE_DEVICES\n  \
        hint: for host GPU 0, leave CUDA_VISIBLE_DEVICES out\n  \
        (more: cudaview explain override-matches-nothing";
    for setup in [WRAPPER, PRECREATE] {
        let host = Host::new(setup, "");
        let flags = ["--device", "nvidia.com/gpu=0", "-e", "CUDA_VISIBLE_DEVICES=1"];
        let ran = host.podman.run(&flags, IMAGE, &["true"]).failed_with(126);
        assert!(ran.stderr.contains(text), "{ran}");
    }
}

/// What is no decision has no audit record: the terminal is all there is.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_says_why_it_failed() {
    let host = Host::new(PRECREATE, "");
    host.install.configure("no-such-key = 1\n");
    let ran = host.podman.run(&GPUS_1_3, IMAGE, &["true"]).failed_with(126);
    for words in ["cudaview: failed to read the configuration", "no-such-key"] {
        assert!(ran.stderr.contains(words), "{words}: {ran}");
    }
}
