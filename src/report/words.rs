//! Words for devices, selections and numbers: the same ones in every report.

use crate::finding::quoted;
use crate::inventory::{Device, Inventory, noun};
use crate::report::{Subject, Told};
use crate::request::{DeviceRequest, Selection, Source};
use crate::spelling;

/// `2 GPUs`, `1 MIG device`.
pub(super) fn count(devices: &[Device]) -> String {
    format!("{} {}", devices.len(), noun(devices, "GPU"))
}

/// `both`, `all 4`.
pub(super) fn all_of(count: usize) -> String {
    if count == 2 { "both".to_owned() } else { format!("all {count}") }
}

/// How one would type this selection: one spelling, since engines do not keep the typed one.
pub(super) fn typed(subject: &Subject<'_>, request: &DeviceRequest) -> String {
    if let (Source::Nodes, Selection::Minors(minors)) = (request.source, &request.selection) {
        let paths = minors.iter().map(|minor| format!("/dev/nvidia{minor}"));
        match subject.told {
            Told::Flags => return paths.map(|path| format!("--device {path}")).collect::<Vec<_>>().join(" "),
            Told::Bundle => return format!("{} in config.json", paths.collect::<Vec<_>>().join(" ")),
            // Of a CDI request engines leave the nodes alone.
            Told::Compose { .. } => return format!("devices {}", paths.collect::<Vec<_>>().join(" ")),
            Told::Engine => {}
        }
    }
    if let (Source::Nodes, Selection::Names(names), Told::Bundle) = (request.source, &request.selection, subject.told) {
        return format!("the capability nodes of {} in config.json", names.join(" "));
    }
    in_compose_file(subject, request).unwrap_or_else(|| as_flags(subject, request))
}

fn as_flags(subject: &Subject<'_>, request: &DeviceRequest) -> String {
    let inventory = subject.inventory;
    match request.source {
        Source::Gpus => format!("--gpus {}", gpus_value(&request.selection)),
        Source::Cdi | Source::Nodes => names(inventory, &request.selection)
            .iter()
            .map(|name| format!("--device nvidia.com/gpu={name}"))
            .collect::<Vec<_>>()
            .join(" "),
        Source::VolumeMounts => "the device plugin".to_owned(),
        Source::User => {
            format!("-e NVIDIA_VISIBLE_DEVICES={}", quoted(&names(inventory, &request.selection).join(",")))
        }
        Source::Image => {
            format!("image NVIDIA_VISIBLE_DEVICES={}", quoted(&names(inventory, &request.selection).join(",")))
        }
        Source::Policy => "the policy".to_owned(),
        Source::Record => "an earlier decision".to_owned(),
    }
}

/// How a Compose file has this selection.
fn in_compose_file(subject: &Subject<'_>, request: &DeviceRequest) -> Option<String> {
    let Told::Compose { nvidia, .. } = subject.told else { return None };
    let names = || names(subject.inventory, &request.selection);
    Some(match request.source {
        Source::Gpus => format!("GPU request: {}", reserved(&request.selection)),
        Source::Cdi => {
            let names: Vec<String> = names().iter().map(|name| format!("nvidia.com/gpu={name}")).collect();
            format!("devices {}", names.join(" "))
        }
        Source::User => format!("{} NVIDIA_VISIBLE_DEVICES={}", nvidia.name(), quoted(&names().join(","))),
        _ => return None,
    })
}

/// As [`typed`], for a shell: Docker must get the double quotes of a list.
pub(super) fn for_shell(subject: &Subject<'_>, request: &DeviceRequest) -> String {
    let text = as_flags(subject, request);
    match text.split_once(" \"") {
        Some((flag, value)) if request.source == Source::Gpus => format!("{flag} '\"{value}'"),
        _ => text,
    }
}

/// The flags for these GPUs, in the way in which this container asked for its own; by position.
pub(super) fn flags_for(subject: &Subject<'_>, gpus: &[usize]) -> String {
    let inventory = subject.inventory;
    let source = subject.plan.grant.requests.first().map(|request| request.source);
    if source == Some(Source::Nodes) && subject.told == Told::Flags {
        let nodes = gpus.iter().map(|gpu| format!("--device /dev/nvidia{}", inventory.gpus[*gpu].minor));
        return nodes.collect::<Vec<_>>().join(" ");
    }
    spelling::flags(source, &gpus.iter().map(|gpu| inventory.gpus[*gpu].index).collect::<Vec<_>>())
}

/// A device request as a Compose file has it.
fn reserved(selection: &Selection) -> String {
    match selection {
        Selection::All => "all".to_owned(),
        Selection::Nothing => "count 0".to_owned(),
        Selection::Count(count) => format!("count {count}"),
        Selection::Names(names) => format!("device_ids {}", super::style::cut(&names.join(","), 40).escape_debug()),
        Selection::Minors(_) => String::new(),
    }
}

/// The value of `--gpus`, as Docker must get it: a list in double quotes.
fn gpus_value(selection: &Selection) -> String {
    match selection {
        Selection::Nothing => "0".to_owned(),
        Selection::All => "all".to_owned(),
        Selection::Count(count) => count.to_string(),
        Selection::Names(names) => gpus_devices(names),
        Selection::Minors(minors) => gpus_devices(&minors.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// `device=1`, or `"device=1,3"`.
pub(super) fn gpus_devices(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| super::style::cut(&name.escape_debug().to_string(), 40)).collect();
    match names.as_slice() {
        [only] => format!("device={only}"),
        several => format!("\"device={}\"", several.join(",")),
    }
}

/// The names in a selection; somebody else's, so cut and escaped.
fn names(inventory: &Inventory, selection: &Selection) -> Vec<String> {
    match selection {
        Selection::Nothing => vec!["none".to_owned()],
        Selection::All => vec!["all".to_owned()],
        Selection::Count(count) => (0..*count).map(|n| n.to_string()).collect(),
        Selection::Names(names) => {
            names.iter().map(|name| super::style::cut(&name.escape_debug().to_string(), 40)).collect()
        }
        Selection::Minors(minors) => minors
            .iter()
            .map(|minor| match inventory.position_of_minor(*minor) {
                Some(gpu) => inventory.gpus[gpu].index.to_string(),
                None => format!("/dev/nvidia{minor}"),
            })
            .collect(),
    }
}
