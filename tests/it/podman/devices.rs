//! Nodes and device rules that come by other ways than CDI, and user namespaces.

use super::{BOTH, Expected, GPUS_1_3, Host, PRECREATE, Setup, WRAPPER};
use crate::world::Access;
use crate::world::count::{COUNT, Count};
use crate::world::podman::IMAGE;

const CRUN: &str = "low_level_runtime = [\"crun\"]";
const PRECREATE_ON_CRUN: Setup = Setup { runtime: "crun", ..PRECREATE };

#[track_caller]
fn other_ways(setup: Setup, config: &str) {
    let host = Host::new(setup, config);
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
fn podman_wrapper_other_ways_to_a_node_on_runc() {
    other_ways(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_other_ways_to_a_node_on_crun() {
    other_ways(WRAPPER, CRUN);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_other_ways_to_a_node_on_runc() {
    other_ways(PRECREATE, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_other_ways_to_a_node_on_crun() {
    other_ways(PRECREATE_ON_CRUN, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_other_ways_to_a_node() {
    other_ways(BOTH, CRUN);
}

/// The host's whole `/dev` is in the container; what was not granted, or narrowed away, can be seen there and not opened.
#[track_caller]
fn hosts_dev(setup: Setup, config: &str) {
    let host = Host::new(setup, config);
    for (value, view, emitted, name) in [("1,3", &[1, 3][..], "0,1", "two"), ("3", &[3], "0", "one")] {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        let flags = [&GPUS_1_3[..], &["-v", "/dev:/dev", "--cap-add", "MKNOD", "-e", &value]].concat();
        let count = host.podman.count(&flags, IMAGE);
        assert_eq!(count.nodes.len(), 4, "{count:?}");
        assert_eq!((&count.cuda, &count.nvml), (&host.uuids_of(view), &host.uuids_of(view)), "{count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted, "{count:?}");
        host.podman.up(name, &flags, IMAGE);
        for minor in 0..4 {
            let expected = if view.contains(&minor) { Access::Openable } else { Access::Blocked };
            let access = host.podman.try_mknod(name, u32::try_from(minor).unwrap());
            assert_eq!(access, expected, "{value}: GPU {minor}");
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_the_hosts_dev_on_runc() {
    hosts_dev(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_the_hosts_dev_on_crun() {
    hosts_dev(WRAPPER, CRUN);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_the_hosts_dev() {
    hosts_dev(PRECREATE, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_the_hosts_dev() {
    hosts_dev(BOTH, "");
}

/// Where no rules are enforced, what can be seen can be opened: the numbers are positions among all of it.
#[track_caller]
fn hosts_dev_rootless(setup: Setup) {
    let host = Host::new(Setup { rootless: true, ..setup }, "");
    // A record that podman's user can write.
    let audit = host.podman.path().join("home/audit.jsonl");
    let config = std::fs::read_to_string(host.install.config()).unwrap();
    let before = host.install.audit();
    assert!(config.contains(before.to_str().unwrap()), "{config}");
    host.install.configure(&config.replace(before.to_str().unwrap(), audit.to_str().unwrap()));
    for (value, view, emitted) in [("1,3", &[1, 3][..], "1,3"), ("3", &[3], "3"), ("0", &[1], "1")] {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        let count = host.podman.count(&[&GPUS_1_3[..], &["-v", "/dev:/dev", "-e", &value]].concat(), IMAGE);
        assert_eq!((&count.cuda, count.nodes.len()), (&host.uuids_of(view), 4), "{value}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted, "{value}: {count:?}");
        let records = std::fs::read_to_string(&audit).unwrap();
        assert!(records.lines().last().unwrap().contains("\"cannot-narrow\""), "{records}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_the_hosts_dev() {
    hosts_dev_rootless(WRAPPER);
    hosts_dev_rootless(PRECREATE);
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

/// CDI names no mode, and crun takes none for 0 there: what was given cannot be opened but by root.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_without_cudaview_a_user_namespace_on_crun_has_nodes_that_a_user_cannot_open() {
    let map = ["--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536", "--user", "1000:1000"];
    for (runtime, view) in [("crun", &[][..]), ("runc", &[1, 3])] {
        let host = Host::new(Setup { runtime, ..PRECREATE }, "");
        let count = Count::of(host.podman.plainly(runtime, &[&GPUS_1_3, &map[..]].concat(), IMAGE, &COUNT));
        assert_eq!((&count.cuda, count.nodes.len()), (&host.uuids_of(view), 2), "{runtime}: {count:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_with_a_user_namespace_on_runc() {
    mapped(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_with_a_user_namespace_on_crun() {
    mapped(WRAPPER, CRUN);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_with_a_user_namespace_on_runc() {
    mapped(PRECREATE, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_with_a_user_namespace_on_crun() {
    mapped(PRECREATE_ON_CRUN, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_with_a_user_namespace() {
    mapped(BOTH, CRUN);
}
