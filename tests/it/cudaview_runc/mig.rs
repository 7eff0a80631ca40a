//! Parts of a GPU, and hosts whose cards differ.

use serde_json::json;

use crate::world::command::run;
use crate::world::count::{COUNT, Count};
use crate::world::{Bundle, Install, require, uuids};

/// Two MIG devices on GPU 0, three whole GPUs.
const MIG: &str = "a100mig4.json";
/// Five cards, not all of one model.
const MIXED: &str = "mixed5.json";

const FIRST: &str = "MIG-0100c0de-0000-5000-8000-000000000010";
const SECOND: &str = "MIG-0101c0de-0000-5000-8000-000000000011";

/// What a container of this grant sees with these variables.
#[track_caller]
fn count(inventory: &str, base: &[&str], env: &[&str]) -> (Count, Vec<String>) {
    require(&["runc"]);
    let install = Install::new(inventory, &format!("[grant]\nbase = {}\n", json!(base)));
    let bundle = Bundle::with_runtime(&install.runtime(), inventory, &COUNT, env);
    let count = bundle.count();
    let record = install.audit_records().pop().unwrap();
    let findings = record["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned());
    (count, findings.collect())
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_mig_device_is_granted_with_its_gpus_node() {
    let (seen, _) = count(MIG, &["0:1"], &[]);
    assert_eq!(seen.nodes, ["/dev/nvidia0"]);
    assert_eq!(seen.env.get("CUDA_VISIBLE_DEVICES"), None, "many programs read integers and die of a MIG name");

    let value = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    let (seen, _) = count(MIG, &["0"], &[&value]);
    assert_eq!(
        (seen.cuda.as_slice(), seen.nodes.as_slice()),
        ([SECOND.to_owned()].as_slice(), ["/dev/nvidia0".to_owned()].as_slice())
    );
    assert_eq!(seen.env["CUDA_VISIBLE_DEVICES"], SECOND);

    // A whole GPU beside it goes when the value leaves it out.
    let value = format!("CUDA_VISIBLE_DEVICES={FIRST}");
    let (seen, findings) = count(MIG, &["0", "2"], &[&value]);
    assert_eq!(
        (seen.cuda.as_slice(), seen.nodes.as_slice()),
        ([FIRST.to_owned()].as_slice(), ["/dev/nvidia0".to_owned()].as_slice())
    );
    assert!(findings.contains(&"withheld".to_owned()), "{findings:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_names_a_mig_device() {
    let install = Install::new(MIG, "[grant]\nbase = [\"0\"]\n");
    require(&["runc"]);
    let bundle = Bundle::with_runtime(&install.runtime(), MIG, &["sleep", "1000"], &[]);
    bundle.up();
    assert_eq!(bundle.exec_count(&[&format!("CUDA_VISIBLE_DEVICES={SECOND}")]).cuda, [SECOND]);
    let foreign = format!("CUDA_VISIBLE_DEVICES={}", uuids(MIG)[1]);
    let ran = bundle.exec(&["true"], &[&foreign]).failed_with(3);
    assert!(ran.stderr.contains("names none of this container's GPUs"), "{ran}");
    assert!(ran.stderr.lines().count() <= 6, "{ran}");
    run(bundle.command().args(["kill", bundle.id(), "KILL"])).ok();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cards_that_differ_are_counted_in_pci_order() {
    let all = uuids(MIXED);
    let (seen, findings) = count(MIXED, &["0", "1", "2", "3", "4"], &[]);
    assert_eq!((seen.cuda, seen.nvml), (all.clone(), all.clone()));
    assert_eq!(seen.env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    assert_eq!(findings, ["device-order-changed"]);

    let order = "CUDA_DEVICE_ORDER=FASTEST_FIRST";
    let (seen, findings) = count(MIXED, &["1", "3", "4"], &[order, "CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(seen.env["CUDA_VISIBLE_DEVICES"], "1", "nobody can say what it means");
    assert_eq!((seen.nvml.len(), findings), (3, vec!["device-order-mixed".to_owned()]));

    let (seen, _) = count(MIXED, &["1", "3", "4"], &[order, &format!("CUDA_VISIBLE_DEVICES={},{}", all[4], all[1])]);
    assert_eq!(seen.cuda, [all[4].clone(), all[1].clone()]);
}
