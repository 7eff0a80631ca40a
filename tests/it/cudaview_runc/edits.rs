//! The container's `config.json`: what is changed in it, and what is not.

use std::fs;

use serde_json::{Value, json};

use super::changes::changes;
use super::{Host, gpu_rules, node_paths, text_of};
use crate::sandbox::Untouched;
use crate::world::{Bundle, CUDA_ERROR_NO_DEVICE, spec};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_without_gpus_keeps_its_file() {
    let host = Host::new("");
    let bundle = host.bundle(&["true"], &["A=b"]);
    let pretty = serde_json::to_string_pretty(&bundle.spec()).unwrap() + "\n \n";
    fs::write(bundle.config(), &pretty).unwrap();
    let (before, text) = (Untouched::of(&bundle.config()), text_of(&bundle.config()));
    bundle.run().ok();
    let after = Untouched::of(&bundle.config());
    // The low-level runtime writes its log beside it.
    assert_eq!((text_of(&bundle.config()), after.stamp()), (text, before.stamp()));
    assert!(host.install.audit_records().is_empty());
}

/// There is a sign of a GPU, so the file is read; it still is not written.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_that_only_mentions_gpus_keeps_its_file() {
    let host = Host::new("");
    for env in ["CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"] {
        let bundle = host.bundle(&["gpu-count", "--json"], &[env]);
        fs::write(bundle.config(), serde_json::to_string_pretty(&bundle.spec()).unwrap()).unwrap();
        let (before, text) = (Untouched::of(&bundle.config()), text_of(&bundle.config()));
        let count = bundle.count();
        assert_eq!((count.cuda_error, count.nodes.len()), (CUDA_ERROR_NO_DEVICE, 0), "{env}");
        let after = Untouched::of(&bundle.config());
        assert_eq!((text_of(&bundle.config()), after.stamp()), (text, before.stamp()), "{env}");
    }
}

/// Members that no specification knows, numbers that no machine type holds, and an order that is not ours to change.
fn with_oddities(bundle: &Bundle) -> Value {
    let odd = r#"{"zzz":{"big":123456789012345678901234567890,"exact":1.10,"tiny":1e-400,"b":1,"a":[null,{"":""}]},
        "\u0000key":"\ud83d\ude00 \/ \u00e9","#;
    let text = text_of(&bundle.config());
    let text = format!("{odd}{}", &text[1..]);
    let text = text.replace(r#""linux":{"#, r#""linux":{"futureThing":[18446744073709551616,-0,-0.0],"#);
    fs::write(bundle.config(), &text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn with_gpus_only_what_is_planned_changes() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=1,3", "B=c"]);
    let before = with_oddities(&bundle);
    let count = bundle.count();
    assert_eq!(count.cuda, host.uuids_of(&[1, 3]));
    let after = bundle.spec();
    assert_eq!(
        changes(&before, &after),
        ["/process/env/2", "+/process/env/4", "+/process/env/5", "+/hooks"],
        "the engine had put the nodes there"
    );
    assert_eq!(after["process"]["env"][2], "CUDA_VISIBLE_DEVICES=0,1");
    assert_eq!(after["process"]["env"][4], "CUDA_DEVICE_ORDER=PCI_BUS_ID");
    assert_eq!(after["process"]["env"][5], "CUDAVIEW_HOST_GPUS=1,3");
    let text = text_of(&bundle.config());
    for number in ["123456789012345678901234567890", "1.10", "18446744073709551616", "-0.0"] {
        assert!(text.contains(number), "{number} is written as it was");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn narrowing_takes_nodes_and_rules_and_nothing_else() {
    let host = Host::new("");
    let bundle = host.granted(&[0, 1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]);
    let before = with_oddities(&bundle);
    let rules = before["linux"]["resources"]["devices"].as_array().unwrap().len();
    assert_eq!(bundle.count().nvml, host.uuids_of(&[3]));
    let after = bundle.spec();
    // Of the five rules at the end, those of GPUs 0 and 1 are the first two.
    let (first, second) = (rules - 5, rules - 4);
    let expected = [
        "/process/env/2".to_owned(),
        "+/process/env/3".to_owned(),
        "+/process/env/4".to_owned(),
        format!("-/linux/resources/devices/{first}"),
        format!("-/linux/resources/devices/{second}"),
        "-/linux/devices/0".to_owned(),
        "-/linux/devices/1".to_owned(),
        "+/hooks".to_owned(),
    ];
    assert_eq!(changes(&before, &after), expected);
    assert_eq!((node_paths(&after)[0], gpu_rules(&after).as_slice()), ("/dev/nvidia3", [3].as_slice()));
}

/// Nobody but us brings nodes here.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn native_injection_adds_nodes_and_rules() {
    let host = Host::new("[grant]\nbase = [\"1\", \"3\"]\n");
    let bundle = host.bundle(&["gpu-count", "--json"], &[]);
    bundle.edit(|spec| spec::add_hook(spec, "createRuntime", json!({"path": "/bin/true", "args": ["true"]})));
    let before = with_oddities(&bundle);
    let rules = before["linux"]["resources"]["devices"].as_array().unwrap().len();
    let count = bundle.count();
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[1, 3]), vec!["/dev/nvidia1".into(), "/dev/nvidia3".into()]));
    let after = bundle.spec();
    let mut expected: Vec<String> =
        ["+/process/env/2", "+/process/env/3", "+/process/env/4"].map(str::to_owned).to_vec();
    expected.extend((rules..rules + 4).map(|position| format!("+/linux/resources/devices/{position}")));
    expected.extend(["+/linux/devices".to_owned(), "+/hooks/createRuntime/1".to_owned()]);
    assert_eq!(changes(&before, &after), expected);
    for node in after["linux"]["devices"].as_array().unwrap() {
        assert_eq!((&node["type"], &node["fileMode"]), (&json!("c"), &json!(0o666)), "{node}");
    }
    let mut paths = node_paths(&after);
    paths.sort_unstable();
    assert_eq!(paths, ["/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidia3", "/dev/nvidiactl"]);
    let hook = &after["hooks"]["createRuntime"][1];
    assert!(hook["timeout"].is_null() && !hook["env"].as_array().unwrap().is_empty(), "{hook}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn creating_twice_changes_the_file_once() {
    for (config, minors, env) in [
        ("", &[1, 3][..], &["CUDA_VISIBLE_DEVICES=1,3"][..]),
        ("", &[0, 1, 3], &["CUDA_VISIBLE_DEVICES=3"]),
        ("", &[1, 3], &[]),
        ("", &[1, 3], &["CUDA_VISIBLE_DEVICES=1", "NVIDIA_VISIBLE_DEVICES=1,3"]),
        ("", &[1, 3], &["CUDA_VISIBLE_DEVICES=-1"]),
        ("[grant]\nbase = \"all\"\n", &[], &["CUDA_VISIBLE_DEVICES=2,1"]),
    ] {
        let host = Host::new(config);
        let bundle = host.bundle(&["gpu-count", "--json"], env);
        if !minors.is_empty() {
            bundle.edit(|spec| spec::grant_nodes(spec, minors));
        }
        let first = bundle.count();
        let (before, text) = (Untouched::of(&bundle.config()), text_of(&bundle.config()));
        let second = bundle.count();
        assert_eq!(second, first, "{env:?}");
        assert_eq!(text_of(&bundle.config()), text, "{env:?}");
        assert_eq!(Untouched::of(&bundle.config()).stamp(), before.stamp(), "not even written: {env:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn observe_changes_nothing() {
    let host = Host::new("mode = \"observe\"\n");
    let bundle = host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]);
    let (before, text) = (Untouched::of(&bundle.config()), text_of(&bundle.config()));
    assert_eq!(bundle.count().cuda_error, CUDA_ERROR_NO_DEVICE, "the bug is still there");
    assert_eq!((text_of(&bundle.config()), Untouched::of(&bundle.config()).stamp()), (text, before.stamp()));
    let record = host.install.audit_records().pop().unwrap();
    assert_eq!(
        (&record["mode"], &record["after"]["cvd"], &record["kept"]),
        (&json!("observe"), &json!("0"), &json!(["3"]))
    );
}
