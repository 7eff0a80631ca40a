//! What NVML says of GPUs that are in use, as `cudaview-nvml --usage` prints it.

use serde::{Deserialize, Serialize};

/// The GPUs and MIG devices of a host that NVML could be asked about.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// One for each GPU, and for each MIG device.
    pub devices: Vec<DeviceUsage>,
}

/// Use of a GPU or a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceUsage {
    /// Its UUID.
    pub uuid: String,
    /// Bytes of its memory that are in use, the driver's own among them.
    pub memory_used: u64,
    /// Bytes of memory that it has.
    pub memory_total: u64,
    /// The processes that compute or draw on it, in this program's pid namespace.
    pub processes: Vec<u32>,
}

impl Usage {
    /// Use of a device.
    pub fn of(&self, uuid: &str) -> Option<&DeviceUsage> {
        self.devices.iter().find(|device| device.uuid == uuid)
    }
}
