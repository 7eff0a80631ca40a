//! Every row of `tests/data/scenarios.json` through `cudaview explain`.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::collections::BTreeSet;

use serde_json::Value;

use crate::command::{cudaview, data, json};

#[test]
fn every_scenario() {
    let file: Value = serde_json::from_slice(&std::fs::read(data("scenarios.json")).expect("a file")).expect("JSON");
    let scenarios = file["scenarios"].as_array().expect("scenarios");
    let mut faults = Vec::new();
    for scenario in scenarios {
        let id = scenario["id"].as_str().expect("an id");
        faults.extend(compare(scenario, &explain(scenario)).into_iter().map(|fault| format!("{id}: {fault}")));
    }
    assert!(faults.is_empty(), "{} scenarios, faults:\n{}", scenarios.len(), faults.join("\n"));
    assert!(scenarios.len() >= 60, "{} scenarios are too few", scenarios.len());
}

/// The `README` field of the file says how a row becomes a command line.
/// A row without a configuration gets an empty one, so that the one of the machine plays no part.
fn explain(scenario: &Value) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    std::fs::write(&config, scenario["config"].as_str().unwrap_or_default()).expect("written");
    let inventory = data("inventories").join(scenario["inventory"].as_str().expect("an inventory"));
    let arguments = scenario["args"].as_array().expect("arguments").iter().map(|a| a.as_str().expect("a string"));
    json(
        cudaview()
            .args(["explain", "--format", "json", "--inventory"])
            .arg(&inventory)
            .arg("--config")
            .arg(&config)
            .args(arguments),
    )
}

fn compare(scenario: &Value, answer: &Value) -> Vec<String> {
    let expect = &scenario["expect"];
    let mut faults = Vec::new();
    let mut check = |what: &str, found: &Value, wanted: &Value| {
        if found != wanted {
            faults.push(format!("{what} is {found}, not {wanted}"));
        }
    };
    check("verdict", &answer["verdict"], &expect["verdict"]);
    let verdict = expect["verdict"].as_str().expect("a verdict");
    if verdict != "refused" {
        check("CUDA_VISIBLE_DEVICES", &value_afterwards(scenario, answer), &expect["cudaVisibleDevices"]);
    }
    if !matches!(verdict, "refused" | "not-applicable") {
        let ordinals: Value = list(&answer["visible"]).iter().map(|device| device["hostIndex"].clone()).collect();
        if !expect["ordinals"].is_null() {
            check("ordinals", &ordinals, &expect["ordinals"]);
        }
        check("nodes", &host_indices(scenario, &answer["deviceNodes"]), &expect["nodes"]);
    }
    let found: BTreeSet<&str> = list(&answer["findings"]).iter().filter_map(|f| f["code"].as_str()).collect();
    for code in list(&expect["findings"]) {
        if !code.as_str().is_some_and(|code| found.contains(code)) {
            faults.push(format!("no finding {code} in {found:?}"));
        }
    }
    faults
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// `env.set`, else as it came: the last of `--env`, else of the others.
fn value_afterwards(scenario: &Value, answer: &Value) -> Value {
    const NAME: &str = "CUDA_VISIBLE_DEVICES";
    if let Some(set) = answer["env"]["set"].get(NAME) {
        return set.clone();
    }
    let arguments: Vec<&str> = list(&scenario["args"]).iter().filter_map(Value::as_str).collect();
    let given = |flag: &str| {
        let pairs = arguments.windows(2).rev().filter(|pair| pair[0] == flag);
        pairs.filter_map(|pair| pair[1].split_once('=')).find(|(key, _)| *key == NAME).map(|(_, value)| value)
    };
    let value = ["--env", "--unknown-env", "--image-env"].into_iter().find_map(given);
    value.map_or(Value::Null, Value::from)
}

/// Host indices of node paths, in order: a node is named after its minor.
fn host_indices(scenario: &Value, nodes: &Value) -> Value {
    let path = data("inventories").join(scenario["inventory"].as_str().expect("an inventory"));
    let inventory: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let mut indices: Vec<u64> = list(nodes)
        .iter()
        .filter_map(|node| {
            let minor: u64 = node.as_str()?.strip_prefix("/dev/nvidia")?.parse().ok()?;
            list(&inventory["gpus"]).iter().find(|gpu| gpu["minor"] == minor)?["index"].as_u64()
        })
        .collect();
    assert_eq!(indices.len(), list(nodes).len(), "{nodes}");
    indices.sort_unstable();
    Value::from(indices)
}
