//! `/proc/driver/nvidia`: enough for full GPUs, and what tells whether a cache still holds.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::device::{GpuUuid, HostIndex, Minor, PciBusId};
use crate::inventory::{Gpu, Inventory, SCHEMA_VERSION};

/// What a cached inventory depends on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Key {
    /// Every GPU's address and minor, in PCI order.
    pub(super) gpus: Vec<(PciBusId, Minor)>,
    /// GPU and compute instances, as the driver's capability files name them.
    pub(super) instances: Vec<String>,
    /// This boot.
    pub(super) boot_id: String,
    /// The driver.
    pub(super) driver_version: Option<String>,
}

/// What procfs says.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// The GPUs, if procfs is enough to know them.
    pub(super) inventory: Option<Inventory>,
    /// What a cache must have been written for.
    pub(super) key: Key,
}

/// Reads it. Whatever is missing is left out; without a single GPU there is no inventory.
pub(super) fn read(proc: &Path) -> Host {
    let driver = proc.join("driver/nvidia");
    let mut found: Vec<Information> = entries(&driver.join("gpus"))
        .into_iter()
        .filter_map(|name| fs::read_to_string(driver.join("gpus").join(name).join("information")).ok())
        .filter_map(|text| Information::parse(&text))
        .collect();
    found.sort_by_key(|gpu| gpu.address);
    let key = Key {
        gpus: found.iter().map(|gpu| (gpu.address, gpu.minor)).collect(),
        instances: instances(&driver.join("capabilities")),
        boot_id: fs::read_to_string(proc.join("sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned(),
        driver_version: fs::read_to_string(driver.join("version")).ok().as_deref().and_then(driver_version),
    };
    let is_enough = !found.is_empty() && key.instances.is_empty();
    let gpus: Option<Vec<Gpu>> = is_enough
        .then(|| found.into_iter().zip(0..).map(|(gpu, index)| gpu.into_gpu(HostIndex(index))).collect())
        .flatten();
    let inventory = gpus.map(|gpus| Inventory {
        schema_version: SCHEMA_VERSION,
        driver_version: key.driver_version.clone(),
        source: "procfs".to_owned(),
        gpus,
    });
    Host { inventory, key }
}

/// One `information` file.
struct Information {
    address: PciBusId,
    minor: Minor,
    /// `None` while the driver has not initialised the GPU (`GPU-????????-…`).
    uuid: Option<GpuUuid>,
    model: String,
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

/// The driver's version in the first line of `/proc/driver/nvidia/version`, of either kernel module.
fn driver_version(text: &str) -> Option<String> {
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
