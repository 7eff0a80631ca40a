//! The services of a Compose file, a line each, and the words in which such a file asks.

use super::style::cut;
use super::{Style, Subject};
use crate::finding::{printable, quoted};
use crate::inventory::Device;
use crate::plan::{Plan, Verdict};

const HEADINGS: [&str; 5] = ["SERVICE", "GPUS", "WITHOUT", "CUDA_VISIBLE_DEVICES", "FINDING"];

/// The widest that a cell of somebody else's text may get.
const WIDEST: usize = 28;

/// A line for each of these services.
pub fn services_table(subjects: &[Subject<'_>], style: Style) -> String {
    let rows: Vec<[String; 5]> = subjects.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |cells: [&str; 5]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  "));
        padded.collect::<String>() + cells[4] + "\n"
    };
    let mut out = line(HEADINGS);
    out.extend(rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
    let legend = "GPUS, WITHOUT: host GPUs in the order of cuda:0, cuda:1, with cudaview and without.";
    out.extend(style.wrap(0, legend).into_iter().map(|line| line + "\n"));
    out
}

fn row(subject: &Subject<'_>) -> [String; 5] {
    let Subject { plan, situation, .. } = *subject;
    let hosts = |devices: &[Device]| match devices {
        [] => "none".to_owned(),
        devices => devices.iter().map(|device| subject.inventory.host_label(*device)).collect::<Vec<_>>().join(","),
    };
    let gpus = match plan.verdict {
        Verdict::Refused => "refused".to_owned(),
        _ if !plan.certain => "?".to_owned(),
        _ => hosts(&plan.visible),
    };
    let before = situation.original.visible_devices.as_deref().map_or_else(|| "unset".to_owned(), quoted);
    let value = match &plan.emitted.visible_devices {
        _ if plan.verdict == Verdict::Refused => before,
        after if *after == situation.original.visible_devices => before,
        Some(after) => format!("{before} -> {}", after.escape_debug()),
        None => format!("{before} -> unset"),
    };
    let without = if plan.without.certain { hosts(&plan.without.visible) } else { "?".to_owned() };
    let name = printable(subject.name.unwrap_or_default());
    [cut(&name, WIDEST), cut(&gpus, WIDEST), cut(&without, WIDEST), cut(&value, WIDEST), finding(plan)]
}

/// The finding that matters most, and how many more there are.
fn finding(plan: &Plan) -> String {
    let Some(worst) = plan.findings.iter().max_by_key(|finding| finding.severity) else {
        return "-".to_owned();
    };
    match plan.findings.len() {
        1 => worst.code.name().to_owned(),
        all => format!("{} (and {})", worst.code.name(), all - 1),
    }
}

/// A hint in the words of a Compose file, where it has the flags of docker run.
pub(super) fn in_compose(hint: &str) -> String {
    let hint = hint.replace("leave -e out", "leave it out of environment");
    let hint = hint.replace("leave -e CUDA_VISIBLE_DEVICES out", "leave CUDA_VISIBLE_DEVICES out of environment");
    let mut out: Vec<String> = Vec::new();
    let mut words = hint.split(' ').peekable();
    while let Some(word) = words.next() {
        let value = words.peek().copied().unwrap_or_default();
        // What belongs to the sentence and not to the value.
        let end = value.find([',', ';']).filter(|at| at + 1 == value.len()).unwrap_or(value.len());
        let (value, rest) = value.split_at(end);
        let replaced = match word {
            "--gpus" => gpus(value),
            "-e" if value.contains('=') => {
                value.split_once('=').map(|(name, value)| format!("{name}: {value:?} in environment"))
            }
            "-e" if value.starts_with(|c: char| c.is_ascii_uppercase()) => Some(format!("{value} in environment")),
            "--device" => Some(format!("devices: [{value}]")),
            _ => None,
        };
        match replaced {
            Some(text) => {
                out.push(text + rest);
                words.next();
            }
            None => out.push(word.to_owned()),
        }
    }
    out.join(" ").replace("--privileged", "privileged").replace("--gpus", "gpus")
}

fn gpus(value: &str) -> Option<String> {
    let plain = value.trim_matches(['\'', '"']);
    match plain.strip_prefix("device=") {
        Some(list) => {
            let names: Vec<String> = list.split(',').map(|name| format!("{name:?}")).collect();
            Some(format!("device_ids: [{}]", names.join(", ")))
        }
        None if plain == "all" => Some("gpus: all".to_owned()),
        None if !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_digit()) => Some(format!("count: {plain}")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_in_the_words_of_the_file() {
        for (flags, file) in [
            ("to keep to one GPU, type --gpus device=1", "to keep to one GPU, type device_ids: [\"1\"]"),
            (
                "for host GPUs 1 and 3, --gpus '\"device=1,3\"' and no X",
                "for host GPUs 1 and 3, device_ids: [\"1\", \"3\"] and no X",
            ),
            ("--gpus all; or not", "gpus: all; or not"),
            ("--gpus 2, or", "count: 2, or"),
            ("count from 0: -e CUDA_VISIBLE_DEVICES=0,1", "count from 0: CUDA_VISIBLE_DEVICES: \"0,1\" in environment"),
            ("leave -e CUDA_VISIBLE_DEVICES out, or", "leave CUDA_VISIBLE_DEVICES out of environment, or"),
            (
                "leave -e out: the image's 0 yields to --gpus, you",
                "leave it out of environment: the image's 0 yields to gpus, you",
            ),
            ("leave --privileged (or the wide", "leave privileged (or the wide"),
            ("--device nvidia.com/gpu=1", "devices: [nvidia.com/gpu=1]"),
            ("", ""),
            ("--gpus", "gpus"),
        ] {
            assert_eq!(in_compose(flags), file, "{flags}");
        }
    }
}
