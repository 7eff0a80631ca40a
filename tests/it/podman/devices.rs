//! Nodes and device rules that come by other ways than CDI, and user namespaces.

use super::{BOTH, Expected, GPUS_1_3, Host, PRECREATE, Setup, WRAPPER};
use crate::world::Access;
use crate::world::podman::IMAGE;

#[track_caller]
fn other_ways(setup: Setup) {
    let host = Host::new(setup, "");
    let check = |flags: &[&str], view: &[usize], nodes: &[usize], value: &str| {
        host.check(flags, IMAGE, &Expected { view, nodes, value });
    };
    check(&["--device", "/dev/nvidia1", "--device", "/dev/nvidia3", "-e", "CUDA_VISIBLE_DEVICES=3"], &[3], &[3], "0");
    check(&[&GPUS_1_3[..], &["--user", "1000:1000", "--read-only"]].concat(), &[1, 3], &[1, 3], "0,1");
    check(&["--device", "nvidia.com/gpu=all", "-e", "CUDA_VISIBLE_DEVICES=2,3"], &[2, 3], &[2, 3], "0,1");

    // A node under another's name: the number says which GPU it is, and the driver looks for it by that.
    check(&["--device", "/dev/nvidia3:/dev/nvidia0"], &[3], &[3], "0");
    let swapped = ["--device", "/dev/nvidia3:/dev/nvidia1", "--device", "/dev/nvidia1:/dev/nvidia3"];
    check(&swapped, &[1, 3], &[1, 3], "0,1");

    // A rule for the whole major number: the container may make what nobody gave it, so nothing is narrowed.
    let flags = [&GPUS_1_3[..], &["--device-cgroup-rule", "c 195:* rmw", "-e", "CUDA_VISIBLE_DEVICES=3"]].concat();
    check(&flags, &[3], &[1, 3], "1");
    let record = host.last_audit();
    assert!(record["findings"].as_array().unwrap().iter().any(|f| f["code"] == "cannot-narrow"), "{record}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_other_ways_to_a_node() {
    other_ways(WRAPPER);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_other_ways_to_a_node() {
    other_ways(PRECREATE);
}

/// The host's whole `/dev` is in the container; what was not granted can be seen there and not opened.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_the_hosts_dev() {
    let host = Host::new(BOTH, "");
    let flags = [&GPUS_1_3[..], &["-v", "/dev:/dev", "--cap-add", "MKNOD", "-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat();
    let count = host.podman.count(&flags, IMAGE);
    assert_eq!(count.nodes.len(), 4, "{count:?}");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
    host.podman.up("one", &flags, IMAGE);
    let access = [0, 1, 2, 3].map(|minor| host.podman.try_mknod("one", minor));
    assert_eq!(access, [Access::Blocked, Access::Openable, Access::Blocked, Access::Openable]);
}

/// With a user namespace nodes are bind mounts.
#[track_caller]
fn mapped(setup: Setup, config: &str) {
    let host = Host::new(setup, config);
    let map = ["--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536"];
    for more in [&[][..], &["--user", "1000:1000"]] {
        let check = |flags: &[&str], view: &[usize], nodes: &[usize], value: &str| {
            host.check(&[&GPUS_1_3, &map[..], more, flags].concat(), IMAGE, &Expected { view, nodes, value });
        };
        check(&["-e", "CUDA_VISIBLE_DEVICES=1,3"], &[1, 3], &[1, 3], "0,1");
        check(&["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], &[3], "0");
    }
    // Nobody put these nodes there but us.
    let flags = [&map[..], &["-e", "NVIDIA_VISIBLE_DEVICES=2"]].concat();
    host.check(&flags, IMAGE, &Expected { view: &[2], nodes: &[2], value: "0" });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_with_a_user_namespace_on_runc() {
    mapped(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_with_a_user_namespace_on_crun() {
    mapped(WRAPPER, "low_level_runtime = [\"crun\"]");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_with_a_user_namespace() {
    mapped(PRECREATE, "");
}
