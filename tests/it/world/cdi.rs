//! CDI: the specification that `nvidia-ctk cdi generate` would write for the simulated host.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Install, inventory};

/// Writes a specification of all GPUs of an inventory fixture, by their host indices, into a folder that is made.
///
/// Its nodes come from the simulated host, and it says `NVIDIA_VISIBLE_DEVICES=void` as NVIDIA's does, so that a hook
/// which runs all the same adds nothing.
pub(crate) fn write_spec(folder: &Path, install: &Install, inventory_name: &str) {
    let host = install.dev_root().join("dev");
    let node = |name: &str| json!({"path": format!("/dev/{name}"), "hostPath": host.join(name)});
    let inventory: Value = serde_json::from_slice(&fs::read(inventory(inventory_name)).unwrap()).unwrap();
    let devices: Vec<Value> = inventory["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| {
            let nodes = [node(&format!("nvidia{}", gpu["minor"]))];
            json!({"name": gpu["index"].to_string(), "containerEdits": {"deviceNodes": nodes}})
        })
        .collect();
    let spec = json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [node("nvidiactl"), node("nvidia-uvm")],
        },
    });
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("nvidia.json"), spec.to_string()).unwrap();
}
