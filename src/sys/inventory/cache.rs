//! The answer of NVML, kept for as long as the host is the same.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::procfs::Key;
use super::{LIMIT, trusted};
use crate::inventory::{Inventory, MigDevice, read_json};

#[derive(Serialize, Deserialize)]
struct Cache {
    key: Key,
    inventory: Inventory,
}

/// The cached inventory, if it is ours and was written for this very host. A bad cache is no error: it is not used.
pub(super) fn read(path: &Path, key: &Key) -> Option<Inventory> {
    // In somebody else's folder even a file of root's can be an old one that was put back.
    trusted::folder(path.parent()?).ok()?;
    let text = trusted::read(path, LIMIT).ok()??;
    let cache: Cache = read_json(&text).ok()?;
    if cache.key != *key {
        return None;
    }
    let mut inventory = cache.inventory.checked().ok()?;
    if !is_of(&inventory, key) {
        return None;
    }
    inventory.source = String::from("cache");
    Some(inventory)
}

/// Whether an inventory names nothing that the host does not: it may be from the moment before a change.
fn is_of(inventory: &Inventory, key: &Key) -> bool {
    inventory.gpus.iter().all(|gpu| {
        let is_known = key.gpus.iter().any(|(address, minor)| {
            *minor == gpu.minor && gpu.pci_bus_id.is_none_or(|of_inventory| of_inventory == *address)
        });
        let instance = |mig: &MigDevice| format!("gpu{}/gi{}/ci{}", gpu.minor, mig.gi, mig.ci);
        is_known && gpu.mig.iter().all(|mig| key.instances.binary_search(&instance(mig)).is_ok())
    })
}

/// Writes it, in one step.
pub(super) fn write(path: &Path, key: &Key, inventory: &Inventory) -> io::Result<()> {
    if !is_of(inventory, key) {
        return Err(io::Error::other("NVML names what /proc/driver/nvidia does not"));
    }
    let cache = Cache { key: key.clone(), inventory: inventory.clone() };
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.exists() {
        fs::DirBuilder::new().mode(0o755).create(folder)?;
    }
    trusted::folder(folder).map_err(io::Error::other)?;
    let temporary = folder.join(format!(".inventory.{}", std::process::id()));
    // Of a process with this number that was killed; nobody but root can have put it there.
    drop(fs::remove_file(&temporary));
    let written = write_new(&temporary, &serde_json::to_vec(&cache)?).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The error that is reported is the one that matters.
        drop(fs::remove_file(&temporary));
    }
    written
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file: File = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    // The umask must not make it unreadable, nor writable for others.
    file.set_permissions(PermissionsExt::from_mode(0o644))?;
    file.write_all(text)?;
    file.sync_all()
}
