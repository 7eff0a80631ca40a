//! What the host says about a container's surroundings, gathered before anything is decided.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::config::{Config, Inject};
use crate::device::DeviceNumber;
use crate::node::DeviceNode;
use crate::situation::HostFacts;
use crate::spec::Spec;
use crate::sys::trusted::in_user_namespace;
use crate::sys::{runtime, stand_in, toolkit};
use crate::toolkit::Toolkit;

/// Control nodes that CUDA needs beside the GPUs' own.
const CONTROL: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];

/// Facts for a container that a low-level runtime is about to make.
pub fn facts(spec: Spec<'_>, low_level: Option<&Path>, config: &Config) -> HostFacts {
    let nvidia_runtime = low_level.is_some_and(runtime::is_nvidia);
    // podman's own choice, which nobody tells us.
    let nvidia_runtime_possible = low_level.is_none() && runtime::is_nvidia_installed();
    let is_said = config.inject == Inject::Nvidia;
    let has_hook = has_hook_of_nvidia(spec);
    let follows = nvidia_runtime || nvidia_runtime_possible || has_hook || is_said;
    HostFacts {
        nvidia_runtime,
        nvidia_runtime_possible,
        toolkit: if follows { toolkit::configuration(low_level) } else { Toolkit::default() },
        nvidia_cli: has_hook && runtime::is_installed("nvidia-container-cli"),
        mount_numbers: mount_numbers(spec),
        rootless: in_user_namespace(),
    }
}

/// Whether an entry of NVIDIA's hook is for NVIDIA's program, and not for our stand-in.
fn has_hook_of_nvidia(spec: Spec<'_>) -> bool {
    spec.nvidia_hooks().iter().any(|program| !stand_in::is_stand_in(Path::new(program)))
}

/// Device numbers of bind mounts that may be device nodes: rootless engines turn `--device` into them.
pub fn mount_numbers(spec: Spec<'_>) -> Vec<(usize, DeviceNumber)> {
    spec.mounts()
        .iter()
        .filter(|mount| mount.bind && (mount.source.contains("/dev/") || mount.destination.starts_with("/dev/")))
        .filter_map(|mount| Some((mount.position, device_number(Path::new(mount.source))?)))
        .collect()
}

/// The control nodes that this host has under `dev_root`.
pub fn control_nodes(dev_root: &str) -> Vec<DeviceNode> {
    let directory = Path::new(dev_root).join("dev");
    let node =
        |name: &&str| Some(DeviceNode { path: format!("/dev/{name}"), number: device_number(&directory.join(name))? });
    CONTROL.iter().filter_map(node).collect()
}

/// The number of a character device.
pub fn device_number(path: &Path) -> Option<DeviceNumber> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_char_device())?;
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    Some(DeviceNumber { major, minor })
}
