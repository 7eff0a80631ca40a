//! A container's life under `ctr`: further processes, a new task, and what is left.

use std::fs;

use super::{Expected, GPUS_1_3, Host, IMAGE, with_env};
use crate::world::containerd::Door;
use crate::world::count::{Access, COUNT, Count};

#[track_caller]
fn exec_and_restart(low_level: &str) {
    let host = Host::for_ctr(low_level, "");
    let containerd = &host.containerd;
    containerd.up(Door::Cudaview, "one", &with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=3,1"), IMAGE);
    let check = |after: &str| {
        let expected = Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" };
        host.compare(&containerd.exec_count("one"), &expected, after);
        for minor in 0..4 {
            let expected = if [1, 3].contains(&minor) { Access::Openable } else { Access::Blocked };
            assert_eq!(containerd.try_mknod("one", minor), expected, "{after}: GPU {minor}");
        }
        let own = containerd.exec("one", &["sh", "-c", "tr '\\0' '\\n' </proc/1/environ"]).ok().stdout;
        assert!(own.lines().any(|line| line == "CUDA_VISIBLE_DEVICES=1,0"), "{after}: {own}");
        // containerd keeps what was typed, and sends it with every exec.
        let kept = containerd.kept("default", "one")["process"]["env"].to_string();
        assert!(kept.contains("\"CUDA_VISIBLE_DEVICES=3,1\""), "{after}: {kept}");
    };
    check("run");
    containerd.restart("one");
    check("a new task");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_exec_and_restart() {
    exec_and_restart("runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_exec_and_restart_on_crun() {
    exec_and_restart("crun");
}

/// `ctr` sets no variables for a further process. What a shell in the container sets is between it and CUDA, which
/// counts among the container's GPUs.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_exec_takes_no_variable() {
    let host = Host::for_ctr("runc", "");
    host.containerd.up(Door::Cudaview, "one", &with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=3,1"), IMAGE);
    let ran = host.containerd.ctr(&["task", "exec", "--exec-id", "e", "--env", "A=1", "one", "true"]).failed_with(1);
    assert!(ran.stderr.contains("flag provided but not defined: -env"), "{ran}");
    let by_shell = |value: &str| {
        let command = format!("CUDA_VISIBLE_DEVICES={value} {}", COUNT.join(" "));
        Count::of(host.containerd.exec("one", &["sh", "-c", &command])).cuda
    };
    assert_eq!(by_shell("1"), host.uuids_of(&[3]));
    assert_eq!(by_shell("3"), [""; 0]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_leaves_nothing() {
    let host = Host::for_ctr("runc", "");
    let flags = with_env(&GPUS_1_3, "CUDA_VISIBLE_DEVICES=3");
    let mounts = || {
        let table = host.containerd.command("cat").arg("/proc/self/mountinfo").output().unwrap().stdout;
        String::from_utf8(table).unwrap().lines().count()
    };
    let before = mounts();
    for _ in 0..20 {
        host.check(&flags, IMAGE, &Expected { view: &[3], nodes: &[3], value: "0" });
    }
    assert_eq!(mounts(), before);
    assert_eq!(host.containerd.things(), [""; 0]);
    let bundles = host.containerd.bundle("");
    assert_eq!(fs::read_dir(bundles).unwrap().count(), 0);
    host.containerd.await_no_shim();
}
