//! Asks NVML for the inventory. Only `cudaview-nvml` calls this.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use crate::device::{DeviceNumber, GpuUuid, HostIndex, InvalidName, MigUuid, Minor, PciBusId};
use crate::inventory::{CapabilityNode, Gpu, Inventory, MigDevice, Platform, SCHEMA_VERSION};
use crate::usage::{DeviceUsage, Usage};

/// What `cudaview-nvml --help` prints.
pub const HELP: &str = "\
cudaview-nvml: prints this host's GPUs as NVML knows them, in JSON

usage: cudaview-nvml [--proc DIR | --usage | --version | --help]

  --proc DIR  read the driver's table of MIG capability nodes there and not
              in /proc
  --usage     print memory in use, and by which processes, instead

cudaview and its other programs start it where nothing else says which GPUs
there are; cudaview inventory shows the same to people.
";

/// The library's soname. Without the number it is there only on machines that compile for NVML.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// NVML did not answer, or not as documented.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The library is not there, or does not start.
    #[error("failed to start NVML ({LIBRARY})")]
    Start(#[source] NvmlError),
    /// A query failed.
    #[error("failed to read {what}")]
    Query {
        /// What was asked for.
        what: String,
        /// The cause.
        source: NvmlError,
    },
    /// A UUID or an address that is none.
    #[error("NVML gave a name that is none")]
    Name(#[from] InvalidName),
}

/// Lists the GPUs. `proc` is where the driver's table of MIG capability nodes is read: `/proc`.
///
/// # Errors
/// [`AskError`] for the first query that fails.
pub fn ask(proc: &Path) -> Result<Inventory, AskError> {
    let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().map_err(AskError::Start)?;
    let count = nvml.device_count().map_err(query("the number of GPUs"))?;
    let capabilities = Capabilities::read(proc);
    let mut gpus = Vec::new();
    for index in 0..count {
        let device = nvml.device_by_index(index).map_err(query(format!("GPU {index}")));
        match device.and_then(|device| gpu(&nvml, &device, index, &capabilities)) {
            Ok(gpu) => gpus.push(gpu),
            // It has fallen off the bus: nobody can have it, and the others keep their numbers.
            Err(AskError::Query { source: NvmlError::GpuLost, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Inventory {
        schema_version: SCHEMA_VERSION,
        driver_version: nvml.sys_driver_version().ok(),
        source: "nvml".to_owned(),
        platform: Platform::Usual,
        gpus,
    })
}

/// How much of each GPU is in use, and by whom. One that does not answer is left out.
///
/// # Errors
/// [`AskError`] where NVML does not start.
pub fn usage() -> Result<Usage, AskError> {
    let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().map_err(AskError::Start)?;
    let count = nvml.device_count().map_err(query("the number of GPUs"))?;
    let devices = (0..count).filter_map(|index| nvml.device_by_index(index).ok());
    Ok(Usage { devices: devices.flat_map(|device| usage_of(&nvml, &device)).collect() })
}

/// A GPU, and the MIG devices on it.
fn usage_of(nvml: &Nvml, device: &Device<'_>) -> Vec<DeviceUsage> {
    let mut processes = device.running_compute_processes().unwrap_or_default();
    processes.extend(device.running_graphics_processes().unwrap_or_default());
    let of = |device: &Device<'_>, instance: Option<(u32, u32)>| -> Option<DeviceUsage> {
        let memory = device.memory_info().ok()?;
        let is_on = |process: &&ProcessInfo| match instance {
            None => true,
            Some((gi, ci)) => process.gpu_instance_id == Some(gi) && process.compute_instance_id == Some(ci),
        };
        let mut pids: Vec<u32> = processes.iter().filter(is_on).map(|process| process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let (memory_used, memory_total) = (memory.used, memory.total);
        Some(DeviceUsage { uuid: device.uuid().ok()?, memory_used, memory_total, processes: pids })
    };
    let migs = (0..device.mig_device_count().unwrap_or(0)).filter_map(|index| device.mig_device_by_index(index).ok());
    let instances = migs.filter_map(|mig| {
        let instance = instances(nvml, &mig).ok()?;
        of(&mig, Some(instance))
    });
    of(device, None).into_iter().chain(instances).collect()
}

fn query(what: impl Into<String>) -> impl FnOnce(NvmlError) -> AskError {
    let what = what.into();
    move |source| AskError::Query { what, source }
}

fn gpu(nvml: &Nvml, device: &Device<'_>, index: u32, capabilities: &Capabilities) -> Result<Gpu, AskError> {
    let of = |what: &str| format!("the {what} of GPU {index}");
    let minor = Minor(device.minor_number().map_err(query(of("minor")))?);
    let address = device.pci_info().map_err(query(of("PCI address")))?.bus_id;
    // A GPU that cannot be divided answers "not supported".
    let mig_enabled = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    let mig = if mig_enabled { mig_devices(nvml, device, minor, capabilities)? } else { Vec::new() };
    Ok(Gpu {
        index: HostIndex(index),
        minor,
        uuid: GpuUuid::try_from(device.uuid().map_err(query(of("UUID")))?)?,
        pci_bus_id: Some(PciBusId::try_from(address)?),
        name: device.name().map_err(query(of("name")))?,
        multiprocessors: multiprocessors(device),
        drm_nodes: Vec::new(),
        mig_enabled,
        mig,
    })
}

/// NVML counts CUDA cores; how many make a multiprocessor depends on the compute capability.
// CUDA C++ Programming Guide, "Compute Capabilities": FP32 cores of a multiprocessor.
fn multiprocessors(device: &Device<'_>) -> Option<u32> {
    let capability = device.cuda_compute_capability().ok()?;
    let cores_each = match (capability.major, capability.minor) {
        (6 | 8, 0) | (7, _) => 64,
        (5 | 6 | 8.., _) => 128,
        _ => return None,
    };
    Some(device.num_cores().ok()? / cores_each)
}

fn mig_devices(
    nvml: &Nvml,
    gpu: &Device<'_>,
    minor: Minor,
    capabilities: &Capabilities,
) -> Result<Vec<MigDevice>, AskError> {
    // NVML's count is how many there can be, and there may be gaps.
    let most = gpu.mig_device_count().map_err(query("the number of MIG devices"))?;
    let mut out = Vec::new();
    for index in 0..most {
        let device = match gpu.mig_device_by_index(index) {
            Ok(device) => device,
            // Some drivers say the one of a place without a device, some the other.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            Err(error) => return Err(query(format!("MIG device {index}"))(error)),
        };
        let (gi, ci) = instances(nvml, &device).map_err(query("the instances of a MIG device"))?;
        let name = device.name().unwrap_or_default();
        out.push(MigDevice {
            index: Some(index),
            uuid: MigUuid::try_from(device.uuid().map_err(query("the UUID of a MIG device"))?)?,
            gi,
            ci,
            profile: name.rsplit_once("MIG ").map(|(_, profile)| profile.to_owned()).unwrap_or_default(),
            capability_nodes: capabilities.nodes(minor, gi, ci),
        });
    }
    out.sort_by_key(|mig| (mig.gi, mig.ci));
    Ok(out)
}

/// GPU instance and compute instance; nvml-wrapper 0.13 has no methods for them.
fn instances(nvml: &Nvml, device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let gpu_instance = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute_instance = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gi, mut ci) = (0, 0);
    #[expect(unsafe_code, reason = "two C functions that nvml-wrapper has no methods for")]
    // SAFETY: the handle comes from this NVML, which outlives it, and both results point to live integers.
    unsafe {
        nvml_try(gpu_instance(device.handle(), &raw mut gi))?;
        nvml_try(compute_instance(device.handle(), &raw mut ci))?;
    }
    Ok((gi, ci))
}

/// The driver's table of capability nodes; empty where it has none.
struct Capabilities {
    major: Option<u32>,
    minors: Vec<(String, u32)>,
}

impl Capabilities {
    fn read(proc: &Path) -> Self {
        let devices = fs::read_to_string(proc.join("devices")).unwrap_or_default();
        let minors = fs::read_to_string(proc.join("driver/nvidia-caps/mig-minors")).unwrap_or_default();
        Self::parse(&devices, &minors)
    }

    fn parse(devices: &str, minors: &str) -> Self {
        let pairs = |text: &str| -> Vec<(String, String)> {
            let words = text.lines().filter_map(|line| line.trim().split_once(' '));
            words.map(|(one, other)| (one.to_owned(), other.trim().to_owned())).collect()
        };
        let major = pairs(devices).into_iter().find(|(_, name)| name == "nvidia-caps");
        let number = |(name, minor): (String, String)| Some((name, minor.parse().ok()?));
        Self {
            major: major.and_then(|(major, _)| major.parse().ok()),
            minors: pairs(minors).into_iter().filter_map(number).collect(),
        }
    }

    /// A MIG device needs the access node of its GPU instance and of its compute instance.
    fn nodes(&self, gpu: Minor, gi: u32, ci: u32) -> Vec<CapabilityNode> {
        let Some(major) = self.major else { return Vec::new() };
        let names = [format!("gpu{gpu}/gi{gi}/access"), format!("gpu{gpu}/gi{gi}/ci{ci}/access")];
        let minor = |name: &String| self.minors.iter().find(|(known, _)| known == name).map(|(_, minor)| *minor);
        let node = |minor| CapabilityNode {
            path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
            number: DeviceNumber { major, minor },
        };
        // One of the two opens nothing, and must not pass for all that is needed.
        let minors: Option<Vec<u32>> = names.iter().map(minor).collect();
        minors.unwrap_or_default().into_iter().map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_nodes_of_a_mig_device() {
        let devices = "Character devices:\n  1 mem\n195 nvidia\n236 nvidia-caps-imex-channels\n237 nvidia-caps\n\nBlock devices:\n";
        let minors = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi1/ci1/access 14\n";
        let capabilities = Capabilities::parse(devices, minors);
        let paths: Vec<String> = capabilities.nodes(Minor(0), 1, 0).into_iter().map(|node| node.path).collect();
        assert_eq!(paths, ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]);
        assert!(capabilities.nodes(Minor(1), 1, 0).is_empty());
        assert!(capabilities.nodes(Minor(0), 1, 2).is_empty(), "its GPU instance's alone opens nothing");
        assert!(Capabilities::parse("", minors).nodes(Minor(0), 1, 0).is_empty());
    }
}
