//! The record: what exec, the hook and a second door need to know of an earlier decision.
//!
//! It travels as an argument of our own createRuntime hook entry in the bundle's `config.json`.
//! An image cannot add hooks; annotations can come from an image on older podman, so they are not used.

use serde::{Deserialize, Serialize};

use crate::inventory::{Device, Gpu, Inventory, MigDevice, Platform, SCHEMA_VERSION};
use crate::provenance::Provenance;
use crate::request::Source;

/// The version of the record that this program writes; it reads no other.
const VERSION: u32 = 1;

/// The longest value that a record holds, as JSON: a hook's argument may have 128 KiB, and a record has eight values.
const LONGEST: usize = 8 << 10;

/// How a mark begins: with a character that no variable of a process can hold.
const MARK: char = '\0';

/// The variables that cudaview reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Variables {
    /// `CUDA_VISIBLE_DEVICES`.
    #[serde(rename = "cvd", default, skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    #[serde(rename = "order", default, skip_serializing_if = "Option::is_none")]
    pub device_order: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES`.
    #[serde(rename = "nvd", default, skip_serializing_if = "Option::is_none")]
    pub nvidia_visible_devices: Option<String>,
    /// `CUDAVIEW_HOST_GPUS`.
    #[serde(rename = "trace", default, skip_serializing_if = "Option::is_none")]
    pub host_gpus: Option<String>,
}

impl Variables {
    /// The names, in the order of the fields.
    pub const NAMES: [&'static str; 4] =
        ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "CUDAVIEW_HOST_GPUS"];

    /// The values, in the order of [`Variables::NAMES`].
    pub fn values(&self) -> [Option<&str>; 4] {
        [&self.visible_devices, &self.device_order, &self.nvidia_visible_devices, &self.host_gpus]
            .map(|value| value.as_deref())
    }

    /// The same with values that a record can hold: one that is too long becomes a mark that only it gets.
    #[must_use]
    pub fn marked(self) -> Self {
        self.map(|value| if is_long(&value) { Some(format!("{MARK}{}", mark(&value))) } else { Some(value) })
    }

    /// The same for people: with words for a value that is too long.
    #[must_use]
    pub fn told(self) -> Self {
        self.map(|value| if is_long(&value) { Some(mark(&value)) } else { Some(value) })
    }

    /// Whether such a mark stands for a value that nobody has any more.
    pub fn has_mark(&self) -> bool {
        self.values().into_iter().flatten().any(|value| value.starts_with(MARK))
    }

    fn map(self, change: impl Fn(String) -> Option<String>) -> Self {
        Self {
            visible_devices: self.visible_devices.and_then(&change),
            device_order: self.device_order.and_then(&change),
            nvidia_visible_devices: self.nvidia_visible_devices.and_then(&change),
            host_gpus: self.host_gpus.and_then(&change),
        }
    }

    /// Reads them through a look-up by name.
    pub fn collect<'a>(look_up: impl Fn(&str) -> Option<&'a str>) -> Self {
        let get = |name| look_up(name).map(str::to_owned);
        Self {
            visible_devices: get(Self::NAMES[0]),
            device_order: get(Self::NAMES[1]),
            nvidia_visible_devices: get(Self::NAMES[2]),
            host_gpus: get(Self::NAMES[3]),
        }
    }
}

/// Whether a value would make a record too long for a hook's argument. An image may hold such a value.
fn is_long(value: &str) -> bool {
    // As JSON such a byte takes six at most, the others one; only what could be too long by that is written.
    let escaped = value.bytes().filter(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\')).count();
    let is_longer = || serde_json::to_string(value).map_or(true, |json| json.len() > LONGEST);
    let least = value.len() + 2;
    least > LONGEST || (least + 5 * escaped > LONGEST && is_longer())
}

/// Length and FNV-1a hash: enough to see that exec got the same value again.
fn mark(value: &str) -> String {
    let hash = value
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("a value of {} bytes, {hash:016x}", value.len())
}

/// What was decided for a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Always 1.
    pub version: u32,
    /// The variables before the first door touched them.
    pub original: Variables,
    /// Who had set `CUDA_VISIBLE_DEVICES`.
    pub provenance: Provenance,
    /// The variables as the program in the container gets them.
    pub emitted: Variables,
    /// UUIDs of the grant, in PCI order.
    pub granted: Vec<String>,
    /// An operator chose the grant.
    pub explicit: bool,
    /// In which way the grant was asked for, for hints; absent where that is `--gpus`, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Source>,
    /// UUIDs of the devices that stayed, in PCI order; absent where all that was granted stayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<Vec<String>>,
    /// UUIDs of what the container can open, in PCI order; absent where that is what stayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    openable: Option<Vec<String>>,
    /// The driver, on which CUDA's rules depend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// The GPUs that the UUIDs belong to, so that exec needs no inventory.
    pub gpus: Vec<Gpu>,
}

impl Record {
    /// A record of devices of this inventory.
    pub fn new(inventory: &Inventory, decided: Decided<'_>) -> Self {
        let uuids = |devices: &[Device]| devices.iter().map(|d| inventory.uuid(*d).to_owned()).collect::<Vec<_>>();
        let concerned = |gpu: usize| decided.granted.iter().chain(decided.openable).any(|device| device.gpu == gpu);
        Self {
            version: VERSION,
            original: decided.original.marked(),
            provenance: decided.provenance,
            // A long value is one that was left as it was written, and exec leaves it too.
            emitted: decided.emitted.map(|value| (!is_long(&value)).then_some(value)),
            granted: uuids(decided.granted),
            explicit: decided.explicit,
            asked: decided.asked.filter(|source| *source != Source::Gpus),
            kept: (decided.kept != decided.granted).then(|| uuids(decided.kept)),
            openable: (decided.openable != decided.kept).then(|| uuids(decided.openable)),
            driver_version: inventory.driver_version.clone(),
            gpus: (0..inventory.gpus.len()).filter(|gpu| concerned(*gpu)).map(|g| named(&inventory.gpus[g])).collect(),
        }
    }

    /// UUIDs of the devices that stayed, in PCI order: `K`.
    pub fn kept(&self) -> &[String] {
        self.kept.as_deref().unwrap_or(&self.granted)
    }

    /// UUIDs of what the container can open, in PCI order: `O`.
    pub fn openable(&self) -> &[String] {
        self.openable.as_deref().unwrap_or(self.kept())
    }

    /// Reads a record; `None` for anything else, another version included.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|record: &Self| record.version == VERSION)
    }

    /// The container's part of the host.
    pub fn inventory(&self) -> Inventory {
        Inventory {
            schema_version: SCHEMA_VERSION,
            driver_version: self.driver_version.clone(),
            source: "record".to_owned(),
            platform: Platform::Usual,
            gpus: self.gpus.clone(),
        }
    }
}

/// A GPU as exec needs it: names and numbers, no nodes. A record of a hundred MIG devices is written at every create.
fn named(gpu: &Gpu) -> Gpu {
    let bare = |mig: &MigDevice| MigDevice {
        index: mig.index,
        uuid: mig.uuid.clone(),
        gi: mig.gi,
        ci: mig.ci,
        profile: String::new(),
        capability_nodes: Vec::new(),
    };
    Gpu {
        index: gpu.index,
        minor: gpu.minor,
        uuid: gpu.uuid.clone(),
        pci_bus_id: None,
        name: gpu.name.clone(),
        multiprocessors: gpu.multiprocessors,
        drm_nodes: Vec::new(),
        mig_enabled: gpu.mig_enabled,
        mig: gpu.mig.iter().map(bare).collect(),
    }
}

/// What [`Record::new`] takes.
#[derive(Debug)]
pub struct Decided<'a> {
    /// The variables as they were.
    pub original: Variables,
    /// Who had set `CUDA_VISIBLE_DEVICES`.
    pub provenance: Provenance,
    /// The variables as they will be.
    pub emitted: Variables,
    /// `G`.
    pub granted: &'a [Device],
    /// An operator chose `G`.
    pub explicit: bool,
    /// In which way `G` was asked for.
    pub asked: Option<Source>,
    /// `K`.
    pub kept: &'a [Device],
    /// `O`.
    pub openable: &'a [Device],
}

/// Devices by UUID; those that the inventory does not have are left out.
pub fn devices(inventory: &Inventory, uuids: &[String]) -> Vec<Device> {
    let mut devices: Vec<Device> = uuids.iter().filter_map(|uuid| inventory.by_uuid(uuid)).collect();
    devices.sort_unstable();
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_fits_into_an_argument_whatever_an_image_holds() {
        let worst = || Some("\u{1}".repeat(LONGEST));
        let variables = Variables {
            visible_devices: worst(),
            device_order: Some("\u{1}".repeat(LONGEST / 6 - 1)),
            nvidia_visible_devices: Some("x".repeat(LONGEST - 2)),
            host_gpus: Some(String::new()),
        };
        let decided = Decided {
            original: variables.clone(),
            provenance: Provenance::Image,
            emitted: variables.clone(),
            granted: &[],
            explicit: true,
            asked: None,
            kept: &[],
            openable: &[],
        };
        let record = Record::new(&Inventory::empty("test"), decided);
        let text = serde_json::to_string(&record).expect("JSON");
        assert!(text.len() < 6 * LONGEST, "{}", text.len());
        assert_eq!(Record::parse(&text).as_ref(), Some(&record));
        assert_eq!(record.original, variables.clone().marked(), "the same value again");
        let other = Variables { visible_devices: Some("\u{1}".repeat(LONGEST + 1)), ..variables.clone() };
        assert_ne!(record.original, other.clone().marked());
        assert!(record.original.has_mark() && record.emitted.visible_devices.is_none());
        assert_eq!(record.emitted.nvidia_visible_devices, variables.nvidia_visible_devices);
        // An image cannot pass a value of its own for a mark.
        let told = other.told();
        assert!(told.values()[0].is_some_and(|value| value.starts_with("a value of ")) && !told.has_mark());
    }
}
