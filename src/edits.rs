//! The edits of a plan: what has to change in a container's `config.json`, and how it is changed.
//!
//! The shape follows CDI's `ContainerEdits`. Computing them needs facts; applying them cannot fail.

use oci_spec::runtime::{HookBuilder, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType};
use serde_json::{Map, Value};

use crate::device::DeviceNumber;
use crate::inventory::{Device, Inventory};
use crate::node::{DeviceNode, NODE_MODE};
use crate::plan::{Plan, Verdict};
use crate::record::Variables;
use crate::situation::{HostFacts, Injection, Situation};
use crate::spec::{Spec, allowed, is_nvidia_hook, is_our_hook};

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
    /// Positions in `mounts` of the bind mounts among them.
    pub withhold_mounts: Vec<usize>,
    /// NVIDIA's hook entry goes, since nothing could run it.
    pub remove_nvidia_hook: bool,
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
    /// Seconds until the runtime ends it.
    pub timeout: u32,
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
    /// Seconds for the hook.
    pub timeout: u32,
    /// Control nodes that every GPU container needs, as the host has them.
    pub control_nodes: &'a [DeviceNode],
}

/// Works out the edits of a plan. A plan without a grant only ever sets `NVIDIA_VISIBLE_DEVICES=void`; a refused one
/// has none.
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
    if plan.verdict == Verdict::NotApplicable {
        return out;
    }
    let wanted = wanted(plan, inventory, situation, places);
    withhold(plan, inventory, spec, host, &mut out);
    if situation.injection != Injection::Nvidia {
        out.mend = mend(&wanted, places.control_nodes, spec);
        let present = present(spec, host, &out.mend);
        let is_there = |node: &DeviceNode| {
            present
                .iter()
                .any(|there| there.number == node.number && (there.path == node.path || !is_gpu_path(&node.path)))
        };
        out.device_nodes = wanted.iter().filter(|node| !is_there(node)).cloned().collect();
        // Without any rule runc and crun deny, also where they make a user namespace. Rules of a rootless container are
        // enforced by nobody (podman 5.8 writes some all the same).
        if !host.rootless {
            let rules: Vec<_> = spec.rules();
            // A rule for just this device is the operator's word on it (`--device …:r`) and is not widened.
            let has_own_rule = |number: DeviceNumber| rules.iter().any(|rule| rule.is_single(number));
            let is_blocked = |number: &DeviceNumber| !allowed(rules.iter().copied(), *number) && !has_own_rule(*number);
            out.allow = wanted.iter().map(|node| node.number).filter(is_blocked).collect();
        }
        out.remove_nvidia_hook = situation.injection == Injection::Native && spec.has_nvidia_hook();
    }
    let verified = match situation.injection {
        Injection::Nvidia => Vec::new(),
        Injection::Engine | Injection::Native => {
            verified(&wanted, places.control_nodes, &present(spec, host, &out.mend))
        }
    };
    out.hook = Some(hook_entry(plan, situation, inventory, places, &verified));
    out
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
    for device in plan.kept() {
        nodes.push(DeviceNode::gpu(inventory.gpu(*device).minor));
        nodes.extend(capability_nodes(inventory, *device));
    }
    if situation.injection == Injection::Native {
        nodes.extend_from_slice(places.control_nodes);
    }
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn capability_nodes(inventory: &Inventory, device: Device) -> impl Iterator<Item = DeviceNode> {
    inventory
        .mig(device)
        .into_iter()
        .flat_map(|mig| &mig.capability_nodes)
        .map(|node| DeviceNode { path: node.path.clone(), number: node.number })
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
    let devices = spec.nodes().into_iter().map(|node| {
        let mended = mend.iter().find(|mended| mended.number == node.number);
        mended.cloned().unwrap_or_else(|| DeviceNode { path: node.path.to_owned(), number: node.number })
    });
    let mounts = spec.mounts();
    let bound = host.mount_numbers.iter().filter_map(|(position, number)| {
        let mount = mounts.get(*position)?;
        Some(DeviceNode { path: mount.destination.to_owned(), number: *number })
    });
    devices.chain(bound).collect()
}

/// What the hook shall verify: each wanted device where the spec has it, else at its usual place, and the control
/// nodes that an engine brought along.
fn verified(wanted: &[DeviceNode], control: &[DeviceNode], present: &[DeviceNode]) -> Vec<DeviceNode> {
    let mut nodes: Vec<DeviceNode> = Vec::new();
    for node in wanted.iter().chain(control) {
        let there: Vec<&DeviceNode> = present.iter().filter(|there| there.number == node.number).collect();
        if there.is_empty() && wanted.contains(node) {
            nodes.push(node.clone());
        }
        // The hook takes plain paths only; what an operator wrote otherwise, the runtime makes or fails to make.
        let is_plain = |node: &&DeviceNode| node.to_string().parse::<DeviceNode>().is_ok();
        nodes.extend(there.into_iter().filter(is_plain).cloned());
    }
    nodes.sort_unstable();
    nodes.dedup();
    nodes
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
        for device in inventory.devices_of(position).into_iter().filter(|device| !openable.contains(device)) {
            gone.extend(capability_nodes(inventory, device).map(|node| node.number));
        }
    }
    let in_spec: Vec<DeviceNumber> = spec.nodes().into_iter().map(|node| node.number).collect();
    let in_rules = |number: &DeviceNumber| spec.rules().into_iter().any(|rule| rule.is_single(*number));
    out.withhold_mounts =
        host.mount_numbers.iter().filter(|(_, number)| gone.contains(number)).map(|(position, _)| *position).collect();
    gone.retain(|number| in_spec.contains(number) || in_rules(number));
    out.withhold = gone;
}

fn hook_entry(
    plan: &Plan,
    situation: &Situation,
    inventory: &Inventory,
    places: &Places<'_>,
    verified: &[DeviceNode],
) -> HookEntry {
    let mut args = vec!["cudaview-hook".to_owned(), "createRuntime".to_owned(), format!("--root={}", places.root)];
    args.push(format!("--dev-root={}", places.dev_root));
    args.extend(verified.iter().map(|node| format!("--node={node}")));
    let record = plan.record(inventory, situation);
    // A record is plain data with string keys, which always serialises.
    args.push(format!("--record={}", serde_json::to_string(&record).unwrap_or_default()));
    HookEntry { path: places.hook.to_owned(), args, timeout: places.timeout }
}

/// Applies edits to a configuration that [`Spec::new`] accepted. Members that are not edited stay as they are.
pub fn apply(config: &mut Value, edits: &ContainerEdits) {
    if !edits.env.is_empty() {
        edit_array(object(config, "process"), "env", |env| {
            for (name, value) in &edits.env {
                set_env(env, name, value);
            }
        });
    }
    apply_devices(config, edits);
    if !edits.withhold_mounts.is_empty() {
        let mut position = 0;
        let keep = |_: &Value| {
            position += 1;
            !edits.withhold_mounts.contains(&(position - 1))
        };
        edit_array(config, "mounts", |mounts| mounts.retain(keep));
    }
    if edits.remove_nvidia_hook {
        for stage in ["prestart", "createRuntime"] {
            remove_hooks(config, stage, is_nvidia_hook);
        }
    }
    if let Some(hook) = &edits.hook {
        apply_hook(config, hook);
    }
}

fn apply_devices(config: &mut Value, edits: &ContainerEdits) {
    let gone =
        |value: &Value| number_of(value).is_some_and(|number| edits.withhold.contains(&number)) && value["type"] != "b";
    // An absent list stays absent where nothing is added: rootless engines leave the rules out, and an empty list of
    // rules is another thing than none.
    let has =
        |config: &Value, pointer| !edits.withhold.is_empty() && config.pointer(pointer).is_some_and(Value::is_array);
    if !edits.device_nodes.is_empty() || !edits.mend.is_empty() || has(config, "/linux/devices") {
        edit_array(object(config, "linux"), "devices", |devices| {
            devices.retain(|device| !gone(device));
            for node in &edits.mend {
                apply_mend(devices, node);
            }
            devices.extend(edits.device_nodes.iter().filter_map(device_value));
        });
    }
    if !edits.allow.is_empty() || has(config, "/linux/resources/devices") {
        edit_array(object(object(config, "linux"), "resources"), "devices", |rules| {
            rules.retain(|rule| rule["allow"] != true || !gone(rule));
            rules.extend(edits.allow.iter().filter_map(|number| rule_value(*number)));
        });
    }
}

/// The device number of a node or a rule.
fn number_of(value: &Value) -> Option<DeviceNumber> {
    let number = |key: &str| value[key].as_i64().and_then(|number| u32::try_from(number).ok());
    number("major").zip(number("minor")).map(|(major, minor)| DeviceNumber { major, minor })
}

fn apply_mend(devices: &mut [Value], node: &DeviceNode) {
    let is_it = |device: &Value| number_of(device) == Some(node.number) && device["type"] != "b";
    let named = devices.iter().position(|device| is_it(device) && device["path"] == node.path.as_str());
    let misnamed =
        || devices.iter().position(|device| is_it(device) && device["path"].as_str().is_some_and(is_gpu_path));
    let position = named.or_else(misnamed);
    let Some(device) = position.and_then(|position| devices.get_mut(position)?.as_object_mut()) else { return };
    device.insert("path".to_owned(), node.path.clone().into());
    if device.get("fileMode").is_none_or(Value::is_null) {
        device.insert("fileMode".to_owned(), NODE_MODE.into());
    }
}

fn device_value(node: &DeviceNode) -> Option<Value> {
    let device = LinuxDeviceBuilder::default()
        .path(&node.path)
        .typ(LinuxDeviceType::C)
        .major(i64::from(node.number.major))
        .minor(i64::from(node.number.minor))
        .file_mode(NODE_MODE)
        .uid(0_u32)
        .gid(0_u32)
        .build();
    serde_json::to_value(device.ok()?).ok()
}

fn rule_value(number: DeviceNumber) -> Option<Value> {
    let rule = LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(LinuxDeviceType::C)
        .major(i64::from(number.major))
        .minor(i64::from(number.minor))
        .access("rw")
        .build();
    serde_json::to_value(rule.ok()?).ok()
}

fn apply_hook(config: &mut Value, hook: &HookEntry) {
    let entry = HookBuilder::default()
        .path(&hook.path)
        .args(hook.args.clone())
        .env(vec![HOOK_ENV.to_owned()])
        .timeout(i64::from(hook.timeout))
        .build();
    let Some(entry) = entry.ok().and_then(|entry| serde_json::to_value(entry).ok()) else { return };
    let ours = |stage: &[Value]| stage.iter().any(is_our_hook);
    if config.pointer("/hooks/prestart").and_then(Value::as_array).is_some_and(|stage| ours(stage)) {
        remove_hooks(config, "prestart", is_our_hook);
    }
    edit_array(object(config, "hooks"), "createRuntime", |stage| {
        let mut entry = Some(entry);
        // In place of an earlier one of ours, so that applying twice changes nothing.
        for slot in stage.iter_mut().filter(|slot| is_our_hook(slot)) {
            *slot = entry.take().unwrap_or(Value::Null);
        }
        stage.retain(|slot| !slot.is_null());
        stage.extend(entry);
    });
}

fn remove_hooks(config: &mut Value, stage: &str, is: fn(&Value) -> bool) {
    if let Some(hooks) = config.pointer_mut(&format!("/hooks/{stage}")).and_then(Value::as_array_mut) {
        hooks.retain(|hook| !is(hook));
    }
}

/// Leaves exactly one entry for a variable, where the first one was.
pub fn set_env(env: &mut Vec<Value>, name: &str, value: &str) {
    let entry = Value::String(format!("{name}={value}"));
    let is_name =
        |entry: &Value| entry.as_str().and_then(|e| e.strip_prefix(name)).is_some_and(|rest| rest.starts_with('='));
    let Some(first) = env.iter().position(is_name) else {
        env.push(entry);
        return;
    };
    env[first] = entry;
    let mut position = 0;
    env.retain(|entry| {
        position += 1;
        position - 1 == first || !is_name(entry)
    });
}

/// The object under a key, made where it is absent or null.
fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    let slot = slot(parent, key);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot
}

/// Edits the array under a key, which is made where it is absent or null.
pub fn edit_array(parent: &mut Value, key: &str, edit: impl FnOnce(&mut Vec<Value>)) {
    let slot = slot(parent, key);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    if let Value::Array(items) = slot {
        edit(items);
    }
}

fn slot<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    &mut parent[key]
}
