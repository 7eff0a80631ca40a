//! Hosts whose GPUs are no NVIDIA cards on a PCI bus with nodes of their own.

use std::path::Path;

use super::{Places, procfs};
use crate::inventory::{Inventory, Platform};

/// A host that is told apart from the usual ones.
#[derive(Debug)]
pub(super) enum Other {
    /// Windows Subsystem for Linux 2, with this for an inventory.
    Wsl2(Inventory),
    /// Tegra, by this file.
    Tegra(String),
}

/// Which of them this is; `None` is a usual host, or one without a GPU.
pub(super) fn find(places: &Places, host: &procfs::Host) -> Option<Other> {
    // Where the driver lists cards of its own, they are what containers get: a Tegra board can have some beside its own.
    let is_listed = places.proc.join("driver/nvidia/gpus").is_dir();
    if !is_listed && places.dev.join("dxg").exists() {
        let inventory = Inventory { platform: Platform::Wsl2, ..Inventory::empty("/dev/dxg") };
        return Some(Other::Wsl2(inventory));
    }
    match &host.inventory {
        Ok(inventory) if !inventory.gpus.iter().any(|gpu| is_integrated(&gpu.name)) => None,
        Ok(inventory) => {
            let integrated = inventory.gpus.iter().find(|gpu| is_integrated(&gpu.name));
            integrated.map(|gpu| Other::Tegra(format!("{} in /proc/driver/nvidia", gpu.name)))
        }
        Err(procfs::Doubt::NoGpu) => tegra(places),
        Err(_) => None,
    }
}

/// Names of GPUs that are part of a Tegra chip.
// NVIDIA Container Toolkit, vendor/github.com/NVIDIA/go-nvlib/pkg/nvlib/info/resolver.go.
fn is_integrated(name: &str) -> bool {
    name.contains("(nvgpu)") || name.contains("NVIDIA Thor")
}

fn tegra(places: &Places) -> Option<Other> {
    let release = places.root.join("etc/nv_tegra_release");
    if release.exists() {
        return Some(Other::Tegra(shown(&release)));
    }
    let family = places.root.join("sys/devices/soc0/family");
    let text = crate::sys::read_text(&family).unwrap_or_default();
    text.trim().to_lowercase().starts_with("tegra").then(|| Other::Tegra(shown(&family)))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
