//! Session 5: `doctor` on a host with something broken, and `ps`, as values: nodes and other people's processes need root.

use std::os::unix::fs::symlink;

use cudaview::device::DeviceNumber;
use cudaview::doctor::{Facts, NodeState, examine};
use cudaview::inventory::{Device, Inventory};
use cudaview::report::{Held, Holder, Outside, Style, doctor, doctor_summary, ps_table};
use cudaview::usage::{DeviceUsage, Usage};
use serde_json::{Value, json};

use super::terminal::{screens, variants};
use crate::command::{cudaview, data};
use crate::doctor::System;
use crate::world::require;

fn style(columns: u16, colour: bool) -> Style {
    Style { width: columns.into(), colour }
}

const RUNTIME: &str = "/usr/bin/cudaview-runtime";

/// What Docker 28.5 says of itself.
fn info(runtimes: &Value) -> Value {
    json!({"ServerVersion": "28.5.2", "DefaultRuntime": "runc", "CgroupDriver": "systemd", "Runtimes": runtimes})
}

/// The server after its reboot, with cudaview registered by whoever set it up.
fn server(runtimes: &Value) -> System {
    let system = System::new();
    system.write("etc/cudaview/config.toml", "");
    let ours = json!({"runtimes": {"cudaview": {"path": RUNTIME}}});
    system.program("dockerd");
    system.write("etc/docker/daemon.json", &ours.to_string());
    system.docker(&info(runtimes));
    symlink("cudaview-hook", system.path("usr/bin/nvidia-container-runtime-hook")).unwrap();
    system.program("podman");
    let podman = format!("{}/hooks/podman/containers.conf", env!("CARGO_MANIFEST_DIR"));
    system.write("etc/containers/containers.conf.d/50-cudaview.conf", &std::fs::read_to_string(podman).unwrap());
    system.write("sys/fs/cgroup/cgroup.controllers", "");
    std::fs::create_dir_all(system.path("run/systemd/system")).unwrap();
    system
}

/// The same with what the fixes make.
fn mended() -> System {
    let system = server(&json!({"runc": {"path": "runc"}, "cudaview": {"path": RUNTIME}}));
    let device = |name: &&str| json!({"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}});
    let devices: Vec<Value> = ["0", "1", "2", "3", "all"].iter().map(device).collect();
    let spec = json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {}});
    system.write("etc/cdi/nvidia.json", &spec.to_string());
    system.write("dev/null", "");
    system
}

/// What is found there; of the nodes, which only root can make, `missing` are not there.
fn found(system: &System, missing: &[&str], is_root: bool) -> Facts {
    let mut facts = cudaview::sys::doctor::facts(&system.path("").canonicalize().unwrap());
    for node in &mut facts.nodes {
        let number = node.expected.unwrap_or(DeviceNumber { major: 510, minor: 0 });
        let is_missing = missing.contains(&node.path.as_str());
        node.state = if is_missing { NodeState::Missing } else { NodeState::There(number, 0o666) };
    }
    facts.processes = is_root.then(Vec::new);
    facts
}

#[test]
fn doctor_finds_what_is_broken() {
    let system = server(&json!({"runc": {"path": "runc"}}));
    system.host.modules(&["nvidia"]);
    let checks = examine(&found(&system, &["/dev/nvidia-uvm"], false));
    let screen =
        |columns, colour| format!("{}\n{}\n", doctor(&checks, false, style(columns, colour)), doctor_summary(&checks));
    insta::assert_snapshot!(format!("$ cudaview doctor\nexit 1\n{}", variants(screen)));
    let problems = |columns, colour| doctor(&checks, true, style(columns, colour));
    insta::assert_snapshot!(format!("$ cudaview doctor --problems 2>/dev/null\nexit 1\n{}", variants(problems)));
}

#[test]
fn doctor_finds_nothing_more() {
    let system = mended();
    let checks = examine(&found(&system, &[], true));
    let problems = doctor(&checks, true, style(80, false));
    assert_eq!(problems, "");
    let all =
        |columns, colour| format!("{}\n{}\n", doctor(&checks, false, style(columns, colour)), doctor_summary(&checks));
    insta::assert_snapshot!(format!("$ sudo cudaview doctor\nexit 0\n{}", variants(all)));
    assert_eq!(doctor_summary(&checks), "no problems (12 checks, 3 skipped)");
}

/// The program itself, where nodes can be made: it shows the same, and finds its terminal.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn doctor_at_a_terminal() {
    require(&[]);
    let system = server(&json!({"runc": {"path": "runc"}}));
    system.host.modules(&["nvidia"]);
    system.nodes();
    std::fs::remove_file(system.path("dev/nvidia-uvm")).unwrap();
    let checks = examine(&found(&system, &["/dev/nvidia-uvm"], true));
    let screen =
        |columns, colour| format!("{}\n{}\n", doctor(&checks, false, style(columns, colour)), doctor_summary(&checks));
    let ask = |system: &System, more: &[&str]| {
        let mut command = cudaview();
        command.args(["doctor", "--root"]).arg(system.path("")).args(more);
        command
    };
    let seen = screens("cudaview doctor", || ask(&system, &[]), str::to_owned);
    assert_eq!(seen, format!("$ cudaview doctor\nexit 1\n{}", variants(screen)));

    let system = mended();
    system.nodes();
    let seen = screens("cudaview doctor --problems", || ask(&system, &["--problems"]), str::to_owned);
    let summary = variants(|_, _| "no problems (12 checks, 3 skipped)\n".to_owned());
    assert_eq!(seen, format!("$ cudaview doctor --problems\nexit 0\n{summary}"));
}

fn inventory() -> Inventory {
    Inventory::from_json(&std::fs::read(data("inventories/a100x4.json")).unwrap()).unwrap()
}

fn holder(name: &str, how: &str, user: Option<&str>, gpus: &[usize], since: &str) -> Holder {
    let devices: Vec<Device> = gpus.iter().map(|gpu| Device { gpu: *gpu, mig: None }).collect();
    Holder {
        name: name.to_owned(),
        id: name.repeat(8),
        how: how.to_owned(),
        user: user.map(str::to_owned),
        openable: devices.clone(),
        visible: devices,
        certain: true,
        since: (since.to_owned(), None),
    }
}

/// A process on GPU 2.
fn process(pid: u32, user: &str, in_container: bool, since: &str) -> Outside {
    Outside {
        uuid: inventory().gpus[2].uuid.as_str().to_owned(),
        pid,
        in_container,
        user: Some(user.to_owned()),
        since: (since.to_owned(), None),
    }
}

fn usage() -> Usage {
    let processes: [&[u32]; 4] = [&[], &[47001], &[47900, 48211], &[47001]];
    let gpus = inventory().gpus;
    let devices = gpus.iter().zip([0, 31, 22, 31]).zip(processes).map(|((gpu, used), processes)| DeviceUsage {
        uuid: gpu.uuid.as_str().to_owned(),
        memory_used: used << 30,
        memory_total: 40 << 30,
        processes: processes.to_vec(),
    });
    Usage { devices: devices.collect() }
}

fn ps(typed: &str, held: &Held) -> String {
    let table = |columns, colour| ps_table(&inventory(), held, style(columns, colour));
    format!("$ {typed}\nexit 0\n{}", variants(table))
}

#[test]
fn who_holds_what() {
    let trainer = || holder("trainer", "docker", None, &[1, 3], "13:05");
    let held = Held {
        holders: vec![trainer(), holder("llm", "podman, rootless", Some("alice"), &[2], "11:48")],
        outside: vec![process(48211, "bob", false, "12:30")],
        usage: Some(usage()),
        unseen: Vec::new(),
        is_root: true,
    };
    insta::assert_snapshot!(ps("sudo cudaview ps", &held));
    // Another user of the same host: alice's container is not to be looked at, its process is.
    let held = Held {
        holders: vec![trainer()],
        outside: vec![process(47900, "alice", true, "11:48"), process(48211, "bob", false, "12:30")],
        usage: Some(usage()),
        unseen: Vec::new(),
        is_root: false,
    };
    insta::assert_snapshot!(ps("cudaview ps", &held));
    // The same where NVML cannot be asked.
    let held = Held { holders: vec![trainer()], ..Held::default() };
    insta::assert_snapshot!(ps("cudaview ps", &held));
}
