//! `/proc/driver/nvidia`: enough for full GPUs, and what tells whether a cache still holds.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::device::{GpuUuid, HostIndex, Minor, PciBusId};
use crate::inventory::{Gpu, Inventory, Platform, SCHEMA_VERSION, list};
use crate::sys::read_text;

/// What a cached inventory depends on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Key {
    /// Every GPU's address and minor, in PCI order.
    pub(super) gpus: Vec<(PciBusId, Minor)>,
    /// Those of them that have a node.
    pub(super) nodes: Vec<Minor>,
    /// GPU and compute instances, as the driver's capability files name them, sorted.
    pub(super) instances: Vec<String>,
    /// This boot.
    pub(super) boot_id: String,
    /// The driver.
    pub(super) driver_version: String,
}

/// Why procfs alone does not say which GPUs there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It names none.
    NoGpu,
    /// The driver has not initialised these GPUs, and gives them no UUID yet.
    NotNamed(Vec<PciBusId>),
    /// These entries cannot be read, and without them nobody knows which number the others have.
    Unreadable(Vec<String>),
    /// There are MIG devices, whose names only NVML knows.
    Mig,
    /// Some GPUs have a node and these have none: in a container NVML does not count them, on a host it does.
    NoNode(Vec<Minor>),
    /// One name or number for two GPUs.
    Contradiction(String),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |items: &[PciBusId]| list(&items.iter().map(ToString::to_string).collect::<Vec<_>>());
        match self {
            Self::NoGpu => f.write_str("/proc/driver/nvidia names none"),
            Self::NotNamed(gpus) => write!(f, "the driver gives no UUID yet to the GPU at {}", said(gpus)),
            Self::Unreadable(names) => write!(f, "/proc/driver/nvidia/gpus/{}/information cannot be read", list(names)),
            Self::Mig => f.write_str("only NVML knows the names of MIG devices"),
            Self::NoNode(minors) => {
                let names: Vec<String> = minors.iter().map(|minor| format!("nvidia{minor}")).collect();
                let them = if names.len() == 1 { "its GPU" } else { "their GPUs" };
                write!(f, "/dev has no {}, and only NVML knows whether {them} count", list(&names))
            }
            Self::Contradiction(what) => write!(f, "/proc/driver/nvidia contradicts itself: {what}"),
        }
    }
}

/// What procfs says.
#[derive(Debug)]
pub(super) struct Host {
    /// The GPUs, if procfs is enough to know them.
    pub(super) inventory: Result<Inventory, Doubt>,
    /// What a cache must have been written for; `None` where nothing shows whether one still holds.
    pub(super) key: Option<Key>,
    /// The names that the driver gives already.
    named: Vec<(PciBusId, GpuUuid)>,
}

impl Host {
    /// Whether an inventory calls no GPU otherwise than the driver does: one can be exchanged while the host runs.
    pub(super) fn agrees(&self, inventory: &Inventory) -> bool {
        inventory.gpus.iter().all(|gpu| {
            let mut named = self.named.iter().filter(|(address, _)| gpu.pci_bus_id == Some(*address));
            named.all(|(_, uuid)| gpu.uuid == *uuid)
        })
    }
}

/// Reads it. `dev` is the folder with the nodes.
pub(super) fn read(proc: &Path, dev: &Path) -> Host {
    let driver = proc.join("driver/nvidia");
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for name in entries(&driver.join("gpus")) {
        let text = read_text(&driver.join("gpus").join(&name).join("information")).ok();
        match text.as_deref().and_then(Information::parse) {
            // NVML and CUDA do not count it.
            Some(gpu) if gpu.is_excluded => {}
            Some(gpu) => found.push(gpu),
            None => unreadable.push(name),
        }
    }
    found.sort_by_key(|gpu| gpu.address);
    let key = Key {
        gpus: found.iter().map(|gpu| (gpu.address, gpu.minor)).collect(),
        nodes: found.iter().map(|gpu| gpu.minor).filter(|minor| has_node(dev, *minor)).collect(),
        instances: instances(&driver.join("capabilities")),
        boot_id: read_text(&proc.join("sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned(),
        driver_version: driver_version(&driver).unwrap_or_default(),
    };
    let is_whole = !key.gpus.is_empty() && unreadable.is_empty();
    let is_dated = !key.boot_id.is_empty() && !key.driver_version.is_empty();
    let named = found.iter().filter_map(|gpu| Some((gpu.address, gpu.uuid.clone()?))).collect();
    let inventory = inventory(found, unreadable, &key);
    Host { inventory, key: (is_whole && is_dated).then_some(key), named }
}

fn inventory(found: Vec<Information>, mut unreadable: Vec<String>, key: &Key) -> Result<Inventory, Doubt> {
    if !unreadable.is_empty() {
        unreadable.sort_unstable();
        return Err(Doubt::Unreadable(unreadable));
    }
    if found.is_empty() {
        return Err(Doubt::NoGpu);
    }
    let without_uuid = found.iter().filter(|gpu| gpu.uuid.is_none());
    let not_named: Vec<PciBusId> = without_uuid.map(|gpu| gpu.address).collect();
    if !not_named.is_empty() {
        return Err(Doubt::NotNamed(not_named));
    }
    if !key.instances.is_empty() {
        return Err(Doubt::Mig);
    }
    let no_node: Vec<Minor> =
        key.gpus.iter().map(|(_, minor)| *minor).filter(|minor| !key.nodes.contains(minor)).collect();
    // Without any node nothing can be opened, whichever GPUs count.
    if !no_node.is_empty() && !key.nodes.is_empty() {
        return Err(Doubt::NoNode(no_node));
    }
    let gpus = found.into_iter().zip(0..).filter_map(|(gpu, index)| gpu.into_gpu(HostIndex(index))).collect();
    let inventory = Inventory {
        schema_version: SCHEMA_VERSION,
        driver_version: Some(key.driver_version.clone()).filter(|version| !version.is_empty()),
        source: "procfs".to_owned(),
        platform: Platform::Usual,
        gpus,
    };
    match inventory.check_unique() {
        Ok(()) => Ok(inventory),
        Err(error) => Err(Doubt::Contradiction(error.to_string())),
    }
}

/// One `information` file.
struct Information {
    address: PciBusId,
    minor: Minor,
    /// `None` while the driver has not initialised the GPU (`GPU-????????-…`).
    uuid: Option<GpuUuid>,
    model: String,
    /// The operator told the driver to leave it alone (`NVreg_ExcludedGpus`).
    is_excluded: bool,
}

impl Information {
    fn parse(text: &str) -> Option<Self> {
        let get = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        Some(Self {
            address: PciBusId::try_from(get("Bus Location")?.to_owned()).ok()?,
            minor: Minor(get("Device Minor")?.parse().ok()?),
            uuid: get("GPU UUID").and_then(|uuid| GpuUuid::try_from(uuid.to_owned()).ok()),
            model: get("Model").unwrap_or_default().to_owned(),
            // The word of drivers before R460 is the second one.
            is_excluded: get("GPU Excluded").or_else(|| get("Blacklisted")) == Some("Yes"),
        })
    }

    fn into_gpu(self, index: HostIndex) -> Option<Gpu> {
        Some(Gpu {
            index,
            minor: self.minor,
            uuid: self.uuid?,
            pci_bus_id: Some(self.address),
            name: self.model,
            multiprocessors: None,
            drm_nodes: Vec::new(),
            mig_enabled: false,
            mig: Vec::new(),
        })
    }
}

/// Whether a GPU has its node. It is not opened: that can start the GPU up, which takes seconds.
pub(super) fn has_node(dev: &Path, minor: Minor) -> bool {
    dev.join(format!("nvidia{minor}")).exists()
}

/// The driver's version in the first line of `/proc/driver/nvidia/version`, of either kernel module.
pub(in crate::sys) fn driver_version(driver: &Path) -> Option<String> {
    let text = read_text(&driver.join("version")).ok()?;
    let is_version = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Every `gpuN/mig/giM/ciK` for which the driver has an access file. Only NVML knows their UUIDs.
fn instances(capabilities: &Path) -> Vec<String> {
    let mut out = Vec::new();
    for gpu in entries(capabilities).into_iter().filter(|name| name.starts_with("gpu")) {
        let mig = capabilities.join(&gpu).join("mig");
        for gi in entries(&mig).into_iter().filter(|name| name.starts_with("gi")) {
            out.push(format!("{gpu}/{gi}"));
            let cis = entries(&mig.join(&gi)).into_iter().filter(|name| name.starts_with("ci"));
            out.extend(cis.map(|ci| format!("{gpu}/{gi}/{ci}")));
        }
    }
    out.sort_unstable();
    out
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}
