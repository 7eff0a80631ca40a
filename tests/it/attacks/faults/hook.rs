//! The hook, spoiled at each of its system calls, under real runc: a container either starts with all of its GPUs or not at
//! all.

use std::fs;

use super::calls;
use crate::world::command::write_program;
use crate::world::{A100X4, Bundle, Install, find_program, require, spec, uuids};

/// An installation whose hook is run under strace, with what stands in a file.
struct Spoiled {
    install: Install,
}

impl Spoiled {
    fn new() -> Spoiled {
        require(&["runc", "strace"]);
        let install = Install::new(A100X4, "");
        let hook = install.bin("cudaview-hook");
        let real = install.bin("spoiled/cudaview-hook");
        fs::create_dir(real.parent().unwrap()).unwrap();
        fs::rename(&hook, &real).unwrap();
        let script = format!(
            "#!/bin/sh\nread -r fault <'{}'\nexec '{}' -o '{}' -e \"$fault\" '{}' \"$@\"\n",
            install.prefix().join("fault").display(),
            find_program("strace").display(),
            install.prefix().join("trace").display(),
            real.display()
        );
        write_program(&hook, script.as_bytes());
        Spoiled { install }
    }

    /// The calls of a hook that does its work.
    fn calls(&self) -> Vec<(String, usize)> {
        assert!(self.starts("trace=all"));
        calls(&fs::read_to_string(self.install.prefix().join("trace")).unwrap())
    }

    /// Whether the container started; if so, it saw all that it was to see.
    #[track_caller]
    fn starts(&self, fault: &str) -> bool {
        fs::write(self.install.prefix().join("fault"), format!("{fault}\n")).unwrap();
        let env = ["CUDA_VISIBLE_DEVICES=1,3"];
        let bundle = Bundle::with_runtime(&self.install.runtime(), A100X4, &["gpu-count", "--json"], &env);
        bundle.edit(|config| spec::grant_nodes(config, &[1, 3]));
        let ran = bundle.run();
        if ran.code == 0 {
            let count = crate::world::count::Count::of(ran);
            assert_eq!(count.cuda, [&uuids(A100X4)[1], &uuids(A100X4)[3]].map(Clone::clone), "{fault}: half-made");
            assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{fault}");
            return true;
        }
        assert_eq!(ran.stdout, "", "{fault}: it must not have started: {ran}");
        assert!(bundle.state().is_none(), "{fault}: a container is left: {ran}");
        false
    }
}

/// T24: the hook's part.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_hook_killed_at_any_system_call() {
    let spoiled = Spoiled::new();
    let calls = spoiled.calls();
    for (name, number) in &calls {
        // Before its own code begins, one load is like the other.
        let what = format!("inject={name}:signal=KILL:when={number}");
        // The last one: the work is done, and the code of the end is already given.
        let is_end = name == "exit_group";
        assert!(!spoiled.starts(&what) || is_end, "{what}");
    }
    assert!(calls.len() > 60, "{}", calls.len());
}

/// T25: the hook's part. Since what a container sees is counted, errors that the hook may go on after are told from those
/// after which it may not.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_hook_with_errors_at_any_system_call() {
    let spoiled = Spoiled::new();
    let calls = spoiled.calls();
    let first = calls.iter().position(|(name, _)| name == "close_range").unwrap();
    let (mut refused, mut started) = (0, 0);
    for (name, number) in &calls[first..] {
        for error in ["EIO", "EPERM"] {
            if name == "exit_group" || name == "munmap" {
                continue;
            }
            if spoiled.starts(&format!("inject={name}:error={error}:when={number}")) {
                let may = ["close", "fcntl", "alarm", "sigaltstack", "brk", "mmap", "umask", "poll", "ppoll"];
                assert!(may.contains(&name.as_str()), "started although {name} {number} failed");
                started += 1;
            } else {
                refused += 1;
            }
        }
    }
    eprintln!("{refused} refused, {started} started");
    assert!(refused > 20, "{refused}");
}
