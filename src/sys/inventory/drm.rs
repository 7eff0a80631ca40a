//! Which nodes under `/dev/dri` belong to which GPU.

use std::fs;
use std::path::Path;

use crate::device::{DeviceNumber, PciBusId};
use crate::inventory::Inventory;

/// Where the kernel lists PCI devices.
const PCI: &str = "/sys/bus/pci/devices";

/// The direct rendering manager's major number.
// Documentation/admin-guide/devices.txt, 226 char.
const DRM_MAJOR: u32 = 226;

/// Adds the nodes' numbers to an inventory that does not have them, for a container with one of these nodes: who loses a
/// GPU must not keep its card, and nobody else needs to know.
pub fn add_drm_nodes(inventory: &mut Inventory, nodes: impl IntoIterator<Item = DeviceNumber>) {
    if nodes.into_iter().any(|node| node.major == DRM_MAJOR) {
        add(inventory, Path::new(PCI));
    }
}

pub(super) fn add(inventory: &mut Inventory, pci: &Path) {
    for gpu in inventory.gpus.iter_mut().filter(|gpu| gpu.drm_nodes.is_empty()) {
        let Some(address) = gpu.pci_bus_id else { continue };
        let Ok(entries) = fs::read_dir(pci.join(sysfs_name(address)).join("drm")) else { continue };
        let number = |entry: fs::DirEntry| {
            let text = crate::sys::read_text(&entry.path().join("dev")).ok()?;
            let (major, minor) = text.trim().split_once(':')?;
            Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        gpu.drm_nodes = entries.filter_map(|entry| number(entry.ok()?)).collect();
        gpu.drm_nodes.sort_unstable();
    }
}

/// The kernel writes a domain with four digits, and only where it needs more with more.
fn sysfs_name(address: PciBusId) -> String {
    let PciBusId { domain, bus, device, function } = address;
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}
