//! Texts of `/proc`: NVIDIA's, devices, modules, mountinfo, cgroup, device rules. A line `== NAME` begins each.
#![no_main]

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cudaview::config::Config;
use cudaview::spec::Rule;
use cudaview::sys::cgroup::{DeviceCgroup, locate};
use cudaview::sys::inventory::{Places, load_from};
use cudaview::sys::{driver, mountinfo};

thread_local! {
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sections: BTreeMap<&str, &str> = BTreeMap::new();
    for section in text.split("== ") {
        let (name, content) = section.split_once('\n').unwrap_or((section, ""));
        sections.insert(name, content);
    }
    let of = |name: &str| sections.get(name).copied().unwrap_or_default();
    mounts(of("mountinfo"));
    cgroups(of("theirs"), of("ours"), of("mountinfo"));
    for line in of("rules").lines() {
        let _ = Rule::of_kernel(line);
    }
    if sections.keys().any(|name| name.starts_with("gpu") || *name == "devices" || *name == "modules") {
        FOLDER.with(|folder| host(folder.get_or_init(|| tempfile::tempdir().expect("a folder")).path(), &sections));
    }
});

/// What the host's files come to.
fn host(folder: &Path, sections: &BTreeMap<&str, &str>) {
    let proc = folder.join("proc");
    let _ = fs::remove_dir_all(&proc);
    let driver = proc.join("driver/nvidia");
    fs::create_dir_all(driver.join("gpus")).expect("a folder");
    fs::create_dir_all(proc.join("sys/kernel/random")).expect("a folder");
    let mut gpus = 0;
    for (name, content) in sections {
        let file = match *name {
            "devices" | "modules" => proc.join(name),
            "version" => driver.join("version"),
            "boot_id" => proc.join("sys/kernel/random/boot_id"),
            _ if name.starts_with("gpu") && gpus < 4 => {
                gpus += 1;
                let folder = driver.join(format!("gpus/{gpus}"));
                fs::create_dir(&folder).expect("a folder");
                folder.join("information")
            }
            _ => continue,
        };
        fs::write(file, content).expect("a file");
    }
    let known = ["nvidia", "nvidia_uvm", "nvidia_modeset"];
    assert!(driver::loaded(&proc).iter().all(|module| known.contains(module)));
    let places = Places {
        proc,
        dev: folder.join("dev"),
        root: folder.to_owned(),
        cache: folder.join("cache"),
        keeps: false,
        helper: folder.join("no-helper"),
    };
    if let Ok(inventory) = load_from(&Config::built_in(), None, &places) {
        assert_eq!(inventory.source, "procfs");
        assert!(inventory.check_unique().is_ok(), "no name or number twice");
        assert!(!inventory.gpus.is_empty() && inventory.gpus.len() <= gpus);
        let texts: Vec<&str> = sections.values().copied().collect();
        for gpu in &inventory.gpus {
            assert!(texts.iter().any(|text| text.contains(gpu.uuid.as_str())), "a UUID that nobody wrote");
        }
        assert!(inventory.gpus.windows(2).all(|pair| pair[0].pci_bus_id < pair[1].pci_bus_id), "in PCI order");
    }
}

/// Every mount that is read, as the kernel would write it.
fn mounts(text: &str) {
    for mount in mountinfo::parse(text.as_bytes()) {
        let escaped = |path: &Path| -> String {
            path.as_os_str().as_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect()
        };
        let tag = if mount.shared { " shared:1" } else { "" };
        let line = format!(
            "{} 0 {} {} {} rw{tag} - {} none {}",
            mount.id,
            mount.device,
            escaped(&mount.root),
            escaped(&mount.mount_point),
            mount.fs_type,
            mount.super_options,
        );
        assert_eq!(mountinfo::parse(line.as_bytes()), [mount]);
    }
}

/// The folder that is found is below a mount of the right kind, and is not the mount itself.
fn cgroups(theirs: &str, ours: &str, mounts: &str) {
    let mounts = mountinfo::parse(mounts.as_bytes());
    if let DeviceCgroup::V1 { dir } = locate(theirs, ours, &mounts) {
        let within = |point: &PathBuf| {
            let below = dir.strip_prefix(point).ok()?;
            Some(below.components().next().is_some() && below.components().all(|c| matches!(c, Component::Normal(_))))
        };
        let of_v1 = mounts.iter().filter(|mount| mount.fs_type == "cgroup");
        assert!(of_v1.map(|mount| &mount.mount_point).any(|point| within(point) == Some(true)), "{dir:?}");
    }
}
