//! `cudaview-nvml` over the test double of NVML, at its C ABI, and a made-up `/proc`.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::command::{data, json, text};

const INVENTORIES: [&str; 6] =
    ["a100x4.json", "a100mig4.json", "h100x8.json", "mixed5.json", "h100mig3.json", "a100old2.json"];

/// A folder with the doubles.
fn doubles() -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doubles");
    let built = Command::new(data("../doubles/build")).arg(&out).output().expect("build starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    out
}

/// What it says of the host of a fixture, with the driver's tables in this `/proc`.
fn ask(doubles: &Path, inventory: &str, proc: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudaview-nvml"));
    command.env("LD_LIBRARY_PATH", doubles).env("GPU_DOUBLE_NO_NODES", "1");
    command.env("GPU_DOUBLE_INVENTORY", data("inventories").join(inventory));
    json(command.arg("--proc").arg(proc))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn nvml_says_what_the_file_says() {
    let doubles = doubles();
    let proc = driver_tables(|_| true);
    let mut migs = 0;
    for inventory in INVENTORIES {
        let found = ask(&doubles, inventory, proc.path());
        let path = data("inventories").join(inventory);
        let file: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
        assert_eq!((&found["source"], &found["driverVersion"]), (&json!("nvml"), &file["driverVersion"]));
        let gpus = |inventory: &Value| {
            list(&inventory["gpus"]).iter().cloned().map(without_what_nvml_adds).collect::<Vec<_>>()
        };
        assert_eq!(gpus(&found), gpus(&file), "{inventory}");
        for (gpu, there) in list(&found["gpus"]).iter().zip(list(&file["gpus"])) {
            let is_on = there["migEnabled"] == true || !list(&there["mig"]).is_empty();
            assert_eq!(gpu["migEnabled"] == true, is_on, "{gpu}");
            migs += list(&gpu["mig"]).len();
        }
    }
    assert_eq!(migs, 14);
}

/// A node of a GPU instance alone opens nothing, so it must not pass for all that is needed.
#[test]
fn without_the_drivers_tables_nobody_knows_the_nodes() {
    let doubles = doubles();
    let nodes = |proc: &Path| ask(&doubles, "a100mig4.json", proc)["gpus"].to_string().matches("nvidia-cap").count();
    // In the path of each of two nodes of nine devices: the folder, and the name.
    assert_eq!(nodes(driver_tables(|_| true).path()), 36);
    assert_eq!(nodes(Path::new("/nowhere")), 0);
    assert_eq!(nodes(driver_tables(|line| !line.contains("/ci")).path()), 0);
    let no_major = driver_tables(|_| true);
    std::fs::write(no_major.path().join("devices"), "Character devices:\n195 nvidia-frontend\n").expect("written");
    assert_eq!(nodes(no_major.path()), 0);
}

/// What the fixtures leave out, and what is a position there; multiprocessors are not NVML's to say.
fn without_what_nvml_adds(mut gpu: Value) -> Value {
    let members = gpu.as_object_mut().expect("a GPU");
    members.remove("migEnabled");
    members.remove("multiprocessors");
    let migs = members.get_mut("mig").and_then(Value::as_array_mut).expect("MIG devices");
    for (position, mig) in migs.iter_mut().enumerate() {
        let mig = mig.as_object_mut().expect("a MIG device");
        if mig.get("index") == Some(&json!(position)) {
            mig.remove("index");
        }
    }
    gpu
}

/// A `/proc` with the driver's tables of capability nodes, whose numbers are those of the fixtures: the lines that `keep`
/// takes.
fn driver_tables(keep: impl Fn(&str) -> bool) -> tempfile::TempDir {
    let proc = tempfile::tempdir().expect("a folder");
    // Each GPU has room for fifteen GPU instances of eight compute instances.
    let instances = (0..8).flat_map(|gpu| (0..15).map(move |gi| format!("gpu{gpu}/gi{gi}")));
    let names = instances.flat_map(|instance| {
        let parts: Vec<String> = (0..8).map(|ci| format!("{instance}/ci{ci}/access")).collect();
        std::iter::once(format!("{instance}/access")).chain(parts)
    });
    let names = ["config", "monitor"].map(str::to_owned).into_iter().chain(names);
    let lines = names.zip(1..).map(|(name, minor)| format!("{name} {minor}\n")).filter(|line| keep(line));
    let folder = proc.path().join("driver/nvidia-caps");
    std::fs::create_dir_all(&folder).expect("folders");
    std::fs::write(folder.join("mig-minors"), lines.collect::<String>()).expect("written");
    let devices = "Character devices:\n  1 mem\n195 nvidia\n508 nvidia-caps-imex-channels\n509 nvidia-caps\n\n\
                   Block devices:\n  7 loop\n";
    std::fs::write(proc.path().join("devices"), devices).expect("written");
    proc
}

#[test]
fn without_nvml_there_is_a_reason_and_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudaview-nvml"));
    let double = folder.path().join("libnvidia-ml.so.1");
    std::fs::write(&double, "no library").expect("written");
    let (code, stdout, stderr) = text(&command.env("LD_LIBRARY_PATH", folder.path()).output().expect("it starts"));
    assert_eq!((code, stdout.as_str()), (Some(5), ""));
    assert!(stderr.starts_with("cudaview-nvml: failed to start NVML (libnvidia-ml.so.1): "), "{stderr}");
}

/// Processes on a MIG device are told of its GPU, with the instances that they are on.
#[test]
fn memory_and_processes_in_use() {
    let doubles = doubles();
    let path = data("inventories/a100mig4.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let gpus = list(&file["gpus"]);
    let (parent, plain) = (&gpus[0], &gpus[3]);
    let mig = &parent["mig"][1];
    let folder = tempfile::tempdir().expect("a folder");
    let said = folder.path().join("usage.json");
    let mut usage = json!({});
    let name = |device: &Value| device["uuid"].as_str().expect("a UUID").to_owned();
    usage[name(parent)] = json!({"usedGiB": 9, "totalGiB": 40, "processes": [
        {"pid": 12, "gi": mig["gi"], "ci": mig["ci"]}, {"pid": 11, "gi": mig["gi"], "ci": mig["ci"]}]});
    usage[name(mig)] = json!({"usedGiB": 8, "totalGiB": 20});
    usage[name(plain)] = json!({"usedGiB": 31, "totalGiB": 40, "processes": [{"pid": 7}, {"pid": 7}, {"pid": 9}]});
    std::fs::write(&said, usage.to_string()).expect("written");

    let mut command = Command::new(env!("CARGO_BIN_EXE_cudaview-nvml"));
    command.env("LD_LIBRARY_PATH", &doubles).env("GPU_DOUBLE_NO_NODES", "1").env("GPU_DOUBLE_USAGE", &said);
    command.env("GPU_DOUBLE_INVENTORY", data("inventories/a100mig4.json"));
    let found = json(command.arg("--usage"));
    let of = |device: &Value| list(&found["devices"]).iter().find(|one| one["uuid"] == device["uuid"]).cloned();
    let expected = |device: &Value, used: u64, total: u64, processes: &[u32]| {
        Some(json!({"uuid": device["uuid"], "memoryUsed": used << 30, "memoryTotal": total << 30,
            "processes": processes}))
    };
    assert_eq!(of(plain), expected(plain, 31, 40, &[7, 9]));
    assert_eq!(of(parent), expected(parent, 9, 40, &[11, 12]));
    assert_eq!(of(mig), expected(mig, 8, 20, &[11, 12]));
    assert_eq!(of(&parent["mig"][0]), None, "it did not answer");
}
