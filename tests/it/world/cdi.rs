//! CDI: the specification that `nvidia-ctk cdi generate` would write for the simulated host.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use yaml_rust2::{YamlEmitter, YamlLoader};

use super::command::write_program;
use super::{Install, inventory};

/// Writes a specification of all GPUs and MIG devices of an inventory fixture, by their host indices, into a folder that is
/// made.
///
/// Its nodes come from the simulated host and have no mode, and it says `NVIDIA_VISIBLE_DEVICES=void` as NVIDIA's does, so
/// that a hook which runs all the same adds nothing. A GPU in MIG mode is there as its MIG devices alone.
pub(crate) fn write_spec(folder: &Path, install: &Install, inventory_name: &str) {
    let host = install.dev_root().join("dev");
    let node = |name: &str| json!({"path": format!("/dev/{name}"), "hostPath": host.join(name)});
    let inventory: Value = serde_json::from_slice(&fs::read(inventory(inventory_name)).unwrap()).unwrap();
    let device = |name: &str, nodes: &[Value]| json!({"name": name, "containerEdits": {"deviceNodes": nodes}});
    let mut devices = Vec::new();
    let mut all: Vec<Value> = Vec::new();
    for gpu in inventory["gpus"].as_array().unwrap() {
        let own = node(&format!("nvidia{}", gpu["minor"]));
        let migs = gpu["mig"].as_array().unwrap();
        for (position, mig) in migs.iter().enumerate() {
            let index = mig["index"].as_u64().map_or(position.to_string(), |index| index.to_string());
            let paths = mig["capabilityNodes"].as_array().unwrap().iter().map(|there| there["path"].as_str().unwrap());
            let mut nodes = vec![own.clone()];
            nodes.extend(paths.map(|path| node(path.strip_prefix("/dev/").unwrap())));
            devices.push(device(&format!("{}:{index}", gpu["index"]), &nodes));
            devices.push(device(mig["uuid"].as_str().unwrap(), &nodes));
            all.extend(nodes);
        }
        if migs.is_empty() {
            devices.push(device(&gpu["index"].to_string(), std::slice::from_ref(&own)));
            all.push(own);
        }
    }
    // A generator writes each node once.
    let mut once: Vec<Value> = Vec::new();
    for node in all {
        if !once.contains(&node) {
            once.push(node);
        }
    }
    devices.push(device("all", &once));
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

/// What [`write_generated`] wrote.
pub(crate) struct Generated {
    /// The file.
    pub(crate) file: PathBuf,
    /// Where each mounted file is to be in a container.
    pub(crate) mounted: Vec<String>,
    /// What the stand-in for `nvidia-cdi-hook` was called with, a line each; the file is there once it ran.
    pub(crate) hook_record: PathBuf,
}

/// Writes a specification of the shape that NVIDIA's generator gives a host with these GPUs: devices by index, by UUID
/// and `all` of them, each with its node and its two under `/dev/dri`, and for all of them control nodes, 39 mounts and six hooks, as YAML.
pub(crate) fn write_generated(folder: &Path, install: &Install, inventory_name: &str) -> Generated {
    let host = install.dev_root().join("dev");
    let driver = install.prefix().join("driver");
    let record = install.prefix().join("hooks.log");
    let program = install.bin("nvidia-cdi-hook");
    let script = format!("#!/bin/sh\ncat >/dev/null\necho \"$NVIDIA_CTK_DEBUG $*\" >>'{}'\n", record.display());
    write_program(&program, script.as_bytes());

    let inventory: Value = serde_json::from_slice(&fs::read(inventory(inventory_name)).unwrap()).unwrap();
    let gpus = inventory["gpus"].as_array().unwrap();
    let hook = |args: &[&str]| {
        let args: Vec<&str> = std::iter::once("nvidia-cdi-hook").chain(args.iter().copied()).collect();
        json!({"hookName": "createContainer", "path": program, "args": args, "env": ["NVIDIA_CTK_DEBUG=false"]})
    };
    let node = |major: u64, minor: u64, name: &str| {
        json!({"path": format!("/dev/{name}"), "hostPath": host.join(name), "type": "c", "major": major, "minor": minor,
               "fileMode": 0o666, "permissions": "rwm"})
    };
    let mut devices = Vec::new();
    for gpu in gpus {
        let minor = gpu["minor"].as_u64().unwrap();
        let edits = json!({
            "deviceNodes": [
                node(195, minor, &format!("nvidia{minor}")),
                node(226, minor, &format!("dri/card{minor}")),
                node(226, 128 + minor, &format!("dri/renderD{}", 128 + minor)),
            ],
            "hooks": [hook(&["create-symlinks", "--link", &format!("../card{minor}::/dev/dri/by-path/{minor}-card")])],
        });
        devices.push(json!({"name": gpu["index"].to_string(), "containerEdits": edits}));
        devices.push(json!({"name": gpu["uuid"], "containerEdits": edits}));
    }
    // Each GPU is there by its index and by its UUID.
    let merged = |member: &str| -> Vec<Value> {
        let edits = devices.iter().step_by(2).map(|device| &device["containerEdits"][member]);
        edits.flat_map(|list| list.as_array().unwrap().clone()).collect()
    };
    let all = json!({"deviceNodes": merged("deviceNodes"), "hooks": merged("hooks")});
    devices.push(json!({"name": "all", "containerEdits": all}));
    let mut mounted: Vec<String> = (0..33).map(|n| format!("/usr/lib64/libnvidia-part{n}.so.550.54.15")).collect();
    mounted
        .extend(["nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control"].map(|name| format!("/usr/bin/{name}")));
    mounted.extend(["/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/nvidia/nvoptix.bin"].map(str::to_owned));
    mounted.push("/lib/firmware/nvidia/550.54.15/gsp_ga10x.bin".to_owned());
    let mounts: Vec<Value> = mounted
        .iter()
        .map(|path| {
            let file = driver.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, format!("the host's {path}\n")).unwrap();
            json!({"hostPath": file, "containerPath": path, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]})
        })
        .collect();
    assert_eq!(mounts.len(), 39);
    let spec = json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
            "deviceNodes": [node(510, 0, "nvidia-uvm"), node(195, 255, "nvidiactl")],
            "mounts": mounts,
            "hooks": [
                hook(&["create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"]),
                hook(&["enable-cuda-compat", "--host-driver-version=550.54.15"]),
                hook(&["update-ldcache", "--folder", "/usr/lib64"]),
                hook(&["disable-device-node-modification"]),
                hook(&["update-application-profile"]),
            ],
        },
    });
    // JSON is YAML; what the generator writes is YAML that is not JSON.
    let documents = YamlLoader::load_from_str(&spec.to_string()).unwrap();
    let mut text = String::new();
    YamlEmitter::new(&mut text).dump(&documents[0]).unwrap();
    fs::create_dir_all(folder).unwrap();
    let file = folder.join("nvidia.yaml");
    fs::write(&file, text).unwrap();
    Generated { file, mounted, hook_record: record }
}
