//! The grant: which devices a container is entitled to, and who says so.
//!
//! The environment may narrow or reorder a grant. It never widens one.

use crate::config::{Base, BaseWord, Config, ImageRequest, UnknownRequest};
use crate::finding::{Code, Finding, Severity, quoted, quoted_list};
use crate::inventory::{Device, Inventory};
use crate::provenance::Provenance;
use crate::request::{DeviceRequest, Selection, Source, parse_visible_devices};
use crate::spelling;

/// What was asked for, and how well it is proven.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// What the operator asked the engine for, proven by what an image cannot write.
    pub requests: &'a [DeviceRequest],
    /// `NVIDIA_VISIBLE_DEVICES` as the image or the user set it (not what `--gpus` made the engine append).
    pub visible_devices: Option<&'a str>,
    /// Who set it.
    pub visible_devices_from: Provenance,
    /// Whether this runtime was named for the container, as opposed to being the engine's default; `None` is unknown.
    pub runtime_named: Option<bool>,
    /// Why the engine's record of the request cannot be read although it must exist.
    pub unreadable: Option<&'a str>,
    /// It only holds a Kubernetes pod's namespaces.
    pub sandbox: bool,
}

/// The devices that a container is entitled to.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, not a state")]
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    /// The devices, in PCI order: `G` of the rules.
    pub devices: Vec<Device>,
    /// What was asked for before anything was refused or cut, the image's request included: what a host without cudaview
    /// would give, with NVIDIA's toolkit as it comes.
    pub requested: Vec<Device>,
    /// An operator chose them.
    pub explicit: bool,
    /// The choice named no particular GPU (`all`, or a count).
    pub broad: bool,
    /// The requests that counted.
    pub requests: Vec<DeviceRequest>,
    /// The image asked, and got nothing for it.
    pub image_request_ignored: bool,
    /// The container must not start.
    pub refused: bool,
    /// What was noticed.
    pub findings: Vec<Finding>,
}

/// Works out the grant.
pub fn grant(inventory: &Inventory, asked: &Asked<'_>, config: &Config) -> Grant {
    let mut out = Grant::default();
    if let Some(reason) = asked.unreadable {
        out.refuse(
            Code::RequestUnreadable,
            format!("the engine's record of the GPU request cannot be read: {reason}"),
            "see that cudaview-runtime runs as root, and that the engine's data directory is where it was",
        );
        return out;
    }
    choose_requests(inventory, asked, config, &mut out);
    out.explicit = !out.requests.is_empty() && out.requests.iter().all(|request| request.source != Source::Image);
    out.broad = out.requests.iter().any(|request| request.selection.is_broad());
    if !inventory.platform.is_usual() {
        without_selection(config, &mut out);
        return out;
    }
    let mut unknown = Vec::new();
    for request in &out.requests {
        let resolved = request.selection.resolve(inventory);
        out.devices.extend(resolved.devices);
        unknown.extend(resolved.unknown);
    }
    out.devices.sort_unstable();
    out.devices.dedup();
    if !out.requests.is_empty() {
        out.requested.clone_from(&out.devices);
    }
    let asked_for_some = out.requests.iter().any(|request| request.source != Source::Policy);
    if !unknown.is_empty() || (asked_for_some && out.devices.is_empty()) {
        refuse_unknown(inventory, &unknown, &mut out);
        return out;
    }
    limit(inventory, config, asked_for_some, &mut out);
    out
}

/// A host where nothing can be chosen: whoever asked gets everything, by somebody else's hands.
fn without_selection(config: &Config, out: &mut Grant) {
    if out.refused || out.requests.is_empty() {
        return;
    }
    if config.limit.max_devices.is_some() || !config.limit.never.is_empty() {
        let message = "[limit] of the configuration cannot be kept on WSL2, where one device is all GPUs";
        out.refuse(Code::NoSelection, message, "ask the operator of this host");
        return;
    }
    let is_all = out.requests.iter().all(|request| request.selection == Selection::All);
    let severity = if is_all { Severity::Info } else { Severity::Warning };
    let message = "WSL2 has one device, /dev/dxg, for all GPUs: the container can open all of them, and its variables \
                   stay as they are";
    let hint = "CUDA_VISIBLE_DEVICES alone chooses here, and counts as nvidia-smi on the host does";
    out.findings.push(Finding::new(Code::NoSelection, severity, message, hint));
}

/// Steps (a) to (c): proven requests, else a proven user's variable, else the policy's base.
fn choose_requests(inventory: &Inventory, asked: &Asked<'_>, config: &Config, out: &mut Grant) {
    out.requests = asked.requests.iter().filter(|request| !request.selection.is_nothing()).cloned().collect();
    // `--gpus 0` ends the search too: somebody asked for none.
    if !asked.requests.is_empty() || asked.sandbox {
        return;
    }
    if let Some(value) = asked.visible_devices {
        let selection = parse_visible_devices(value);
        let counts_as_user = match asked.visible_devices_from {
            Provenance::User | Provenance::Exec => true,
            Provenance::Unknown => config.grant.unknown_request == UnknownRequest::User,
            Provenance::Image | Provenance::Unset => false,
        };
        if counts_as_user {
            // A proven user's `none` ends the search too.
            if !selection.is_nothing() {
                out.requests.push(DeviceRequest { source: Source::User, selection });
            }
            return;
        }
        if !selection.is_nothing() {
            out.requested = selection.resolve(inventory).devices;
            image_request(value, selection, asked, config, out);
            if out.refused || !out.requests.is_empty() {
                return;
            }
        }
    }
    let selection = match &config.grant.base {
        Base::Word(BaseWord::None) => return,
        Base::Word(BaseWord::All) => Selection::All,
        Base::Devices(names) if names.is_empty() => return,
        Base::Devices(names) => Selection::Names(names.clone()),
    };
    out.image_request_ignored = false;
    out.findings.retain(|finding| finding.code != Code::ImageRequestIgnored);
    out.requests.push(DeviceRequest { source: Source::Policy, selection });
}

fn image_request(value: &str, selection: Selection, asked: &Asked<'_>, config: &Config, out: &mut Grant) {
    let asker = if asked.visible_devices_from == Provenance::Image { "the image" } else { "a value of unknown origin" };
    let message = format!("{asker} asks for GPUs (NVIDIA_VISIBLE_DEVICES={}), and nobody else does", quoted(value));
    let refuse = match config.grant.image_request {
        ImageRequest::Honour => {
            out.requests.push(DeviceRequest { source: Source::Image, selection });
            return;
        }
        ImageRequest::Ignore => false,
        ImageRequest::Refuse => true,
        ImageRequest::Auto => asked.runtime_named == Some(true) && !config.grant.grants_unasked(),
    };
    if refuse {
        let hint = "to give it GPUs, --gpus all; to run without, leave --runtime out";
        out.refuse(Code::ImageRequestIgnored, message, hint);
    } else {
        out.image_request_ignored = true;
        let hint = "to give it GPUs, --gpus all";
        out.findings.push(Finding::new(Code::ImageRequestIgnored, Severity::Info, message, hint));
    }
}

impl Grant {
    fn refuse(&mut self, code: Code, message: impl Into<String>, hint: &str) {
        self.refused = true;
        self.findings.push(Finding::new(code, Severity::Error, message, hint));
    }
}

fn refuse_unknown(inventory: &Inventory, unknown: &[String], out: &mut Grant) {
    let host = match inventory.gpus.as_slice() {
        [] => "this host has no GPU that cudaview can see".to_owned(),
        [only] => format!("this host has one GPU, {}", only.index),
        [first, .., last] => format!("this host has GPUs {} to {}", first.index, last.index),
    };
    out.devices.clear();
    let which = if unknown.is_empty() { String::new() } else { format!("no such GPU: {}; ", quoted_list(unknown)) };
    let message = match (too_many(inventory, &out.requests), unknown) {
        (Some(most), _) => format!("--gpus asks for {most} GPUs; this host has {}", inventory.gpus.len()),
        (None, [only]) => unknown_mig(inventory, only).unwrap_or_else(|| format!("{which}{host}")),
        (None, _) => format!("{which}{host}"),
    };
    let list = out.requests.iter().find_map(|request| list_meant(inventory, request));
    let hint = list.unwrap_or_else(|| "cudaview inventory lists the GPUs and their names".to_owned());
    out.refuse(Code::UnknownDevice, message, &hint);
}

/// What is wrong with the name of a MIG device, or of a GPU in MIG mode, that is not there.
fn unknown_mig(inventory: &Inventory, name: &str) -> Option<String> {
    let older = name.strip_prefix("MIG-").and_then(|rest| rest.split_once('/'));
    let by_uuid = |uuid: &str| inventory.gpus.iter().position(|gpu| gpu.uuid.as_str() == uuid);
    let index = |index: &str| inventory.position_of_index(index.parse().ok()?);
    let (position, is_part) = match (older, name.split_once(':')) {
        (Some((uuid, _)), _) => (by_uuid(uuid)?, true),
        (None, Some((gpu, _))) => (index(gpu)?, true),
        (None, None) if name.starts_with("MIG-") => {
            let many = inventory.all_devices().iter().filter(|device| device.mig.is_some()).count();
            return Some(format!("no such MIG device: {}; this host has {many} of them", quoted(name)));
        }
        (None, None) => (index(name).or_else(|| by_uuid(name))?, false),
    };
    let devices = inventory.devices_of(position);
    let gpu = &inventory.gpus[position];
    let state = match devices.as_slice() {
        [] => format!("GPU {} is in MIG mode and has no MIG devices", gpu.index),
        [only] if only.mig.is_none() => format!("GPU {} is not in MIG mode", gpu.index),
        parts => format!("GPU {} has {}", gpu.index, inventory.host_names(parts)),
    };
    Some(if is_part { format!("no such MIG device: {}; {state}", quoted(name)) } else { state })
}

/// A count of more GPUs than there are.
fn too_many(inventory: &Inventory, requests: &[DeviceRequest]) -> Option<u32> {
    let counts = requests.iter().filter_map(|request| match request.selection {
        Selection::Count(count) => Some(count),
        _ => None,
    });
    let has_fewer = |count: &u32| usize::try_from(*count).map_or(true, |count| count > inventory.gpus.len());
    counts.max().filter(has_fewer).filter(|count| *count > 1 && !inventory.gpus.is_empty())
}

/// What to type where `1-3`, `1;3` or `1 3` stands in place of a list that engines read.
fn list_meant(inventory: &Inventory, request: &DeviceRequest) -> Option<String> {
    let Selection::Names(names) = &request.selection else { return None };
    let numbers = spelling::numbers(&names.join(","))?;
    let is_plain = names.iter().all(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let has_all = numbers.iter().all(|number| inventory.position_of_index(*number).is_some());
    (!is_plain && has_all).then(|| spelling::flags(Some(request.source), &numbers))
}

/// `[limit]` cuts last, whoever asked. Who asked and is left with nothing is refused: a container that falls back to
/// the CPU unnoticed is what nobody wants.
fn limit(inventory: &Inventory, config: &Config, asked_for_some: bool, out: &mut Grant) {
    let before = out.devices.clone();
    let never = Selection::Names(config.limit.never.clone()).resolve(inventory).devices;
    out.devices.retain(|device| !never.contains(device));
    if let Some(most) = config.limit.max_devices {
        out.devices.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    if out.devices.len() == before.len() {
        return;
    }
    let cut: Vec<Device> = before.into_iter().filter(|device| !out.devices.contains(device)).collect();
    let message = format!("[limit] of the configuration withholds {}", inventory.host_names(&cut));
    let hint = "ask the operator of this host";
    if out.devices.is_empty() && asked_for_some {
        out.refuse(Code::Withheld, message, hint);
    } else {
        out.findings.push(Finding::new(Code::Withheld, Severity::Warning, message, hint));
    }
}
