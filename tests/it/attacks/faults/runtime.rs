//! A low-level runtime that hangs, that goes away at the last moment, or that is the wrapper again.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{run, write_program};

/// The wrapper becomes the runtime, so that whoever waits for it, and ends it, waits for and ends the runtime itself.
#[test]
fn a_runtime_that_hangs_is_ended_like_one_without_us() {
    for signal in [Signal::TERM, Signal::KILL] {
        let sandbox = Sandbox::new("");
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
        write_program(&sandbox.low_level(), b"#!/bin/sh\necho >>\"$0.started\"\nexec sleep 1000\n");
        let mut command = sandbox.command();
        command.args(["create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1").stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        let end = Instant::now() + Duration::from_secs(20);
        while fs::read_to_string(&comm).unwrap() != "sleep\n" {
            assert!(Instant::now() < end, "the same process has become the runtime");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read_dir(sandbox.path("bundle")).unwrap().count(), 1, "nothing is left in the bundle");
    }
}

/// It was there when it was looked for. What was edited is put back.
#[test]
fn a_runtime_that_goes_away_at_the_last_moment() {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    // The interpreter is not there, which only the start shows.
    write_program(&sandbox.low_level(), b"#!/no/such/interpreter\n");
    let before = fs::read(sandbox.path("bundle/config.json")).unwrap();
    let ran = sandbox.create().failed_with(1);
    assert!(ran.stderr.contains("failed to execute"), "{ran}");
    assert_eq!(fs::read(sandbox.path("bundle/config.json")).unwrap(), before);
}

/// A runtime that is the wrapper again, by a script that names it: the edits are made once, and the chain ends where the
/// script does.
#[test]
fn a_runtime_that_calls_us_again_edits_once() {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    sandbox.create().ok();
    let once = sandbox.spec();
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    let script = "#!/bin/sh\necho >>\"$0.started\"\n[ $(wc -l <\"$0.started\") -gt 5 ] || exec WRAPPER \"$@\"\n";
    write_program(&sandbox.low_level(), script.replace("WRAPPER", &sandbox.runtime().display().to_string()).as_bytes());
    let mut command = sandbox.command();
    run(command.args(["create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1")).ok();
    assert_eq!(sandbox.started().len(), 6);
    assert_eq!(sandbox.spec(), once);
}
