//! What the CDI library would not load, and what is made of the files that it would.

use super::*;
use crate::inventory::{Device, Inventory};

/// A specification as NVIDIA's generator writes it, small.
fn spec(devices: &str) -> String {
    format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{devices}], "containerEdits": {{
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
            "deviceNodes": [{{"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255, "fileMode": 438}}],
            "mounts": [{{"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi",
                         "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}}],
            "hooks": [{{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
                        "args": ["nvidia-cdi-hook", "update-ldcache"], "env": ["NVIDIA_CTK_DEBUG=false"]}}]
        }}}}"#
    )
}

fn device(name: &str, minor: u32) -> String {
    format!(
        r#"{{"name": "{name}", "containerEdits": {{"deviceNodes": [
            {{"path": "/dev/nvidia{minor}", "type": "c", "major": 195, "minor": {minor}}},
            {{"path": "/dev/dri/card{minor}", "type": "c", "major": 226, "minor": {minor}, "gid": 44}}]}}}}"#
    )
}

fn source(file: &str, priority: usize, text: &str) -> Source {
    Source { file: file.to_owned(), priority, spec: parse(text, Format::Json).expect("a specification") }
}

/// Two GPUs whose minors are the other way round.
fn inventory() -> Inventory {
    let gpu = |index: u32, minor: u32| {
        format!(
            r#"{{"index": {index}, "minor": {minor}, "name": "A", "uuid": "GPU-0000000{index}-0000-0000-0000-000000000000"}}"#
        )
    };
    let text = format!(r#"{{"schemaVersion": 1, "gpus": [{}, {}]}}"#, gpu(0, 1), gpu(1, 0));
    Inventory::from_json(text.as_bytes()).expect("an inventory")
}

const GPUS: [Device; 2] = [Device { gpu: 0, mig: None }, Device { gpu: 1, mig: None }];

#[test]
fn a_mistake_is_named_by_its_member() {
    let check = |from: &str, to: &str, expected: &str| {
        let text = spec(&device("0", 0)).replace(from, to);
        assert_eq!(parse(&text, Format::Json).expect_err(expected).to_string(), expected);
    };
    check("0.5.0", "9.9.9", "cdiVersion: \"9.9.9\": it is none of the versions 0.3.0 to 1.1.0");
    check("nvidia.com/gpu", "gpu", "kind: \"gpu\" is no VENDOR/CLASS");
    check("\"name\": \"0\"", "\"name\": \"-\"", "devices[0].name: \"-\" is no device name");
    check("=void", "", "containerEdits.env[0]: \"NVIDIA_VISIBLE_DEVICES\" has no name and value");
    check("\"createContainer\"", "\"later\"", "containerEdits.hooks[0].hookName: \"later\" is no stage");
    check(
        "\"hostPath\": \"/usr",
        "\"hostPath\": \"usr",
        "containerEdits.mounts[0].hostPath: \"usr/bin/nvidia-smi\" is no absolute path",
    );
    check("\"minor\": 0}", "\"minor\": -1}", "devices[0].containerEdits.deviceNodes[0].minor: -1 is no device number");
    check("0.5.0", "0.4.0", "devices[0].name: cdiVersion 0.4.0 does not have it, 0.5.0 does");
    check(
        "\"mounts\"",
        "\"additionalGids\": [44], \"mounts\"",
        "containerEdits.additionalGids: cdiVersion 0.5.0 does not have it, 0.7.0 does",
    );
    check(
        "\"devices\": [",
        "\"devices\": [], \"annotations\": [",
        "annotations: invalid type: sequence, expected a map",
    );
    let unknown = spec(&device("0", 0)).replace("\"mounts\"", "\"mount\"");
    let error = parse(&unknown, Format::Json).expect_err("unknown").to_string();
    assert!(error.starts_with("containerEdits.mount: unknown field `mount`, expected one of "), "{error}");
    let twice = spec(&format!("{},{}", device("0", 0), device("0", 1)));
    let error = parse(&twice, Format::Json).expect_err("twice").to_string();
    assert_eq!(error, "devices[1].name: \"0\" is the name of devices[0] too");
    let none = parse(&spec(""), Format::Json).expect_err("none").to_string();
    assert_eq!(none, "devices: there is none");
}

#[test]
fn yaml_is_read_like_json() {
    let json = parse(&spec(&device("0", 0)), Format::Json).expect("JSON");
    // JSON is YAML too.
    assert_eq!(parse(&spec(&device("0", 0)), Format::Yaml).expect("YAML"), json);
    let text = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n  - name: \"0\"\n    containerEdits:\n      \
                deviceNodes:\n        - path: /dev/nvidia0\n          major: 195\n          type: c\n          fileMode: 0o666\n\
                containerEdits:\n  env:\n    - A=b\n  hooks: null\n";
    let spec = parse(text, Format::Yaml).expect("a specification");
    assert_eq!(spec.devices[0].container_edits.device_nodes[0].file_mode, Some(0o666));
    assert_eq!(spec.container_edits.env, ["A=b"]);
    let error = |text| parse(text, Format::Yaml).expect_err("a mistake").to_string();
    assert!(error("a: b: c\n").starts_with("line 1 column "), "{}", error("a: b: c\n"));
    assert_eq!(error(""), "the file: it is empty");
    assert_eq!(error("a: 1\n---\nb: 2\n"), "the file: it holds more than one document");
    assert_eq!(error("1: 2\n"), "the file: a member's name is no text");
    // An unquoted number is no name.
    let error = error(&text.replace("\"0\"", "0"));
    assert_eq!(error, "devices[0].name: invalid type: number, expected a string");
}

#[test]
fn a_gpu_is_found_by_name_and_by_its_node() {
    let inventory = inventory();
    let both = source("a.yaml", 0, &spec(&format!("{},{}", device("0", 1), device("1", 0))));
    let edits = inject(&[both], &inventory, &GPUS).expect("agreed").expect("there is one");
    let paths: Vec<&str> = edits.nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(paths, ["/dev/nvidiactl", "/dev/nvidia1", "/dev/dri/card1", "/dev/nvidia0", "/dev/dri/card0"]);
    assert_eq!(edits.env, ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"], "NVIDIA_VISIBLE_DEVICES is ours");
    assert_eq!(
        (edits.mounts.len(), edits.hooks.len(), edits.files.as_slice()),
        (1, 1, ["a.yaml".to_owned()].as_slice())
    );
    assert_eq!(edits.missing, []);

    // Other names: by the node alone.
    let other = source("a.yaml", 0, &spec(&device("gpu0", 1)));
    let edits = inject(&[other], &inventory, &GPUS).expect("agreed").expect("there is one");
    assert_eq!(edits.missing, [GPUS[1]]);
    assert!(edits.nodes.iter().any(|node| node.path == "/dev/nvidia1"));
    assert_eq!(inject(&[], &inventory, &GPUS), Ok(None));
}

#[test]
fn a_later_folder_replaces_an_earlier_ones_device() {
    let inventory = inventory();
    let old = source("/etc/cdi/a.yaml", 0, &spec(&device("0", 1)).replace("/dev/dri/card1", "/dev/dri/old"));
    let new = source("/run/cdi/b.yaml", 1, &spec(&device("0", 1)));
    let edits = inject(&[old.clone(), new], &inventory, &GPUS[..1]).expect("agreed").expect("there is one");
    assert!(edits.nodes.iter().all(|node| node.path != "/dev/dri/old"));
    assert_eq!(edits.files, ["/run/cdi/b.yaml"]);
    let same = source("/etc/cdi/b.yaml", 0, &spec(&device("0", 1)));
    let error = inject(&[old, same], &inventory, &GPUS[..1]).expect_err("contradictory").to_string();
    assert_eq!(error, "/etc/cdi/b.yaml: devices[0].name: \"0\" is in /etc/cdi/a.yaml too");
}

#[test]
fn no_file_gives_a_container_another_gpu() {
    let inventory = inventory();
    let check = |text: &str, expected: &str| {
        let error = inject(&[source("a.yaml", 0, text)], &inventory, &GPUS[..1]).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    };
    // Written before the minors changed places.
    check(
        &spec(&device("0", 0)),
        "a.yaml: devices[0].containerEdits.deviceNodes: \"0\" is host GPU 0 here, whose node is /dev/nvidia1; \
         the file is out of date",
    );
    check(
        &spec(&device("0", 1)).replace("\"minor\": 255", "\"minor\": 0"),
        "a.yaml: containerEdits.deviceNodes[0]: it would give every container a GPU",
    );
    check(
        &spec(&device("0", 1))
            .replace("\"path\": \"/dev/dri/card1\", \"type\": \"c\", \"major\": 226", "\"path\": \"/dev/gone\""),
        "a.yaml: devices[0].containerEdits.deviceNodes[1]: this host has no device \"/dev/gone\"",
    );
    // A device with two GPUs is neither of them.
    let two = spec(&device("all", 1).replace("226, \"minor\": 1", "195, \"minor\": 0"));
    let edits = inject(&[source("a.yaml", 0, &two)], &inventory, &GPUS[..1]).expect("agreed").expect("there is one");
    assert_eq!(edits.missing, GPUS[..1]);
}

/// The nodes of a MIG device in a specification: its GPU's, and these capability nodes.
fn mig_device(name: &str, minor: u32, capabilities: [u32; 2]) -> String {
    let [gi, ci] = capabilities.map(|minor| {
        format!(r#"{{"path": "/dev/nvidia-caps/nvidia-cap{minor}", "type": "c", "major": 509, "minor": {minor}}}"#)
    });
    let gpu = format!(r#"{{"path": "/dev/nvidia{minor}", "type": "c", "major": 195, "minor": {minor}}}"#);
    format!(r#"{{"name": "{name}", "containerEdits": {{"deviceNodes": [{gpu}, {gi}, {ci}]}}}}"#)
}

/// A MIG device goes by its UUID, its index, or its type and index, and only while its capability nodes are its own: the
/// numbers change hands when a GPU is divided anew.
#[test]
fn mig_devices_have_their_own_capability_nodes() {
    let text = include_str!("../../tests/data/inventories/a100mig4.json");
    let inventory = Inventory::from_json(text.as_bytes()).expect("fixture");
    let second = Device { gpu: 0, mig: Some(1) };
    let inject = |name: &str, capabilities: [u32; 2]| {
        let sources = [source("nvidia.json", 0, &spec(&mig_device(name, 0, capabilities)))];
        inject(&sources, &inventory, &[second])
    };
    for name in ["0:1", "mig0:1", "MIG-0101c0de-0000-5000-8000-000000000011"] {
        let edits = inject(name, [21, 22]).expect(name).expect("a specification");
        let nodes: Vec<&str> = edits.nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(nodes.len(), 4, "{name}: {nodes:?}");
        assert!(edits.missing.is_empty(), "{name}");
    }
    let error = inject("0:1", [12, 13]).expect_err("another's").to_string();
    assert_eq!(
        error,
        "nvidia.json: devices[0].containerEdits.deviceNodes: \"0:1\" is MIG device 0:1 here, \
         and it would give MIG device 0:0 too; the file is out of date"
    );
    let common = spec(&mig_device("0:1", 0, [21, 22])).replacen("195, \"minor\": 255", "509, \"minor\": 12", 1);
    let error = super::inject(&[source("nvidia.json", 0, &common)], &inventory, &[second]).expect_err("for everybody");
    assert_eq!(error.to_string(), "nvidia.json: containerEdits.deviceNodes[0]: it would give every container a GPU");
    let edits = inject("0", [21, 22]).expect("another name").expect("a specification");
    assert_eq!(edits.missing, [second], "which one it is, only its name says");
}

/// A file of some hundred bytes can come to gigabytes, and one of two bytes a level to more levels than the stack has.
#[test]
fn a_file_that_grows_without_end_is_refused() {
    let error = |text: &str| parse(text, Format::Yaml).expect_err("too much").to_string();
    let start = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n";
    let level = |n: usize| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 9].join(", "));
    let levels: String = (1..12).map(level).collect();
    assert_eq!(error(&format!("{start}l0: &l0 [a]\n{levels}")), "line 10 column 35: its aliases come to too much");
    let long = format!("{start}l: &l {}\nm: [{}]\n", "x".repeat(1 << 20), "*l, ".repeat(20));
    assert!(error(&long).ends_with(": its aliases come to too much"));
    assert!(error(&format!("{start}l:\n{}x\n", "- ".repeat(1 << 16))).ends_with(": it lies too deep"));
    assert!(error(&format!("{start}l: {}", "[".repeat(200))).ends_with(": it lies too deep"));
    // Aliases as people write them.
    let text = format!(
        "{start}devices:\n- name: \"0\"\n  containerEdits: &e {{env: [\"A=1\"]}}\n- name: \"1\"\n  containerEdits: *e\n"
    );
    assert_eq!(parse(&text, Format::Yaml).expect("a specification").devices.len(), 2);
}
