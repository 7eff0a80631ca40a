//! runc.

use std::fs;

use super::{CAP2, GPU1, names_none, past_a_bait};
use crate::attacks::dev::{AS_ITS_ROOT, a_dev_that_is_a_link_gets_nothing_of_ours};
use crate::hook_nodes::bundle::{Bundle, texts};
use crate::hook_nodes::{CRUN, with_user_namespace};
use crate::world::mounts::mounts_below;
use crate::world::{Stage, find_program, require};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2019_5736_the_hooks_own_program_is_out_of_reach() {
    // It stays in the host's pid namespace and starts nothing in the container, which has no /proc entry of it; and who
    // shares the host's pid namespace may not look at it, since it is not dumpable from before it joins.
    let (_, hooked) = past_a_bait("mkdir -p $R/usr/bin; ln -s /proc/self/exe $R/usr/bin/cudaview-hook");
    names_none(&hooked, &["execve", "CLONE_NEWPID", "/proc"]);
    let before = &hooked.calls[..hooked.calls.len() - hooked.calls_inside().len()];
    assert!(before.contains("prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE"), "{before}");
}

/// A mount's target that a sibling exchanges: in a user namespace the hook mounts.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2021_30465_a_mount_whose_target_is_exchanged_stays_in_the_root() {
    require(&["runc"]);
    for _ in 0..10 {
        let mut bundle = Bundle::new();
        let dev_root = with_user_namespace(&mut bundle, 1);
        let canary = bundle.path("canary");
        fs::create_dir(&canary).unwrap();
        fs::write(canary.join("nvidia-cap2"), "").unwrap();
        let exchange = bundle.path("exchange");
        fs::copy(Stage::attacker("exchange"), &exchange).unwrap();
        bundle.before(&format!(
            "{AS_ITS_ROOT}; $P mkdir $R/dev/nvidia-caps && $P ln -s {} $R/dev/x || exit; \
             $P {} 300 $R/dev/nvidia-caps $R/dev/x </dev/null >/dev/null 2>&1 &",
            canary.display(),
            exchange.display()
        ));
        bundle.hook(&["--node=/dev/nvidia-caps/nvidia-cap2=236:2", &dev_root]);
        let (out, err) = texts(&bundle.run(&["runc"]));
        assert!(out.ends_with("started\n") || err.contains("cudaview-hook:"), "{out}\n{err}");
        assert!(mounts_below(&canary).is_empty());
        assert_eq!(fs::read_dir(&canary).unwrap().count(), 1);
        assert_eq!(fs::symlink_metadata(canary.join("nvidia-cap2")).unwrap().len(), 0);
    }
}

/// The image's `/proc`, a link or something else: the hook has no use for it.
fn without_proc(script: &str) {
    let (_, hooked) = past_a_bait(script);
    names_none(&hooked, &["proc"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2019_19921_a_proc_that_is_a_volume_is_not_used() {
    without_proc("mount --bind $F/canary $R/proc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2023_27561_a_proc_that_is_a_link_is_not_used() {
    without_proc("rmdir $R/proc; ln -s $F/canary $R/proc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2023_28642_a_proc_that_links_below_itself_is_not_used() {
    without_proc(
        "rmdir $R/proc; mkdir -p $R/tmp/self/attr; ln -s tmp $R/proc; ln -s $F/canary/new $R/tmp/self/attr/exec",
    );
}

/// A descriptor of a host folder, and a working directory in it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_21626_no_inherited_folder_is_kept() {
    let stage = Stage::new("true");
    let strace = find_program("strace");
    let calls = stage.canary().with_file_name("inherited");
    let script = "exec 7</ 8</etc; cd /proc/self/fd/7; exec \"$@\"";
    let words = ["bash", "-c", script, "bash", strace.to_str().unwrap(), "-f", "-o", calls.to_str().unwrap()];
    let hooked = stage.hook_under(&words, &[GPU1, CAP2]);
    assert_eq!(hooked.ran.code, 0, "{}", hooked.ran);
    let calls = fs::read_to_string(calls).unwrap();
    let at = |text: &str| calls.find(text).unwrap_or_else(|| panic!("no {text:?}: {calls}"));
    assert!(at("close_range(3, 4294967295, 0)") < at("setns("), "{calls}");
    assert!(at("chdir(\"/\")") < at("setns("), "{calls}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_45310_no_folder_is_made_through_a_link() {
    for link in ["$F/canary/new", "../../canary/new", "x/../../../canary/new"] {
        let stage = Stage::new(&format!("mkdir $R/dev/x; ln -s {link} $R/dev/nvidia-caps"));
        stage.hook(&[CAP2]).refused("stands in the way");
        stage.hook(&["/dev/nvidia-caps/a/b/c=195:1"]).refused("stands in the way");
        stage.nothing_outside();
    }
}

/// The source of a bind: always the host's, by number, whatever the image has at that path.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_31133_the_source_of_a_bind_is_not_the_images() {
    require(&["runc"]);
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 1);
    let host = dev_root.strip_prefix("--dev-root=").unwrap();
    bundle.allow_gpu1();
    // The image's own, at the path that the host's node has.
    bundle.before(&format!("mkdir -p $R{host}/dev && ln -s /proc/sys/kernel/core_pattern $R{host}/dev/nvidia1"));
    bundle.hook(&["--node", GPU1, &dev_root]);
    let (out, err) = texts(&bundle.run(&["runc"]));
    assert!(out.contains("/dev/nvidia1 c3:1 666 65534:65534\n"), "{out}\n{err}");
    // And the host's node is one only if its number is right.
    let mut bundle = Bundle::new();
    let dev_root = with_user_namespace(&mut bundle, 1);
    let node = bundle.path("dev-root/dev/nvidia1");
    fs::remove_file(&node).unwrap();
    std::os::unix::fs::symlink("/dev/null", &node).unwrap();
    bundle.hook(&["--node", GPU1, &dev_root]);
    let message = bundle.refused();
    assert!(message.contains("from the host: expected a character device 195:1, found a symbolic link"), "{message}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_52565_console_and_terminals_are_not_touched() {
    let (_, hooked) = past_a_bait(
        "mkdir $R/dev/pts; ln -s $F/canary/new $R/dev/pts/0; ln -s $F/canary/new $R/dev/console; ln -s $F/canary $R/dev/x",
    );
    names_none(&hooked, &["pts", "console", "ptmx", "tty"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_52881_nothing_is_written_after_the_join() {
    let (_, hooked) =
        past_a_bait("mount -t proc proc $R/proc; mount --bind /proc/sysrq-trigger $R/proc/self/attr || true");
    names_none(&hooked, &["proc", "write(", "O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2026_41579_a_dev_that_is_a_link_under_runc() {
    require(&["runc"]);
    a_dev_that_is_a_link_gets_nothing_of_ours(&["runc"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2026_47766_a_dev_that_is_a_link_under_crun() {
    require(&["crun"]);
    a_dev_that_is_a_link_gets_nothing_of_ours(&[&CRUN[..], &["crun"]].concat());
}
