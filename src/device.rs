//! The numbers and names that a GPU has, each a type of its own.
//!
//! A host index, a device minor, a container index and a CUDA ordinal all look like small integers.
//! Mixing them up is the fault that this program exists to correct, so here they cannot be mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// NVML index of a GPU on the host: its position in PCI bus order.
    /// `nvidia-smi` on the host, `--gpus device=` and `NVIDIA_VISIBLE_DEVICES` count this way.
    HostIndex
}
number! {
    /// The N of `/dev/nvidiaN`. The driver hands it out; it is not always the host index.
    Minor
}
number! {
    /// Position, in PCI order, among the GPUs that the container can open: `nvidia-smi` inside.
    ContainerIndex
}
number! {
    /// The i of `cuda:i`: `CUDA_VISIBLE_DEVICES` applied to the container's GPUs.
    CudaOrdinal
}

/// Major number of `/dev/nvidiaN`, `/dev/nvidiactl` and `/dev/nvidia-modeset`.
// Registered for NVIDIA in the kernel's Documentation/admin-guide/devices.txt (195 char).
pub const NVIDIA_MAJOR: u32 = 195;

/// First minor of major 195 that is not a GPU: 254 is `nvidia-modeset`, 255 is `nvidiactl`.
pub const FIRST_CONTROL_MINOR: u32 = 254;

/// A device number as the kernel knows it. It identifies a node; a path does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Driver.
    pub major: u32,
    /// Device of that driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// The number of the GPU node with this minor.
    pub fn gpu(minor: Minor) -> Self {
        Self { major: NVIDIA_MAJOR, minor: minor.0 }
    }

    /// The minor, if this is the number of a GPU node (and not of a control node).
    pub fn gpu_minor(self) -> Option<Minor> {
        (self.major == NVIDIA_MAJOR && self.minor < FIRST_CONTROL_MINOR).then_some(Minor(self.minor))
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A device name that is not of the form it claims to have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct InvalidName {
    value: String,
    expected: &'static str,
}

/// Characters that may stand in a UUID after its `GPU-` or `MIG-`.
/// Names are copied into environment entries and terminal output, so nothing else gets in.
fn is_name_tail(text: &str) -> bool {
    !text.is_empty() && text.len() <= 80 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// UUID of a full GPU, `GPU-` included, as `nvidia-smi -L` prints it. Compared case-sensitively, as CUDA does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuUuid(String);

impl GpuUuid {
    /// The text, `GPU-` included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// `GPU-` and eight more characters: unique on any real host, and CUDA accepts it as it is.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl TryFrom<String> for GpuUuid {
    type Error = InvalidName;
    fn try_from(value: String) -> Result<Self, InvalidName> {
        match value.strip_prefix("GPU-") {
            Some(tail) if is_name_tail(tail) => Ok(Self(value)),
            _ => Err(InvalidName { value, expected: "a GPU UUID (GPU-…)" }),
        }
    }
}

impl From<GpuUuid> for String {
    fn from(uuid: GpuUuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that the driver gives a MIG device, `MIG-` included: a UUID of its own, and before R470.42.01
/// `MIG-GPU-<UUID of the GPU>/<GPU instance>/<compute instance>`.
// NVIDIA MIG User Guide, "Device nodes and capabilities" and "CUDA visible devices".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MigUuid(String);

impl MigUuid {
    /// The text, `MIG-` included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// `MIG-` and eight more characters, for tables; an older name keeps its end, which tells devices apart.
    pub fn short(&self) -> String {
        let cut = |text: &str, length: usize| text.get(..length).unwrap_or(text).to_owned();
        match self.0.split_once('/') {
            Some((gpu, instances)) => format!("{}/{instances}", cut(gpu, 16)),
            None => cut(&self.0, 12),
        }
    }
}

impl TryFrom<String> for MigUuid {
    type Error = InvalidName;
    fn try_from(value: String) -> Result<Self, InvalidName> {
        let tail = value.strip_prefix("MIG-").unwrap_or_default();
        let is_valid = match tail.strip_prefix("GPU-") {
            Some(older) => is_older_tail(older),
            None => is_name_tail(tail),
        };
        if is_valid { Ok(Self(value)) } else { Err(InvalidName { value, expected: "a MIG UUID (MIG-…)" }) }
    }
}

/// `<UUID>/<GPU instance>/<compute instance>`.
fn is_older_tail(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let is_number = |text: &str| matches!(text.len(), 1..=3) && text.bytes().all(|b| b.is_ascii_digit());
    matches!(parts[..], [uuid, gi, ci] if is_name_tail(uuid) && is_number(gi) && is_number(ci))
}

impl From<MigUuid> for String {
    fn from(uuid: MigUuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for MigUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// PCI address of a GPU; its order is the host's GPU order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciBusId {
    /// PCI domain.
    pub domain: u32,
    /// Bus in the domain.
    pub bus: u8,
    /// Device (slot) on the bus, 0 to 31.
    pub device: u8,
    /// Function of the device, 0 to 7.
    pub function: u8,
}

impl TryFrom<String> for PciBusId {
    type Error = InvalidName;
    fn try_from(value: String) -> Result<Self, InvalidName> {
        let parse = || {
            let (domain, rest) = value.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex8 = |text: &str| u8::from_str_radix(text, 16).ok();
            Some(Self {
                domain: u32::from_str_radix(domain, 16).ok()?,
                bus: hex8(bus)?,
                device: hex8(device).filter(|d| *d < 32)?,
                function: hex8(function).filter(|f| *f < 8)?,
            })
        };
        parse().ok_or(InvalidName { value, expected: "a PCI address (domain:bus:device.function)" })
    }
}

impl From<PciBusId> for String {
    fn from(id: PciBusId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for PciBusId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_of_both_lengths_read_the_same() {
        let long = PciBusId::try_from("00000000:07:00.0".to_owned());
        let short = PciBusId::try_from("0000:07:00.0".to_owned());
        assert_eq!(long, short);
        assert_eq!(long.map(|id| id.to_string()), Ok("00000000:07:00.0".to_owned()));
        assert!(PciBusId::try_from("07:00.0".to_owned()).is_err());
    }

    #[test]
    fn names_that_could_break_out_of_an_environment_entry_are_refused() {
        for bad in ["GPU-", "gpu-1", "GPU-a,b", "GPU-a b", "GPU-a\nb", "MIG-1"] {
            assert!(GpuUuid::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        for bad in
            ["MIG-", "MIG-GPU-1", "MIG-GPU-/1/0", "MIG-GPU-1/1", "MIG-GPU-1/1/0/0", "MIG-GPU-1/../0", "MIG-a/1/0"]
        {
            assert!(MigUuid::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        for good in ["MIG-0100c0de", "MIG-GPU-a04/1/0", "MIG-GPU-a04/14/7"] {
            assert!(MigUuid::try_from(good.to_owned()).is_ok(), "{good:?}");
        }
        let short = |name: &str| MigUuid::try_from(name.to_owned()).map(|uuid| uuid.short());
        assert_eq!(short("MIG-0100c0de-0000-5000"), Ok("MIG-0100c0de".to_owned()));
        assert_eq!(short("MIG-GPU-c0400000-0001-4000/2/0"), Ok("MIG-GPU-c0400000/2/0".to_owned()));
    }

    #[test]
    fn control_nodes_are_not_gpus() {
        assert_eq!(DeviceNumber { major: 195, minor: 255 }.gpu_minor(), None);
        assert_eq!(DeviceNumber { major: 195, minor: 3 }.gpu_minor(), Some(Minor(3)));
        assert_eq!(DeviceNumber { major: 1, minor: 3 }.gpu_minor(), None);
    }
}
