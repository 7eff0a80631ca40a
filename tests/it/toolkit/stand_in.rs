//! The stand-in against rows of the toolkit's own tests, and rows that were derived from its source.

use std::process::Command;

use serde_json::{Value, json};

use crate::world::command::run_with_input;
use crate::world::{find_program, repository, require};

/// What its rules make of this input.
#[track_caller]
fn ask(program: &str, toolkit: &Value, inventory: &Value, input: &Value) -> Value {
    let rules = std::fs::read_to_string(repository().join("tests/toolkit/toolkit.jq")).unwrap();
    let mut jq = Command::new(find_program("jq"));
    jq.args(["-c", "--argjson", "toolkit", &toolkit.to_string(), "--argjson", "inventory", &inventory.to_string()]);
    let ran = run_with_input(jq.arg(format!("{rules} {program}")), input.to_string().as_bytes()).ok();
    serde_json::from_str(&ran.stdout).unwrap_or_else(|err| panic!("not JSON ({err}): {ran}"))
}

/// The container of a row: environment, capabilities, mounts and annotations.
fn container(row: &Value) -> Value {
    let env = row["env"].as_object().into_iter().flatten();
    let env: Vec<String> = env.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
    let bounding = if row["privileged"] == true { json!(["CAP_SYS_ADMIN"]) } else { json!(["CAP_CHOWN"]) };
    json!({
        "process": {"env": env, "capabilities": {"bounding": bounding}},
        "mounts": row["mounts"],
        "annotations": row["annotations"],
    })
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_stand_in_does_as_the_toolkit() {
    require(&["jq"]);
    let rows: Value =
        serde_json::from_slice(&std::fs::read(repository().join("tests/data/toolkit.json")).unwrap()).unwrap();
    let inventory = json!({"gpus": [
        {"index": 0, "minor": 1, "uuid": "GPU-aaaaaaaa-0000-0000-0000-000000000000", "pciBusId": "00000000:01:00.0"},
        {"index": 1, "minor": 0, "uuid": "GPU-bbbbbbbb-0000-0000-0000-000000000000", "pciBusId": "00000001:02:00.0"},
    ]});
    let mut count = 0;
    for row in rows.as_array().unwrap() {
        let mut toolkit =
            json!({"mode": "auto", "swarm": [], "mounts": false, "unprivileged": true, "prefixes": ["cdi.k8s.io/"]});
        toolkit.as_object_mut().unwrap().extend(row["toolkit"].as_object().cloned().unwrap_or_default());
        let ask = |program: &str, input: &Value| ask(program, &toolkit, &inventory, input);
        let found = match row["group"].as_str().unwrap() {
            "device.identifierKind" => ask("is_cdi_identifier", &row["id"]),
            "legacy.selectDevices" => {
                let program =
                    "split(\",\") | by_cli | .devices // null | if . then map(.names[0] | tonumber) else null end";
                ask(program, &row["list"])
            }
            "image.visibleDevicesFromEnvVar" => ask("from_variables", &container(row)),
            "image.visibleDevicesFromMounts" => ask("from_mounts", &container(row)),
            "image.cdiDeviceRequestsFromAnnotations" => ask("from_annotations", &container(row)),
            _ => ask("requested(true)", &container(row)),
        };
        assert_eq!(found, row["expect"], "{row:#}");
        count += 1;
    }
    assert!(count > 50, "{count} rows");
}
