//! T38: standard streams that nobody reads, that are full, or that are not there.

use std::path::PathBuf;
use std::process::Command;

use crate::command::data;
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{Ran, run, write_program};

/// Every program of ours with something to say, and what it ends with while all is well.
fn lines(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<String>, i32)> {
    let built = |name: &str| PathBuf::from(name);
    let cudaview = env!("CARGO_BIN_EXE_cudaview");
    let hook = env!("CARGO_BIN_EXE_cudaview-hook");
    let nvml = env!("CARGO_BIN_EXE_cudaview-nvml");
    let inventory = data("inventories/a100x4.json").display().to_string();
    let config = sandbox.path("prefix/etc/cudaview/config.toml").display().to_string();
    let runtime = sandbox.runtime().display().to_string();
    let bundle = sandbox.path("bundle").display().to_string();
    let lines: [(&str, Vec<&str>, i32); 14] = [
        (cudaview, vec!["--help"], 0),
        (cudaview, vec!["--version"], 0),
        (cudaview, vec!["bogus"], 2),
        (cudaview, vec!["predict", "--inventory", &inventory, "--cuda-visible-devices", "1,3"], 0),
        (cudaview, vec!["inventory", "--inventory", &inventory, "--format", "json"], 0),
        (cudaview, vec!["explain", "--inventory", &inventory, "--config", &config, "--gpus", "all"], 0),
        (cudaview, vec!["completion", "bash"], 0),
        (hook, vec!["--help"], 0),
        (hook, vec!["bogus"], 2),
        (hook, vec!["createRuntime"], 4),
        (hook, vec!["precreate"], 0),
        (nvml, vec!["--help"], 0),
        (nvml, vec!["bogus"], 2),
        (&runtime, vec!["create", "--bundle", &bundle, "c1"], 4),
    ];
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
    lines.into_iter().map(|(program, words, code)| (built(program), owned(words), code)).collect()
}

/// Runs it with streams that a shell has prepared; what it ended with stands in a file.
fn with_streams(sandbox: &Sandbox, streams: &str, program: &PathBuf, words: &[String]) -> (i32, Ran) {
    let code = sandbox.path("code");
    let script = streams.replace("PROGRAM", "{ \"$@\"; echo $? >\"$CODE\"; }");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(program).args(words).env("CODE", &code);
    let ran = run(&mut shell);
    let text = std::fs::read_to_string(&code).unwrap();
    std::fs::remove_file(code).unwrap();
    (text.trim().parse().unwrap(), ran)
}

#[test]
fn streams_that_nobody_reads_end_no_program_oddly() {
    let sandbox = Sandbox::new("");
    // Something that the wrapper complains of.
    sandbox.write_spec(&gpu_spec(&["NVIDIA_VISIBLE_DEVICES"]));
    for (program, words, expected) in lines(&sandbox) {
        let (code, ran) = with_streams(&sandbox, "PROGRAM", &program, &words);
        assert_eq!(code, expected, "{ran}");
        let is_told = !ran.stdout.is_empty();
        for streams in [
            // Read by nobody: the reader has ended before the first word.
            "{ sleep 0.2; PROGRAM; } | :",
            "{ sleep 0.2; PROGRAM 2>&1 >/dev/null; } | :",
            "{ sleep 0.2; PROGRAM 2>&1; } | :",
            "PROGRAM >/dev/full",
            "PROGRAM 2>/dev/full",
            "PROGRAM >/dev/full 2>&1",
            "PROGRAM >&-",
            "PROGRAM 2>&-",
            "PROGRAM <&- >&- 2>&-",
        ] {
            let (code, ran) = with_streams(&sandbox, streams, &program, &words);
            assert!(!ran.stderr.contains("panicked"), "{streams}: {ran}");
            // What was to be written to standard output and could not be is a failure, but for a reader that went away.
            let is_lost = is_told && expected == 0 && streams.contains(">/dev/full");
            assert!(code == expected || (is_lost && code == 1), "{streams}: ended with {code}: {ran}");
        }
    }
}

/// The reader went away: the wrapper keeps the signals that it was given, so that the runtime gets them, and must not be
/// ended by one that its own words raise.
#[test]
fn a_runtime_gets_its_streams_as_they_are() {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    write_program(&sandbox.low_level(), b"#!/bin/sh\necho said\nexit 7\n");
    let words: Vec<String> =
        ["create", "--bundle", sandbox.path("bundle").to_str().unwrap(), "c1"].map(str::to_owned).to_vec();
    for (streams, code) in [("PROGRAM", 7), ("PROGRAM 2>/dev/full", 7), ("PROGRAM 2>&-", 7), ("PROGRAM <&-", 7)] {
        let (ended, ran) = with_streams(&sandbox, streams, &sandbox.runtime(), &words);
        assert_eq!((ended, ran.stdout.as_str()), (code, "said\n"), "{streams}: {ran}");
    }
}
