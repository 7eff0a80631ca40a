//! Files and paths that are meant to stop us, or to be read in two ways.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;

use crate::sandbox::{Sandbox, Untouched, gpu_spec, plain_spec};
use crate::world::command::run;

fn fifo(sandbox: &Sandbox, name: &str) {
    mkfifoat(CWD, sandbox.path(name), Mode::RUSR | Mode::WUSR).unwrap();
}

#[track_caller]
fn at_once<T>(work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    assert!(begin.elapsed() < Duration::from_secs(5), "it waited");
    result
}

/// Opening a FIFO that nobody reads blocks for ever, and so does writing to one that is full.
#[test]
fn an_audit_trail_that_is_a_fifo_holds_nothing_up() {
    let sandbox = Sandbox::new("");
    fifo(&sandbox, "audit.jsonl");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    at_once(|| sandbox.create()).ok();

    let options = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(sandbox.path("audit.jsonl"));
    let _reader = options(OpenOptions::new().read(true)).unwrap();
    let mut writer = options(OpenOptions::new().write(true)).unwrap();
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    at_once(|| sandbox.create()).ok();
    assert_eq!(sandbox.started().len(), 2);
}

/// Some engines start their runtimes with an umask of 0: anybody could put another trail in place of this one.
#[test]
fn the_folder_of_the_audit_trail_is_its_owners_alone() {
    let sandbox = Sandbox::new("");
    let folder = sandbox.path("new/log");
    let config = fs::read_to_string(sandbox.path("prefix/etc/cudaview/config.toml")).unwrap();
    let trail = folder.join("audit.jsonl");
    let config = config.replace(sandbox.path("audit.jsonl").to_str().unwrap(), trail.to_str().unwrap());
    sandbox.write("prefix/etc/cudaview/config.toml", config);
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(sandbox.runtime());
    run(shell.args(["create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1")).ok();
    assert!(trail.is_file());
    for path in [&folder, &sandbox.path("new"), &trail] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{path:?} {mode:o}");
    }
}

#[test]
fn a_log_that_is_a_fifo_or_a_folder_holds_nothing_up() {
    let sandbox = Sandbox::new("");
    fifo(&sandbox, "log/log.json");
    sandbox.write("bundle/config.json", r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES"]}}"#);
    let ran = at_once(|| sandbox.create()).failed_with(4);
    assert!(ran.stderr.contains("/process/env/0"), "{ran}");
    let debug = |sandbox: &Sandbox| {
        run(sandbox.command().args(["--debug", "create", "--bundle"]).arg(sandbox.path("bundle")).arg("c1"))
    };
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    at_once(|| debug(&sandbox)).ok();
    fs::remove_file(sandbox.path("log/log.json")).unwrap();
    fs::create_dir(sandbox.path("log/log.json")).unwrap();
    at_once(|| debug(&sandbox)).ok();
    assert_eq!(sandbox.started().len(), 2);
}

/// The hook would be sent to another root than the container's.
#[test]
fn a_root_that_json_cannot_hold_is_refused() {
    let sandbox = Sandbox::new("");
    let bundle = sandbox.path("").join(OsStr::from_bytes(b"b\xff"));
    fs::create_dir(&bundle).unwrap();
    let create = |spec: serde_json::Value| {
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let before = Untouched::of(&bundle.join("config.json"));
        let ran = run(sandbox.command().args(["create", "--bundle"]).arg(&bundle).arg("c1"));
        assert_eq!(Untouched::of(&bundle.join("config.json")), before);
        ran
    };
    let ran = create(gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"])).failed_with(4);
    assert!(ran.stderr.contains("is not UTF-8"), "{ran}");
    create(plain_spec()).ok();
    create(json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}})).ok();
}

/// Spaces, newlines, and what looks like an option arrive as they are.
#[test]
fn a_root_with_an_odd_name_arrives_whole() {
    for name in ["a b", "a\nb", "--gpus=all", "a=b", "\u{202e}\"\\"] {
        let sandbox = Sandbox::new("");
        let bundle = sandbox.path(name);
        fs::create_dir(&bundle).unwrap();
        fs::write(bundle.join("config.json"), gpu_spec(&[]).to_string()).unwrap();
        run(sandbox.command().args(["create", "--bundle"]).arg(&bundle).arg("c1")).ok();
        let spec: serde_json::Value = serde_json::from_slice(&fs::read(bundle.join("config.json")).unwrap()).unwrap();
        let root = spec["hooks"]["createRuntime"][0]["args"][2].as_str().unwrap();
        assert_eq!(root, format!("--root={}", bundle.join("rootfs").display()));
    }
}

/// runc takes the last of two members, or merges them, and takes "Env" for "env"; crun takes the first.
#[test]
fn a_configuration_that_runtimes_read_differently_is_refused() {
    let good = gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]).to_string();
    let devices = r#""devices":[{"path":"/dev/x","type":"c","major":195,"minor":0}],"devices":["#;
    for (bad, word) in [
        (good.replacen("\"env\":[", "\"env\":[],\"env\":[", 1), "\"env\" is there twice"),
        (good.replacen("\"env\":[", "\"Env\":[\"CUDA_VISIBLE_DEVICES=0\"],\"env\":[", 1), "another case"),
        (good.replacen("{\"", "{\"Process\":{\"env\":[]},\"", 1), "\"Process\" is in another case"),
        (good.replacen("\"devices\":[", devices, 1), "\"devices\" is there twice"),
        (good.replacen("\"linux\":", "\"\u{212a}\":1,\"LINUX\":", 1), "another case"),
        (good.clone() + "{}", "trailing"),
        (format!("\u{feff}{good}"), "expected value"),
    ] {
        assert_ne!(bad, good);
        let sandbox = Sandbox::new("");
        sandbox.write("bundle/config.json", &bad);
        let before = Untouched::of(&sandbox.path("bundle/config.json"));
        let ran = sandbox.create().failed_with(4);
        assert!(ran.stderr.contains(word), "{word}: {ran}");
        assert_eq!(Untouched::of(&sandbox.path("bundle/config.json")), before);
        assert_eq!(sandbox.started(), [""; 0]);
        // Without a GPU it is for the runtime to judge.
        sandbox.write("bundle/config.json", r#"{"Process":{},"process":{},"process":{}}"#);
        sandbox.create().ok();
    }
}
