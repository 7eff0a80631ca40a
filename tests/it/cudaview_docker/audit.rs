//! The audit trail, and the mode that writes it and changes nothing.

use serde_json::json;

use super::{GPUS_1_3, Host, IMAGE_CVD_0, entries};
use crate::world::dockerd::IMAGE;

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_audit_has_one_line_for_each_container_that_was_touched() {
    let host = Host::with_default("", Some("cudaview"));
    let records = || host.install.audit_records();
    assert_eq!(records(), [json!(null); 0], "the images were built without a GPU");
    host.docker.run(&[], IMAGE, &["true"]).ok();
    assert_eq!(records(), [json!(null); 0]);

    host.up("trainer", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    host.docker.exec_count(&[], "trainer");
    assert_eq!(records().len(), 1, "{:?}", records());
    let record = host.last_audit();
    let id = host.docker.inspect("trainer")["Id"].clone();
    let two = host.uuids_of(&[1, 3]).join(",");
    for (key, value) in [
        ("schemaVersion", json!(1)),
        ("door", json!("runtime")),
        ("mode", json!("enforce")),
        ("id", id),
        ("name", json!("trainer")),
        ("image", json!(IMAGE)),
        ("engine", json!("docker")),
        ("verdict", json!("rewritten")),
        ("source", json!(["gpus"])),
        ("granted", json!(["1", "3"])),
        ("kept", json!(["1", "3"])),
        ("visible", json!(["1", "3"])),
        ("provenance", json!("user")),
        ("before", json!({"cvd": "1,3", "nvd": "1,3"})),
        ("after", json!({"cvd": "0,1", "order": "PCI_BUS_ID", "nvd": two, "trace": "1,3"})),
    ] {
        assert_eq!(record[key], value, "{key} of {record}");
    }
    assert_eq!(record["findings"][0]["code"], "host-index-override");
    assert_eq!(record["findings"].as_array().unwrap().len(), 1, "{record}");
    let time = record["time"].as_str().unwrap();
    assert!(time.len() == 20 && time.ends_with('Z'), "{time}");

    host.count(IMAGE_CVD_0, &["--gpus", "all"]);
    assert_eq!(records().len(), 2);
    assert_eq!(host.last_audit()["provenance"], "image");
    // Nothing was granted to somebody who expected something.
    host.docker.count(&["-e", "CUDA_VISIBLE_DEVICES=0"], IMAGE);
    assert_eq!(records().len(), 3);
    let record = host.last_audit();
    assert_eq!(
        (&record["verdict"], &record["findings"][0]["code"]),
        (&json!("not-applicable"), &json!("nothing-granted"))
    );
    // Hiding GPUs that are not there is nothing to write down.
    host.docker.count(&["-e", "CUDA_VISIBLE_DEVICES=-1"], IMAGE);
    assert_eq!(records().len(), 3);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_observe_decides_and_changes_nothing() {
    let host = Host::new("mode = \"observe\"\n");
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    let spec = host.spec_of("one");
    assert_eq!(entries(&spec, "CUDA_VISIBLE_DEVICES"), ["CUDA_VISIBLE_DEVICES=1,3"]);
    assert_eq!(entries(&spec, "NVIDIA_VISIBLE_DEVICES"), ["NVIDIA_VISIBLE_DEVICES=1,3"]);
    assert_eq!(entries(&spec, "CUDA_DEVICE_ORDER"), [""; 0]);
    assert_eq!(spec["hooks"]["createRuntime"], json!(null), "{}", spec["hooks"]);
    assert_eq!(host.docker.hook_record().len(), 1, "NVIDIA's hook is still called");
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=5"], "one");
    assert_eq!((count.env["CUDA_VISIBLE_DEVICES"].as_str(), count.nodes.len()), ("5", 0));

    let record = host.last_audit();
    assert_eq!((&record["mode"], &record["verdict"]), (&json!("observe"), &json!("rewritten")));
    assert_eq!(record["after"]["cvd"], "0,1");
    // What would be refused starts, and is written down.
    host.docker.run(&["--runtime", "cudaview", "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"], IMAGE, &["true"]).ok();
    let record = host.last_audit();
    assert_eq!((&record["mode"], &record["verdict"]), (&json!("observe"), &json!("refused")));
    assert_eq!(host.install.audit_records().len(), 2);
}
