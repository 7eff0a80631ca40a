//! `exec`, spoiled at each of its system calls: the process file is the old one or the new one, and a process that was to see
//! GPUs is not started with the old one.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{FILE_CALLS, calls};
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{Ran, run};
use crate::world::{find_program, require};

/// A container's bundle with a record, and a process file that is rewritten again and again.
struct Process {
    sandbox: Sandbox,
    old: Value,
    new: Value,
}

impl Process {
    fn new() -> Process {
        require(&["strace"]);
        let sandbox = Sandbox::new("");
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
        sandbox.create().ok();
        // Where containerd has them: the log in the bundle, which is named after the container.
        fs::create_dir(sandbox.path("c1")).unwrap();
        fs::copy(sandbox.path("bundle/config.json"), sandbox.path("c1/config.json")).unwrap();
        let old = json!({"args": ["true"], "cwd": "/", "env": ["A=b", "CUDA_VISIBLE_DEVICES=3"]});
        let mut process = Process { sandbox, old, new: Value::Null };
        process.spoiled(&[]).ok();
        process.new = process.now();
        assert_eq!(process.new["env"][1], "CUDA_VISIBLE_DEVICES=1", "{}", process.new);
        process
    }

    fn spoiled(&self, inject: &[&str]) -> Ran {
        let _absent = fs::remove_file(self.sandbox.path("low-level.started"));
        self.sandbox.write("c1/process", self.old.to_string());
        let mut command = Command::new(find_program("strace"));
        command.arg("-o").arg(self.sandbox.path("trace")).args(inject).arg(self.sandbox.runtime());
        command.arg("--log").arg(self.sandbox.path("c1/log.json")).args(["--log-format", "json", "exec", "--process"]);
        run(command.arg(self.sandbox.path("c1/process")).arg("c1"))
    }

    /// The calls of an `exec` that goes well.
    fn calls(&self) -> Vec<(String, usize)> {
        self.spoiled(&[]).ok();
        let calls = calls(&fs::read_to_string(self.sandbox.path("trace")).unwrap());
        assert!(calls.len() > 50 && calls.iter().any(|(name, _)| name.starts_with("rename")), "{calls:?}");
        calls
    }

    fn now(&self) -> Value {
        serde_json::from_slice(&fs::read(self.sandbox.path("c1/process")).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(&self, what: &str, ran: &Ran) {
        let now = self.now();
        assert!(now == self.old || now == self.new, "{what}: {now} {ran}");
    }

    /// Temporary files that stayed.
    fn leftovers(&self) -> usize {
        let names = fs::read_dir(self.sandbox.path("c1")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with('.')).count()
    }
}

/// T24.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_killed_at_any_system_call() {
    let process = Process::new();
    let (mut left, mut states) = (0, BTreeSet::new());
    for (name, number) in process.calls() {
        let what = format!("inject={name}:signal=KILL:when={number}");
        let ran = process.spoiled(&["-e", &what]);
        assert_ne!(ran.code, 0, "{what} was not killed");
        process.check(&what, &ran);
        assert_eq!(process.sandbox.started(), [""; 0], "{what}");
        states.insert(process.now() == process.new);
        left = left.max(process.leftovers());
    }
    assert_eq!(states.len(), 2, "before and after the rename");
    assert_eq!(left, 1, "one that is killed leaves a temporary file");
    process.spoiled(&[]).ok();
    assert_eq!(process.leftovers(), 0, "the next one takes it away");
    assert_eq!(process.now(), process.new);
}

/// T25. Where the process file was to be rewritten and cannot be, nothing is started. What cannot be read is no record to go
/// by, so there a process may start with the old one; the devices that it can open are the container's in any case.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_with_errors_at_any_system_call() {
    let process = Process::new();
    let calls = process.calls();
    for error in ["EIO", "ENOSPC", "EROFS", "EDQUOT", "EAGAIN", "EINTR"] {
        let (mut failed, mut old) = (0, 0);
        for (name, number) in calls.iter().filter(|(name, _)| FILE_CALLS.contains(&name.as_str())) {
            let what = format!("inject={name}:error={error}:when={number}");
            let ran = process.spoiled(&["-e", &what]);
            let started = !process.sandbox.started().is_empty();
            process.check(&what, &ran);
            assert_eq!(process.leftovers(), 0, "{what}: {ran}");
            assert_eq!(started, ran.code == 0, "{what}: {ran}");
            let is_written = ["write", "fchown", "fchmod", "rename", "renameat"].contains(&name.as_str());
            let is_first = name != "write" || *number == 1;
            if is_written && is_first && error != "EINTR" {
                assert!(!started, "{what}: {ran}");
            }
            failed += usize::from(!started);
            old += usize::from(started && process.now() == process.old);
        }
        eprintln!("{error}: {failed} failed, {old} started with the file as it was");
        assert!(failed >= 5, "{error}: {failed}");
    }
}
