//! The CDI specifications of a system.

use super::{Root, in_root};
use crate::cdi::{CdiSpec, Edits, Source};
use crate::config::Config;
use crate::doctor::{Cdi, CdiFile};
use crate::inventory::Inventory;
use crate::sys::cdi::{edits, sources};

pub(super) fn look(root: &Root, config: &Config, inventory: Option<&Inventory>) -> Cdi {
    let folders: Vec<String> = config.cdi_spec_dirs.iter().map(|folder| in_root(root, folder)).collect();
    let out = Cdi { folders: config.cdi_spec_dirs.clone(), ..Cdi::default() };
    let found = match sources(&folders) {
        Ok(found) => found,
        Err(error) => return Cdi { trouble: Some(root.trouble(&error, &error.hint())), ..out },
    };
    let files: Vec<CdiFile> = found.iter().map(|source| file(root, source)).collect();
    // What is missing is told apart; the rest is what a container would be refused for.
    let is_whole = files.iter().all(|file| file.missing.is_empty());
    let usual = inventory.filter(|inventory| root.is_ours() && is_whole && inventory.platform.is_usual());
    let trouble = usual.and_then(|inventory| {
        let error = edits(&folders, inventory, &inventory.all_devices()).err()?;
        Some(root.trouble(&error, &error.hint()))
    });
    Cdi { files, trouble, ..out }
}

fn file(root: &Root, source: &Source) -> CdiFile {
    let spec: &CdiSpec = &source.spec;
    let all = || spec.devices.iter().map(|device| &device.container_edits).chain([&spec.container_edits]);
    let mut missing: Vec<String> = all().flat_map(paths).filter(|path| !root.at(path).exists()).collect();
    missing.sort();
    missing.dedup();
    CdiFile {
        path: root.shown(std::path::Path::new(&source.file)),
        devices: spec.devices.iter().map(|device| device.name.clone()).collect(),
        missing,
    }
}

/// The host's paths that a container's edits need.
fn paths(edits: &Edits) -> Vec<String> {
    let binds = edits.mounts.iter().filter(|mount| mount.kind.is_empty() || mount.kind == "bind");
    let nodes = edits.device_nodes.iter().map(|node| node.on_host().to_owned());
    let mounts = binds.map(|mount| mount.host_path.clone());
    nodes.chain(mounts).chain(edits.hooks.iter().map(|hook| hook.path.clone())).collect()
}
