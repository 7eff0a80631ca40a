//! Whether a selection and a value agree: the rules themselves decide, over a host that is made up.

use crate::config::Config;
use crate::cuda::{Entry, Meaning, Value};
use crate::finding::{Code, Severity, quoted};
use crate::inventory::{Device, Inventory, list};
use crate::plan::{Plan, plan};
use crate::request::{GpusFlag, Selection, Source};
use crate::spelling::{self, host_gpus};
use crate::whatif::WhatIf;

use super::Fault;
use super::values::{Assignment, CUDA, NVIDIA, ORDER, joined, said};

/// How many GPUs the made-up host may have.
const MOST: u32 = 64;

/// Where something was typed, and so how a fix is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `--gpus`, `-e`.
    Docker,
    /// `--device nvidia.com/gpu=`, `-e`.
    Podman,
    /// A Compose file.
    Compose,
}

impl Dialect {
    /// What selects these host GPUs.
    pub(super) fn select(self, numbers: &[u32]) -> String {
        match self {
            Dialect::Docker => spelling::flags(Some(Source::Gpus), numbers),
            Dialect::Podman => spelling::flags(Some(Source::Cdi), numbers),
            Dialect::Compose => {
                let ids: Vec<String> = numbers.iter().map(|number| format!("{number:?}").replace('"', "")).collect();
                format!("device_ids: [{}]", ids.iter().map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// What sets the variable.
    pub(super) fn set(self, name: &str, value: &str) -> String {
        match self {
            Dialect::Compose => format!("{name}={value}"),
            Dialect::Docker | Dialect::Podman => format!("-e {name}={value}"),
        }
    }
}

/// What a fix does to the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// Leave the variable out.
    LeaveOut,
    /// Set it to this.
    Value(String),
    /// Select these, and leave the variable out.
    Select(Vec<u32>),
    /// Set `CUDA_DEVICE_ORDER` too.
    Order,
    /// There are several.
    Unclear,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) severity: Severity,
    pub(super) said: [String; 3],
    pub(super) cure: Cure,
}

/// What was selected and set.
pub(super) struct Asked<'a> {
    pub(super) selection: &'a Selection,
    pub(super) value: &'a str,
    pub(super) order: Option<&'a str>,
    pub(super) dialect: Dialect,
}

/// Compares a selection with the value of `CUDA_VISIBLE_DEVICES`. Where either names a UUID nothing is known.
pub(super) fn compare(asked: &Asked<'_>) -> Option<Answer> {
    let Meaning::List(entries) = Value::parse(asked.value).meaning else { return None };
    let numbers: Vec<u32> = entries.iter().map(Entry::index).collect::<Option<_>>()?;
    let selected = selected(asked.selection)?;
    let highest = numbers.iter().chain(&selected).copied().max()?;
    if highest >= MOST {
        return None;
    }
    // One more than anybody names: nothing is said of a host that ends there.
    let inventory = made_up(highest + 2)?;
    let what_if = WhatIf {
        gpus: vec![GpusFlag { selection: asked.selection.clone(), capabilities: Vec::new() }],
        env: vec![format!("{CUDA}={}", asked.value)],
        ..WhatIf::default()
    };
    let config = Config::built_in();
    let plan = plan(&inventory, &what_if.situation(&inventory, &config), &config);
    let has = |code: Code| plan.findings.iter().any(|finding| finding.code == code);
    if has(Code::OverrideMatchesNothing) || has(Code::OverrideExceedsGrant) {
        return Some(match asked.selection {
            Selection::Count(count) => count_as_index(asked, *count, &numbers),
            _ => outside(asked, &plan, has(Code::OverrideMatchesNothing)),
        });
    }
    if has(Code::AmbiguousIndex) {
        return Some(ambiguous(asked, &plan, &numbers));
    }
    if has(Code::HostIndexOverride) {
        return Some(host_numbers(asked, &inventory, &plan));
    }
    let is_all = plan.visible.len() == plan.grant.devices.len();
    let needs_order =
        asked.order.is_none() && asked.selection.is_broad() && !(is_all && *asked.selection != Selection::All);
    needs_order.then(|| order_matters(asked, &numbers))
}

/// The host numbers of a selection; none for one that names no particular GPU.
fn selected(selection: &Selection) -> Option<Vec<u32>> {
    match selection {
        Selection::Nothing | Selection::Minors(_) => None,
        Selection::All => Some(Vec::new()),
        Selection::Count(count) => Some(vec![count.checked_sub(1)?]),
        Selection::Names(names) => {
            let numbers: Option<Vec<u32>> = names.iter().map(|name| name.parse().ok()).collect();
            numbers.filter(|numbers| !numbers.is_empty())
        }
    }
}

fn made_up(count: u32) -> Option<Inventory> {
    let gpus: Vec<String> =
        (0..count).map(|n| format!(r#"{{"index":{n},"minor":{n},"uuid":"GPU-{n:08}","name":"GPU"}}"#)).collect();
    Inventory::from_json(format!(r#"{{"schemaVersion":1,"gpus":[{}]}}"#, gpus.join(",")).as_bytes()).ok()
}

fn hosts(devices: &[Device]) -> Vec<u32> {
    devices.iter().map(|device| u32::try_from(device.gpu).unwrap_or(u32::MAX)).collect()
}

fn inside(count: usize) -> String {
    list(&(0..count).map(|number| number.to_string()).collect::<Vec<_>>())
}

/// `one GPU, host GPU 0`
fn sees(devices: &[u32]) -> String {
    match devices {
        [] => "no GPU".to_owned(),
        [one] => format!("one GPU, {}", host_gpus(&[*one])),
        several => format!("{} GPUs, {}", several.len(), host_gpus(several)),
    }
}

fn host_numbers(asked: &Asked<'_>, inventory: &Inventory, plan: &Plan) -> Answer {
    let granted = hosts(&plan.grant.devices);
    let value = plan.emitted.visible_devices.clone().unwrap_or_default();
    let elsewhere = sees(&hosts(&plan.without.visible));
    let counts = match granted.len() {
        1 => "the container counts from 0".to_owned(),
        several => format!("the container counts {}", inside(several)),
    };
    let text = format!(
        "With {} granted {counts}. cudaview renumbers this to {value}; elsewhere the program sees {elsewhere}.",
        host_gpus(&granted)
    );
    let is_all = plan.visible == plan.grant.devices && inventory.gpus.len() > granted.len();
    let set = asked.dialect.set(CUDA, &value_inside(plan));
    let (fix, cure) = if is_all {
        (format!("leave it out, or {set}"), Cure::LeaveOut)
    } else {
        let chosen = hosts(&plan.visible);
        (format!("{set}, or {} and leave it out", asked.dialect.select(&chosen)), Cure::Value(value_inside(plan)))
    };
    let said = said("host numbers inside a container", text, fix);
    Answer { code: Code::HostIndexOverride, severity: Severity::Warning, said, cure }
}

/// What the program sees, counted among all that was granted.
fn value_inside(plan: &Plan) -> String {
    let position = |device: &Device| plan.grant.devices.iter().position(|granted| granted == device);
    let numbers: Vec<u32> = plan.visible.iter().filter_map(position).filter_map(|at| u32::try_from(at).ok()).collect();
    joined(&numbers)
}

fn outside(asked: &Asked<'_>, plan: &Plan, nothing: bool) -> Answer {
    let granted = hosts(&plan.grant.devices);
    let counts = format!("Granted: {}, counted {} inside.", host_gpus(&granted), inside(granted.len()));
    let set = asked.dialect.set(CUDA, &joined(&(0..u32::try_from(granted.len()).unwrap_or(1)).collect::<Vec<_>>()));
    let elsewhere = sees(&hosts(&plan.without.visible));
    if nothing {
        let text = format!("{counts} cudaview refuses it; elsewhere the program sees {elsewhere}.");
        let said = said("it names none of the granted GPUs", text, format!("leave it out, or {set}"));
        return Answer { code: Code::OverrideMatchesNothing, severity: Severity::Error, said, cure: Cure::LeaveOut };
    }
    let text = format!("{counts} CUDA ends its list at the first that is not there: elsewhere it shows {elsewhere}.");
    let said = said("it names more than was granted", text, format!("leave it out, or {set}"));
    Answer { code: Code::OverrideExceedsGrant, severity: Severity::Warning, said, cure: Cure::LeaveOut }
}

fn count_as_index(asked: &Asked<'_>, count: u32, numbers: &[u32]) -> Answer {
    let first = if count == 1 { "host GPU 0".to_owned() } else { format!("the first {count}") };
    let have = if count == 1 { "0 inside".to_owned() } else { format!("0 to {} inside", count - 1) };
    let named = list(&numbers.iter().map(ToString::to_string).collect::<Vec<_>>());
    let text =
        format!("A count of {count} grants {first}, counted {have}; {CUDA} asks for {named}, which is not among them.");
    let fix = format!("{} and no {CUDA}", asked.dialect.select(numbers));
    let said = said(format!("{count} is a count, not the number of a GPU"), text, fix);
    Answer { code: Code::GpusCountAsIndex, severity: Severity::Error, said, cure: Cure::Select(numbers.to_vec()) }
}

fn ambiguous(asked: &Asked<'_>, plan: &Plan, numbers: &[u32]) -> Answer {
    let taken = hosts(&plan.visible);
    let value = quoted(asked.value);
    let text = format!(
        "Counted inside, {value} is {}; counted on the host it is {}. CUDA counts inside, and so does cudaview.",
        host_gpus(&taken),
        host_gpus(numbers)
    );
    let fix = format!(
        "{} for {}, {} for {}, and no {CUDA}",
        asked.dialect.select(&taken),
        host_gpus(&taken),
        asked.dialect.select(numbers),
        host_gpus(numbers)
    );
    let said = said(format!("{value} has two meanings here"), text, fix);
    Answer { code: Code::AmbiguousIndex, severity: Severity::Warning, said, cure: Cure::Unclear }
}

fn order_matters(asked: &Asked<'_>, numbers: &[u32]) -> Answer {
    let named = list(&numbers.iter().map(ToString::to_string).collect::<Vec<_>>());
    let text = format!(
        "Without {ORDER} CUDA counts the fastest GPU first, nvidia-smi by PCI address. On a host with \
         different models {named} need not be what nvidia-smi calls so."
    );
    let fix = format!("{}, or {} and no {CUDA}", asked.dialect.set(ORDER, "PCI_BUS_ID"), asked.dialect.select(numbers));
    let said = said(format!("{ORDER} decides what {named} is, and is not set"), text, fix);
    Answer { code: Code::DeviceOrderUnset, severity: Severity::Info, said, cure: Cure::Order }
}

/// Two selections, of which one counts.
pub(super) fn selected_twice(assignment: &Assignment, other: &str) -> Fault {
    let value = quoted(assignment.value.as_deref().unwrap_or_default());
    let text = format!("{NVIDIA}={value} is outranked by {other}, and asks for something else.");
    let said = said("GPUs are selected twice, and not the same", text, format!("delete {NVIDIA}"));
    assignment.fault(Code::SelectedTwice, Severity::Warning, said)
}

/// What privileged makes of a selection.
pub(super) fn voids(selection: &Selection, fix: &str) -> [String; 3] {
    let chosen = match selection {
        Selection::Count(count) => format!("a count of {count}"),
        Selection::Names(names) => format!("device {}", names.join(",")),
        _ => "the selection".to_owned(),
    };
    let text = format!(
        "A privileged container can open every GPU of the host, whatever was selected; only the numbers follow {}.",
        quoted(&chosen).trim_matches('"')
    );
    said("privileged voids the selection", text, fix)
}

/// Whether a mount of this source may bring GPUs along.
pub(super) fn may_hold_gpus(source: &str) -> bool {
    source.contains("/dev") || source.contains("nvidia") || source.starts_with("/:") || source == "/"
}
