//! What an earlier door did, in place of what would be decided now.

use serde_json::Value;

use crate::cuda;
use crate::inventory::{Device, Inventory};
use crate::plan::{Plan, Verdict};
use crate::reconcile::{Basis, Emission, Reconciliation, View};
use crate::record::{Decided, Record, Variables, devices};
use crate::report::AsIs;
use crate::request::Source;
use crate::situation::Situation;

/// Makes the plan say what the record says was done; whether it said something else before.
///
/// The record's devices must be in the inventory.
pub fn as_recorded(plan: &mut Plan, record: &Record, inventory: &Inventory) -> bool {
    let granted = devices(inventory, &record.granted);
    let (kept, openable) = (devices(inventory, record.kept()), devices(inventory, record.openable()));
    // A value that was too long for the record was left as it was.
    let emitted = |recorded: &Option<String>, planned: &Option<String>| {
        if record.original.has_mark() { recorded.clone().or_else(|| planned.clone()) } else { recorded.clone() }
    };
    let mut variables = record.emitted.clone();
    variables.visible_devices = emitted(&record.emitted.visible_devices, &plan.emitted.visible_devices);
    variables.device_order = emitted(&record.emitted.device_order, &plan.emitted.device_order);
    variables.nvidia_visible_devices =
        emitted(&record.emitted.nvidia_visible_devices, &plan.emitted.nvidia_visible_devices);
    let is_same = plan.verdict != Verdict::Refused
        && plan.grant.devices == granted
        && plan.kept() == kept
        && plan.openable() == openable
        && plan.emitted == variables;
    if is_same {
        return false;
    }
    let (value, order) = (variables.visible_devices.as_deref(), variables.device_order.as_deref());
    let prediction = cuda::predict(inventory, &openable, value, order);
    let is_changed = variables.visible_devices != record.original.visible_devices || kept != granted;
    plan.verdict = if is_changed { Verdict::Rewritten } else { Verdict::Consistent };
    plan.reconciliation = Some(Reconciliation {
        view: View::Devices(prediction.visible.clone()),
        // What was read how is not in the record.
        basis: Basis::Unset,
        kept,
        openable,
        visible_devices: Emission::Keep,
        device_order: Emission::Keep,
        refused: false,
        findings: Vec::new(),
    });
    plan.grant.devices = granted;
    plan.emitted = variables;
    (plan.visible, plan.certain) = (prediction.visible, prediction.certain);
    plan.findings.clear();
    true
}

/// What an audit record says was done, as the record in a bundle would; `None` where it does not say all of that, or
/// where its host numbers mean other GPUs by now.
pub fn from_audit(record: &Value, situation: &Situation, inventory: &Inventory) -> Option<Record> {
    let labels = |key: &str| record[key].as_array()?.iter().map(|label| label.as_str()).collect::<Option<Vec<_>>>();
    let all: Vec<Device> = (0..inventory.gpus.len()).flat_map(|gpu| inventory.devices_of(gpu)).collect();
    let named = |label: &str| all.iter().copied().find(|device| inventory.host_label(*device) == label);
    let of = |key: &str| labels(key)?.into_iter().map(named).collect::<Option<Vec<Device>>>();
    let variables = |key: &str| serde_json::from_value::<Variables>(record[key].clone()).ok();
    let (granted, kept) = (of("granted")?, of("kept")?);
    let emitted = variables("after")?;
    if let Some(uuids) = emitted.nvidia_visible_devices.as_deref().filter(|value| value.starts_with("GPU-")) {
        let mut said: Vec<&str> = uuids.split(',').collect();
        let mut now: Vec<&str> = kept.iter().map(|device| inventory.uuid(*device)).collect();
        said.sort_unstable();
        now.sort_unstable();
        if said != now {
            return None;
        }
    }
    let mut openable = [kept.as_slice(), &situation.openable_anyway].concat();
    openable.sort_unstable();
    openable.dedup();
    let decided = Decided {
        original: variables("before")?,
        provenance: serde_json::from_value(record["provenance"].clone()).ok()?,
        emitted,
        granted: &granted,
        explicit: true,
        asked: match record["source"][0].as_str() {
            Some("cdi") => Some(Source::Cdi),
            Some("nodes") => Some(Source::Nodes),
            Some("user") => Some(Source::User),
            _ => None,
        },
        kept: &kept,
        openable: &openable,
    };
    Some(Record::new(inventory, decided))
}

/// What there is in a container that cudaview had no hand in, or not the last.
///
/// `injects`: NVIDIA's runtime made it, which heeds an image's request.
pub fn as_is(plan: &Plan, situation: &Situation, inventory: &Inventory, injects: bool) -> AsIs {
    let is_given = injects || !plan.grant.requests.is_empty();
    let given = if is_given { plan.grant.requested.as_slice() } else { &[] };
    let mut openable = [given, &situation.openable_anyway].concat();
    openable.sort_unstable();
    openable.dedup();
    let original = &situation.original;
    let seen =
        cuda::predict(inventory, &openable, original.visible_devices.as_deref(), original.device_order.as_deref());
    AsIs { openable, visible: seen.visible, certain: seen.certain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::plan::plan;
    use crate::whatif::WhatIf;

    #[test]
    fn an_audit_record_says_the_same() {
        let text = include_bytes!("../tests/data/inventories/a100x4.json");
        let (inventory, config) = (Inventory::from_json(text).expect("fixture"), Config::built_in());
        let flag = crate::request::parse_gpus("\"device=1,3\"").expect("a flag");
        let env = vec!["CUDA_VISIBLE_DEVICES=1,3".to_owned()];
        let situation = WhatIf { gpus: vec![flag], env, ..WhatIf::default() }.situation(&inventory, &config);
        let done = plan(&inventory, &situation, &config);
        let mut audit = serde_json::json!({"granted": ["1", "3"], "kept": ["1", "3"], "provenance": "user",
            "before": situation.original, "after": done.emitted});
        let record = from_audit(&audit, &situation, &inventory).expect("a record");
        let bundle = done.record(&inventory, &situation);
        assert_eq!(record, bundle);
        // GPUs that were counted anew are others.
        audit["kept"] = serde_json::json!(["0", "1"]);
        assert_eq!(from_audit(&audit, &situation, &inventory), None);
        audit["kept"] = serde_json::json!(["7"]);
        assert_eq!(from_audit(&audit, &situation, &inventory), None);
        assert_eq!(from_audit(&Value::Null, &situation, &inventory), None);
    }

    #[test]
    fn the_record_outlives_a_change_of_mind() {
        let text = include_bytes!("../tests/data/inventories/a100x4.json");
        let (inventory, config) = (Inventory::from_json(text).expect("fixture"), Config::built_in());
        let of = |gpus: &str, value: &str| {
            let flag = crate::request::parse_gpus(gpus).expect("a flag");
            let env = vec![format!("CUDA_VISIBLE_DEVICES={value}")];
            let what_if = WhatIf { gpus: vec![flag], env, ..WhatIf::default() };
            let situation = what_if.situation(&inventory, &config);
            (plan(&inventory, &situation, &config), situation)
        };
        let (done, situation) = of("\"device=1,3\"", "1,3");
        let record = done.record(&inventory, &situation);
        let mut same = done.clone();
        assert!(!as_recorded(&mut same, &record, &inventory));
        assert_eq!(same, done);
        for (gpus, value) in [("all", "1,3"), ("1", "1"), ("\"device=1,3\"", "0")] {
            let (mut other, _) = of(gpus, value);
            assert!(as_recorded(&mut other, &record, &inventory), "{gpus} {value}");
            assert_eq!((&other.visible, other.verdict), (&done.visible, Verdict::Rewritten), "{gpus} {value}");
            assert_eq!((&other.emitted, other.kept()), (&done.emitted, done.kept()), "{gpus} {value}");
        }
    }
}
