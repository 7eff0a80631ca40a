//! "Who said what": each setting with its origin, and what came of it.

use super::words::{all_of, typed};
use super::{Style, Subject, Told, refusal};
use crate::cuda::{EntryKind, Meaning, Value};
use crate::finding::{Code, quoted, quoted_list};
use crate::inventory::{Device, list};
use crate::plan::Verdict;
use crate::provenance::{Engine, Provenance};
use crate::reconcile::{Basis, Reading, View};
use crate::record::Variables;
use crate::request::{DeviceRequest, Selection, Source};
use crate::spelling;

/// A label and the paragraphs beside it.
type Row = (String, Vec<String>);

const VISIBLE: &str = Variables::NAMES[0];
const ORDER: &str = Variables::NAMES[1];
const NVIDIA: &str = Variables::NAMES[2];

/// The widest label that text still fits beside at 80 columns.
const LABEL_LIMIT: usize = 46;

/// The section, heading included.
pub(super) fn section(subject: &Subject<'_>, style: Style) -> String {
    let mut rows = Vec::new();
    let asked_for_none = subject.situation.requests.iter().filter(|request| request.selection.is_nothing());
    rows.extend(asked_for_none.map(|request| (typed(subject, request), vec!["asks for no GPU".to_owned()])));
    rows.extend(subject.plan.grant.requests.iter().map(|request| granted(subject, request)));
    rows.extend(limited(subject));
    rows.extend(privileged(subject));
    rows.extend(asked_by_variable(subject));
    rows.extend(replaced(subject));
    rows.push(value(subject));
    rows.extend(order(subject));
    let widths = rows.iter().map(|(label, _)| label.chars().count()).filter(|width| *width <= LABEL_LIMIT);
    let column = 4 + widths.max().unwrap_or(LABEL_LIMIT);
    let mut out = "Who said what\n".to_owned();
    for (label, text) in rows {
        out.push_str(&style.beside(&format!("  {label}"), column, &text));
    }
    out
}

fn granted(subject: &Subject<'_>, request: &DeviceRequest) -> Row {
    let inventory = subject.inventory;
    let label = match request.source {
        Source::Policy => "config.toml [grant] base".to_owned(),
        _ if subject.situation.decided_before => decided_at_create(subject),
        _ => typed(subject, request),
    };
    if !inventory.platform.is_usual() {
        return (label, vec!["means every GPU here: /dev/dxg is all of them".to_owned()]);
    }
    let resolved = request.selection.resolve(inventory);
    let mut text = match resolved.devices.as_slice() {
        [] => "grants nothing: the GPU is in MIG mode and has no MIG device".to_owned(),
        devices if is_limited(subject) => format!("asks for {}", inventory.host_names(devices)),
        devices => format!("grants {}", inventory.host_names(devices)),
    };
    if matches!(request.selection, Selection::Count(_)) && !resolved.devices.is_empty() {
        text = format!("is a count: it {text}");
    }
    let no_match = subject.plan.reconciliation.as_ref().is_some_and(|decided| decided.refused);
    let only = subject.plan.grant.requests.len() == 1 && resolved.devices.iter().all(|device| device.mig.is_none());
    if no_match && only {
        text = format!("{text}, {}", refusal::numbers_of(&resolved.devices));
    }
    // A GPU in MIG mode that has no MIG device is there, and grants nothing.
    let is_there = |name: &String| {
        let by_index = name.parse().ok().and_then(|index| inventory.position_of_index(index));
        by_index.is_some() || inventory.by_uuid(name).is_some()
    };
    if !resolved.unknown.iter().all(is_there) {
        text = match request.selection {
            Selection::Count(count) => format!("asks for {count} GPUs; this host has {}", inventory.gpus.len()),
            _ => format!("asks for {}, which this host does not have", quoted_list(&resolved.unknown)),
        };
    }
    (label, vec![text])
}

/// What was typed for an earlier door, where its record says in which way: podman's CDI names, as one would type them.
fn decided_at_create(subject: &Subject<'_>) -> String {
    let is_podman = subject.container.is_some_and(|container| container.engine == Engine::Podman);
    match subject.situation.asked {
        Some(Source::Cdi | Source::Nodes) if is_podman => {
            let devices = subject.plan.grant.devices.iter();
            let labels: Vec<String> = devices.map(|device| subject.inventory.host_label(*device)).collect();
            spelling::flags(Some(Source::Cdi), &labels)
        }
        _ => "decided at create".to_owned(),
    }
}

/// What became of an image's value that was typed anew.
fn replaced_by_flag(subject: &Subject<'_>) -> &'static str {
    let asked = subject.situation.way(&subject.plan.grant.requests);
    match subject.container.map(|container| container.engine) {
        None if matches!(subject.told, Told::Compose { .. }) => "replaced by what the file gives it",
        Some(Engine::Podman) => "replaced by -e, as always in podman",
        None if matches!(asked, Some(Source::Cdi | Source::Nodes)) => "replaced by -e, as always",
        Some(Engine::Containerd) => "replaced by -e",
        _ => "replaced by -e, as always in Docker",
    }
}

/// Whether `[limit]` took something away.
fn is_limited(subject: &Subject<'_>) -> bool {
    subject.plan.grant.findings.iter().any(|finding| finding.code == Code::Withheld)
}

fn limited(subject: &Subject<'_>) -> Option<Row> {
    let grant = &subject.plan.grant;
    let asked = grant.requests.iter().flat_map(|request| request.selection.resolve(subject.inventory).devices);
    let mut gone: Vec<Device> = asked.filter(|device| !grant.devices.contains(device)).collect();
    gone.sort_unstable();
    gone.dedup();
    let text = format!("withholds {}", subject.inventory.host_names(&gone));
    is_limited(subject).then(|| ("config.toml [limit]".to_owned(), vec![text]))
}

fn privileged(subject: &Subject<'_>) -> Option<Row> {
    let open = &subject.situation.openable_anyway;
    let text = if open.is_empty() {
        return None;
    } else if subject.plan.grant.devices.is_empty() {
        format!("lets it open {}, and grants none", subject.inventory.host_names(open))
    } else {
        format!("lets it open {}, whatever is granted", subject.inventory.host_names(open))
    };
    let label = match subject.told {
        Told::Flags => "--privileged",
        Told::Compose { .. } => "privileged: true",
        Told::Bundle | Told::Engine => "device rules",
    };
    Some((label.to_owned(), vec![text]))
}

/// `NVIDIA_VISIBLE_DEVICES` of image or user, where it is not what counted.
fn asked_by_variable(subject: &Subject<'_>) -> Option<Row> {
    let grant = &subject.plan.grant;
    // What stands there now is our own writing.
    if subject.situation.decided_before {
        return None;
    }
    let winner = grant.requests.first();
    if winner.is_some_and(|request| matches!(request.source, Source::User | Source::Image)) {
        let image = subject.image.nvidia_visible_devices.as_deref();
        let replaced = image.filter(|_| winner.is_some_and(|request| request.source == Source::User))?;
        let label = format!("image NVIDIA_VISIBLE_DEVICES={}", quoted(replaced));
        return Some((label, vec![replaced_by_flag(subject).to_owned()]));
    }
    let asks_for_none = |value: &str| matches!(value, "" | "none" | "void");
    let value = subject.situation.visible_devices_request.as_deref()?;
    if winner.is_some() && asks_for_none(value) {
        return None;
    }
    let label = format!(
        "{} NVIDIA_VISIBLE_DEVICES={}",
        origin(subject, subject.situation.visible_devices_from, NVIDIA),
        quoted(value)
    );
    let by_gpus = || if matches!(subject.told, Told::Compose { .. }) { "the GPU request" } else { "--gpus" };
    let text = match winner.map(|request| request.source) {
        Some(Source::Gpus) => format!("outranked by {}", by_gpus()),
        Some(Source::Cdi | Source::Nodes) => "outranked by --device".to_owned(),
        Some(Source::Policy) => "asks for GPUs; the policy decides".to_owned(),
        Some(_) => "outranked by what was granted".to_owned(),
        None if subject.situation.requests.iter().any(|request| request.source == Source::Gpus) => {
            format!("outranked by {}", by_gpus())
        }
        None if asks_for_none(value) => "asks for no GPU".to_owned(),
        None => match subject.situation.visible_devices_from {
            Provenance::Image => "asks for GPUs; an image grants nothing".to_owned(),
            _ => format!("asks for GPUs, and grants nothing: origin unknown: {}", subject.origin_unknown),
        },
    };
    Some((label, vec![text]))
}

/// The image's `CUDA_VISIBLE_DEVICES`, where something typed stands in its place.
fn replaced(subject: &Subject<'_>) -> Option<Row> {
    let image = subject.image.visible_devices.as_deref()?;
    let text = match (subject.situation.provenance, &subject.situation.original.visible_devices) {
        (Provenance::User, _) => replaced_by_flag(subject),
        (_, None) if matches!(subject.told, Told::Compose { .. }) => "removed by environment: nobody gave it a value",
        (_, None) => "removed by -e CUDA_VISIBLE_DEVICES",
        _ => return None,
    };
    Some((format!("image CUDA_VISIBLE_DEVICES={}", quoted(image)), vec![text.to_owned()]))
}

/// Where a value came from, as one would type it.
fn origin(subject: &Subject<'_>, provenance: Provenance, name: &str) -> &'static str {
    if let (Provenance::User, Told::Compose { visible_devices, nvidia, device_order }) = (provenance, subject.told) {
        return match name {
            NVIDIA => nvidia.name(),
            ORDER => device_order.name(),
            _ => visible_devices.name(),
        };
    }
    match provenance {
        Provenance::User => "-e",
        Provenance::Exec => "exec -e",
        Provenance::Image => "image",
        Provenance::Unknown => "-e or image",
        Provenance::Unset => "nobody's",
    }
}

fn value(subject: &Subject<'_>) -> Row {
    let situation = subject.situation;
    let Some(text) = situation.original.visible_devices.as_deref() else {
        let is_known = subject.image.source.as_ref().is_none_or(|source| source.found.is_ok());
        let shown = match subject.plan.grant.devices.as_slice() {
            [] if subject.plan.is_without_selection(subject.inventory) => "and stays so",
            [] => "and no GPU is granted",
            _ if is_known => "so all granted GPUs",
            _ => "so all granted GPUs, unless the image sets it",
        };
        return ("CUDA_VISIBLE_DEVICES is not set".to_owned(), vec![shown.to_owned()]);
    };
    let label = format!("{} CUDA_VISIBLE_DEVICES={}", origin(subject, situation.provenance, VISIBLE), quoted(text));
    let mut paragraphs = if situation.provenance == Provenance::Unknown {
        vec![format!("origin unknown: {}", subject.origin_unknown)]
    } else {
        Vec::new()
    };
    paragraphs.extend(meaning(subject, text));
    (label, paragraphs)
}

fn meaning(subject: &Subject<'_>, text: &str) -> Vec<String> {
    let say = |text: &str| vec![text.to_owned()];
    let Some(decided) = &subject.plan.reconciliation else {
        return if subject.plan.verdict == Verdict::Refused {
            say("not looked at")
        } else if subject.plan.is_without_selection(subject.inventory) {
            say("left as it is: it is CUDA's to read")
        } else {
            say("left as it is: no GPU is granted")
        };
    };
    let has_mig = subject.plan.grant.devices.iter().any(|device| device.mig.is_some());
    match &decided.basis {
        Basis::Unset => Vec::new(),
        Basis::ImageYields => say("yields: what was typed outranks what the image has built in"),
        Basis::Hides => say("hides every GPU: left as it is"),
        Basis::All => say("is no CUDA value: CUDA would show no GPU; read as all granted GPUs"),
        Basis::Uncertain => say("left as it is: nobody can say which GPU a number means"),
        Basis::NoMatch if decided.refused && has_mig => say("names none of them: MIG devices are named by their UUIDs"),
        Basis::NoMatch if decided.refused => say(refusal::what_it_is_not(subject, text)),
        Basis::NoMatch if decided.view == View::Hidden => say("names none of the granted GPUs: none is shown"),
        Basis::NoMatch => say("names none of the granted GPUs: all of them are shown"),
        Basis::List { reading, lost, other } => {
            let View::Devices(devices) = &decided.view else { return Vec::new() };
            let mut out = read_as(subject, text, *reading, devices, other);
            if !lost.is_empty() {
                out.push(format!("(left out: {})", quoted_list(lost)));
            }
            out
        }
    }
}

fn read_as(subject: &Subject<'_>, text: &str, reading: Reading, devices: &[Device], other: &[Device]) -> Vec<String> {
    let Meaning::List(entries) = Value::parse(text).meaning else { return Vec::new() };
    let has_index = entries.iter().any(|entry| matches!(entry.kind, EntryKind::Index { .. }));
    let hosts = subject.inventory.host_names(devices);
    if !has_index {
        return vec![format!("names {hosts}")];
    }
    let granted = &subject.plan.grant.devices;
    match reading {
        Reading::Host => {
            let missing: Vec<String> = entries
                .iter()
                .filter_map(crate::cuda::Entry::index)
                .filter(|index| usize::try_from(*index).map_or(true, |index| index >= granted.len()))
                .map(|index| index.to_string())
                .collect();
            let read = match devices {
                [_] => "read as a host number: it is granted".to_owned(),
                several => format!("read as host numbers: {} are granted", all_of(several.len())),
            };
            let inside = match (missing.as_slice(), devices.len()) {
                ([], _) => "(as numbers inside they name fewer)".to_owned(),
                ([only], 1) => format!("(as a number inside, {only} does not exist)"),
                ([only], _) => format!("(as numbers inside, {only} does not exist)"),
                (several, _) => format!("(as numbers inside, {} do not exist)", list(several)),
            };
            vec![read, inside]
        }
        Reading::Container => {
            let read = match devices {
                [_] => format!("read as the number inside: {hosts}"),
                _ => format!("read as numbers inside: {hosts}"),
            };
            let is_tie = !other.is_empty() && other.len() == devices.len() && other != devices;
            let as_host = match other {
                [_] => format!("(as a host number: {})", subject.inventory.host_names(other)),
                _ => format!("(as host numbers: {})", subject.inventory.host_names(other)),
            };
            if is_tie { vec![read, as_host] } else { vec![read] }
        }
    }
}

fn order(subject: &Subject<'_>) -> Option<Row> {
    let value = subject.situation.original.device_order.as_deref()?;
    let from_image = subject.image.device_order.as_deref() == Some(value);
    let whose = if from_image { Provenance::Image } else { Provenance::User };
    let origin = origin(subject, whose, ORDER);
    Some((format!("{origin} CUDA_DEVICE_ORDER={}", quoted(value)), vec!["kept as it is".to_owned()]))
}
