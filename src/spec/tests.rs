//! Views of `config.json` that its members must allow.

use super::*;
use serde_json::json;

const GPU1: DeviceNumber = DeviceNumber { major: 195, minor: 1 };

fn rules(rules: impl serde::Serialize) -> bool {
    let spec = json!({"linux": {"resources": {"devices": rules}}});
    allowed(Spec::new(&spec).expect("spec").rules(), GPU1)
}

#[test]
fn signs_of_a_gpu() {
    let sign = |text: &str| has_gpu_sign(text.as_bytes());
    for text in [
        "nvidia",
        "[\"NVIDIA_VISIBLE_DEVICES=all\"]",
        "CUDA_VISIBLE_DEVICES=0",
        "{\"path\":\"/opt/nvidia/x\"}",
        "{\"major\":195}",
        "{\"major\" :\n 195, \"minor\": 0}",
    ] {
        assert!(sign(text), "{text}");
    }
    for text in ["", "v", "V", "major", "j", "vidia", "CUDA_DEVICE_ORDER", "{\"major\":19}", "{\"major\":", "\"major\""]
    {
        assert!(!sign(text), "{text}");
    }
}

#[test]
fn a_pods_sandbox_is_known_by_what_its_engine_writes() {
    let is_sandbox = |key: &str, value: &str| {
        let spec = json!({"annotations": {key: value}});
        Spec::new(&spec).expect("spec").is_sandbox()
    };
    assert!(is_sandbox("io.kubernetes.cri.container-type", "sandbox"));
    assert!(is_sandbox("io.kubernetes.cri-o.ContainerType", "sandbox"));
    assert!(!is_sandbox("io.kubernetes.cri.container-type", "container"));
    assert!(!is_sandbox("container-type", "sandbox"));
    assert!(!Spec::new(&json!({})).expect("spec").is_sandbox());
}

#[test]
fn rules_are_evaluated_as_runtimes_do() {
    let deny = json!({"allow": false, "access": "rwm"});
    let gpu = json!({"allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw"});
    assert!(!rules(json!([])));
    assert!(rules(json!([deny, gpu])));
    assert!(!rules(json!([gpu, deny])));
    assert!(rules(json!([deny, {"allow": true, "type": "c", "major": 195, "access": "rwm"}])));
    assert!(rules(json!([deny, {"allow": true, "type": "c", "major": 195, "minor": -1, "access": "rwm"}])));
    assert!(rules(json!([deny, {"allow": true}])));
    assert!(!rules(json!([{"allow": true, "type": "c", "major": 195, "minor": 1, "access": "r"}])));
    assert!(!rules(json!([{"allow": true, "type": "b", "major": 195, "minor": 1, "access": "rw"}])));
    assert!(rules(json!([{"allow": true, "type": "c", "major": 195, "minor": 1}])));
}

/// `tests/it/attacks/rules.rs` asks real runtimes the same.
#[test]
fn rules_for_every_type_and_rules_that_are_taken_back() {
    let deny = json!({"allow": false, "access": "rwm"});
    let allow = json!({"allow": true, "access": "rwm"});
    let of = |allow: bool, minor: Value, access: &str| json!({"allow": allow, "type": "c", "major": 195, "minor": minor, "access": access});
    let (gpu, all) = (of(true, json!(1), "rw"), of(true, Value::Null, "rw"));
    for any in [
        json!({"allow": true, "type": "a", "major": 195, "minor": 7, "access": "rwm"}),
        json!({"allow": true, "type": "a", "access": "r"}),
        json!({"allow": true, "major": 195, "minor": 7, "access": "m"}),
    ] {
        assert!(rules(json!([deny, any])), "{any}");
    }
    assert!(!rules(json!([deny, gpu, {"allow": false, "type": "a", "major": 1, "minor": 2, "access": "r"}])));
    assert!(rules(json!([deny, gpu, of(false, Value::Null, "rw")])), "only the same numbers are taken back");
    assert!(rules(json!([deny, all, of(false, json!(1), "rw")])), "crun; runc refuses it");
    assert!(!rules(json!([deny, gpu, of(false, json!(1), "w")])));
    assert!(!rules(json!([deny, of(true, json!(1), "r"), of(true, Value::Null, "w")])), "no exception has both");
    assert!(rules(json!([deny, of(true, json!(1), "r"), of(true, json!(1), "w")])));
    assert!(!rules(json!([allow, of(false, json!(1), "w")])));
    assert!(rules(json!([allow, of(false, json!(1), "rw"), gpu])));
    assert!(!rules(json!([allow, of(false, Value::Null, "rw"), gpu])));
}

#[test]
fn wrong_types_and_entries_are_named() {
    let text = |value: Value| Spec::new(&value).map(|_| ()).expect_err("invalid").to_string();
    assert_eq!(text(json!([])), "the file is not an object");
    assert_eq!(text(json!({"process": {"env": {}}})), "/process/env is not an array");
    assert_eq!(text(json!({"process": {"env": [1]}})), "/process/env/0 is not a string");
    assert_eq!(
        text(json!({"process": {"env": ["A=1", "B"]}})),
        "/process/env/1 \"B\" has no name and value (NAME=VALUE)"
    );
    assert_eq!(text(json!({"linux": {"devices": [1]}})), "/linux/devices/0 is not an object");
    assert!(Spec::new(&json!({"linux": null, "mounts": null})).is_ok());
}

#[test]
fn a_record_is_read_from_our_hook_entry_and_from_nowhere_else() {
    let record = json!({"version": 1, "original": {}, "provenance": "user", "emitted": {}, "granted": [],
                        "explicit": true, "kept": [], "openable": [], "gpus": []});
    let argument = format!("--record={record}");
    let entry = |path: &str| json!({"path": path, "args": ["cudaview-hook", "createRuntime", argument]});
    let read = |config: Value| {
        let whole = Spec::new(&config).expect("spec").record();
        assert_eq!(record_in(config.to_string().as_bytes()), whole, "both readers agree");
        whole.is_some()
    };
    let foreign = json!({"path": "/x", "args": null});
    assert!(read(json!({"hooks": {"createRuntime": [foreign, entry("/usr/bin/cudaview-hook")]}})));
    assert!(!read(json!({"hooks": {"createRuntime": [entry("/usr/bin/other")]}})));
    assert!(!read(json!({"process": {"args": ["cudaview-hook", "createRuntime", argument]}, "hooks": {}})));
    assert!(!read(json!({"annotations": {"a": argument}})));
}

#[test]
fn the_last_of_several_values_counts() {
    let spec = json!({"process": {"env": ["A=1", "AB=2", "A=", "B=3"]}});
    let spec = Spec::new(&spec).expect("spec");
    assert_eq!((spec.var("A"), spec.var("AB"), spec.var("C")), (Some(""), Some("2"), None));
}
