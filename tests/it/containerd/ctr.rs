//! `ctr run`: who set a variable cannot be told, so a user's value and an image's are treated alike.

use super::{Expected, GPUS_1_3, Host, IMAGE, IMAGE_CVD_0, UNKNOWN_IS_USER, Version, with_env};
use crate::world::containerd::Door;

/// The bug, before anything is done about it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_containerd_ctr_counts_two_ways() {
    let host = Host::for_ctr("runc", "");
    let check = |flags: &[&str], image: &str, view: &[usize]| {
        let count = host.containerd.count(Door::Plain, &[&GPUS_1_3, flags].concat(), image);
        assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{count:?}");
        assert_eq!(count.cuda, host.uuids_of(view), "{flags:?} {image}: {count:?}");
    };
    check(&[], IMAGE, &[1, 3]);
    check(&["--env", "CUDA_VISIBLE_DEVICES=1,3"], IMAGE, &[3]);
    check(&["--env", "CUDA_VISIBLE_DEVICES=3,1"], IMAGE, &[]);
    check(&["--env", "CUDA_VISIBLE_DEVICES=3"], IMAGE, &[]);
    check(&[], IMAGE_CVD_0, &[1]);
}

#[track_caller]
fn views(low_level: &str) {
    let host = Host::for_ctr(low_level, "");
    let check = |value: &str, view: &[usize], nodes: &[usize], emitted: &str| {
        let entry = format!("CUDA_VISIBLE_DEVICES={value}");
        let flags = with_env(&GPUS_1_3, &entry);
        host.check(&flags, IMAGE, &Expected { view, nodes, value: emitted });
        assert_eq!(host.last_audit()["provenance"], "unknown");
    };
    host.check(&GPUS_1_3, IMAGE, &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    check("1,3", &[1, 3], &[1, 3], "0,1");
    check("3,1", &[3, 1], &[1, 3], "1,0");
    check("3", &[3], &[3], "0");
    check("1", &[3], &[3], "0");
    check("-1", &[], &[1, 3], "-1");
    check("all", &[1, 3], &[1, 3], "0,1");
    check(&host.uuids[3], &[3], &[3], "0");
    // An image's default is a value like a user's here.
    host.check(&GPUS_1_3, IMAGE_CVD_0, &Expected { view: &[1], nodes: &[1], value: "0" });
    host.check(
        &with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=3"),
        IMAGE_CVD_0,
        &Expected { view: &[3], nodes: &[3], value: "0" },
    );
    assert_eq!(host.containerd.things(), [""; 0]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_views() {
    views("runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_views_on_crun() {
    views("crun");
}

/// A container is never stopped for a value whose author is not known.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_grants_with_a_warning_where_a_value_names_nothing() {
    let host = Host::for_ctr("runc", "");
    let expected = Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" };
    host.check(&with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=2"), IMAGE, &expected);
    let record = host.last_audit();
    assert_eq!((&record["verdict"], &record["provenance"]), (&"rewritten".into(), &"unknown".into()), "{record}");
    let finding = &record["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["severity"]),
        (&"override-matches-nothing".into(), &"warning".into()),
        "{record}"
    );
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_ignores_a_variable_unless_it_is_told_to_trust_it() {
    let host = Host::for_ctr("runc", "");
    let flags = with_env(&["--env", "NVIDIA_VISIBLE_DEVICES=1,3"], "CUDA_VISIBLE_DEVICES=3");
    let count = host.containerd.count(Door::Cudaview, &flags, IMAGE);
    assert_eq!((count.nodes.len(), count.env["CUDA_VISIBLE_DEVICES"].as_str()), (0, "3"), "{count:?}");
    assert_eq!(count.env.get("CUDAVIEW_HOST_GPUS"), None);
    let record = host.last_audit();
    assert_eq!(record["verdict"], "not-applicable");
    assert_eq!(record["findings"][0]["code"], "image-request-ignored", "{record}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_grants_by_a_variable_where_it_is_told_to_trust_it() {
    let host = Host::for_ctr("runc", UNKNOWN_IS_USER);
    let asked = |gpus: &'static str| ["--env", gpus];
    let expected = Expected { view: &[3], nodes: &[3], value: "0" };
    host.check(&with_env(&asked("NVIDIA_VISIBLE_DEVICES=1,3"), "CUDA_VISIBLE_DEVICES=3"), IMAGE, &expected);
    let expected = Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" };
    host.check(&asked("NVIDIA_VISIBLE_DEVICES=1,3"), IMAGE, &expected);
    // Nodes are the engine's word, and outrank it.
    let expected = Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" };
    host.check(&with_env(&GPUS_1_3, "NVIDIA_VISIBLE_DEVICES=2"), IMAGE, &expected);

    let ran = host.containerd.run(Door::Cudaview, &asked("NVIDIA_VISIBLE_DEVICES=7"), IMAGE, &["true"]);
    let ran = ran.failed_with(1);
    let text = "ctr: failed to create shim task: OCI runtime create failed: \
        cudaview: refused, no such GPU: \"7\"; this host has GPUs 0 to 3\n";
    assert!(ran.stderr.contains(text), "{ran}");
    assert_eq!(host.last_audit()["verdict"], "refused");
}

/// containerd 2 reads CDI specifications for `ctr`; earlier ones take the name for a file's.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_grants_by_cdi() {
    let host = Host::for_ctr("runc", "");
    let gpus = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];
    if host.containerd.version() < Version(2, 0) {
        let ran = host.containerd.run(Door::Cudaview, &gpus, IMAGE, &["true"]).failed_with(1);
        assert!(ran.stderr.contains("nvidia.com/gpu=1: no such file or directory"), "{ran}");
        return;
    }
    let flags = with_env(&gpus, "CUDA_VISIBLE_DEVICES=3");
    let count = host.containerd.count(Door::Plain, &flags, IMAGE);
    assert_eq!((count.cuda.len(), count.nodes.len()), (0, 2), "the bug is gone: {count:?}");
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "void");
    host.check(&flags, IMAGE, &Expected { view: &[3], nodes: &[3], value: "0" });
    host.check(
        &with_env(&gpus, "CUDA_VISIBLE_DEVICES=3,1"),
        IMAGE,
        &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" },
    );
}
