//! The JSON that others build on; its form is a contract.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AsIs, Subject, container, image};
use crate::cuda::Prediction;
use crate::inventory::{Device, Inventory};
use crate::node::DeviceNode;
use crate::record::Variables;

/// The version of the JSON of `explain` and `predict`.
const SCHEMA_VERSION: u32 = 1;

/// `cudaview explain --format json`.
pub fn explain_json(subject: &Subject<'_>) -> Value {
    let Subject { inventory, situation, plan, .. } = *subject;
    let mut out = json!({
        "schemaVersion": SCHEMA_VERSION,
        "verdict": plan.verdict,
        "granted": plan.grant.devices.iter().map(|d| granted(inventory, *d)).collect::<Vec<_>>(),
        "visible": visible(inventory, &plan.visible, plan.openable()),
        "env": env(&situation.current, &plan.emitted),
        "deviceNodes": nodes(inventory, plan.openable()).into_iter().map(|node| node.path).collect::<Vec<_>>(),
        "provenance": {"CUDA_VISIBLE_DEVICES": situation.provenance},
        "findings": plan.findings,
        "withoutCudaview": {"visible": uuids(inventory, &plan.without.visible)},
    });
    if let Some(source) = &subject.image.source {
        out["image"] = image::json(source);
    }
    if let Some(container) = subject.container {
        let as_is = |now: &AsIs| Value::from(visible(inventory, &now.visible, &now.openable));
        out["container"] = container::json(container, subject.name, as_is);
    }
    if let Some(exec) = subject.exec {
        out["exec"] = json!({
            "verdict": exec.verdict,
            "visible": visible(inventory, &exec.visible, plan.openable()),
            "env": env(&exec.current, &exec.emitted),
            "findings": exec.findings,
        });
    }
    out
}

/// `cudaview predict --format json`.
pub fn predict_json(inventory: &Inventory, prediction: &Prediction) -> Value {
    json!({
        "schemaVersion": SCHEMA_VERSION,
        "visible": uuids(inventory, &prediction.visible),
        "certain": prediction.certain,
        "error": prediction.error,
        "notes": prediction.notes,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MigPart<'a> {
    parent_uuid: &'a str,
    gi: u32,
    ci: u32,
}

fn granted(inventory: &Inventory, device: Device) -> Value {
    let gpu = inventory.gpu(device);
    let members = json!({"hostIndex": gpu.index, "minor": gpu.minor, "uuid": inventory.uuid(device)});
    with_mig(inventory, device, members)
}

fn visible(inventory: &Inventory, devices: &[Device], openable: &[Device]) -> Vec<Value> {
    let entry = |(ordinal, device): (usize, &Device)| {
        let members = json!({
            "cudaOrdinal": ordinal,
            "containerIndex": container_index(openable, *device),
            "hostIndex": inventory.gpu(*device).index,
            "uuid": inventory.uuid(*device),
        });
        with_mig(inventory, *device, members)
    };
    devices.iter().enumerate().map(entry).collect()
}

fn with_mig(inventory: &Inventory, device: Device, mut members: Value) -> Value {
    if let (Some(mig), Value::Object(members)) = (inventory.mig(device), &mut members) {
        let part = MigPart { parent_uuid: inventory.gpu(device).uuid.as_str(), gi: mig.gi, ci: mig.ci };
        if let Ok(Value::Object(more)) = serde_json::to_value(part) {
            members.extend(more);
        }
    }
    members
}

/// Position of a device's GPU among the GPUs that the container can open; a MIG device counts as its GPU.
pub(super) fn container_index(openable: &[Device], device: Device) -> Option<usize> {
    let mut gpus: Vec<usize> = openable.iter().map(|device| device.gpu).collect();
    gpus.dedup();
    gpus.iter().position(|gpu| *gpu == device.gpu)
}

/// The GPU nodes of these devices, each once.
pub(super) fn nodes(inventory: &Inventory, devices: &[Device]) -> Vec<DeviceNode> {
    let mut nodes: Vec<DeviceNode> =
        devices.iter().map(|device| DeviceNode::gpu(inventory.gpu(*device).minor)).collect();
    nodes.dedup();
    nodes
}

fn env(before: &Variables, after: &Variables) -> Value {
    let mut set = Map::new();
    let mut unset = Vec::new();
    for ((name, before), after) in Variables::NAMES.iter().zip(before.values()).zip(after.values()) {
        match after {
            Some(value) if before != after => drop(set.insert((*name).to_owned(), Value::from(value))),
            None if before.is_some() => unset.push(*name),
            _ => {}
        }
    }
    json!({"set": set, "unset": unset})
}

fn uuids<'a>(inventory: &'a Inventory, devices: &[Device]) -> Vec<&'a str> {
    devices.iter().map(|device| inventory.uuid(*device)).collect()
}
