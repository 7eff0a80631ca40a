//! Rows: a running container on which all is well, one thing changed, and what is said about it.

use super::*;
use crate::device::DeviceNumber;
use crate::record::{Record, Variables};

const RECORD: &str = r#"{"version":1,"original":{"cvd":"1,3"},"provenance":"user",
    "emitted":{"cvd":"0,1","order":"PCI_BUS_ID"},"granted":["GPU-a","GPU-b"],"explicit":true,
    "gpus":[{"index":1,"minor":1,"uuid":"GPU-a"},{"index":3,"minor":3,"uuid":"GPU-b"}]}"#;

fn well() -> Inside {
    let node = |minor: u32| {
        let number = DeviceNumber { major: 195, minor };
        InsideNode {
            path: format!("/dev/nvidia{minor}"),
            number,
            state: Some(NodeState::There(number, 0o666)),
            allowed: Some(true),
        }
    };
    let record: Record = serde_json::from_str(RECORD).expect("a record");
    Inside {
        name: "trainer".to_owned(),
        state: Some("running".to_owned()),
        is_running: true,
        runtime: Some("cudaview".to_owned()),
        is_ours: Some(true),
        has_bundle: true,
        variables: Some(record.emitted.clone()),
        record: Some(record),
        pid: Some(4711),
        nodes: vec![node(1), node(3)],
        more: Vec::new(),
        rules: "devices.list".to_owned(),
    }
}

#[track_caller]
fn check(name: &str, change: impl FnOnce(&mut Inside), status: Status, words: &[&str]) {
    let mut inside = well();
    change(&mut inside);
    let checks = examine_container(&inside);
    let check = checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name}: {checks:#?}"));
    assert_eq!(check.status, status, "{check:#?}");
    let said = format!("{}\n{}\n{}", check.line, check.consequence, check.fix);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {check:#?}");
    }
    if check.is_problem() {
        assert!(!check.consequence.is_empty() && !check.fix.is_empty() && !check.looked_at.is_empty(), "{check:#?}");
    }
}

use Status::{Error, Ok as Fine, Skipped, Warning};

#[test]
fn a_container_on_which_all_is_well() {
    assert!(examine_container(&well()).iter().all(|check| check.status == Fine));
    check("container", |_| {}, Fine, &["trainer: running, its first process is 4711"]);
    check("cudaview", |_| {}, Fine, &["decided for host GPUs 1 and 3"]);
    let stopped = |inside: &mut Inside| (inside.is_running, inside.state) = (false, Some("exited".to_owned()));
    check("container", stopped, Warning, &["trainer does not run (exited)", "cudaview explain --container trainer"]);
}

#[test]
fn a_container_that_cudaview_did_not_decide_for() {
    let plain = |inside: &mut Inside| {
        (inside.record, inside.is_ours, inside.runtime) = (None, Some(false), Some("runc".to_owned()));
    };
    check("cudaview", plain, Warning, &["it was started with runc", "cudaview explain --container trainer"]);
    check("variables", plain, Skipped, &["nothing was decided"]);
    check("cudaview", |inside| inside.record = None, Warning, &["granted it no GPU"]);
    let denied = |inside: &mut Inside| {
        (inside.record, inside.has_bundle, inside.variables) = (None, false, None);
        inside.nodes.clear();
    };
    for name in ["cudaview", "variables"] {
        check(name, denied, Skipped, &["needs root: sudo cudaview doctor"]);
    }
    for name in ["nodes", "device rules"] {
        check(name, denied, Skipped, &["planned"]);
    }
}

#[test]
fn nodes_and_rules() {
    check("nodes", |_| {}, Fine, &["2 are there, with the right numbers"]);
    let missing = |inside: &mut Inside| inside.nodes[0].state = Some(NodeState::Missing);
    check("nodes", missing, Error, &["/dev/nvidia1 is not there", "start it again"]);
    let other = |inside: &mut Inside| inside.nodes[0].number.minor = 2;
    check("nodes", other, Error, &["/dev/nvidia1 is another device"]);
    check("nodes", |inside| inside.nodes[1].state = None, Skipped, &["needs root"]);
    let more = |inside: &mut Inside| inside.more = vec!["/dev/nvidia0".to_owned()];
    check("nodes", more, Warning, &["more than was decided: /dev/nvidia0", "--privileged"]);
    check("device rules", |_| {}, Fine, &["let it open each"]);
    let closed = |inside: &mut Inside| inside.nodes[1].allowed = Some(false);
    check("device rules", closed, Error, &["do not let it open /dev/nvidia3", "daemon-reload"]);
    check("device rules", |inside| inside.nodes[1].allowed = None, Skipped, &["nobody enforces any"]);
}

#[test]
fn variables() {
    check("variables", |_| {}, Fine, &["has what was decided"]);
    let set = |value: &str| {
        let variables = Variables::collect(|name| match name {
            "CUDA_VISIBLE_DEVICES" => Some(value).filter(|value| !value.is_empty()),
            "CUDA_DEVICE_ORDER" => Some("PCI_BUS_ID"),
            _ => None,
        });
        move |inside: &mut Inside| inside.variables = Some(variables)
    };
    check("variables", set("0,1"), Fine, &[]);
    check("variables", set("3"), Warning, &["CUDA_VISIBLE_DEVICES is \"3\", and \"0,1\" was decided", "ENTRYPOINT"]);
    check("variables", set(""), Warning, &["CUDA_VISIBLE_DEVICES is unset, and \"0,1\" was decided"]);
    check("variables", |inside| inside.variables = None, Skipped, &["needs root"]);
}
