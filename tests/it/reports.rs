//! Public reports of containers with no GPU, the wrong one, or too few: what `explain` says of each.
//!
//! `tests/data/lint/reports.json` has what `lint` says of them. A case that neither can be asked about says why.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::command::{cudaview, data, json};

/// The number of reports that were collected.
const REPORTS: usize = 60;

/// The inventory of a case's host: a fixture, or so many GPUs, of these models.
fn host(case: &Value, folder: &std::path::Path) -> PathBuf {
    if let Some(name) = case["inventory"].as_str() {
        return data("inventories").join(name);
    }
    let count = case["gpus"].as_u64().expect("a number of GPUs");
    let gpu = |index: u64| {
        let model = usize::try_from(index).ok().and_then(|index| case["models"][index].as_str());
        json!({"index": index, "minor": index, "uuid": format!("GPU-{index:08x}-0000-4000-8000-{index:012x}"),
            "pciBusId": format!("00000000:{:02x}:00.0", index + 1), "name": model.unwrap_or("NVIDIA A100-SXM4-40GB")})
    };
    let gpus: Vec<Value> = (0..count).map(gpu).collect();
    let file = folder.join("inventory.json");
    let inventory = json!({"schemaVersion": 1, "driverVersion": "550.54.15", "gpus": gpus});
    std::fs::write(&file, inventory.to_string()).expect("written");
    file
}

/// The devices that a program sees, as a case names them: host indices, or MIG devices' UUIDs.
fn seen(visible: &Value, case: &Value) -> Value {
    let by_uuid = case["sees"][0].is_string();
    let name = |device: &Value| if by_uuid { device["uuid"].clone() } else { device["hostIndex"].clone() };
    visible.as_array().expect("a list").iter().map(name).collect()
}

#[test]
fn every_report_is_explained_or_says_who_can() {
    let text = std::fs::read(data("reports.json")).expect("the table");
    let cases: Vec<Value> = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(cases.len(), REPORTS);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "").expect("written");
    let mut explained = 0;
    for case in &cases {
        let name = case["case"].as_str().expect("a name");
        if let Some(reason) = case["not"].as_str() {
            assert!(!reason.is_empty() && case["sees"].is_null(), "{name}");
            continue;
        }
        let mut command = cudaview();
        command.args(["explain", "--format", "json", "--inventory"]).arg(host(case, folder.path()));
        command.arg("--config").arg(&config);
        command.args(case["arguments"].as_array().expect("arguments").iter().filter_map(Value::as_str));
        let told = json(&mut command);
        let sees = if told["verdict"] == "refused" { Value::Null } else { seen(&told["visible"], case) };
        assert_eq!(sees, case["sees"], "{name}: {told:#}");
        let findings: Value =
            told["findings"].as_array().expect("a list").iter().map(|finding| finding["code"].clone()).collect();
        assert_eq!(findings, case["findings"], "{name}: {told:#}");
        if !case["exec"].is_null() {
            assert_eq!(seen(&told["exec"]["visible"], case), case["exec"], "{name}: {told:#}");
        }
        explained += 1;
    }
    assert_eq!(explained, REPORTS - 12);
}
