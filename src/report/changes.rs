//! "What would change", and what there would be without cudaview.

use super::json::nodes;
use super::{Style, Subject};
use crate::finding::quoted;
use crate::inventory::{Device, Inventory, list, noun};
use crate::plan::Verdict;
use crate::record::Variables;

/// The column beside the longest name, `NVIDIA_VISIBLE_DEVICES`.
const COLUMN: usize = 26;

/// The section, heading included; nothing where no container is started.
pub(super) fn section(subject: &Subject<'_>, style: Style) -> String {
    let plan = subject.plan;
    if plan.verdict == Verdict::Refused {
        return String::new();
    }
    let situation = subject.situation;
    let is_done = subject.done && subject.container.is_none_or(|container| container.as_is().is_none());
    let (heading, before) = match (situation.decided_before, is_done) {
        (true, false) => ("What was changed at create", &situation.original),
        (_, true) => ("What changed", &situation.original),
        (false, false) => ("What would change", &situation.current),
    };
    let mut out = format!("{heading}\n");
    let lines = changed_variables(subject.inventory, before, &plan.emitted, plan.kept());
    for (name, text) in &lines {
        out.push_str(&style.beside(&format!("  {name}"), COLUMN, std::slice::from_ref(text)));
    }
    if plan.verdict == Verdict::NotApplicable {
        if lines.is_empty() {
            out.push_str("  nothing\n");
        }
        return out;
    }
    out + &style.beside("  GPU nodes", COLUMN, &[gpu_nodes(subject)])
}

/// The variables that change, and `CUDA_VISIBLE_DEVICES` where it is set and stays.
pub(super) fn changed_variables(
    inventory: &Inventory,
    before: &Variables,
    after: &Variables,
    kept: &[Device],
) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for ((name, before), after) in Variables::NAMES.iter().zip(before.values()).zip(after.values()) {
        if before == after {
            if *name == Variables::NAMES[0]
                && let Some(value) = before
            {
                out.push((*name, format!("{} stays", quoted(value))));
            }
            continue;
        }
        let is_list_of_uuids = *name == Variables::NAMES[2] && after.is_some_and(|value| value != "void");
        let new = match after {
            Some(_) if is_list_of_uuids && !kept.is_empty() => uuids_of(inventory, kept),
            Some(value) => quiet(value),
            None => "unset".to_owned(),
        };
        let old = before.map_or_else(|| "unset".to_owned(), quoted);
        out.push((*name, format!("{old} -> {new}")));
    }
    out
}

fn uuids_of(inventory: &Inventory, kept: &[Device]) -> String {
    let word = if kept.len() == 1 { "the UUID" } else { "the UUIDs" };
    format!("{word} of {}", inventory.host_names(kept))
}

/// The nodes that can be opened, and what differs from the grant.
fn gpu_nodes(subject: &Subject<'_>) -> String {
    let Subject { inventory, plan, .. } = *subject;
    let open = nodes(inventory, plan.openable());
    let granted = nodes(inventory, &plan.grant.devices);
    let short = |path: &str| path.trim_start_matches("/dev/").to_owned();
    let missing = |from: &[crate::node::DeviceNode], other: &[crate::node::DeviceNode]| -> Vec<String> {
        from.iter().filter(|node| !other.contains(node)).map(|node| short(&node.path)).collect()
    };
    let paths: Vec<&str> = open.iter().map(|node| node.path.as_str()).collect();
    let (withheld, more) = (missing(&granted, &open), missing(&open, &granted));
    let paths = paths.join(" ");
    match (withheld.is_empty(), more.is_empty()) {
        (true, true) => format!("{paths}, as granted"),
        (false, _) => format!("{paths} (withheld: {})", withheld.join(" ")),
        (true, false) => format!("{paths} (more than granted: {})", more.join(" ")),
    }
}

/// What plain CUDA would show.
pub(super) fn without(subject: &Subject<'_>, style: Style) -> String {
    let Subject { inventory, plan, .. } = *subject;
    let seen = &plan.without.visible;
    let mut text = match seen.as_slice() {
        [] if plan.is_without_selection(inventory) => "the same".to_owned(),
        [] => "no GPU: CUDA finds no device".to_owned(),
        devices if *devices == plan.visible && plan.without.certain => match devices {
            [only] => format!("the same {}", noun(std::slice::from_ref(only), "GPU")),
            several => format!("the same {}", super::words::count(several)),
        },
        devices => mapping(inventory, devices),
    };
    if !seen.is_empty() && seen.len() < plan.visible.len() {
        let (first, last) = (seen.len(), plan.visible.len() - 1);
        text = match last - first {
            0 => format!("{text}, and there is no cuda:{first}"),
            _ => format!("{text}, and there are no cuda:{first} to cuda:{last}"),
        };
    }
    if !plan.without.certain {
        text = format!("probably {text}");
    }
    let is_known = subject.image.source.as_ref().is_none_or(|source| source.found.is_ok());
    if !is_known && subject.situation.original.visible_devices.is_none() {
        text = format!("{text}, unless the image sets CUDA_VISIBLE_DEVICES");
    }
    let mut out = "Without cudaview\n".to_owned();
    for line in style.wrap(2, &text) {
        out.push_str(&format!("  {line}\n"));
    }
    out
}

/// `2 GPUs: cuda:0 is host GPU 1, cuda:1 is host GPU 3`, or by ranges where there are many.
pub(super) fn mapping(inventory: &Inventory, devices: &[Device]) -> String {
    let count = super::words::count(devices);
    let label = |device: &Device| inventory.host_label(*device);
    match devices {
        [] => "0 GPUs".to_owned(),
        [_] | [_, _] => {
            let pairs = devices.iter().enumerate().map(|(ordinal, device)| {
                let word = noun(std::slice::from_ref(device), "host GPU");
                format!("cuda:{ordinal} is {word} {}", label(device))
            });
            format!("{count}: {}", pairs.collect::<Vec<_>>().join(", "))
        }
        several => {
            let labels: Vec<String> = several.iter().map(label).collect();
            let word = noun(several, "host GPU");
            format!("{count}: cuda:0 to cuda:{} are {word} {}", several.len() - 1, list(&labels))
        }
    }
}

/// A value of ours: it is not quoted, and holds only what we wrote.
fn quiet(value: &str) -> String {
    value.escape_debug().to_string()
}
