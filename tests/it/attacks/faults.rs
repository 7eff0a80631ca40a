//! A system that fails half-way (T24 to T26). A configuration is the old one or the new one, never a mixture; and no
//! container that was given GPUs starts with the old one.

mod disk;
mod exec;
mod hook;
mod runtime;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{Ran, run};
use crate::world::{find_program, require};

/// The calls of a program, in their order, from its trace: each by its name, and the how-manieth of that name it is, which
/// is how strace counts what it is to spoil. What the program does after it has become another one is not among them.
fn calls(trace: &str) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    let names = trace.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name.trim().to_owned()));
    let names = names.filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    let names: Vec<String> = names.collect();
    let end = names.iter().skip(1).position(|name| name == "execve").map_or(names.len(), |at| at + 2);
    // The first is the start itself, before which there is nothing to spoil; strace does not count it either.
    let calls = names.into_iter().take(end).skip(1).map(|name| {
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        (name, *count)
    });
    calls.collect()
}

/// Calls that work on files, and may well fail.
const FILE_CALLS: [&str; 14] = [
    "openat",
    "read",
    "write",
    "fstat",
    "newfstatat",
    "statx",
    "lseek",
    "fchown",
    "fchmod",
    "rename",
    "renameat",
    "getdents64",
    "readlink",
    "close",
];

/// A bundle that is created again and again.
struct Bundle {
    sandbox: Sandbox,
    old: Value,
    new: Value,
}

impl Bundle {
    fn new() -> Bundle {
        require(&["strace"]);
        let sandbox = Sandbox::new("");
        let old = gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]);
        sandbox.write_spec(&old);
        sandbox.create().ok();
        let new = sandbox.spec();
        assert_ne!(old, new);
        Bundle { sandbox, old, new }
    }

    /// `create` under strace; says whether the runtime was started.
    fn traced(&self, options: &[&str]) -> (Ran, bool) {
        let _absent = fs::remove_file(self.sandbox.path("low-level.started"));
        self.sandbox.write_spec(&self.old);
        let mut command = Command::new(find_program("strace"));
        command.arg("-o").arg(self.sandbox.path("trace")).args(options);
        command.arg(self.sandbox.runtime()).arg("--log").arg(self.sandbox.path("log/log.json"));
        let ran = run(command.args(["create", "--bundle"]).arg(self.sandbox.path("bundle")).arg("c1"));
        (ran, !self.sandbox.started().is_empty())
    }

    /// The calls of a `create` that goes well.
    fn calls(&self) -> Vec<(String, usize)> {
        let (ran, started) = self.traced(&[]);
        assert!(started, "{ran}");
        let calls = calls(&fs::read_to_string(self.sandbox.path("trace")).unwrap());
        assert!(calls.len() > 50 && calls.iter().any(|(name, _)| name.starts_with("rename")), "{calls:?}");
        calls
    }

    #[track_caller]
    fn check(&self, what: &str, ran: &Ran, started: bool) {
        let now = self.sandbox.spec();
        assert!(now == self.old || now == self.new, "{what}: {now} {ran}");
        if started {
            assert_eq!(now, self.new, "{what}: the runtime got the old one; {ran}");
        }
    }

    /// Temporary files that stayed.
    fn leftovers(&self) -> usize {
        fs::read_dir(self.sandbox.path("bundle")).unwrap().count() - 1
    }
}

/// T24.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn killed_at_any_system_call() {
    let bundle = Bundle::new();
    let (mut left, mut states) = (0, BTreeSet::new());
    for (name, number) in bundle.calls() {
        let what = format!("inject={name}:signal=KILL:when={number}");
        let (ran, started) = bundle.traced(&["-e", &what]);
        assert_ne!(ran.code, 0, "{what} was not killed");
        bundle.check(&what, &ran, started);
        states.insert((bundle.sandbox.spec() == bundle.new, started));
        left = left.max(bundle.leftovers());
    }
    assert_eq!(states.len(), 2, "before and after the rename: {states:?}");
    // One that is killed before its rename leaves a temporary file; the next one takes it away.
    assert_eq!(left, 1);
    bundle.traced(&[]).0.ok();
    assert_eq!(bundle.leftovers(), 0);
}

/// T25.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn errors_at_any_system_call() {
    let bundle = Bundle::new();
    let calls = bundle.calls();
    let calls = || calls.iter().filter(|(name, _)| FILE_CALLS.contains(&name.as_str()));
    for error in ["EIO", "ENOSPC", "EINTR", "EMFILE", "EROFS", "EDQUOT", "EAGAIN"] {
        let mut failed = 0;
        for (name, number) in calls() {
            let what = format!("inject={name}:error={error}:when={number}");
            let (ran, started) = bundle.traced(&["-e", &what]);
            bundle.check(&what, &ran, started);
            // A file that could not be removed stays, and goes with the next one.
            assert_eq!(bundle.leftovers(), 0, "{what}: {ran}");
            assert_eq!(ran.code == 0, started, "{what}: {ran}");
            failed += usize::from(!started);
        }
        assert!(failed >= 8, "{error}: {failed} of {} failed", calls().count());
    }
    // A storm: every second one, every third one, all of them from some on.
    for error in ["EINTR", "EAGAIN"] {
        for when in ["1+2", "2+2", "2+3", "3+3", "5+", "9+"] {
            let what = format!("inject=openat,read,write,renameat,rename,close:error={error}:when={when}");
            let (ran, started) = bundle.traced(&["-e", &what]);
            bundle.check(&what, &ran, started);
        }
    }
}

/// T26. Engines do not, and yet: the edits are made once, and nobody fails over the other.
#[test]
fn two_hundred_wrappers_on_one_bundle() {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    sandbox.create().ok();
    let expected = sandbox.spec();
    for _round in 0..5 {
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
        let create = || {
            let mut command = sandbox.command();
            command.args(["create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1").spawn().unwrap()
        };
        let children: Vec<_> = (0..40).map(|_| create()).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success(), "{}", sandbox.log());
        }
        assert_eq!(sandbox.spec(), expected);
    }
    assert_eq!(sandbox.started().len(), 201);
}
