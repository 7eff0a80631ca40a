//! The host's GPUs as plain data; its JSON is the fixture format and the cache format.

use serde::{Deserialize, Serialize};

use crate::device::{DeviceNumber, GpuUuid, HostIndex, InvalidName, MigUuid, Minor, PciBusId};

/// The version of the inventory's JSON that this program reads and writes.
pub const SCHEMA_VERSION: u32 = 1;

/// The GPUs of a host, in PCI order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The driver, such as `550.54.15`; some of CUDA's rules depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Where this came from, for people: `nvml`, `procfs`, a file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// How containers get at the GPUs.
    #[serde(default, skip_serializing_if = "Platform::is_usual")]
    pub platform: Platform,
    /// The GPUs, ordered by host index.
    pub gpus: Vec<Gpu>,
}

/// How containers get at a host's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Each GPU has a node of its own, so that one can be given without the others.
    #[default]
    Usual,
    /// Windows Subsystem for Linux 2: `/dev/dxg` is all GPUs, and there is nothing to choose from.
    // NVIDIA Container Toolkit, pkg/nvcdi/lib-wsl.go: one device, requested ids are not looked at.
    Wsl2,
}

impl Platform {
    /// Whether GPUs can be told apart.
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Position in PCI order on the host.
    pub index: HostIndex,
    /// The N of its `/dev/nvidiaN`.
    pub minor: Minor,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Its PCI address; absent only in hand-made inventories, where `index` alone gives the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<PciBusId>,
    /// The product name.
    #[serde(default)]
    pub name: String,
    /// Streaming multiprocessors: what CUDA's "fastest first" appears to go by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
    /// Numbers of its nodes under `/dev/dri`, where they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drm_nodes: Vec<DeviceNumber>,
    /// MIG mode is on. A GPU in that mode without MIG devices shows nothing to CUDA.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mig_enabled: bool,
    /// Its MIG devices, ordered by GPU instance, then compute instance.
    #[serde(default)]
    pub mig: Vec<MigDevice>,
}

/// One MIG device: a compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigDevice {
    /// NVML's index of it on its GPU, the m of `g:m`; the position where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: MigUuid,
    /// GPU instance number.
    pub gi: u32,
    /// Compute instance number within the GPU instance.
    pub ci: u32,
    /// Its size, such as `3g.20gb`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// Nodes under `/dev/nvidia-caps` that opening it needs, where they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capability_nodes: Vec<CapabilityNode>,
}

/// A MIG capability node, such as `/dev/nvidia-caps/nvidia-cap12`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityNode {
    /// Absolute path on the host and in the container.
    pub path: String,
    /// Its device number.
    pub number: DeviceNumber,
}

/// A device of an [`Inventory`]: a full GPU or one of its MIG devices.
///
/// Positions, not names; the order of the type is the order of a grant (PCI address, GPU instance, compute instance).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Position of the GPU in `Inventory::gpus`.
    pub gpu: usize,
    /// Position of the MIG device in `Gpu::mig`; `None` for the full GPU.
    pub mig: Option<usize>,
}

/// An inventory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidInventory {
    /// Not JSON, or not of the documented form.
    #[error("not an inventory")]
    Json(#[from] serde_json::Error),
    /// Written by another version of this program.
    #[error("schemaVersion is {0}, this program reads {SCHEMA_VERSION}")]
    SchemaVersion(u32),
    /// Two GPUs with one index, minor, PCI address or UUID, or MIG devices with one UUID.
    #[error("{0} occurs twice")]
    Duplicate(String),
    /// A UUID that is none.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl Inventory {
    /// Reads an inventory from JSON, and puts GPUs and MIG devices in their order.
    ///
    /// # Errors
    /// [`InvalidInventory`] where the text is not an inventory, or contradicts itself.
    pub fn from_json(text: &[u8]) -> Result<Self, InvalidInventory> {
        read_json::<Self>(text)?.checked()
    }

    /// One that was read as a part of something else.
    ///
    /// # Errors
    /// As [`Inventory::from_json`].
    pub fn checked(mut self) -> Result<Self, InvalidInventory> {
        if self.schema_version != SCHEMA_VERSION {
            return Err(InvalidInventory::SchemaVersion(self.schema_version));
        }
        self.gpus.sort_by_key(|gpu| gpu.index);
        for gpu in &mut self.gpus {
            gpu.mig.sort_by_key(|mig| (mig.gi, mig.ci));
        }
        self.check_unique()?;
        Ok(self)
    }

    /// An inventory of no GPUs.
    pub fn empty(source: &str) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            driver_version: None,
            source: source.to_owned(),
            platform: Platform::Usual,
            gpus: Vec::new(),
        }
    }

    /// Whether every name and number in it is one GPU's.
    ///
    /// # Errors
    /// [`InvalidInventory::Duplicate`] names the first that is not.
    pub fn check_unique(&self) -> Result<(), InvalidInventory> {
        let gpus = &self.gpus;
        let migs = gpus.iter().flat_map(|gpu| &gpu.mig);
        let uuids = gpus.iter().map(|gpu| gpu.uuid.as_str()).chain(migs.map(|mig| mig.uuid.as_str()));
        let twice = repeated(uuids)
            .map(str::to_owned)
            .or_else(|| repeated(gpus.iter().map(|gpu| gpu.index)).map(|index| format!("index {index}")))
            .or_else(|| repeated(gpus.iter().map(|gpu| gpu.minor)).map(|minor| format!("minor {minor}")))
            .or_else(|| repeated(gpus.iter().filter_map(|gpu| gpu.pci_bus_id)).map(|at| format!("PCI address {at}")));
        twice.map_or(Ok(()), |name| Err(InvalidInventory::Duplicate(name)))
    }

    /// Every device that can be granted: MIG devices in place of a GPU that has some.
    pub fn all_devices(&self) -> Vec<Device> {
        (0..self.gpus.len()).flat_map(|gpu| self.devices_of(gpu)).collect()
    }

    /// What granting the GPU at this position grants: its MIG devices in MIG mode (perhaps none), else itself.
    pub fn devices_of(&self, gpu: usize) -> Vec<Device> {
        let Some(found) = self.gpus.get(gpu) else { return Vec::new() };
        if found.mig.is_empty() && !found.mig_enabled {
            return vec![Device { gpu, mig: None }];
        }
        (0..found.mig.len()).map(|mig| Device { gpu, mig: Some(mig) }).collect()
    }

    /// The GPU that a device is, or is a part of.
    ///
    /// A [`Device`] belongs to the inventory that made it; with another one this panics.
    pub fn gpu(&self, device: Device) -> &Gpu {
        &self.gpus[device.gpu]
    }

    /// The MIG device, if it is one.
    pub fn mig(&self, device: Device) -> Option<&MigDevice> {
        device.mig.map(|mig| &self.gpus[device.gpu].mig[mig])
    }

    /// The name that works everywhere: a MIG UUID for a MIG device, else the GPU's.
    pub fn uuid(&self, device: Device) -> &str {
        self.mig(device).map_or_else(|| self.gpu(device).uuid.as_str(), |mig| mig.uuid.as_str())
    }

    /// As [`Inventory::uuid`], cut to `GPU-` or `MIG-` and eight characters.
    pub fn short_uuid(&self, device: Device) -> String {
        self.mig(device).map_or_else(|| self.gpu(device).uuid.short().to_owned(), |mig| mig.uuid.short())
    }

    /// How a person names it on the host: `3`, or `0:1` for the second MIG device of GPU 0 (NVIDIA's own form).
    pub fn host_label(&self, device: Device) -> String {
        let mut label = self.gpu(device).index.0.to_string();
        if let (Some(position), Some(mig)) = (device.mig, self.mig(device)) {
            label.push(':');
            label.push_str(&mig.index.unwrap_or(u32::try_from(position).unwrap_or(0)).to_string());
        }
        label
    }

    /// Several devices as a person names them: `host GPU 1`, `host GPUs 0 to 3`, `MIG devices 0:0 and 0:1`.
    pub fn host_names(&self, devices: &[Device]) -> String {
        let labels: Vec<String> = devices.iter().map(|device| self.host_label(*device)).collect();
        format!("{} {}", noun(devices, "host GPU"), list(&labels))
    }

    /// The device with this full UUID.
    pub fn by_uuid(&self, uuid: &str) -> Option<Device> {
        self.gpus.iter().enumerate().find_map(|(gpu, candidate)| {
            if candidate.uuid.as_str() == uuid {
                return Some(Device { gpu, mig: None });
            }
            let mig = candidate.mig.iter().position(|mig| mig.uuid.as_str() == uuid)?;
            Some(Device { gpu, mig: Some(mig) })
        })
    }

    /// Position of the GPU with this host index.
    pub fn position_of_index(&self, index: u32) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.index.0 == index)
    }

    /// Position of the GPU with this minor.
    pub fn position_of_minor(&self, minor: Minor) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.minor == minor)
    }

    /// Whether these devices are of more than one model, so that CUDA's own order may differ from PCI order. Some models
    /// have a name in common and differ in their multiprocessors.
    pub fn models_differ(&self, devices: &[Device]) -> bool {
        let model = |device: Device| (&self.gpu(device).name, self.gpu(device).multiprocessors);
        devices.windows(2).any(|pair| model(pair[0]) != model(pair[1]))
    }
}

/// Reads JSON, and looks once at the whole of it whether it is text, not at string by string.
///
/// # Errors
/// Where it is none, or not of this form.
pub fn read_json<'a, T: Deserialize<'a>>(text: &'a [u8]) -> serde_json::Result<T> {
    std::str::from_utf8(text).map_or_else(|_| serde_json::from_slice(text), serde_json::from_str)
}

/// The first that is there twice.
fn repeated<T: Ord>(items: impl Iterator<Item = T>) -> Option<T> {
    let mut sorted: Vec<T> = items.collect();
    sorted.sort_unstable();
    let position = sorted.windows(2).position(|pair| pair[0] == pair[1])?;
    Some(sorted.swap_remove(position))
}

/// `1`, `1 and 3`, `0 to 3`, `0, 2 and 3`: a run of three or more is shown by its ends.
pub fn list(items: &[String]) -> String {
    let numbers: Option<Vec<u32>> = items.iter().map(|item| item.parse().ok()).collect();
    let is_run = |numbers: &Vec<u32>| numbers.len() > 2 && numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match items {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first, .., last] if numbers.as_ref().is_some_and(is_run) => format!("{first} to {last}"),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// `GPU` or `MIG device`, in the plural where it has to be; `gpu` is the word for a full one.
pub fn noun(devices: &[Device], gpu: &str) -> String {
    let migs = devices.iter().filter(|device| device.mig.is_some()).count();
    let word = match migs {
        0 => gpu,
        all if all == devices.len() => "MIG device",
        _ => "device",
    };
    if devices.len() == 1 { word.to_owned() } else { format!("{word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_a_person_would_say_them() {
        let say = |items: &[&str]| list(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
        assert_eq!(say(&["1"]), "1");
        assert_eq!(say(&["0", "1"]), "0 and 1");
        assert_eq!(say(&["0", "1", "2"]), "0 to 2");
        assert_eq!(say(&["3", "2", "1"]), "3, 2 and 1");
        assert_eq!(say(&["0:0", "0:1", "1"]), "0:0, 0:1 and 1");
    }

    const TWO: &str = r#"{"schemaVersion":1,"gpus":[
        {"index":1,"minor":0,"uuid":"GPU-b","mig":[{"uuid":"MIG-2","gi":2,"ci":0},{"uuid":"MIG-1","gi":1,"ci":0}]},
        {"index":0,"minor":1,"uuid":"GPU-a"}]}"#;

    #[test]
    fn devices_come_in_pci_order_then_by_instance() {
        let inventory = Inventory::from_json(TWO.as_bytes()).expect("a good inventory");
        let names: Vec<&str> = inventory.all_devices().into_iter().map(|d| inventory.uuid(d)).collect();
        assert_eq!(names, ["GPU-a", "MIG-1", "MIG-2"]);
    }

    #[test]
    fn contradictions_are_refused() {
        let twice = TWO.replace("GPU-b", "GPU-a");
        assert!(matches!(Inventory::from_json(twice.as_bytes()), Err(InvalidInventory::Duplicate(_))));
        let placed = |index: u32| {
            format!(r#"{{"index":{index},"minor":{index},"uuid":"GPU-{index}","pciBusId":"0000:07:00.0"}}"#)
        };
        let one_place = format!(r#"{{"schemaVersion":1,"gpus":[{},{}]}}"#, placed(0), placed(1));
        let error = Inventory::from_json(one_place.as_bytes()).expect_err("two GPUs in one place");
        assert_eq!(error.to_string(), "PCI address 00000000:07:00.0 occurs twice");
        let later = TWO.replace(r#""schemaVersion":1"#, r#""schemaVersion":2"#);
        assert!(matches!(Inventory::from_json(later.as_bytes()), Err(InvalidInventory::SchemaVersion(2))));
        assert!(matches!(Inventory::from_json(b"{"), Err(InvalidInventory::Json(_))));
    }
}
