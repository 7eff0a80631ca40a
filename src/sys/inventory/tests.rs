use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

mod cached;
mod hosts;

const INFORMATION: &str = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 94\nGPU UUID: \t {uuid}\n\
    Video BIOS: \t 92.00.45.00.03\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
    Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Firmware: \t 550.54.15\nGPU Excluded:\t No\n";

const VERSION: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\
    GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(gpus: &[(&str, u32, &str)]) -> Self {
        let host = Self { folder: tempfile::tempdir().expect("a folder") };
        host.write("proc/driver/nvidia/version", VERSION);
        host.write("proc/sys/kernel/random/boot_id", "6e8e6a5e-0000-4000-8000-000000000001\n");
        for gpu in gpus {
            host.add(*gpu);
        }
        host
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    fn remove(&self, name: &str) {
        let path = self.folder.path().join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
    }

    fn add(&self, (address, minor, uuid): (&str, u32, &str)) {
        let text = INFORMATION.replace("{uuid}", uuid).replace("{address}", address);
        let text = text.replace("{minor}", &minor.to_string());
        self.write(&format!("proc/driver/nvidia/gpus/{address}/information"), &text);
    }

    /// A stand-in for cudaview-nvml: a shell script.
    fn helper(&self, script: &str) {
        self.write("cudaview-nvml", &format!("#!/bin/sh\n{script}\n"));
        let path = self.folder.path().join("cudaview-nvml");
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
    }

    fn places(&self) -> Places {
        Places {
            proc: self.folder.path().join("proc"),
            dev: self.folder.path().join("dev"),
            root: self.folder.path().to_owned(),
            keeps: false,
            cache: self.folder.path().join("run/inventory.json"),
            helper: self.folder.path().join("cudaview-nvml"),
        }
    }

    fn load(&self) -> Result<Inventory, LoadError> {
        load_from(&Config::built_in(), None, &self.places())
    }
}

const ONE: &str = r#"{"schemaVersion":1,"source":"nvml","gpus":[{"index":0,"minor":1,"uuid":"GPU-b"}]}"#;
const UNINITIALISED: [(&str, u32, &str); 1] = [("0000:07:00.0", 1, "GPU-????????-????-????-????-????????????")];

#[test]
fn procfs_is_enough_for_full_gpus() {
    let host = Host::new(&[("0000:17:00.0", 0, "GPU-b"), ("0000:07:00.0", 1, "GPU-a")]);
    let inventory = host.load().expect("an inventory");
    assert_eq!(inventory.source, "procfs");
    assert_eq!(inventory.driver_version.as_deref(), Some("550.54.15"));
    let gpus: Vec<_> = inventory.gpus.iter().map(|gpu| (gpu.index.0, gpu.minor.0, gpu.uuid.as_str())).collect();
    assert_eq!(gpus, [(0, 1, "GPU-a"), (1, 0, "GPU-b")]);
    assert_eq!(inventory.gpus[0].name, "NVIDIA A100-SXM4-40GB");
}

#[test]
fn the_open_kernel_module_names_its_version_too() {
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a")]);
    host.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
    );
    assert_eq!(host.load().expect("an inventory").driver_version.as_deref(), Some("570.86.15"));
}

#[test]
fn a_gpu_that_is_not_initialised_and_mig_need_nvml() {
    let host = Host::new(&UNINITIALISED);
    host.helper(&format!("echo '{ONE}'"));
    assert_eq!(host.load().expect("an inventory").gpus[0].uuid.as_str(), "GPU-b");
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a")]);
    host.write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 12\n");
    host.helper(&format!("echo '{ONE}'"));
    assert_eq!(host.load().expect("an inventory").source, "nvml");
}

#[test]
fn a_named_file_replaces_everything() {
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a")]);
    host.write("file.json", ONE);
    let file = host.folder.path().join("file.json");
    let load = |config: &Config, file: Option<&Path>| load_from(config, file, &host.places());
    let config = Config { inventory: file.to_str().map(str::to_owned), ..Config::built_in() };
    assert_eq!(load(&Config::built_in(), Some(&file)).expect("the file").gpus[0].uuid.as_str(), "GPU-b");
    assert_eq!(load(&config, None).expect("the file").gpus[0].uuid.as_str(), "GPU-b");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("a mode");
    assert!(matches!(load(&config, None), Err(LoadError::Untrusted(_))));
    assert!(load(&Config::built_in(), Some(&file)).is_ok(), "whoever types it answers for it");
    let missing = Config { inventory: Some("/nowhere/at/all".to_owned()), ..Config::built_in() };
    assert!(matches!(load(&missing, None), Err(LoadError::Missing(_))));
    host.write("file.json", "{");
    assert!(matches!(load(&Config::built_in(), Some(&file)), Err(LoadError::Invalid { .. })));
}

#[test]
fn a_gpus_cards_are_found_by_its_address() {
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a"), ("0000:0f:00.0", 1, "GPU-b")]);
    for (address, card) in [("0000:07:00.0", 1), ("0000:0f:00.0", 0)] {
        for (name, minor) in [(format!("card{card}"), card), (format!("renderD{}", 128 + card), 128 + card)] {
            host.write(&format!("pci/{address}/drm/{name}/dev"), &format!("226:{minor}\n"));
        }
        host.write(&format!("pci/{address}/drm/version"), "drm 1.1.0\n");
    }
    let mut inventory = host.load().expect("two GPUs");
    drm::add(&mut inventory, &host.folder.path().join("pci"));
    let minors = |gpu: usize| -> Vec<u32> { inventory.gpus[gpu].drm_nodes.iter().map(|node| node.minor).collect() };
    assert_eq!((minors(0), minors(1)), (vec![1, 129], vec![0, 128]));
    // What an inventory file says stays.
    let before = inventory.clone();
    drm::add(&mut inventory, Path::new("/nowhere"));
    assert_eq!(inventory, before);
}
