//! The container's `/dev`: a link in the image, or the host's own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use serde_json::json;

use crate::hook_nodes::bundle::{Bundle, texts};
use crate::hook_nodes::{CRUN, GPU1, with_user_namespace};
use crate::world::require;

/// In a script: `$P COMMAND` runs as the root of a user namespace, which alone can make anything in its tmpfs.
pub(crate) const AS_ITS_ROOT: &str = "P='setpriv --reuid 100000 --regid 100000 --clear-groups'";

/// Runs an image whose `/dev` is a link to a canary beside it; what was made there, and the message.
fn with_dev_linked(runtime: &[&str], target: &str, hook: bool) -> (BTreeSet<String>, String, bool) {
    let mut bundle = Bundle::new();
    let canary = bundle.path("canary");
    fs::create_dir(&canary).unwrap();
    fs::remove_dir(bundle.path("rootfs/dev")).unwrap();
    symlink(target.replace("CANARY", &canary.display().to_string()), bundle.path("rootfs/dev")).unwrap();
    if hook {
        bundle.hook(&["--node", GPU1, "--node=/dev/nvidia-caps/nvidia-cap2=236:2"]);
    }
    let (out, err) = texts(&bundle.run(runtime));
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut made = names(&canary);
    for inside in ["rootfs/tmp/elsewhere", "rootfs"] {
        made.extend(names(&bundle.path(inside)).into_iter().filter(|name| name.contains("nvidia")));
    }
    (made, format!("{out}\n{err}"), out.ends_with("started\n"))
}

/// T7: runc 1.1 and crun 1.8 follow such a link with nodes of their own (CVE-2026-41579, CVE-2026-47766). The hook adds
/// nothing to what the runtime does, and no container starts with its nodes elsewhere.
pub(crate) fn a_dev_that_is_a_link_gets_nothing_of_ours(runtime: &[&str]) {
    for target in ["CANARY", "../canary", "../../../canary", "/tmp/elsewhere"] {
        let (plain, _, plain_starts) = with_dev_linked(runtime, target, false);
        let (ours, text, starts) = with_dev_linked(runtime, target, true);
        assert!(ours.is_subset(&plain), "{target}: {ours:?}, of the runtime {plain:?}: {text}");
        assert!(!ours.iter().any(|name| name.contains("nvidia")), "{target}: {ours:?}");
        eprintln!("T7 {} {target}: plain starts: {plain_starts}, with the hook: {starts}", runtime[runtime.len() - 1]);
        // A runtime that is not led astray mounts a tmpfs where the link leads to, in the root; the link stays one.
        assert!(!starts, "{target}: {text}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_whose_dev_is_a_link_under_runc() {
    require(&["runc"]);
    a_dev_that_is_a_link_gets_nothing_of_ours(&["runc"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_whose_dev_is_a_link_under_crun() {
    require(&["crun"]);
    a_dev_that_is_a_link_gets_nothing_of_ours(&[&CRUN[..], &["crun"]].concat());
}

/// T8: with `-v /dev:/dev` nothing is made on the host. The `/dev` of the tests' world stands for the host's: it is a
/// mount in this namespace and in the container's.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_hosts_dev_as_a_volume_stays_as_it_is() {
    require(&["runc"]);
    for options in [&["rbind", "rw"][..], &["rbind", "rw", "rprivate"], &["rbind", "rw", "rslave"]] {
        for user_namespace in [false, true] {
            let before = fs::read_dir("/dev").unwrap().count();
            let mut bundle = Bundle::new();
            let dev_root = if user_namespace { with_user_namespace(&mut bundle, 1) } else { "--dev-root=/".to_owned() };
            bundle.config["mounts"][1] =
                json!({"destination": "/dev", "type": "bind", "source": "/dev", "options": options});
            bundle.hook(&["--node", GPU1, &dev_root]);
            let (out, err) = texts(&bundle.run(&["runc"]));
            assert!(err.contains("cannot be made there") && !out.contains("started"), "{options:?}: {out}\n{err}");
            assert_eq!(fs::read_dir("/dev").unwrap().count(), before, "{options:?}");
        }
    }
}

/// T34: in a user namespace the hook binds; a link on the way to the target is no way out of the root.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_bind_in_a_user_namespace_follows_no_link() {
    require(&["runc"]);
    for script in [
        "$P ln -s CANARY $R/dev/nvidia-caps",
        "$P mkdir $R/dev/nvidia-caps; $P ln -s CANARY/new $R/dev/nvidia-caps/nvidia-cap2",
    ] {
        let mut bundle = Bundle::new();
        let dev_root = with_user_namespace(&mut bundle, 1);
        let canary = bundle.path("canary");
        fs::create_dir(&canary).unwrap();
        bundle.before(&format!("{AS_ITS_ROOT}; {}", script.replace("CANARY", &canary.display().to_string())));
        bundle.hook(&["--node=/dev/nvidia-caps/nvidia-cap2=236:2", &dev_root]);
        let message = bundle.refused();
        assert!(message.contains("symbolic link"), "{message}");
        assert_eq!(fs::read_dir(&canary).unwrap().count(), 0);
    }
}

/// A bound node is nosuid and private, wherever the host's `/dev` is mounted: what is mounted on it stays inside.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_bound_node_is_private() {
    require(&["runc"]);
    let mut bundle = Bundle::new();
    let host = bundle.path("dev-root");
    fs::create_dir(&host).unwrap();
    mount("none", &host, "tmpfs", MountFlags::empty(), c"mode=755").unwrap();
    mount_change(&host, MountPropagationFlags::SHARED).unwrap();
    let dev_root = with_user_namespace(&mut bundle, 1);
    bundle.hook(&["--node", GPU1, &dev_root]);
    bundle.config["process"]["args"] = json!(["cat", "/proc/self/mountinfo"]);
    let (out, err) = texts(&bundle.run(&["runc"]));
    unmount(&host, UnmountFlags::DETACH).unwrap();
    let line = out.lines().find(|line| line.contains(" /dev/nvidia1 ")).unwrap_or_else(|| panic!("{out}\n{err}"));
    assert!(line.contains("nosuid") && !line.contains("shared:") && !line.contains("master:"), "{line}");
}
