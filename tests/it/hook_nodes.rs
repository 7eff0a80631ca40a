//! `cudaview-hook createRuntime` with an explicit list of nodes, under real runc and crun.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what went wrong by panicking")]

pub(crate) mod bundle;
mod process;
mod surroundings;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use bundle::{Bundle, started, texts};

use crate::world::mounts::mounts_below;

pub(crate) const HOOK: &str = env!("CARGO_BIN_EXE_cudaview-hook");
pub(crate) const GPU1: &str = "/dev/nvidia1=195:1";

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_missing_node_is_made_with_its_mode_and_owner() {
    let mut bundle = Bundle::new();
    bundle.hook(&["--node", GPU1, "--node=/dev/nvidia-caps/nvidia-cap2=236:2"]);
    let out = bundle.starts();
    assert!(out.contains("/dev/nvidia1 c3:1 666 0:0\n"), "{out}");
    assert!(out.contains("/dev/nvidia-caps/nvidia-cap2 ec:2 666 0:0\n"), "{out}");
    // Making the node is not granting it: the cgroup decides, and here it has no rule.
    assert!(out.contains("not permitted"), "{out}");
    bundle.allow_gpu1();
    let out = bundle.starts();
    assert!(out.contains("No such device or address"), "{out}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_node_that_is_there_is_left_as_it_is() {
    let mut bundle = Bundle::new();
    let node =
        json!({"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1, "fileMode": 0o640, "uid": 7, "gid": 8});
    bundle.push("/linux/devices", node);
    bundle.hook(&["--node", GPU1]);
    assert!(bundle.starts().contains("/dev/nvidia1 c3:1 640 7:8\n"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn another_number_is_refused() {
    let mut bundle = Bundle::new();
    bundle.push("/linux/devices", json!({"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 7}));
    bundle.hook(&["--node", GPU1]);
    let message = bundle.refused();
    assert!(message.contains("expected a character device 195:1, found a character device 195:7"), "{message}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn whatever_is_no_device_is_refused_unopened() {
    let node = "$R/dev/nvidia1";
    for (script, found) in [
        (format!("mkfifo {node}"), "a FIFO"),
        (format!("ln -s /canary {node}"), "a symbolic link"),
        (format!("ln -s null {node}"), "a symbolic link"),
        (format!("ln -s /proc/1/root/dev/null {node}"), "a symbolic link"),
        (format!("mkdir {node}"), "a directory"),
        (format!("echo x > {node}"), "a regular file"),
        (format!("mknod {node} b 195 1"), "a block device 195:1"),
    ] {
        let mut bundle = Bundle::new();
        bundle.before(&script);
        bundle.hook(&["--node", GPU1]);
        let message = bundle.refused();
        assert!(message.contains(&format!("found {found}")), "{script}: {message}");
        assert!(!bundle.path("rootfs/canary").exists() && !Path::new("/canary").exists());
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn folders_of_nodes_are_not_followed_either() {
    let cap = "--node=/dev/nvidia-caps/nvidia-cap2=236:2";
    for (script, name) in [
        ("ln -s ../outside $R/dev/nvidia-caps", "stands in the way"),
        ("ln -s CANARY $R/dev/nvidia-caps", "stands in the way"),
        ("echo > $R/dev/nvidia-caps", "stands in the way"),
        ("mkdir $R/dev/nvidia-caps && mount -t tmpfs none $R/dev/nvidia-caps", "EXDEV"),
    ] {
        let mut bundle = Bundle::new();
        let canary = bundle.path("canary");
        fs::create_dir(&canary).unwrap();
        fs::create_dir(bundle.path("rootfs/outside")).unwrap();
        bundle.before(&script.replace("CANARY", &canary.display().to_string()));
        bundle.hook(&[cap]);
        let message = bundle.refused();
        assert!(message.contains(name), "{script}: {message}");
        assert_eq!(fs::read_dir(&canary).unwrap().count(), 0);
        assert_eq!(fs::read_dir(bundle.path("rootfs/outside")).unwrap().count(), 0);
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_dev_that_is_a_link_is_refused() {
    for target in ["outside", "/outside", "../../../../../../outside"] {
        let mut bundle = Bundle::new();
        let outside = bundle.path("rootfs/outside");
        fs::create_dir(&outside).unwrap();
        // Swapped late: runc 1.1.5 itself trips over a link that was there from the start.
        bundle.before(&format!("umount -l $R/dev && rmdir $R/dev && ln -s {target} $R/dev"));
        bundle.hook(&["--node", GPU1]);
        let message = bundle.refused();
        assert!(message.contains("in the container: a symbolic link"), "{message}");
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_dev_of_the_image_itself_is_only_verified() {
    let mut bundle = Bundle::new();
    bundle.config["mounts"].as_array_mut().unwrap().remove(1);
    bundle.hook(&["--node", GPU1]);
    let message = bundle.refused();
    assert!(message.contains("cannot be made there: its /dev is the image's own directory"), "{message}");
    assert!(!bundle.path("rootfs/dev/nvidia1").exists());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_dev_of_the_host_is_only_verified() {
    let mut bundle = Bundle::new();
    let host_dev = bundle.path("host-dev");
    fs::create_dir(&host_dev).unwrap();
    bundle.config["mounts"][1] =
        json!({"destination": "/dev", "type": "bind", "source": host_dev, "options": ["rbind", "rw"]});
    bundle.hook(&["--node", GPU1]);
    // A private mount namespace, in which the tmpfs stands for the host's /dev.
    let run = |make: &str| {
        let script = format!(
            "mount -t tmpfs none {dev} && {{ cd {dev} && mknod null c 1 3 && chmod 666 null && {make}; }} && \
             {{ \"$@\"; rc=$?; echo \"host: $(echo {dev}/*)\"; exit $rc; }}",
            dev = host_dev.display(),
        );
        bundle.run(&["unshare", "-m", "--propagation", "private", "sh", "-c", &script, "sh", "runc"])
    };
    let (out, err) = texts(&run("true"));
    assert!(err.contains("cannot be made there: its /dev is mounted on the host too"), "{out}\n{err}");
    assert!(out.contains(&format!("host: {}/null\n", host_dev.display())), "{out}");
    let (out, err) = texts(&run("mknod nvidia1 c 195 1"));
    assert!(out.contains("/dev/nvidia1 c3:1") && out.contains("started"), "{out}\n{err}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_shared_dev_is_only_verified() {
    let mut bundle = Bundle::new();
    bundle.before("mount --make-shared $R/dev");
    bundle.hook(&["--node", GPU1]);
    let message = bundle.refused();
    assert!(message.contains("its /dev is shared with other mount namespaces"), "{message}");
}

/// Maps the container's ids 0.. to 100000.., and makes a host `/dev` for the binds.
pub(crate) fn with_user_namespace(bundle: &mut Bundle, minor: u32) -> String {
    bundle.push("/linux/namespaces", json!({"type": "user"}));
    let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    bundle.config["linux"]["uidMappings"] = map.clone();
    bundle.config["linux"]["gidMappings"] = map;
    let root = bundle.path("dev-root");
    fs::create_dir_all(root.join("dev/nvidia-caps")).unwrap();
    for (name, major, minor) in [("nvidia1", 195, minor), ("nvidia-caps/nvidia-cap2", 236, 2)] {
        let node = root.join("dev").join(name);
        let (major, minor) = (format!("{major}"), format!("{minor}"));
        let made = Command::new("mknod").args(["-m", "666"]).arg(&node).args(["c", &major, &minor]).status();
        assert!(made.unwrap().success());
        assert!(fs::symlink_metadata(&node).unwrap().file_type().is_char_device());
    }
    format!("--dev-root={}", root.display())
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn in_a_user_namespace_the_hosts_node_is_bound() {
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 1);
    bundle.allow_gpu1();
    bundle.hook(&["--node", GPU1, "--node=/dev/nvidia-caps/nvidia-cap2=236:2", &dev_root]);
    let out = bundle.starts();
    assert!(out.contains("/dev/nvidia1 c3:1 666 65534:65534\n"), "{out}");
    assert!(out.contains("/dev/nvidia-caps/nvidia-cap2 ec:2 666 65534:65534\n"), "{out}");
    assert!(out.contains("No such device or address"), "{out}");
    // Other tests mount and unmount in the same namespace.
    let left = mounts_below(&bundle.path(""));
    assert!(left.is_empty(), "left on the host: {left:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn in_a_user_namespace_the_hosts_node_must_be_the_right_one() {
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 9);
    bundle.hook(&["--node", GPU1, &dev_root]);
    let message = bundle.refused();
    assert!(
        message.contains("from the host: expected a character device 195:1, found a character device 195:9"),
        "{message}"
    );
    let mut bundle = Bundle::new();
    with_user_namespace(&mut bundle, 1);
    bundle.hook(&["--node", GPU1]);
    let message = bundle.refused();
    assert!(message.contains("on the host: openat2: ENOENT"), "{message}");
}

/// crun 1.8.1 does not start on a host that mounts both cgroup versions.
pub(crate) const CRUN: [&str; 7] = [
    "unshare",
    "-m",
    "--propagation",
    "private",
    "sh",
    "-c",
    "mount -t tmpfs none /sys/fs/cgroup/unified 2>/dev/null; exec crun \"$@\"",
];

/// T29.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn under_crun_with_a_long_state() {
    let mut bundle = Bundle::new();
    bundle.allow_gpu1();
    // crun dies of SIGPIPE when a hook leaves a long state unread.
    bundle.config["annotations"] = json!({"note": "x".repeat(200_000)});
    bundle.hook(&["--node", GPU1]);
    let out = started(&bundle.run(&[&CRUN[..], &["crun"]].concat()));
    assert!(out.contains("/dev/nvidia1 c3:1 666 0:0\n"), "{out}");
    assert!(out.contains("No such device or address"), "{out}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn under_crun_in_a_user_namespace_and_refused() {
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 1);
    bundle.allow_gpu1();
    bundle.hook(&["--node", GPU1, &dev_root]);
    let out = started(&bundle.run(&[&CRUN[..], &["crun"]].concat()));
    assert!(out.contains("/dev/nvidia1 c3:1 666 65534:65534\n"), "{out}");
    let mut bundle = Bundle::new();
    bundle.push(
        "/linux/devices",
        json!({"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 7, "fileMode": 438}),
    );
    bundle.hook(&["--node", GPU1]);
    let (out, err) = texts(&bundle.run(&[&CRUN[..], &["crun"]].concat()));
    assert!(err.contains("exit code: 1") && !out.contains("started"), "{out}\n{err}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_rootless_runtime_and_its_container_share_a_user_namespace() {
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 1);
    // As under rootless podman: the runtime is root in a namespace already, and the container gets no second one.
    let linux = bundle.config["linux"].as_object_mut().unwrap();
    for member in ["uidMappings", "gidMappings", "cgroupsPath", "resources"] {
        linux.remove(member);
    }
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().pop();
    bundle.hook(&["--node", GPU1, "--node=/dev/nvidia-caps/nvidia-cap2=236:2", &dev_root]);
    let out = started(&bundle.run(&["unshare", "-r", "-m", "--propagation", "private", "runc", "--rootless", "true"]));
    assert!(out.contains("/dev/nvidia1 c3:1 666 ") && out.contains("/dev/nvidia-caps/nvidia-cap2 ec:2"), "{out}");
}
