//! Every vector of `tests/data/cvd-vectors.json` through `cudaview predict`.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use serde_json::{Value, json};

use crate::command::{cudaview, data, json};

/// Confidence for which the answer has to be the vector's.
const BINDING: [&str; 3] = ["documented", "driver-observed", "driver-claimed"];

#[test]
fn every_vector() {
    let vectors: Vec<Value> =
        serde_json::from_slice(&std::fs::read(data("cvd-vectors.json")).expect("a file")).expect("JSON");
    let mut faults = Vec::new();
    let mut compared = 0;
    for vector in &vectors {
        let id = vector["id"].as_str().expect("an id");
        let confidence = vector["confidence"].as_str().expect("a confidence");
        let answer = predict(vector);
        let is_known = vector["visible"].is_array();
        let agrees = answer["visible"] == vector["visible"];
        if !is_known && answer["certain"] != false {
            faults.push(format!("{id}: nobody knows, and the answer is certain: {answer}"));
        } else if is_known && BINDING.iter().any(|word| confidence.starts_with(word)) {
            compared += 1;
            if !agrees {
                faults.push(format!("{id} ({confidence}): {} instead of {}", answer["visible"], vector["visible"]));
            }
        } else {
            print_decision(vector, &answer);
        }
        let is_empty = answer["visible"] == json!([]);
        assert_eq!(answer["error"], if is_empty { json!("no-device") } else { Value::Null }, "{id}");
    }
    assert!(faults.is_empty(), "faults:\n{}", faults.join("\n"));
    assert!(compared >= 46 && vectors.len() >= 93, "{compared} of {} compared", vectors.len());
}

/// Shown with `--nocapture`: what is decided where no rule is binding.
fn print_decision(vector: &Value, answer: &Value) {
    let agreement = match &vector["visible"] {
        Value::Array(_) if answer["visible"] == vector["visible"] => "(agrees)",
        Value::Array(_) => "(differs)",
        _ => "(nobody knows)",
    };
    let count = |value: &Value| value.as_array().map_or("?".to_owned(), |list| list.len().to_string());
    println!(
        "{:28} {:34} {:>2} GPUs, vector {:>2}, {} {}",
        vector["id"].as_str().unwrap_or_default(),
        vector["cudaVisibleDevices"].to_string().chars().take(34).collect::<String>(),
        count(&answer["visible"]),
        count(&vector["visible"]),
        if answer["certain"] == true { "certain" } else { "not certain" },
        agreement,
    );
}

fn predict(vector: &Value) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("inventory.json");
    let inventory = json!({"schemaVersion": 1, "driverVersion": vector["driverVersion"], "gpus": vector["gpus"]});
    std::fs::write(&path, inventory.to_string()).expect("written");
    let mut command = cudaview();
    command.args(["predict", "--format", "json", "--inventory"]).arg(&path);
    for (flag, key) in [("--cuda-visible-devices", "cudaVisibleDevices"), ("--cuda-device-order", "cudaDeviceOrder")] {
        if let Some(value) = vector[key].as_str() {
            command.arg(format!("{flag}={value}"));
        }
    }
    json(&mut command)
}
