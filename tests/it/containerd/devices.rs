//! Nodes under other names, the host's whole `/dev`, and user namespaces.

use super::{Expected, GPUS_1_3, Host, IMAGE, UNKNOWN_IS_USER, Version, with_env};
use crate::world::containerd::Door;
use crate::world::count::{Access, COUNT, Count};
use crate::world::cri::messages::Mount;
use crate::world::cri::{Channel, container};
use crate::world::only_cgroup_v2;

/// The flags by which a container's ids are others on the host.
const USER_NAMESPACE: [&str; 4] = ["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"];

/// A device plugin may put a node under any name: the number says which GPU it is.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_nodes_under_other_names() {
    let host = Host::for_pods("runc", "");
    let pod = host.containerd.pod("cudaview");
    let check = |nodes: &[(usize, usize)], view: &[usize], value: &str| {
        let minors: Vec<u32> = nodes.iter().map(|(minor, _)| u32::try_from(*minor).unwrap()).collect();
        let mut config = container(IMAGE, &minors, Channel::Devices, &[]);
        for (device, (_, name)) in config.devices.iter_mut().zip(nodes) {
            device.container_path = format!("/dev/nvidia{name}");
        }
        let nodes = view;
        host.compare(&pod.count(&config), &Expected { view, nodes, value }, &format!("{minors:?}"));
    };
    check(&[(3, 0)], &[3], "0");
    check(&[(3, 1), (1, 3)], &[1, 3], "0,1");
}

/// What was not granted can be seen there, and not opened.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_the_hosts_dev() {
    let host = Host::for_pods("runc", "");
    let pod = host.containerd.pod("cudaview");
    let mut config = container(IMAGE, &[1, 3], Channel::Devices, &["CUDA_VISIBLE_DEVICES=1,3"]);
    let dev = || "/dev".to_owned();
    config.mounts.push(Mount { container_path: dev(), host_path: dev(), readonly: false });
    let id = pod.up(&config);
    let count = pod.exec_count(&id);
    assert_eq!(count.nodes.len(), 4, "{count:?}");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
    let access = [0, 1, 2, 3].map(|minor| pod.try_mknod(&id, minor));
    assert_eq!(access, [Access::Blocked, Access::Openable, Access::Blocked, Access::Openable]);
}

/// In a user namespace crun tells the hook that the bundle is `/` and the root `rootfs`, so the wrapper says where it is.
#[track_caller]
fn user_namespace(low_level: &str) {
    let host = Host::for_ctr(low_level, UNKNOWN_IS_USER);
    let flags = [&USER_NAMESPACE[..], &with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=3,1")].concat();
    if host.containerd.version() < Version(2, 0) {
        return forgotten(&host, &flags);
    }
    host.containerd.up(Door::Cudaview, "remapped", &flags, IMAGE);
    let map = host.containerd.exec("remapped", &["cat", "/proc/self/uid_map"]).ok().stdout;
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
    let count = host.containerd.exec_count("remapped");
    host.compare(&count, &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" }, "exec");
    assert_eq!(host.containerd.try_mknod("remapped", 1), Access::NoNode);
    let seen = host.containerd.seen("remapped");
    assert_eq!(seen["root"]["path"], "rootfs");
    let told = format!("--root={}/rootfs", host.containerd.bundle("remapped").display());
    let arguments = seen["hooks"]["createRuntime"][0]["args"].as_array().unwrap();
    assert!(arguments.contains(&told.as_str().into()), "{told} in {arguments:?}");

    // Nobody put these nodes there but us.
    let flags = [&USER_NAMESPACE[..], &["--env", "NVIDIA_VISIBLE_DEVICES=2"]].concat();
    host.check(&flags, IMAGE, &Expected { view: &[2], nodes: &[2], value: "0" });
}

/// Beside maps `ctr` 1 forgets `--runc-binary`: runc from the PATH makes the container, or does not, where cgroup
/// version 2 has no controllers. cudaview is not asked.
#[track_caller]
fn forgotten(host: &Host, flags: &[&str]) {
    let ran = host.containerd.run(Door::Cudaview, flags, IMAGE, &COUNT);
    if only_cgroup_v2() {
        assert!(ran.clone().failed_with(1).stderr.contains("cpu.weight"), "{ran}");
    } else {
        assert_eq!(Count::of(ran).env["CUDA_VISIBLE_DEVICES"], "3,1");
    }
    assert!(host.containerd.install.audit_records().is_empty());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_in_a_user_namespace() {
    user_namespace("runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_in_a_user_namespace_on_crun() {
    user_namespace("crun");
}
