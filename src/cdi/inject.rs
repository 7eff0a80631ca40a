//! What a container with these GPUs gets from the host's specifications.

use std::collections::BTreeMap;

use super::{CdiDevice, CdiSpec, Edits, GPU_KIND, Hook, Mount, Node};
use crate::device::DeviceNumber;
use crate::finding::quoted;
use crate::inventory::{Device, Inventory};
use crate::record::Variables;

/// A specification and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub file: String,
    /// Its folder's place in the list: a later folder's devices replace an earlier one's.
    pub priority: usize,
    /// What it says, with node numbers and modes filled in from the host.
    pub spec: CdiSpec,
}

/// The merged edits. Variables that cudaview decides about are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CdiEdits {
    /// `NAME=VALUE`, each name once.
    pub env: Vec<String>,
    /// Nodes, each path once.
    pub nodes: Vec<Node>,
    /// Mounts, each destination once.
    pub mounts: Vec<Mount>,
    /// Hooks, in order.
    pub hooks: Vec<Hook>,
    /// Further groups.
    pub gids: Vec<u32>,
    /// The files that they come from.
    pub files: Vec<String>,
    /// GPUs that no specification knows.
    pub missing: Vec<Device>,
}

/// Specifications that do not agree with each other or with the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {field}: {problem}")]
pub struct Contradiction {
    /// The file.
    pub file: String,
    /// The member.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A device of one of the specifications.
#[derive(Clone, Copy)]
struct Found<'a> {
    source: &'a Source,
    at: usize,
}

impl<'a> Found<'a> {
    fn device(self) -> &'a CdiDevice {
        &self.source.spec.devices[self.at]
    }

    fn contradiction(self, field: &str, problem: String) -> Contradiction {
        Contradiction { file: self.source.file.clone(), field: format!("devices[{}]{field}", self.at), problem }
    }
}

/// Merges what the specifications have for these GPUs, as the CDI library does: of each specification first what every
/// device brings, then what the device brings; the later entry of a name, path or destination stays.
///
/// A device is taken by its name, its UUID or host index, and must then have the node of just this GPU; where no device
/// has such a name, one that has just its node is taken.
/// `None` says that there is no specification of GPUs.
///
/// # Errors
/// [`Contradiction`] where a file would give a container another GPU, or two files say different things.
// pkg/cdi/{cache,container-edits}.go.
pub fn inject(sources: &[Source], inventory: &Inventory, gpus: &[Device]) -> Result<Option<CdiEdits>, Contradiction> {
    let sources: Vec<&Source> = sources.iter().filter(|source| source.spec.kind == GPU_KIND).collect();
    if sources.is_empty() {
        return Ok(None);
    }
    let by_name = names(&sources)?;
    let mut out = CdiEdits::default();
    let mut chosen = Vec::new();
    for gpu in gpus {
        match find(&by_name, inventory, *gpu)? {
            Some(found) => chosen.push(found),
            None => out.missing.push(*gpu),
        }
    }
    let mut common: Vec<&Source> = Vec::new();
    // The driver's files are the same for all of them, so they serve a GPU too that is not in the file yet.
    let first = chosen.first().map(|found| found.source).or_else(|| sources.last().copied());
    for source in first.into_iter().chain(chosen.iter().map(|found| found.source)) {
        if !common.iter().any(|there| std::ptr::eq(*there, source)) {
            common.push(source);
        }
    }
    for source in common {
        check_common(source, inventory)?;
        out.add(&source.spec.container_edits, &source.file, "containerEdits")?;
        out.files.push(source.file.clone());
        for found in chosen.iter().filter(|found| std::ptr::eq(found.source, source)) {
            let field = format!("devices[{}].containerEdits", found.at);
            out.add(&found.device().container_edits, &source.file, &field)?;
        }
    }
    Ok(Some(out))
}

/// All devices by name. Two files of one folder must not have the same.
fn names<'a>(sources: &[&'a Source]) -> Result<BTreeMap<&'a str, Found<'a>>, Contradiction> {
    let mut out: BTreeMap<&str, Found<'a>> = BTreeMap::new();
    for source in sources {
        for (at, device) in source.spec.devices.iter().enumerate() {
            let found = Found { source, at };
            match out.get(device.name.as_str()) {
                Some(other) if other.source.priority == source.priority => {
                    let problem = format!("{} is in {} too", quoted(&device.name), other.source.file);
                    return Err(found.contradiction(".name", problem));
                }
                Some(other) if other.source.priority > source.priority => {}
                _ => {
                    out.insert(&device.name, found);
                }
            }
        }
    }
    Ok(out)
}

/// The device of a GPU.
fn find<'a>(
    by_name: &BTreeMap<&'a str, Found<'a>>,
    inventory: &Inventory,
    gpu: Device,
) -> Result<Option<Found<'a>>, Contradiction> {
    let minor = inventory.gpu(gpu).minor;
    let own = |found: &Found<'_>| gpu_minors(&found.device().container_edits).iter().all(|there| *there == minor.0);
    let has = |found: &Found<'_>| !gpu_minors(&found.device().container_edits).is_empty() && own(found);
    let mut first = None;
    // The generator's names: by UUID, by index, and by type and index.
    let label = inventory.host_label(gpu);
    let typed = format!("{}{label}", if gpu.mig.is_some() { "mig" } else { "gpu" });
    for name in [inventory.uuid(gpu).to_owned(), label, typed] {
        let Some(found) = by_name.get(name.as_str()) else { continue };
        if !has(found) {
            let problem = format!(
                "{} is {} here, whose node is /dev/nvidia{minor}; the file is out of date",
                quoted(&name),
                inventory.host_names(&[gpu]),
            );
            return Err(found.contradiction(".containerEdits.deviceNodes", problem));
        }
        if let Some(other) = foreign_instance(&found.device().container_edits, inventory, gpu) {
            let problem = format!(
                "{} is {} here, and it would give {} too; the file is out of date",
                quoted(&name),
                inventory.host_names(&[gpu]),
                inventory.host_names(&[other]),
            );
            return Err(found.contradiction(".containerEdits.deviceNodes", problem));
        }
        first = first.or(Some(*found));
    }
    // A MIG device has its GPU's node; which one it is, only its name says.
    let is_pure = |found: &Found<'_>| foreign_instance(&found.device().container_edits, inventory, gpu).is_none();
    let unnamed = || by_name.values().find(|found| has(found) && is_pure(found)).copied();
    Ok(if gpu.mig.is_some() { first } else { first.or_else(unnamed) })
}

/// Minors of the GPU nodes among edits.
fn gpu_minors(edits: &Edits) -> Vec<u32> {
    edits.device_nodes.iter().filter_map(|node| Some(node.number()?.gpu_minor()?.0)).collect()
}

/// Another MIG device, of which edits have a capability node that is not this device's too.
fn foreign_instance(edits: &Edits, inventory: &Inventory, own: Device) -> Option<Device> {
    let has = |device: Device, number: DeviceNumber| {
        inventory.mig(device).is_some_and(|mig| mig.capability_nodes.iter().any(|node| node.number == number))
    };
    let foreign = edits.device_nodes.iter().filter_map(Node::number).filter(|number| !has(own, *number));
    let others = inventory.all_devices();
    foreign.into_iter().find_map(|number| others.iter().copied().find(|other| has(*other, number)))
}

/// What every device brings must not be a GPU, nor a part of one.
fn check_common(source: &Source, inventory: &Inventory) -> Result<(), Contradiction> {
    let migs = || inventory.gpus.iter().flat_map(|gpu| &gpu.mig);
    let is_part = |number: DeviceNumber| migs().flat_map(|mig| &mig.capability_nodes).any(|node| node.number == number);
    let is_gpu = |node: &Node| node.number().is_some_and(|number| number.gpu_minor().is_some() || is_part(number));
    match source.spec.container_edits.device_nodes.iter().position(is_gpu) {
        None => Ok(()),
        Some(at) => Err(Contradiction {
            file: source.file.clone(),
            field: format!("containerEdits.deviceNodes[{at}]"),
            problem: "it would give every container a GPU".to_owned(),
        }),
    }
}

impl CdiEdits {
    fn add(&mut self, edits: &Edits, file: &str, field: &str) -> Result<(), Contradiction> {
        let refused = |name: &str, problem: &str| Contradiction {
            file: file.to_owned(),
            field: format!("{field}.{name}"),
            problem: problem.to_owned(),
        };
        if !edits.net_devices.is_empty() {
            return Err(refused("netDevices", "a GPU has none, and it was not applied"));
        }
        if edits.intel_rdt.is_some() {
            return Err(refused("intelRdt", "a GPU has none, and it was not applied"));
        }
        for (at, node) in edits.device_nodes.iter().enumerate() {
            // Without a number it is not on this host: a runtime could not make it.
            if node.kind != "p" && node.number().is_none() {
                let problem = format!("this host has no device {}", quoted(node.on_host()));
                return Err(refused(&format!("deviceNodes[{at}]"), &problem));
            }
            replace(&mut self.nodes, node, |one, other| one.path == other.path);
        }
        for entry in &edits.env {
            let name = name_of(entry);
            // NVIDIA's generator says NVIDIA_VISIBLE_DEVICES=void, and who wrote CUDA_VISIBLE_DEVICES here meant the host.
            if !Variables::NAMES.contains(&name) {
                replace(&mut self.env, entry, |one, other| name_of(one) == name_of(other));
            }
        }
        for mount in &edits.mounts {
            replace(&mut self.mounts, mount, |one, other| one.container_path == other.container_path);
        }
        for hook in &edits.hooks {
            replace(&mut self.hooks, hook, |one, other| one == other);
        }
        for gid in edits.additional_gids.iter().filter(|gid| **gid != 0) {
            replace(&mut self.gids, gid, |one, other| one == other);
        }
        Ok(())
    }
}

fn name_of(entry: &str) -> &str {
    entry.split('=').next().unwrap_or_default()
}

fn replace<T: Clone>(list: &mut Vec<T>, item: &T, same: impl Fn(&T, &T) -> bool) {
    match list.iter_mut().find(|there| same(there, item)) {
        Some(there) => *there = item.clone(),
        None => list.push(item.clone()),
    }
}
