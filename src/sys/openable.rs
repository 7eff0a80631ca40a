//! Which devices a program that is started here could open.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::inventory::{Device, Inventory};

/// The devices of this host whose nodes can be opened.
///
/// They are opened, since on cgroup version 2 nobody else can tell: the rules are a program in the kernel.
pub fn openable(inventory: &Inventory, dev_root: &str) -> Vec<Device> {
    let opens = |path: &str| can_open(&Path::new(dev_root).join(path.trim_start_matches('/')));
    let gpus: Vec<bool> = inventory.gpus.iter().map(|gpu| opens(&format!("/dev/nvidia{}", gpu.minor))).collect();
    let is_openable = |device: &Device| {
        let capabilities = inventory.mig(*device).map(|mig| mig.capability_nodes.as_slice()).unwrap_or_default();
        gpus[device.gpu] && capabilities.iter().all(|node| opens(&node.path))
    };
    inventory.all_devices().into_iter().filter(is_openable).collect()
}

/// A node that is there and allowed may still have no device behind it; that is not for us to judge.
fn can_open(path: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let refused = [Errno::PERM, Errno::ACCESS, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ROFS];
    // A capability node is read-only.
    let read_only = flags.difference(OFlags::RDWR) | OFlags::RDONLY;
    [flags, read_only].into_iter().any(|flags| match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(_) => true,
        Err(error) => !refused.contains(&error),
    })
}
