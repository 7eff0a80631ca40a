//! Nothing but the container's own bundle decides for a process that is added to it.

use std::fs;

use serde_json::json;

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::run;

/// A created container, and its bundle's configuration, which holds a record.
fn created() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    sandbox.create().ok();
    let config = fs::read(sandbox.path("bundle/config.json")).unwrap();
    assert!(config.windows(9).any(|window| window == b"--record="));
    (sandbox, config)
}

/// The environment of a process that is added, where `--log` and the process file are in these folders.
#[track_caller]
fn exec(sandbox: &Sandbox, log: &str, process: &str, id: &str) -> String {
    fs::create_dir_all(sandbox.path(process)).unwrap();
    let file = format!("{process}/process.json");
    sandbox.write(&file, json!({"args": ["true"], "env": ["A=b", "CUDA_VISIBLE_DEVICES=3"]}).to_string());
    let mut command = sandbox.command();
    command.arg("--log").arg(sandbox.path(log).join("log.json"));
    run(command.arg("exec").arg("--process").arg(sandbox.path(&file)).arg(id)).ok();
    let process: serde_json::Value = serde_json::from_slice(&fs::read(sandbox.path(&file)).unwrap()).unwrap();
    process["env"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|e| e.as_str()?.strip_prefix("CUDA_VISIBLE_DEVICES="))
        .unwrap()
        .to_owned()
}

/// `/tmp` is where some engines put process files and logs, and where others, a container with that mount among them, can
/// put a `config.json`.
#[test]
fn a_configuration_in_a_folder_that_others_write_to_is_no_bundle() {
    let (sandbox, config) = created();
    for folder in ["tmp/a/b", "real/c1/userdata"] {
        fs::create_dir_all(sandbox.path(folder)).unwrap();
    }
    for forged in ["tmp/config.json", "tmp/a/config.json", "real/c1/userdata/config.json"] {
        sandbox.write(forged, &config);
    }
    assert_eq!(exec(&sandbox, "log", "tmp/a/b", "c1"), "3", "two folders above the process file");
    assert_eq!(exec(&sandbox, "tmp", "log", "c1"), "3", "beside the log");
    assert_eq!(exec(&sandbox, "real/c1/userdata", "log", "c1"), "0", "the container's own");
    assert_eq!(exec(&sandbox, "log", "real/c1/userdata/x", "c1"), "0", "podman's");
    assert_eq!(exec(&sandbox, "real/c1/userdata", "log", "c2"), "3", "another container's");
    for odd in ["..", ".", "/", ""] {
        assert_eq!(exec(&sandbox, "real/c1/userdata", "log", odd), "3", "{odd:?}");
    }
}

/// A record that cannot be read is none: the process is passed on as it came, and no device depends on it.
#[test]
fn a_configuration_that_was_replaced_decides_nothing() {
    let (sandbox, config) = created();
    fs::create_dir_all(sandbox.path("real/c1")).unwrap();
    let text = String::from_utf8(config).unwrap();
    let record = text.split("--record=").nth(1).unwrap().split("\",\"env\"").next().unwrap_or_default().to_owned();
    let huge = format!("{}{}", text, " ".repeat(17 << 20));
    let forgeries = [
        text.replace("\"createRuntime\"", "\"poststop\""),
        text.replace("cudaview-hook\",\"args\"", "other-hook\",\"args\""),
        text.replace("\\\"version\\\":1", "\\\"version\\\":2"),
        text.replacen('{', "{\"hooks\":{},", 1),
        huge,
        text[..text.len() / 2].to_owned(),
        json!({"process": {"args": ["cudaview-hook", "createRuntime", format!("--record={record}")]}}).to_string(),
        json!({"annotations": {"hooks": format!("--record={record}")}, "hooks": {"createRuntime": []}}).to_string(),
        "--record=".to_owned(),
    ];
    for forgery in forgeries {
        sandbox.write("real/c1/config.json", &forgery);
        assert_eq!(exec(&sandbox, "real/c1", "log", "c1"), "3", "{forgery:.300}");
    }
}
