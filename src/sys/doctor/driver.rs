//! NVIDIA's driver: its modules, its libraries, its nodes.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Root, in_root, node_state};
use crate::config::Config;
use crate::device::DeviceNumber;
use crate::doctor::{Driver, Node};
use crate::inventory::Inventory;
use crate::sys::driver;
use crate::sys::inventory::driver_version;

/// Where the driver's libraries are: by Debian, Red Hat and others, NixOS, and on nodes of clouds.
const LIBRARY_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/run/opengl-driver/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/nvidia",
];

/// The libraries that CUDA and nvidia-smi load; their files are called by the driver's version.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so", "libcuda.so"];

/// The number of NVIDIA's GPUs among character devices.
// Documentation/admin-guide/devices.txt
const MAJOR: u32 = 195;

/// The minor of the control node.
// NVIDIA's kernel module, nv.h, NV_CONTROL_DEVICE_MINOR.
const CONTROL: u32 = 255;

pub(super) fn look(root: &Root, config: &Config) -> Driver {
    let proc = root.at("/proc");
    let modules = root.text_of(&proc.join("modules")).unwrap_or_default();
    let is_listed = proc.join("driver/nvidia/gpus").is_dir();
    Driver {
        modules: driver::loaded(&proc).into_iter().map(str::to_owned).collect(),
        version: driver_version(&proc.join("driver/nvidia")),
        libraries: libraries(root),
        gpus_on_bus: driver::gpus_on_bus(&root.at("/sys")),
        nouveau: modules.lines().any(|line| line.split_whitespace().next() == Some("nouveau")),
        wsl2: !is_listed && Path::new(&in_root(root, &config.dev_root)).join("dev/dxg").exists(),
    }
}

/// The versions of the libraries that a program would load, each once.
fn libraries(root: &Root) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for folder in LIBRARY_FOLDERS {
        for library in LIBRARIES {
            let path = resolved(root, &format!("{folder}/{library}.1"));
            let name = path.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            let version = name.and_then(|name| name.strip_prefix(library)?.strip_prefix('.'));
            // `1` is the library's own name, which a link or a file of another packaging can have.
            if let Some(version) = version.filter(|version| version.contains('.'))
                && !found.iter().any(|known| known == version)
            {
                found.push(version.to_owned());
            }
        }
    }
    found
}

/// A path in a system, with its links followed in that system.
pub(super) fn resolved(root: &Root, path: &str) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&root.0, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let path = path.trim_start_matches('/');
    let found = rustix::fs::openat2(&folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&found);
    fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()
}

/// The nodes that CUDA needs, and those of the GPUs.
pub(super) fn nodes(root: &Root, config: &Config, inventory: Option<&Inventory>) -> Vec<Node> {
    let dev = PathBuf::from(in_root(root, &config.dev_root)).join("dev");
    let devices = root.text_of(&root.at("/proc/devices")).unwrap_or_default();
    let major = |names: &[&str]| {
        devices.lines().take_while(|line| !line.starts_with("Block")).find_map(|line| {
            let (number, name) = line.trim().split_once(' ')?;
            names.contains(&name.trim()).then(|| number.parse::<u32>().ok()).flatten()
        })
    };
    let is_loaded = major(&["nvidia", "nvidia-frontend"]).is_some();
    let of_driver = |minor| is_loaded.then_some(DeviceNumber { major: MAJOR, minor });
    let of_memory = major(&["nvidia-uvm"]).map(|major| DeviceNumber { major, minor: 0 });
    let node = |name: String, module, expected| {
        let path = dev.join(name);
        Node { state: node_state(&path), path: root.shown(&path), module, expected }
    };
    let mut nodes = vec![
        node("nvidiactl".to_owned(), "nvidia", of_driver(CONTROL)),
        node("nvidia-uvm".to_owned(), "nvidia_uvm", of_memory),
    ];
    let usual = inventory.filter(|inventory| inventory.platform.is_usual());
    let gpus = usual.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    nodes.extend(gpus.iter().map(|gpu| node(format!("nvidia{}", gpu.minor), "nvidia", of_driver(gpu.minor.0))));
    nodes
}
