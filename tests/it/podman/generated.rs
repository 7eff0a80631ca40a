//! A specification of the shape that NVIDIA's generator writes: podman resolves the names, cudaview narrows.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{Host, PLAIN, PRECREATE, Setup, WRAPPER};
use crate::world::cdi::{self, Generated};
use crate::world::podman::IMAGE;
use crate::world::{A100X4, Access};

/// A host whose specification of four nodes has given way to a generated one, and whose inventory knows the cards.
#[track_caller]
fn host(setup: Setup, config: &str) -> (Host, Generated) {
    let host = Host::new(setup, config);
    let folder = host.podman.path().join("cdi");
    fs::remove_file(folder.join("nvidia.json")).unwrap();
    let generated = cdi::write_generated(&folder, &host.install, A100X4);
    let mut inventory: Value = serde_json::from_slice(&fs::read(host.install.inventory()).unwrap()).unwrap();
    for (minor, gpu) in inventory["gpus"].as_array_mut().unwrap().iter_mut().enumerate() {
        gpu["drmNodes"] = json!([{"major": 226, "minor": minor}, {"major": 226, "minor": 128 + minor}]);
    }
    fs::write(host.install.inventory(), inventory.to_string()).unwrap();
    // For hooks of an ordinary user.
    fs::write(&generated.hook_record, "").unwrap();
    fs::set_permissions(&generated.hook_record, Permissions::from_mode(0o666)).unwrap();
    (host, generated)
}

/// What is under `/dev/dri` in a container.
#[track_caller]
fn cards(host: &Host, name: &str) -> Vec<String> {
    let ran = host.podman.exec(&[], name, &["sh", "-c", "ls -d /dev/dri/*"]).ok();
    ran.stdout.lines().map(str::to_owned).collect()
}

/// The numbers under `/dev/dri` that a container's device rules name.
fn card_rules(spec: &Value) -> Vec<u64> {
    let rules = spec["linux"]["resources"]["devices"].as_array().map_or(&[][..], Vec::as_slice);
    rules.iter().filter(|rule| rule["major"] == 226).filter_map(|rule| rule["minor"].as_u64()).collect()
}

#[track_caller]
fn narrows(setup: Setup, config: &str) {
    let (host, generated) = host(setup, config);
    let one = ["--device", "nvidia.com/gpu=1"];
    let two = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];
    for (flags, value, view, emitted) in [
        (&one[..], "", &[1][..], "0"),
        (&one, "1", &[1], "0"),
        (&two, "3,1", &[3, 1], "1,0"),
        (&two, "3", &[3], "0"),
        (&["--device", "nvidia.com/gpu=all"], "2,0", &[2, 0], "1,0"),
    ] {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        let variable = ["-e", value.as_str()];
        let flags = [flags, if value.ends_with('=') { &[] } else { &variable[..] }].concat();
        let count = host.podman.count(&flags, IMAGE);
        let mut kept = view.to_vec();
        kept.sort_unstable();
        let nodes: Vec<String> = kept.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
        assert_eq!((&count.cuda, &count.nodes), (&host.uuids_of(view), &nodes), "{flags:?}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted, "{flags:?}: {count:?}");
    }

    fs::write(&generated.hook_record, "").unwrap();
    host.podman.up("one", &[&two[..], &["--cap-add", "MKNOD", "-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE);
    assert_eq!(cards(&host, "one"), ["/dev/dri/card3", "/dev/dri/renderD131"], "GPU 3's, and no other's");
    if !setup.rootless {
        assert_eq!(card_rules(&host.podman.spec_of("one")), [3, 131]);
    }
    for minor in [0, 1, 2] {
        let expected = if setup.rootless { Access::NoNode } else { Access::Blocked };
        assert_eq!(host.podman.try_mknod("one", minor), expected, "GPU {minor}");
    }
    for path in &generated.mounted {
        assert_eq!(host.podman.exec(&[], "one", &["cat", path]).ok().stdout, format!("the host's {path}\n"));
    }
    let ran = host.podman.exec(&[], "one", &["sh", "-c", "echo x >/usr/bin/nvidia-smi"]);
    assert_ne!(ran.code, 0, "it is read-only: {ran}");
    let record = fs::read_to_string(&generated.hook_record).unwrap();
    assert!(
        record.lines().all(|line| line.starts_with("false ")),
        "with the environment of the specification: {record}"
    );
    // The five for all devices, and one for each that was asked for.
    assert_eq!(record.lines().count(), 7, "{record}");
}

/// What the engine does by itself: both GPUs' cards, and a program that sees one of two GPUs or none.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_with_a_generated_specification_counts_two_ways() {
    let (host, _generated) = host(PLAIN, "");
    let two = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];
    for (value, view) in [("3,1", &[][..]), ("1,3", &[3]), ("3", &[])] {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        let count = host.podman.count(&[&two[..], &["-e", &value]].concat(), IMAGE);
        assert_eq!(count.cuda, host.uuids_of(view), "{value}: {count:?}");
    }
    host.podman.up("plain", &two, IMAGE);
    assert_eq!(cards(&host, "plain").len(), 4);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_narrows_a_generated_specification_on_runc() {
    narrows(WRAPPER, "");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_narrows_a_generated_specification_on_crun() {
    narrows(WRAPPER, "low_level_runtime = [\"crun\"]");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_narrows_a_generated_specification() {
    narrows(PRECREATE, "");
}

/// Nodes are bind mounts there, and there are no rules.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_narrows_a_generated_specification() {
    narrows(Setup { rootless: true, ..WRAPPER }, "");
}
