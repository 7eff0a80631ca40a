//! A system that fails half-way. A configuration is the old one or the new one, never a mixture; and no container that was
//! given GPUs starts with the old one.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{Ran, run, write_program};
use crate::world::{find_program, require};

/// More system calls than a create makes.
const MOST: usize = 1000;

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

    /// `create` with the n-th call of a set of system calls spoiled; says whether the runtime was started.
    fn spoiled(&self, calls: &str, fault: &str, n: usize) -> (Ran, bool) {
        let _absent = fs::remove_file(self.sandbox.path("low-level.started"));
        self.sandbox.write_spec(&self.old);
        let mut command = Command::new(find_program("strace"));
        command.arg("-o").arg("/dev/null").arg("-e").arg(format!("inject={calls}:{fault}:when={n}"));
        command.arg(self.sandbox.runtime()).arg("--log").arg(self.sandbox.path("log/log.json"));
        let ran = run(command.args(["create", "--bundle"]).arg(self.sandbox.path("bundle")).arg("c1"));
        (ran, !self.sandbox.started().is_empty())
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

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn killed_at_any_system_call() {
    let bundle = Bundle::new();
    // In place of the low-level runtime: what it does is not ours.
    write_program(&bundle.sandbox.low_level(), &fs::read(find_program("true")).unwrap());
    let (mut n, mut killed) = (0, 0);
    loop {
        n += 1;
        let (ran, _) = bundle.spoiled("all", "signal=KILL", n);
        bundle.check(&format!("call {n}"), &ran, false);
        if ran.code == 0 {
            break;
        }
        killed += 1;
        assert!(n < MOST);
    }
    assert!(killed > 50, "{killed}");
    // Each was killed between making and renaming it; engines remove bundles, and a name is taken over by its next owner.
    assert!(bundle.leftovers() <= 10, "{}", bundle.leftovers());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn errors_at_any_system_call() {
    let bundle = Bundle::new();
    let files = "openat,read,write,fstat,newfstatat,statx,lseek,fchown,fchmod,rename,renameat,renameat2,readlink,close";
    for error in ["EIO", "ENOSPC", "EINTR", "EMFILE"] {
        for n in 1..MOST {
            let (ran, started) = bundle.spoiled(files, &format!("error={error}"), n);
            bundle.check(&format!("{error} at call {n}"), &ran, started);
            assert_eq!(bundle.leftovers(), 0, "{error} at call {n}: {ran}");
            if n > 100 && ran.code == 0 && started {
                break;
            }
        }
    }
}

/// Engines do not, and yet: the edits are made once, and nobody fails over the other.
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
