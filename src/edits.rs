//! The edits of a plan: what has to change in a container's `config.json`, and how it is changed.
//!
//! The shape follows CDI's `ContainerEdits`. Computing them needs facts; applying them cannot fail.

mod apply;
mod write;

pub use apply::{apply, edit_array, set_env};
use serde_json::Value;
pub use write::write;

use crate::cdi::CdiEdits;
use crate::device::DeviceNumber;
use crate::inventory::{CapabilityNode, Device, Inventory};
use crate::node::DeviceNode;
use crate::plan::{Plan, Verdict};
use crate::record::Variables;
use crate::situation::{HostFacts, Injection, Situation};
use crate::spec::{Spec, SpecNode, allowed};
use crate::toolkit;

/// Everything that a container's configuration gets or loses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ContainerEdits {
    /// Variables that get exactly one entry with this value.
    pub env: Vec<(&'static str, String)>,
    /// Nodes to add to `linux.devices`.
    pub device_nodes: Vec<DeviceNode>,
    /// Nodes in `linux.devices` that get this path, and a mode where they have none.
    pub mend: Vec<DeviceNode>,
    /// Devices to allow, for reading and writing.
    pub allow: Vec<DeviceNumber>,
    /// Devices whose nodes, single-device rules and bind mounts go.
    pub withhold: Vec<DeviceNumber>,
    /// Positions in `mounts` of the bind mounts among them, and of those that NVIDIA's toolkit would go by.
    pub withhold_mounts: Vec<usize>,
    /// The driver's files and what else the host's CDI specifications have, without nodes that are there or above.
    pub cdi: CdiEdits,
    /// NVIDIA's hook entry goes, since nothing could run it.
    pub remove_nvidia_hook: bool,
    /// Variables that NVIDIA's toolkit would go by beside or instead of the one that it is handed; all their entries go.
    pub unset_env: Vec<String>,
    /// Mounts of `/dev/null` by which NVIDIA's toolkit is told what to give, by their places.
    pub device_mounts: Vec<String>,
    /// Annotations that NVIDIA's runtime would take devices from, before it looks at a variable.
    pub remove_annotations: Vec<String>,
    /// Our createRuntime hook entry; it replaces an earlier one.
    pub hook: Option<HookEntry>,
}

/// Our entry in `hooks.createRuntime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookEntry {
    /// Absolute path of `cudaview-hook`.
    pub path: String,
    /// Its arguments, the name first.
    pub args: Vec<String>,
}

/// Environment of the hook: never empty, since runc gives a hook without one its own.
// CVE-2025-23266: an absent `env` made runc run a hook with the container's environment.
const HOOK_ENV: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// Where things are, for the hook entry and the nodes.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// Absolute path of `cudaview-hook`.
    pub hook: &'a str,
    /// The rootfs, absolute.
    pub root: &'a str,
    /// The configuration's `dev_root`.
    pub dev_root: &'a str,
    /// Control nodes that every GPU container needs, as the host has them.
    pub control_nodes: &'a [DeviceNode],
    /// What the host's CDI specifications have for the container's GPUs, in native mode.
    pub cdi: Option<&'a CdiEdits>,
}

/// Works out the edits of a plan. A plan without a grant only ever takes from NVIDIA's injectors what they would go by;
/// a refused one has none.
pub fn edits(
    plan: &Plan,
    situation: &Situation,
    inventory: &Inventory,
    spec: Spec<'_>,
    host: &HostFacts,
    places: &Places<'_>,
) -> ContainerEdits {
    if plan.verdict == Verdict::Refused {
        return ContainerEdits::default();
    }
    let mut out = ContainerEdits { env: env(plan, spec), ..ContainerEdits::default() };
    take_from_injectors(situation, spec, host, &mut out);
    if plan.verdict == Verdict::NotApplicable {
        return out;
    }
    let wanted = wanted(plan, inventory, situation, places);
    let mut verified = Vec::new();
    withhold(plan, inventory, spec, host, &mut out);
    if situation.injection != Injection::Nvidia {
        out.mend = mend(&wanted, places.control_nodes, spec);
        let present = present(spec, host, &out.mend);
        let is_there = |node: &DeviceNode| {
            present
                .iter()
                .any(|there| there.number == node.number && (there.path == node.path || !is_gpu_path(&node.path)))
        };
        let numbers: Vec<DeviceNumber> = wanted.iter().map(|node| node.number).collect();
        out.device_nodes = wanted.into_iter().filter(|node| !is_there(node)).collect();
        // Without any rule runc and crun deny, also where they make a user namespace. Rules of a rootless container are
        // enforced by nobody (podman 5.8 writes some all the same).
        if !host.rootless {
            let rules: Vec<_> = spec.rules();
            // A rule for just this device is the operator's word on it (`--device …:r`) and is not widened.
            let has_own_rule = |number: DeviceNumber| rules.iter().any(|rule| rule.is_single(number));
            let is_blocked = |number: &DeviceNumber| !allowed(rules.iter().copied(), *number) && !has_own_rule(*number);
            out.allow = numbers.iter().copied().filter(is_blocked).collect();
        }
        if let Some(cdi) = places.cdi {
            out.cdi = cdi.clone();
            out.cdi.nodes.retain(|node| {
                let ours = |other: &DeviceNode| Some(other.number) == node.number() || other.path == node.path;
                !present.iter().chain(&out.device_nodes).any(ours)
            });
        }
        verified = arguments_of_verified(numbers, places.control_nodes, &present, &out.device_nodes);
        out.remove_nvidia_hook = situation.injection == Injection::Native && spec.has_nvidia_hook();
    }
    if situation.told_by_mounts {
        let uuids = plan.kept().iter().map(|device| inventory.uuid(*device));
        out.device_mounts = uuids.map(toolkit::mount_of_device).collect();
    }
    out.hook = Some(hook_entry(plan, situation, inventory, places, verified));
    out
}

/// What NVIDIA's runtime or hook would go by before it looks at the variable that it is handed.
fn take_from_injectors(situation: &Situation, spec: Spec<'_>, host: &HostFacts, out: &mut ContainerEdits) {
    if situation.runtime_injects {
        out.remove_annotations = spec.cdi_annotations(&host.toolkit.annotation_prefixes);
    }
    if situation.injector_follows {
        out.unset_env = host.toolkit.swarm_variables(spec).map(|(name, _)| name.to_owned()).collect();
        out.unset_env.extend_from_slice(&situation.unasked_switches);
        let mounts = spec.mounts();
        let requests = mounts.iter().filter(|mount| toolkit::is_request(mount));
        out.withhold_mounts = requests.map(|mount| mount.position).collect();
    }
}

/// Exactly one entry for each variable that has a value now.
fn env(plan: &Plan, spec: Spec<'_>) -> Vec<(&'static str, String)> {
    let entries = |name: &str| {
        let all = spec.value().pointer("/process/env").and_then(Value::as_array);
        let is_name =
            |entry: &&Value| entry.as_str().is_some_and(|e| e.strip_prefix(name).is_some_and(|r| r.starts_with('=')));
        all.map_or(0, |all| all.iter().filter(is_name).count())
    };
    Variables::NAMES
        .into_iter()
        .zip(plan.emitted.values())
        .filter_map(|(name, value)| Some((name, value?)))
        .filter(|(name, value)| {
            let repeated = plan.verdict != Verdict::NotApplicable && entries(name) > 1;
            repeated || spec.var(name) != Some(value)
        })
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}

/// The nodes that the container shall have: GPUs, their MIG capabilities, and in native mode the control nodes.
fn wanted(plan: &Plan, inventory: &Inventory, situation: &Situation, places: &Places<'_>) -> Vec<DeviceNode> {
    let mut nodes: Vec<DeviceNode> = Vec::new();
    let mut last = None;
    for device in plan.kept() {
        // The devices of one GPU come one after the other.
        if last.replace(device.gpu) != Some(device.gpu) {
            nodes.push(DeviceNode::gpu(inventory.gpu(*device).minor));
        }
        let capabilities = capability_nodes(inventory, *device);
        nodes.extend(capabilities.map(|node| DeviceNode { path: node.path.clone(), number: node.number }));
    }
    if situation.injection == Injection::Native {
        nodes.extend_from_slice(places.control_nodes);
    }
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn capability_nodes(inventory: &Inventory, device: Device) -> impl Iterator<Item = &CapabilityNode> {
    inventory.mig(device).into_iter().flat_map(|mig| &mig.capability_nodes)
}

/// Nodes that the engine made under another GPU's name, by which the driver would not find them, or without a mode:
/// CDI specifications usually name none, runc takes 0666 then, and crun in a user namespace 0.
fn mend(wanted: &[DeviceNode], control: &[DeviceNode], spec: Spec<'_>) -> Vec<DeviceNode> {
    let nodes = spec.nodes();
    let mut mend = Vec::new();
    for node in wanted.iter().chain(control) {
        let named = |path: &str| nodes.iter().find(|there| there.number == node.number && there.path == path);
        let misnamed = || nodes.iter().find(|there| there.number == node.number && is_gpu_path(there.path));
        match named(&node.path) {
            Some(there) if there.has_mode => {}
            Some(_) => mend.push(node.clone()),
            None if is_gpu_path(&node.path) && misnamed().is_some() => mend.push(node.clone()),
            None => {}
        }
    }
    mend.sort_unstable();
    mend.dedup();
    mend
}

/// `/dev/nvidia0` and so on.
fn is_gpu_path(path: &str) -> bool {
    let number = path.strip_prefix("/dev/nvidia").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The nodes that the spec makes or binds, mended.
fn present(spec: Spec<'_>, host: &HostFacts, mend: &[DeviceNode]) -> Vec<DeviceNode> {
    let nodes = spec.nodes();
    // Of several nodes of one GPU the one by its name is mended, else the first.
    let place = |mended: &DeviceNode| {
        let is_it = |node: &SpecNode<'_>| node.number == mended.number;
        let named = nodes.iter().position(|node| is_it(node) && node.path == mended.path);
        named.or_else(|| nodes.iter().position(|node| is_it(node) && is_gpu_path(node.path)))
    };
    let devices = nodes.iter().enumerate().map(|(at, node)| {
        let mended = mend.iter().find(|mended| place(mended) == Some(at));
        mended.cloned().unwrap_or_else(|| DeviceNode { path: node.path.to_owned(), number: node.number })
    });
    let mounts = spec.mounts();
    let bound = host.mount_numbers.iter().filter_map(|(position, number)| {
        let mount = mounts.get(*position)?;
        Some(DeviceNode { path: mount.destination.to_owned(), number: *number })
    });
    devices.chain(bound).collect()
}

/// What the hook shall verify: each wanted device where the spec has it or it comes to be, and the control nodes that an
/// engine brought along.
fn arguments_of_verified(
    mut numbers: Vec<DeviceNumber>,
    control: &[DeviceNode],
    present: &[DeviceNode],
    new: &[DeviceNode],
) -> Vec<String> {
    numbers.extend(control.iter().map(|node| node.number));
    numbers.sort_unstable();
    let is_ours = |node: &&DeviceNode| numbers.binary_search(&node.number).is_ok();
    // The hook takes plain paths only; what an operator wrote otherwise, the runtime makes or fails to make.
    let there = new.iter().chain(present.iter().filter(is_ours));
    let mut nodes: Vec<&DeviceNode> = there.filter(|node| node.is_plain()).collect();
    // Those that are new are in their order already.
    nodes.sort();
    nodes.dedup();
    nodes.into_iter().map(|node| node.after("--node=")).collect()
}

/// Rule 9: what belongs to GPUs that the container shall not open.
fn withhold(plan: &Plan, inventory: &Inventory, spec: Spec<'_>, host: &HostFacts, out: &mut ContainerEdits) {
    let openable = plan.openable();
    let mut gone = Vec::new();
    for (position, gpu) in inventory.gpus.iter().enumerate() {
        if !openable.iter().any(|device| device.gpu == position) {
            gone.push(DeviceNumber::gpu(gpu.minor));
            gone.extend(&gpu.drm_nodes);
        }
        let devices = inventory.devices_of(position).into_iter();
        for device in devices.filter(|device| openable.binary_search(device).is_err()) {
            gone.extend(capability_nodes(inventory, device).map(|node| node.number));
        }
    }
    // Two compute instances of one GPU instance share its capability node.
    let needed = |number: &DeviceNumber| {
        openable.iter().flat_map(|device| capability_nodes(inventory, *device)).any(|node| node.number == *number)
    };
    gone.retain(|number| !needed(number));
    if gone.is_empty() {
        return;
    }
    let in_spec: Vec<DeviceNumber> = spec.nodes().into_iter().map(|node| node.number).collect();
    let rules = spec.rules();
    let in_rules = |number: &DeviceNumber| rules.iter().any(|rule| rule.is_single(*number));
    let bound = host.mount_numbers.iter().filter(|(_, number)| gone.contains(number));
    out.withhold_mounts.extend(bound.map(|(position, _)| *position));
    gone.retain(|number| in_spec.contains(number) || in_rules(number));
    out.withhold = gone;
}

fn hook_entry(
    plan: &Plan,
    situation: &Situation,
    inventory: &Inventory,
    places: &Places<'_>,
    verified: Vec<String>,
) -> HookEntry {
    let mut args = vec!["cudaview-hook".to_owned(), "createRuntime".to_owned(), format!("--root={}", places.root)];
    args.push(format!("--dev-root={}", places.dev_root));
    args.extend(verified);
    let record = plan.record(inventory, situation);
    // A record is plain data with string keys, which always serialises.
    args.push(format!("--record={}", serde_json::to_string(&record).unwrap_or_default()));
    HookEntry { path: places.hook.to_owned(), args }
}
