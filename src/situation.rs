//! From the container's configuration and the engine's facts to one plain value that the rules can work on.

use crate::config::{Config, Inject};
use crate::cuda;
use crate::device::{DeviceNumber, Minor};
use crate::inventory::{Device, Inventory};
use crate::provenance::{Engine, EngineFacts, Provenance, Requests, config_value, of_variable};
use crate::record::{Record, Variables, devices};
use crate::request::{DeviceRequest, Selection, Source, cdi_selection, count_selection, parse_gpus};
use crate::spec::{Rule, Spec, allowed};
use crate::toolkit::{self, Toolkit};

/// The driver's parts that a container asks for.
// NVIDIA Container Toolkit, "Specialized Configurations with Docker".
pub const CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";

/// Who puts devices into the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The engine has done so; we only narrow.
    Engine,
    /// NVIDIA's hook or runtime, after us, by `NVIDIA_VISIBLE_DEVICES`.
    Nvidia,
    /// We do.
    Native,
}

/// What the rules look at, wherever it came from.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, not a state")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Situation {
    /// What the operator asked for, proven.
    pub requests: Vec<DeviceRequest>,
    /// Why the engine's record of that cannot be read although it must exist.
    pub unreadable: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES` as image or user set it, without what `--gpus` made the engine append.
    pub visible_devices_request: Option<String>,
    /// Who set it.
    pub visible_devices_from: Provenance,
    /// It only holds a Kubernetes pod's namespaces, and is nobody's to compute in.
    pub sandbox: bool,
    /// The variables as the spec has them, or as they were before an earlier door.
    pub original: Variables,
    /// The variables as they are in the spec now.
    pub current: Variables,
    /// Who set `CUDA_VISIBLE_DEVICES`.
    pub provenance: Provenance,
    /// Whether this runtime was named for the container.
    pub runtime_named: Option<bool>,
    /// Devices that stay openable whatever is narrowed away.
    pub openable_anyway: Vec<Device>,
    /// The rules allow GPUs that have no node, which the container may make.
    pub wide_rules: bool,
    /// The operator asked for graphics, display or all capabilities.
    pub graphics: bool,
    /// Who injects.
    pub injection: Injection,
    /// NVIDIA's hook or runtime runs after us, whether or not we want it to, or may do so.
    pub injector_follows: bool,
    /// It is NVIDIA's runtime, or may be it, whose work no edit of ours takes away.
    pub runtime_injects: bool,
    /// NVIDIA's injector takes an unset `NVIDIA_VISIBLE_DEVICES` for `all`.
    pub unset_is_all: bool,
    /// It stops a container whose `NVIDIA_VISIBLE_DEVICES` is `none`.
    pub none_stops: bool,
    /// It does not go by variables, and is told by mounts.
    pub told_by_mounts: bool,
    /// Variables for which it would give more than GPUs, and that no operator set.
    pub unasked_switches: Vec<String>,
    /// An earlier door has decided for this container, and nothing has changed since.
    pub decided_before: bool,
    /// In which way GPUs are asked for where no request of this container says so: an earlier door's, or podman's.
    pub asked: Option<Source>,
}

impl Situation {
    /// A container that nobody asked anything for.
    pub fn blank() -> Self {
        Self {
            requests: Vec::new(),
            unreadable: None,
            visible_devices_request: None,
            visible_devices_from: Provenance::Unset,
            sandbox: false,
            original: Variables::default(),
            current: Variables::default(),
            provenance: Provenance::Unset,
            runtime_named: None,
            openable_anyway: Vec::new(),
            wide_rules: false,
            graphics: false,
            injection: Injection::Native,
            injector_follows: false,
            runtime_injects: false,
            unset_is_all: false,
            none_stops: false,
            told_by_mounts: false,
            unasked_switches: Vec::new(),
            decided_before: false,
            asked: None,
        }
    }

    /// In which way this container's GPUs are asked for, of these requests: for hints alone.
    pub fn way(&self, requests: &[DeviceRequest]) -> Option<Source> {
        match requests.first().map(|request| request.source) {
            Some(typed @ (Source::Gpus | Source::Cdi | Source::Nodes | Source::User)) => Some(typed),
            _ => self.asked,
        }
    }
}

/// What the host says, gathered before anything is decided.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, not a state")]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// The low-level runtime is NVIDIA's.
    pub nvidia_runtime: bool,
    /// The low-level runtime is not known to us, and NVIDIA's is installed.
    pub nvidia_runtime_possible: bool,
    /// What NVIDIA's toolkit goes by.
    pub toolkit: Toolkit,
    /// `nvidia-container-cli` is in a system directory, so NVIDIA's hook can work.
    pub nvidia_cli: bool,
    /// Device numbers of mounts' sources, by position in `mounts`.
    pub mount_numbers: Vec<(usize, DeviceNumber)>,
    /// No device cgroup holds us: a rootless engine.
    pub rootless: bool,
}

/// Reads a container's configuration together with what engine and host say about it.
pub fn from_spec(
    spec: Spec<'_>,
    inventory: &Inventory,
    facts: &EngineFacts,
    host: &HostFacts,
    config: &Config,
) -> Situation {
    let current = Variables::collect(|name| spec.var(name));
    let numbers = node_numbers(spec, host);
    let nodes = gpu_nodes(&numbers);
    let engine_injected = !nodes.is_empty() && !spec.rules().into_iter().any(Rule::allows_everything);
    let mut out = Situation { original: current.clone(), current, ..Situation::blank() };
    out.asked = (facts.engine == Engine::Podman).then_some(Source::Cdi);
    out.injection = injection(spec, host, config, engine_injected);
    // Neither Docker nor podman makes one, and up to podman 4 an image may say that it is one.
    out.sandbox = spec.is_sandbox() && !matches!(facts.engine, Engine::Docker | Engine::Podman);
    add_injector(spec, host, config, &mut out);
    add_openable(spec, inventory, host, &mut out);
    let present = if engine_injected { numbers.as_slice() } else { &[] };
    add_requests(spec, inventory, facts, config, present, &mut out);
    out.visible_devices_request = match facts.engine {
        Engine::Docker => config_value(facts, Variables::NAMES[2]).map(str::to_owned),
        Engine::Podman => podman_request(spec, !nodes.is_empty()),
        Engine::Containerd | Engine::Unknown => out.current.nvidia_visible_devices.clone(),
    };
    out.visible_devices_from = of_variable(facts, Variables::NAMES[2], out.visible_devices_request.as_deref());
    if out.injector_follows {
        add_swarm_request(spec, facts, host, &mut out);
        out.unasked_switches = toolkit::unasked_switches(spec, facts, &config.grant);
    }
    out.provenance = of_variable(facts, Variables::NAMES[0], out.current.visible_devices.as_deref());
    // The long way to ask for graphics; what --gpus made the engine append is in the request already.
    let capabilities = match facts.engine {
        Engine::Podman => spec.var(CAPABILITIES),
        _ => config_value(facts, CAPABILITIES),
    };
    if of_variable(facts, CAPABILITIES, capabilities) == Provenance::User {
        out.graphics |= capabilities.is_some_and(|value| wants_graphics(value.split(',')));
    }
    if !inventory.platform.is_usual() {
        given_everything(spec, config, &mut out);
    }
    out.runtime_named = facts.runtime_is_default.map(|is_default| !is_default);
    if let Some(record) = spec.record() {
        resume(&record, inventory, &numbers, &mut out);
    }
    out
}

/// What NVIDIA's hook or runtime will make of this container, where one of them runs after us.
fn add_injector(spec: Spec<'_>, host: &HostFacts, config: &Config, out: &mut Situation) {
    // An operator may know more than we: of a runtime of another name that ends in NVIDIA's.
    let is_said = config.inject == Inject::Nvidia && !spec.has_nvidia_hook();
    out.runtime_injects = host.nvidia_runtime || host.nvidia_runtime_possible || is_said;
    out.injector_follows = out.runtime_injects || spec.has_nvidia_hook();
    out.none_stops = out.runtime_injects && host.toolkit.mode == "cdi";
    out.told_by_mounts = out.injection == Injection::Nvidia && !host.toolkit.hears_variables(spec);
    // An image that its authors call legacy; they look at NVIDIA_REQUIRE_CUDA too, and need not be trusted in that.
    // NVIDIA Container Toolkit, internal/config/image/cuda_image.go.
    out.unset_is_all = spec.var("CUDA_VERSION").is_some_and(|version| !version.is_empty());
}

/// A swarm's variables stand for `NVIDIA_VISIBLE_DEVICES` where an operator told NVIDIA's toolkit so.
fn add_swarm_request(spec: Spec<'_>, facts: &EngineFacts, host: &HostFacts, out: &mut Situation) {
    let found: Vec<(&str, &str)> = host.toolkit.swarm_variables(spec).collect();
    let origins: Vec<Provenance> = found.iter().map(|(name, value)| of_variable(facts, name, Some(*value))).collect();
    let Some(first) = origins.first() else { return };
    let is_one = origins.iter().all(|origin| origin == first);
    // What a user asked for does not give way to what an image may have set; the toolkit gets to see neither.
    if out.visible_devices_from == Provenance::User && !(is_one && *first == Provenance::User) {
        return;
    }
    let values: Vec<&str> = found.iter().map(|(_, value)| *value).collect();
    out.visible_devices_request = Some(values.join(","));
    out.visible_devices_from = if is_one { *first } else { Provenance::Unknown };
}

/// What somebody asked for under podman, which appends the entries of CDI specifications to its own.
/// Beside nodes `void` is what NVIDIA's specifications say to its hook, and nobody's request.
fn podman_request(spec: Spec<'_>, has_nodes: bool) -> Option<String> {
    spec.values(Variables::NAMES[2]).rfind(|value| !(has_nodes && *value == "void")).map(str::to_owned)
}

/// Rule 14, a second door: where nothing changed since the first one, its question is asked again.
fn resume(record: &Record, inventory: &Inventory, numbers: &[DeviceNumber], out: &mut Situation) {
    let granted = devices(inventory, &record.granted);
    let kept = devices(inventory, record.kept());
    let covers = |minor: &Minor| {
        let gpu = inventory.position_of_minor(*minor);
        let has_kept = kept.iter().any(|device| Some(device.gpu) == gpu);
        has_kept && gpu.is_some_and(|gpu| instances(inventory, gpu, numbers).iter().all(|device| kept.contains(device)))
    };
    let is_whole = granted.len() == record.granted.len() && kept.len() == record.kept().len();
    let is_current = record.emitted.visible_devices == out.current.visible_devices
        && record.emitted.device_order == out.current.device_order;
    // In a privileged container every node is there, whatever was kept.
    let covered = !out.openable_anyway.is_empty() || gpu_nodes(numbers).iter().all(covers);
    if !(is_whole && is_current && covered) || record.original.has_mark() {
        return;
    }
    // A grant that no operator chose stays one: an image's default narrows it at the second door too.
    let source = if record.explicit { Source::Record } else { Source::Image };
    let names = record.granted.clone();
    out.requests = vec![DeviceRequest { source, selection: Selection::Names(names) }];
    out.unreadable = None;
    out.original = record.original.clone();
    out.provenance = record.provenance;
    out.decided_before = true;
    out.asked = record.asked;
}

fn injection(spec: Spec<'_>, host: &HostFacts, config: &Config, engine_injected: bool) -> Injection {
    let has_nvidia = host.nvidia_runtime || (spec.has_nvidia_hook() && host.nvidia_cli);
    match config.inject {
        Inject::Engine => Injection::Engine,
        Inject::Nvidia => Injection::Nvidia,
        Inject::Auto if engine_injected => Injection::Engine,
        Inject::Auto if has_nvidia && host.toolkit.can_be_told(spec) => Injection::Nvidia,
        Inject::Native | Inject::Auto => Injection::Native,
    }
}

/// The nodes that the engine put into the spec, as devices or as bind mounts. The number counts, not the path.
fn node_numbers(spec: Spec<'_>, host: &HostFacts) -> Vec<DeviceNumber> {
    let in_devices = spec.nodes().into_iter().map(|node| node.number);
    in_devices.chain(host.mount_numbers.iter().map(|(_, number)| *number)).collect()
}

/// The GPUs among them.
fn gpu_nodes(numbers: &[DeviceNumber]) -> Vec<Minor> {
    let mut minors: Vec<Minor> = numbers.iter().filter_map(|number| number.gpu_minor()).collect();
    minors.sort_unstable();
    minors.dedup();
    minors
}

/// The MIG devices of a GPU whose capability nodes are all among these.
fn instances(inventory: &Inventory, gpu: usize, numbers: &[DeviceNumber]) -> Vec<Device> {
    let is_there = |device: &Device| {
        let nodes = inventory.mig(*device).map_or(&[][..], |mig| &mig.capability_nodes);
        !nodes.is_empty() && nodes.iter().all(|node| numbers.contains(&node.number))
    };
    inventory.devices_of(gpu).into_iter().filter(is_there).collect()
}

/// What the nodes that an engine put there ask for, beside what is known: a GPU's own node alone is all of the GPU, and
/// with capability nodes beside it the MIG devices that have all of theirs.
fn node_requests(inventory: &Inventory, numbers: &[DeviceNumber], known: &[Device]) -> Vec<DeviceRequest> {
    let mut whole = Vec::new();
    let mut parts = Vec::new();
    for minor in gpu_nodes(numbers) {
        let Some(gpu) = inventory.position_of_minor(minor) else {
            whole.push(minor);
            continue;
        };
        let devices = inventory.devices_of(gpu);
        let is_known = |device: &Device| known.contains(device);
        let capabilities = |device: &Device| inventory.mig(*device).map_or(&[][..], |mig| &mig.capability_nodes);
        if devices.iter().flat_map(capabilities).any(|node| numbers.contains(&node.number)) {
            let new = instances(inventory, gpu, numbers).into_iter().filter(|device| !is_known(device));
            parts.extend(new.map(|device| inventory.host_label(device)));
            continue;
        }
        // Where nobody says which capability nodes there are, a request that the engine has a record of says it.
        let has_no_names = devices.iter().any(|device| device.mig.is_some() && capabilities(device).is_empty());
        let is_covered = if has_no_names { devices.iter().any(is_known) } else { devices.iter().all(is_known) };
        if !is_covered || devices.is_empty() {
            whole.push(minor);
        }
    }
    let mut out = Vec::new();
    if !whole.is_empty() {
        out.push(DeviceRequest { source: Source::Nodes, selection: Selection::Minors(whole) });
    }
    if !parts.is_empty() {
        out.push(DeviceRequest { source: Source::Nodes, selection: Selection::Names(parts) });
    }
    out
}

/// What can be opened however much is narrowed: a node that is there, under a rule for more than that node.
fn add_openable(spec: Spec<'_>, inventory: &Inventory, host: &HostFacts, out: &mut Situation) {
    // The host's own; a volume that an image declares at /dev holds none of the host's nodes.
    let is_dev = |path: &str| path.trim_end_matches('/') == "/dev";
    let has_host_dev =
        spec.mounts().iter().any(|mount| mount.bind && is_dev(mount.destination) && is_dev(mount.source));
    let nodes: Vec<DeviceNumber> = spec.nodes().into_iter().map(|node| node.number).collect();
    let rules = spec.rules();
    let is_allowed = |number: DeviceNumber| {
        let wide = rules.iter().copied().filter(|rule| !rule.is_single(number));
        if host.rootless { has_host_dev } else { allowed(wide, number) }
    };
    let is_open = |number: DeviceNumber| is_allowed(number) && (has_host_dev || nodes.contains(&number));
    for (gpu, candidate) in inventory.gpus.iter().enumerate() {
        let number = DeviceNumber::gpu(candidate.minor);
        if is_open(number) {
            // A MIG device needs its capability nodes beside its GPU's.
            let has_nodes = |device: &Device| {
                inventory.mig(*device).is_none_or(|mig| mig.capability_nodes.iter().all(|node| is_open(node.number)))
            };
            out.openable_anyway.extend(inventory.devices_of(gpu).into_iter().filter(has_nodes));
        } else if is_allowed(number) {
            out.wide_rules = true;
        }
    }
}

fn add_requests(
    spec: Spec<'_>,
    inventory: &Inventory,
    facts: &EngineFacts,
    config: &Config,
    present: &[DeviceNumber],
    out: &mut Situation,
) {
    match &facts.device_requests {
        Requests::Known(requests) => {
            for request in requests {
                docker_request(request, out);
            }
        }
        Requests::Unknown(reason) if spec.has_nvidia_hook() => out.unreadable = Some(reason.clone()),
        Requests::Unknown(_) | Requests::NotApplicable => {}
    }
    // The nodes of a CDI request are that request, not one more.
    let known: Vec<Device> = out.requests.iter().flat_map(|r| r.selection.resolve(inventory).devices).collect();
    out.requests.extend(node_requests(inventory, present, &known));
    if config.grant.volume_mounts {
        volume_mounts(spec, out);
    }
    // A hook entry of ours with a selection in it is an operator's hooks.d file.
    for arguments in spec.our_hooks() {
        let gpus = crate::argv::option(&arguments, "--gpus").and_then(|text| parse_gpus(text).ok());
        out.requests.extend(gpus.map(|flag| DeviceRequest { source: Source::Policy, selection: flag.selection }));
    }
}

/// What these device requests of Docker's ask for, beside what is no GPU.
pub fn docker_requests(requests: &[crate::provenance::DockerDeviceRequest]) -> Vec<DeviceRequest> {
    let mut out = Situation::blank();
    for request in requests {
        docker_request(request, &mut out);
    }
    out.requests
}

fn docker_request(request: &crate::provenance::DockerDeviceRequest, out: &mut Situation) {
    if request.driver == "cdi" {
        let selections = request.device_ids.iter().filter_map(|name| cdi_selection(name));
        out.requests.extend(selections.map(|selection| DeviceRequest { source: Source::Cdi, selection }));
        return;
    }
    let capabilities: Vec<&str> = request.capabilities.iter().flatten().map(String::as_str).collect();
    let is_gpu = request.driver == "nvidia" || (request.driver.is_empty() && capabilities.contains(&"gpu"));
    if !is_gpu {
        return;
    }
    let selection = if request.device_ids.is_empty() {
        count_selection(request.count)
    } else {
        Selection::Names(request.device_ids.clone())
    };
    out.graphics |= wants_graphics(capabilities.into_iter());
    out.requests.push(DeviceRequest { source: Source::Gpus, selection });
}

/// Whether these driver capabilities reach GPUs by other ways than CUDA (Vulkan, EGL, X).
pub fn wants_graphics<'a>(mut capabilities: impl Iterator<Item = &'a str>) -> bool {
    capabilities.any(|capability| matches!(capability, "graphics" | "display" | "all"))
}

/// The device plugin's channel, which a pod cannot forge: mounts of `/dev/null` named after the devices.
fn volume_mounts(spec: Spec<'_>, out: &mut Situation) {
    let names: Vec<String> = spec.mounts().iter().filter_map(toolkit::device_of_mount).map(str::to_owned).collect();
    if !names.is_empty() {
        out.requests.push(DeviceRequest { source: Source::VolumeMounts, selection: Selection::Names(names) });
    }
}

/// WSL2's one device for all GPUs, where the engine has put it in.
fn given_everything(spec: Spec<'_>, config: &Config, out: &mut Situation) {
    const PATH: &str = "/dev/dxg";
    let is_node = spec.nodes().iter().any(|node| node.path == PATH);
    if !is_node && !spec.mounts().iter().any(|mount| mount.destination == PATH) {
        return;
    }
    if config.inject == Inject::Auto {
        out.injection = Injection::Engine;
    }
    if out.requests.is_empty() {
        out.requests.push(DeviceRequest { source: Source::Nodes, selection: Selection::All });
    }
}

/// What plain CUDA would show in this container, with the nodes that it would have without cudaview.
pub fn without_cudaview(inventory: &Inventory, situation: &Situation, granted: &[Device]) -> cuda::Prediction {
    let mut nodes = [granted, &situation.openable_anyway].concat();
    nodes.sort_unstable();
    nodes.dedup();
    let value = situation.original.visible_devices.as_deref();
    cuda::predict(inventory, &nodes, value, situation.original.device_order.as_deref())
}
