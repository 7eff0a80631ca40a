//! `cudaview-nvml` that misbehaves: a driver in trouble must not hang the engine, nor pass for an inventory.

use std::fs;
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, gpu_spec, plain_spec};
use crate::world::command::write_program;

const NO_INVENTORY: i32 = 5;

/// A sandbox that has to ask a helper, which is this script.
fn asking(script: &str) -> Sandbox {
    let sandbox = Sandbox::new("");
    let config = fs::read_to_string(sandbox.path("prefix/etc/cudaview/config.toml")).unwrap();
    let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("inventory")).collect();
    sandbox.write("prefix/etc/cudaview/config.toml", config.join("\n"));
    write_program(&sandbox.path("prefix/bin/cudaview-nvml"), format!("#!/bin/sh\n{script}\n").as_bytes());
    sandbox
}

#[test]
fn a_helper_that_misbehaves_is_an_error_and_no_wait() {
    let cases = [
        ("exec sleep 60", "no answer within 5 seconds"),
        ("echo '{'; sleep 60 & exit 0", "no answer within 5 seconds"),
        ("trap '' PIPE TERM INT HUP; while :; do echo flood 2>/dev/null; done", "cudaview-nvml"),
        ("exec yes flood", "cudaview-nvml"),
        ("exec cat /dev/zero >&2", "cudaview-nvml"),
        ("printf '\\377\\000garbage'", "failed to read the answer"),
        ("echo '{\"schemaVersion\":1,\"source\":\"x\",\"gpus\":[]} trailing'", "failed to read the answer"),
        ("kill -9 $$", "cudaview-nvml"),
        ("exit 3", "cudaview-nvml"),
    ];
    for (script, word) in cases {
        let sandbox = asking(script);
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
        let begin = Instant::now();
        let ran = sandbox.create().failed_with(NO_INVENTORY);
        assert!(begin.elapsed() < Duration::from_secs(8), "{script}: {:?}", begin.elapsed());
        assert!(ran.stderr.contains(word), "{script}: {ran}");
        assert_eq!(sandbox.started(), [""; 0], "{script}");
        // Who needs no GPU does not depend on it.
        sandbox.write_spec(&plain_spec());
        sandbox.create().ok();
    }
}
