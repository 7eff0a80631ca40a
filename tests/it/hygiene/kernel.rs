//! What the hook asks of the kernel in a container that really starts, as strace sees it.

use std::fs;
use std::path::PathBuf;

use crate::world::command::write_program;
use crate::world::{A100X4, Bundle, CgroupView, Install, find_program, require, spec, uuids};

/// An installation whose hook runs under strace.
fn watched(config: &str) -> (Install, PathBuf) {
    let install = Install::new(A100X4, config);
    let hook = install.bin("cudaview-hook");
    let real = install.bin("watched/cudaview-hook");
    fs::create_dir(real.parent().unwrap()).unwrap();
    fs::rename(&hook, &real).unwrap();
    let trace = install.prefix().join("trace");
    let script = format!(
        "#!/bin/sh\nexec '{}' -f -qq -s 200 -o '{}' '{}' \"$@\"\n",
        find_program("strace").display(),
        trace.display(),
        real.display()
    );
    write_program(&hook, script.as_bytes());
    (install, trace)
}

/// The calls of a trace, from the program's own start, without the number of the process.
fn calls(trace: &str) -> Vec<&str> {
    trace.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim_start())).collect()
}

/// R4, R6, R8, R10, R19, R31, R36: hygiene first, then the whole state, then the process by a descriptor, and its mount
/// namespace; from then on not one path but relative to the container's root, nothing opened for reading, no directory
/// listed; no second process, no thread, no network.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_order_in_which_the_hook_works() {
    require(&["runc", "crun", "strace"]);
    for (name, view) in [("runc", CgroupView::Machine), ("crun", CgroupView::WithoutUnified)] {
        let (install, trace) = watched(&format!("low_level_runtime = [\"{name}\"]\n"));
        let bundle =
            Bundle::with_runtime(&install.runtime(), A100X4, &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]);
        bundle.edit(|config| spec::grant_nodes(config, &[1, 3]));
        assert_eq!(bundle.seeing(view).count().cuda, uuids(A100X4)[3..], "{name}");
        let text = fs::read_to_string(trace).unwrap();
        let calls = calls(&text);
        let at = |what: &dyn Fn(&str) -> bool, name: &str| {
            calls.iter().position(|call| what(call)).unwrap_or_else(|| panic!("no {name} in {text}"))
        };
        let starts = |start: &'static str| move |call: &str| call.starts_with(start);
        let closed =
            at(&|call| call.starts_with("close_range(3, 4294967295, 0)") && call.ends_with(" = 0"), "close_range");
        let left = at(&starts("chdir(\"/\")"), "chdir");
        let core = at(&|call| call.contains("RLIMIT_CORE"), "a limit for core dumps");
        let gained = at(&starts("prctl(PR_SET_NO_NEW_PRIVS, 1"), "no_new_privs");
        let dumpable =
            at(&|call| call.starts_with("prctl(PR_SET_DUMPABLE, 0") || call.contains("SUID_DUMP_DISABLE"), "dumpable");
        let alarm = at(&starts("alarm(12)"), "a backstop (R32, T30)");
        // Standard input is read until nothing comes any more, even where it is short.
        let read = at(&|call| call.starts_with("read(0, \"\"") && call.ends_with("= 0"), "the end of the state");
        let opened = at(&starts("pidfd_open("), "pidfd_open (T31)");
        let joined = at(&|call| call.starts_with("setns(") && call.contains("CLONE_NEWNS"), "setns");
        let order = [closed, left, core, gained, dumpable, alarm, read, opened, joined];
        assert!(order.is_sorted(), "{name}: {order:?} {text}");
        for call in &calls[closed..] {
            for never in ["clone", "fork(", "vfork(", "execve(", "socket(", "connect(", "getdents"] {
                assert!(!call.starts_with(never), "{name}: R19 {call}");
            }
        }
        for call in &calls[closed..read] {
            assert!(!call.starts_with("open"), "{name}: nothing before the state is read: {call}");
        }
        let mut by_path = 0;
        for call in &calls[joined + 1..] {
            assert!(!call.contains("/proc"), "{name}: R14 {call}");
            if call.starts_with("open") {
                assert!(call.contains("O_PATH"), "{name}: R15 {call}");
                by_path += usize::from(!call.starts_with("openat2("));
            }
        }
        assert_eq!(by_path, 1, "{name}: R10, the root itself");
    }
}
