//! What people see: reports, errors, exit codes.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::command::{cudaview, data, text};

/// Runs it over an inventory of `tests/data`, with an empty configuration; stdout must be all that is printed.
pub(crate) fn explain(inventory: &str, arguments: &[&str]) -> String {
    explain_at(inventory, arguments, None)
}

pub(crate) fn explain_at(inventory: &str, arguments: &[&str], columns: Option<&str>) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let config = empty_config(folder.path());
    let mut command = cudaview();
    command.args(["explain", "--inventory"]).arg(data("inventories").join(inventory)).arg("--config").arg(config);
    command.args(arguments).envs(columns.map(|columns| ("COLUMNS", columns)));
    let (code, stdout, stderr) = text(&command.output().expect("cudaview starts"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    stdout
}

fn empty_config(folder: &Path) -> PathBuf {
    let path = folder.join("config.toml");
    std::fs::write(&path, "").expect("written");
    path
}

/// Runs it; for what ends with an error nothing may stand on stdout.
pub(crate) fn error(arguments: &[&str]) -> String {
    error_of(cudaview().args(arguments), arguments)
}

/// As [`error`], in lines that are long enough for any path.
pub(crate) fn error_unwrapped(arguments: &[&str]) -> String {
    error_of(cudaview().args(arguments).env("COLUMNS", "1000"), arguments)
}

fn error_of(command: &mut std::process::Command, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = text(&command.output().expect("cudaview starts"));
    assert_eq!(stdout, "", "{arguments:?}");
    format!("{stderr}exit {}", code.expect("an exit code"))
}

#[test]
fn host_numbers_with_an_image_that_asks_for_all() {
    insta::assert_snapshot!(explain(
        "a100x4.json",
        &["--gpus", "\"device=1,3\"", "--image-env", "NVIDIA_VISIBLE_DEVICES=all", "-e", "CUDA_VISIBLE_DEVICES=1,3",]
    ));
}

#[test]
fn refused() {
    insta::assert_snapshot!(explain("a100x4.json", &["--image-env", "NVIDIA_VISIBLE_DEVICES=all"]));
    insta::assert_snapshot!(explain("a100x4.json", &["--gpus", "device=7"]));
}

#[test]
fn hidden_on_purpose() {
    insta::assert_snapshot!(explain("a100x4.json", &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=-1"]));
}

#[test]
fn withheld_and_exec() {
    insta::assert_snapshot!(explain(
        "a100x4.json",
        &["--gpus", "all", "--unknown-env", "CUDA_VISIBLE_DEVICES=2,3", "--exec-env", "CUDA_VISIBLE_DEVICES=1",]
    ));
}

#[test]
fn privileged() {
    insta::assert_snapshot!(explain("a100x4.json", &["--privileged", "--gpus", "\"device=2,3\""]));
    insta::assert_snapshot!(explain("a100x4.json", &["--privileged", "-e", "CUDA_VISIBLE_DEVICES=2"]));
}

#[test]
fn an_order_that_is_not_certain() {
    insta::assert_snapshot!(explain(
        "mixed5.json",
        &["--gpus", "all", "-e", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "-e", "CUDA_VISIBLE_DEVICES=0",]
    ));
}

#[test]
fn mig() {
    insta::assert_snapshot!(explain("a100mig4.json", &["--gpus", "device=0", "-e", "CUDA_VISIBLE_DEVICES=0,1"]));
}

#[test]
fn whole_uuids_on_a_wide_terminal() {
    insta::assert_snapshot!(explain_at("a100x4.json", &["--device", "nvidia.com/gpu=3"], Some("130")));
}

#[test]
fn tables_fit_80_columns() {
    for inventory in ["a100x4.json", "a100mig4.json", "h100x8.json", "mixed5.json"] {
        let path = data("inventories").join(inventory);
        let table = cudaview().arg("inventory").arg("--inventory").arg(path).output().expect("cudaview starts");
        let reports = [
            text(&table).1,
            explain(inventory, &["--gpus", "all"]),
            explain(inventory, &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=1"]),
            explain(inventory, &["--device", "nvidia.com/gpu=1", "--image-env", "CUDA_VISIBLE_DEVICES=7,6,5,4,3,2"]),
        ];
        for line in reports.iter().flat_map(|report| report.lines()) {
            // A whole UUID cannot be broken.
            assert!(line.chars().count() <= 80 || line.contains("-0000-"), "{inventory}: {line}");
        }
    }
}

#[test]
fn the_json_of_explain() {
    let arguments = ["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=3", "--format", "json"];
    insta::assert_snapshot!(explain("a100x4.json", &arguments));
    let mig = explain("a100mig4.json", &["--gpus", "device=0:1", "--format", "json"]);
    let mig: Value = serde_json::from_str(&mig).expect("JSON");
    let uuid = "MIG-0101c0de-0000-5000-8000-000000000011";
    let parent = "GPU-a0400000-0001-4000-8000-000000001111";
    assert_eq!(
        mig["visible"],
        json!([{"cudaOrdinal": 0, "containerIndex": 0, "hostIndex": 0, "uuid": uuid,
                "parentUuid": parent, "gi": 2, "ci": 0}])
    );
    assert_eq!(
        mig["granted"],
        json!([{"hostIndex": 0, "minor": 0, "uuid": uuid, "parentUuid": parent, "gi": 2, "ci": 0}])
    );
}

#[test]
fn the_json_of_exec() {
    let exec = |value: &str| {
        let entry = format!("CUDA_VISIBLE_DEVICES={value}");
        let arguments = ["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3", "--exec-env", &entry];
        let answer = explain("a100x4.json", &[arguments.as_slice(), &["--format", "json"]].concat());
        serde_json::from_str::<Value>(&answer).expect("JSON")["exec"].clone()
    };
    assert_eq!(exec("1,3")["env"]["set"]["CUDA_VISIBLE_DEVICES"], "0,1");
    let one = exec("1");
    assert_eq!(one["verdict"], "consistent");
    assert_eq!((&one["visible"][0]["hostIndex"], &one["visible"][0]["containerIndex"]), (&json!(3), &json!(1)));
    assert_eq!(exec("2")["verdict"], "refused");
    assert_eq!(exec("2")["findings"][0]["code"], "override-matches-nothing");
}

#[test]
fn a_list_that_mig_cuts_short_is_a_finding() {
    let arguments = ["--gpus", "device=0", "-e", "CUDA_VISIBLE_DEVICES=0,1", "--format", "json"];
    let answer: Value = serde_json::from_str(&explain("a100mig4.json", &arguments)).expect("JSON");
    assert_eq!(answer["findings"][0]["code"], "override-exceeds-grant");
    assert_eq!(answer["findings"][0]["severity"], "warning");
}

#[test]
fn a_hint_to_leave_a_value_out_holds() {
    let hint = |value: &str| {
        let entry = format!("CUDA_VISIBLE_DEVICES={value}");
        let arguments = ["--gpus", "\"device=1,3\"", "-e", &entry, "--format", "json"];
        let answer: Value = serde_json::from_str(&explain("a100x4.json", &arguments)).expect("JSON");
        answer["findings"][0]["hint"].as_str().expect("a hint").to_owned()
    };
    assert_eq!(hint("1,3"), "leave CUDA_VISIBLE_DEVICES out, or count from 0: 0,1");
    assert_eq!(hint("3,1"), "count from 0 among the granted GPUs: 1,0");
    assert_eq!(hint("3"), "count from 0 among the granted GPUs: 1");
}

#[test]
fn a_bare_name_unsets() {
    let arguments = ["--gpus", "all", "--image-env", "CUDA_VISIBLE_DEVICES=0", "-e", "CUDA_VISIBLE_DEVICES"];
    let answer: Value =
        serde_json::from_str(&explain("a100x4.json", &[&arguments[..], &["--format", "json"]].concat())).expect("JSON");
    assert_eq!(answer["provenance"]["CUDA_VISIBLE_DEVICES"], "unset");
    assert_eq!(answer["env"]["set"]["CUDA_VISIBLE_DEVICES"], "0,1,2,3");
    assert!(explain("a100x4.json", &arguments).contains("removed by -e CUDA_VISIBLE_DEVICES"));
}

#[test]
fn a_bundle() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {"env": ["CUDA_VISIBLE_DEVICES=3", "NVIDIA_VISIBLE_DEVICES=void"]},
        "linux": {
            "devices": [{"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3}],
            "resources": {"devices": [{"allow": false, "access": "rwm"},
                {"allow": true, "type": "c", "major": 195, "minor": 3, "access": "rw"}]},
        },
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    let path = folder.path().to_str().expect("UTF-8");
    let answer: Value =
        serde_json::from_str(&explain("a100x4.json", &["--bundle", path, "--format", "json"])).expect("JSON");
    assert_eq!((&answer["verdict"], &answer["visible"][0]["hostIndex"]), (&json!("rewritten"), &json!(3)));
    assert_eq!(answer["provenance"]["CUDA_VISIBLE_DEVICES"], "unknown");
    insta::assert_snapshot!(explain("a100x4.json", &["--bundle", path]));

    std::fs::write(folder.path().join("config.json"), "{").expect("written");
    let inventory = data("inventories/a100x4.json");
    let shown = error_unwrapped(&["explain", "--inventory", inventory.to_str().expect("UTF-8"), "--bundle", path]);
    assert!(shown.starts_with("cudaview: failed to read \"") && shown.ends_with("exit 4"), "{shown}");
    assert!(shown.contains("config.json\": not JSON: EOF while parsing"), "{shown}");
}

/// A container that the wrapper has rewritten: its variables are our own writing, and the record says what they were.
#[test]
fn a_bundle_that_was_rewritten() {
    let config = cudaview::config::Config::built_in();
    let text = std::fs::read(data("inventories/a100x4.json")).expect("a fixture");
    let inventory = cudaview::inventory::Inventory::from_json(&text).expect("a fixture");
    let what_if = cudaview::whatif::WhatIf {
        gpus: vec![cudaview::request::parse_gpus("\"device=1,3\"").expect("a good --gpus")],
        env: vec!["CUDA_VISIBLE_DEVICES=1,3".to_owned()],
        ..Default::default()
    };
    let situation = what_if.situation(&inventory, &config);
    let plan = cudaview::plan::plan(&inventory, &situation, &config);
    let record = serde_json::to_string(&plan.record(&inventory, &situation)).expect("JSON");
    let names = cudaview::record::Variables::NAMES.into_iter().zip(plan.emitted.values());
    let env: Vec<String> = names.filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
    let node = |minor: u32| json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
    let rule = |minor: u32| json!({"allow": true, "type": "c", "major": 195, "minor": minor, "access": "rw"});
    let hook = json!({"path": "/usr/bin/cudaview-hook",
                      "args": ["cudaview-hook", "createRuntime", format!("--record={record}")]});
    let spec = json!({
        "ociVersion": "1.0.2",
        "process": {"env": env},
        "hooks": {"createRuntime": [hook]},
        "linux": {"devices": [node(1), node(3)],
                  "resources": {"devices": [{"allow": false, "access": "rwm"}, rule(1), rule(3)]}},
    });
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.json"), spec.to_string()).expect("written");
    insta::assert_snapshot!(explain("a100x4.json", &["--bundle", folder.path().to_str().expect("UTF-8")]));
}

#[test]
fn files_that_cannot_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let path = path.to_str().expect("UTF-8");
    let shown = |arguments: &[&str]| error_unwrapped(arguments).replace(path, "FILE");
    insta::assert_snapshot!(shown(&["predict", "--inventory", path]), @r#"
    cudaview: failed to read the inventory "FILE": No such file or directory (os error 2)
    hint: an inventory file is what cudaview inventory --format json prints
    exit 5
    "#);
    std::fs::write(path, "{}").expect("written");
    insta::assert_snapshot!(shown(&["predict", "--inventory", path]), @r#"
    cudaview: failed to read the inventory "FILE": not an inventory: missing field `schemaVersion` at line 1 column 2
    hint: an inventory file is what cudaview inventory --format json prints
    exit 4
    "#);
    std::fs::write(path, "narow = true\n").expect("written");
    insta::assert_snapshot!(shown(&["explain", "--config", path]), @r#"
    cudaview: failed to read the configuration "FILE": line 1: unknown field `narow`, expected one of `inventory`, `dev_root`, `low_level_runtime`, `inject`, `cdi_spec_dirs`, `mode`, `trace`, `audit`, `reconcile`, `grant`, `limit`, `hook`
    hint: correct FILE, or remove it to use the defaults
    exit 6
    "#);
}

#[test]
fn screens() {
    let stdout = |arguments: &[&str]| {
        let (code, stdout, stderr) = text(&cudaview().args(arguments).output().expect("cudaview starts"));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
        stdout
    };
    insta::assert_snapshot!(stdout(&["help"]));
    insta::assert_snapshot!(stdout(&["help", "explain"]));
    insta::assert_snapshot!(stdout(&["demo"]));
    insta::assert_snapshot!(stdout(&["explain", "host-index-override"]));
    assert_eq!(stdout(&["explain", "--help"]), stdout(&["help", "explain"]));
    assert!(stdout(&["--version"]).starts_with("cudaview 0."));
}

#[test]
fn the_inventory() {
    let shown = |inventory: &str, format: &str| {
        let path = data("inventories").join(inventory);
        let output = cudaview().args(["inventory", "--format", format, "--inventory"]).arg(path).output();
        text(&output.expect("cudaview starts"))
    };
    insta::assert_snapshot!(shown("a100mig4.json", "human").1);
    insta::assert_snapshot!(shown("mixed5.json", "human").1);
    let again: Value = serde_json::from_str(&shown("a100mig4.json", "json").1).expect("JSON");
    let file = std::fs::read(data("inventories/a100mig4.json")).expect("a file");
    assert_eq!(again, serde_json::from_slice::<Value>(&file).expect("JSON"));
}

#[test]
fn predict_for_people() {
    let path = data("inventories/a100x4.json");
    let path = path.to_str().expect("UTF-8");
    let shown = |value: &str| {
        let output = cudaview().args(["predict", "--inventory", path, "--cuda-visible-devices", value]).output();
        text(&output.expect("cudaview starts")).1
    };
    insta::assert_snapshot!(shown("3,1,9"), @r#"
    2 GPUs: cuda:0 is host GPU 3, cuda:1 is host GPU 1 (certain)

      PROGRAM  HOST  UUID          NAME
      cuda:0   3     GPU-a3100000  NVIDIA A100-SXM4-40GB
      cuda:1   1     GPU-a1100000  NVIDIA A100-SXM4-40GB
    note: "9" is not valid here and ends the list
    "#);
    insta::assert_snapshot!(shown("0,0"), @r#"
    no GPU: CUDA finds no device (certain)
    note: "0" names a device twice, so CUDA shows none
    "#);
    insta::assert_snapshot!(shown("-1"), @r#"
    no GPU: CUDA finds no device (certain)
    note: "-1" is not valid here and ends the list
    "#);
    insta::assert_snapshot!(shown("+1"), @r#"
    1 GPU: cuda:0 is host GPU 1 (not certain)

      PROGRAM  HOST  UUID          NAME
      cuda:0   1     GPU-a1100000  NVIDIA A100-SXM4-40GB
    note: a sign in the first entry: re-implementations disagree
    "#);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = cudaview()
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cudaview starts");
    // Closed before or while it writes: both must end alike.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!((child.wait().expect("it ends").code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_one() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = cudaview().stdout(full).output().expect("cudaview starts");
    let (code, _, stderr) = text(&output);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.starts_with("cudaview: failed to write to stdout: No space left"), "{stderr}");
}

#[test]
fn no_colours_in_a_pipe() {
    assert!(!explain("a100x4.json", &["--gpus", "all"]).contains('\u{1b}'));
}

#[test]
fn every_program_says_what_it_is() {
    for (name, program) in
        [("cudaview-hook", env!("CARGO_BIN_EXE_cudaview-hook")), ("cudaview-nvml", env!("CARGO_BIN_EXE_cudaview-nvml"))]
    {
        let ask = |argument| text(&std::process::Command::new(program).arg(argument).output().expect("it starts"));
        let (code, help, stderr) = ask("--help");
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{name}");
        assert!(help.starts_with(&format!("{name}: ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert_eq!(ask("--version").1, format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
        let (code, _, stderr) = ask("--no-such");
        assert_eq!(code, Some(2), "{name}: {stderr}");
    }
}
