//! An image whose requests NVIDIA's own runtime, which runs after us, would take for an operator's.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::sandbox::{Sandbox, gpu_spec, plain_spec};
use crate::world::command::write_program;
use crate::world::{A100X4, uuids};

/// What NVIDIA's runtime gets.
fn spec_handed_on(config: &str, spec: &Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().join("nvidia-container-runtime");
    write_program(&runtime, b"#!/bin/sh\nexit 0\n");
    let sandbox = Sandbox::new(&format!("low_level_runtime = ['{}']\n{config}", runtime.display()));
    // Only root can make the driver's control nodes; any character device does where nothing opens it.
    fs::create_dir_all(sandbox.path("host/dev")).unwrap();
    for name in ["nvidiactl", "nvidia-uvm"] {
        symlink("/dev/null", sandbox.path("host/dev").join(name)).unwrap();
    }
    sandbox.write_spec(spec);
    sandbox.create().ok();
    let text = fs::read_to_string(sandbox.path("bundle/config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// `NVIDIA_VISIBLE_DEVICES` as NVIDIA's runtime gets it.
fn handed_on(config: &str, mut spec: Value, env: &[&str]) -> Option<String> {
    spec["process"]["env"] = env.into();
    let spec = spec_handed_on(config, &spec);
    let values: Vec<&str> = spec["process"]["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry.as_str()?.strip_prefix("NVIDIA_VISIBLE_DEVICES="))
        .collect();
    assert!(values.len() < 2, "{values:?}");
    values.first().map(|value| (*value).to_owned())
}

/// NVIDIA's runtime gives every GPU to an image that has `CUDA_VERSION` and no `NVIDIA_VISIBLE_DEVICES`.
#[test]
fn an_image_of_an_old_cuda_gets_no_gpu_by_being_silent() {
    let plain = |env: &[&str]| handed_on("", plain_spec(), env);
    assert_eq!(plain(&["CUDA_VERSION=10.2"]).as_deref(), Some("void"));
    assert_eq!(plain(&["CUDA_VERSION=x", "NVIDIA_REQUIRE_CUDA=cuda>=1"]).as_deref(), Some("void"));
    assert_eq!(plain(&["CUDA_VERSION=10.2", "NVIDIA_VISIBLE_DEVICES=all"]).as_deref(), Some("void"));
    assert_eq!(plain(&["CUDA_VERSION=10.2", "NVIDIA_VISIBLE_DEVICES=none"]).as_deref(), Some("none"));
    assert_eq!(plain(&["CUDA_VERSION="]), None);
    assert_eq!(plain(&["A=b"]), None);
}

/// The engine put nodes 1 and 3 into the container; an image that hides them from CUDA leaves the rest to NVIDIA's runtime.
#[test]
fn an_image_that_hides_every_gpu_from_cuda_gets_no_other() {
    let uuids = uuids(A100X4);
    let two = format!("{},{}", uuids[1], uuids[3]);
    for config in ["", "inject = \"native\"\n", "inject = \"engine\"\n", "inject = \"nvidia\"\n"] {
        for env in [
            &["CUDA_VISIBLE_DEVICES=-1", "NVIDIA_VISIBLE_DEVICES=all"][..],
            &["CUDA_VISIBLE_DEVICES=-1", "CUDA_VERSION=10.2"],
            &["CUDA_VERSION=10.2"],
            &["NVIDIA_VISIBLE_DEVICES=0,1,2,3", "CUDA_VISIBLE_DEVICES=none"],
        ] {
            assert_eq!(handed_on(config, gpu_spec(&[]), env).as_deref(), Some(two.as_str()), "{config} {env:?}");
        }
    }
}

/// NVIDIA's runtime takes devices from annotations before it looks at the environment, and up to podman 4 an image's
/// annotations are the container's.
#[test]
fn an_image_gets_no_gpu_by_an_annotation() {
    for mut spec in [plain_spec(), gpu_spec(&[])] {
        spec["annotations"] = serde_json::json!({"cdi.k8s.io/x": "nvidia.com/gpu=all", "other": "stays"});
        let spec = spec_handed_on("", &spec);
        assert_eq!(spec["annotations"], serde_json::json!({"other": "stays"}), "{spec}");
    }
}
