//! The text of a refusal, which goes through the engine to whoever typed `docker run` or `docker exec`.
//!
//! At most six lines; the first is complete on its own, since logs may keep only that; the last is no command,
//! since Docker 20.10 puts `: unknown` behind it.

use super::words::{flags_for, for_shell, typed};
use super::{ImageEnv, Subject, Told};
use crate::cuda::{EntryKind, Meaning, Value};
use crate::finding::{Code, quoted};
use crate::inventory::{Device, Inventory, list};
use crate::plan::{ExecPlan, Plan};
use crate::record::{Record, devices};
use crate::request::{Selection, Source};
use crate::situation::Situation;
use crate::spelling;

/// The most lines that a refusal may have.
const MOST_LINES: usize = 6;

/// Words for which Docker changes its exit code or adds advice that does not help here.
// Docker: daemon/errors.go setExitCodeFromError, and the command's toStatusError.
const UNWANTED: [(&str, &str); 5] = [
    ("executable file not found", "program not found"),
    ("no such file or directory", "it does not exist"),
    ("permission denied", "access refused"),
    ("is a directory", "is a folder"),
    ("not a directory", "no folder"),
];

/// Why a container is refused.
pub fn refusal(plan: &Plan, situation: &Situation, inventory: &Inventory) -> String {
    let image = ImageEnv::default();
    let subject = Subject {
        inventory,
        situation,
        plan,
        exec: None,
        image: &image,
        name: None,
        container: None,
        done: false,
        told: Told::Engine,
        observe: false,
        origin_unknown: "",
    };
    let no_match = plan.reconciliation.as_ref().is_some_and(|decided| decided.refused);
    if no_match { no_match_text(&subject) } else { before_reconciliation(&subject) }
}

/// Why a process is not added.
pub fn exec_refusal(plan: &ExecPlan, record: &Record, inventory: &Inventory) -> String {
    let value = plan.current.visible_devices.as_deref().unwrap_or_default();
    let kept = devices(inventory, record.kept());
    let first =
        format!("cudaview: refused, CUDA_VISIBLE_DEVICES={} names none of this container's GPUs", quoted(value));
    let (fact, hints) = exec_advice(value, inventory, &kept, record.asked, |_| true);
    let mut lines = vec![first, format!("  {fact}")];
    lines.extend(hints.iter().map(|hint| format!("  hint: {hint}")));
    finish(lines, Code::OverrideMatchesNothing)
}

/// What there is inside, and what to type instead; `has` says whether the host has a GPU of this number.
pub(super) fn exec_advice(
    value: &str,
    inventory: &Inventory,
    kept: &[Device],
    source: Option<Source>,
    has: impl Fn(u32) -> bool,
) -> (String, Vec<String>) {
    if kept.iter().any(|device| device.mig.is_some()) {
        let named = |device: &Device| format!("-e CUDA_VISIBLE_DEVICES={}", inventory.uuid(*device));
        return (
            "MIG devices are named by their UUIDs".to_owned(),
            spelling::meant_first(inventory, value, kept).iter().take(3).map(named).collect(),
        );
    }
    let numbered: Vec<(String, String)> = kept
        .iter()
        .enumerate()
        .map(|(position, device)| (position.to_string(), inventory.host_label(*device)))
        .collect();
    let flags: Vec<String> =
        numbered.iter().take(2).map(|(inside, _)| format!("-e CUDA_VISIBLE_DEVICES={inside}")).collect();
    let mut hints = vec![flags.join(" or ")];
    let wanted = indices(value).unwrap_or_default();
    if !wanted.is_empty() && wanted.iter().all(|index| has(*index)) {
        let flags = spelling::flags(source, &wanted);
        hints.push(format!("for {}, start a container with {flags}", spelling::host_gpus(&wanted)));
    }
    (format!("inside, {}", numbers_inside(&numbered)), hints)
}

/// `number 0 is host GPU 1 and number 1 is host GPU 3`, or by lists where there are more.
fn numbers_inside(numbered: &[(String, String)]) -> String {
    if numbered.len() <= 2 {
        let each = numbered.iter().map(|(inside, host)| format!("number {inside} is host GPU {host}"));
        return each.collect::<Vec<_>>().join(" and ");
    }
    let (inside, hosts): (Vec<String>, Vec<String>) = numbered.iter().cloned().unzip();
    format!("numbers {} are host GPUs {}", list(&inside), list(&hosts))
}

fn no_match_text(subject: &Subject<'_>) -> String {
    let Subject { situation, plan, inventory, .. } = *subject;
    let value = situation.original.visible_devices.as_deref().unwrap_or_default();
    let first = format!("cudaview: refused, CUDA_VISIBLE_DEVICES={} names none of the granted GPUs", quoted(value));
    let mut lines = vec![first, format!("  {}", granted_line(subject))];
    if plan.grant.devices.iter().any(|device| device.mig.is_some()) {
        lines.push("  a number is not certain among MIG devices; they are named by their UUIDs".to_owned());
        let named = |device: &Device| format!("  hint: -e CUDA_VISIBLE_DEVICES={}", inventory.uuid(*device));
        lines.extend(spelling::meant_first(inventory, value, &plan.grant.devices).iter().take(2).map(named));
    } else {
        lines.push(format!("  -e CUDA_VISIBLE_DEVICES={} {}", quoted(value), what_it_is_not(subject, value)));
        lines.extend(hints(subject).into_iter().map(|hint| format!("  hint: {hint}")));
    }
    finish(lines, Code::OverrideMatchesNothing)
}

/// `--gpus 1 is a count: it grants host GPU 0, which is number 0 inside`
fn granted_line(subject: &Subject<'_>) -> String {
    let Subject { plan, inventory, .. } = *subject;
    let requests = &plan.grant.requests;
    let flags: Vec<String> = requests.iter().map(|request| typed(subject, request)).collect();
    let is_count = matches!(requests.as_slice(), [one] if matches!(one.selection, Selection::Count(_)));
    let verb = match (is_count, requests.len()) {
        (true, _) => "is a count: it grants",
        (false, 1) => "grants",
        (false, _) => "grant",
    };
    let granted = &plan.grant.devices;
    let hosts = inventory.host_names(granted);
    let inside = numbers_of(granted);
    let has_mig = granted.iter().any(|device| device.mig.is_some());
    let flags = list(&flags);
    if has_mig { format!("{flags} {verb} {hosts}") } else { format!("{flags} {verb} {hosts}, {inside}") }
}

/// `which is number 0 inside`, of all that is granted.
pub(super) fn numbers_of(granted: &[Device]) -> String {
    let inside: Vec<String> = (0..granted.len()).map(|n| n.to_string()).collect();
    match inside.as_slice() {
        [only] => format!("which is number {only} inside"),
        several => format!("which are numbers {} inside", list(several)),
    }
}

/// Why a value names nothing, in the words of the line before it.
pub(super) fn what_it_is_not(subject: &Subject<'_>, value: &str) -> &'static str {
    let Meaning::List(entries) = Value::parse(value).meaning else { return "is no number of a GPU" };
    let one = subject.plan.grant.devices.len() == 1;
    match entries.first().map(|entry| &entry.kind) {
        Some(EntryKind::Index { .. }) if entries.len() > 1 => "begins with neither such a number nor such a host GPU",
        Some(EntryKind::Index { .. }) if one => "is neither that number nor that host GPU",
        Some(EntryKind::Index { .. }) => "is none of these numbers, inside or on the host",
        Some(EntryKind::Gpu | EntryKind::Mig) if one => "is not the UUID of that GPU",
        Some(EntryKind::Gpu | EntryKind::Mig) => "does not name exactly one of these GPUs",
        _ => "is neither a number nor a UUID",
    }
}

/// What to type instead, at most two of them.
pub(super) fn hints(subject: &Subject<'_>) -> Vec<String> {
    let Subject { situation, plan, inventory, .. } = *subject;
    let granted = &plan.grant.devices;
    let value = situation.original.visible_devices.as_deref().unwrap_or_default();
    if granted.iter().any(|device| device.mig.is_some()) {
        let named = |device: &Device| format!("-e CUDA_VISIBLE_DEVICES={}", inventory.uuid(*device));
        return spelling::meant_first(inventory, value, granted).iter().take(2).map(named).collect();
    }
    let source = plan.grant.requests.first().map(|request| request.source);
    let mut out = Vec::new();
    if let Some(wanted) = meant(inventory, value) {
        let hosts = spelling::host_gpus(&wanted.iter().map(|gpu| inventory.gpus[*gpu].index.0).collect::<Vec<_>>());
        out.push(format!("for {hosts}, {} and no CUDA_VISIBLE_DEVICES", flags_for(subject, &wanted)));
    }
    let hosts = inventory.host_names(granted);
    out.push(match (source, plan.grant.requests.as_slice()) {
        (Some(Source::Gpus), [only]) => {
            format!("for {hosts}, {} and no CUDA_VISIBLE_DEVICES", for_shell(subject, only))
        }
        _ => format!("for {hosts}, leave CUDA_VISIBLE_DEVICES out"),
    });
    out
}

/// The GPUs of this host that a value names: several by their host numbers, one by its UUID too. In the host's order.
fn meant(inventory: &Inventory, value: &str) -> Option<Vec<usize>> {
    let Meaning::List(entries) = Value::parse(value).meaning else { return None };
    if let [entry] = entries.as_slice()
        && entry.index().is_none()
    {
        return crate::cuda::named(inventory, &inventory.all_devices(), entry).map(|device| vec![device.gpu]);
    }
    indices(value)?.into_iter().map(|index| inventory.position_of_index(index)).collect()
}

/// The numbers in a list of nothing else, in order, each once.
fn indices(value: &str) -> Option<Vec<u32>> {
    let Meaning::List(entries) = Value::parse(value).meaning else { return None };
    let mut out: Vec<u32> = entries.iter().map(crate::cuda::Entry::index).collect::<Option<_>>()?;
    out.sort_unstable();
    out.dedup();
    Some(out)
}

/// A selection that this host does not have, an image's request, or a record that cannot be read.
fn before_reconciliation(subject: &Subject<'_>) -> String {
    let Some(finding) = subject.plan.findings.iter().rev().find(|f| f.severity == crate::finding::Severity::Error)
    else {
        return finish(vec!["cudaview: refused".to_owned()], Code::UnknownDevice);
    };
    let mut lines = vec![format!("cudaview: refused, {}", finding.message)];
    if finding.code == Code::UnknownDevice {
        let flags: Vec<String> = subject.plan.grant.requests.iter().map(|request| typed(subject, request)).collect();
        lines.push(format!("  asked for by {}", list(&flags)));
    }
    if !finding.hint.is_empty() {
        lines.push(format!("  hint: {}", finding.hint));
    }
    finish(lines, finding.code)
}

fn finish(mut lines: Vec<String>, code: Code) -> String {
    lines.truncate(MOST_LINES - 1);
    lines.push(format!("  (more: cudaview explain {})", code.name()));
    // Nothing that somebody else wrote may add a line.
    let text = lines.iter().map(|line| line.replace(['\n', '\r'], " ")).collect::<Vec<_>>().join("\n");
    UNWANTED.iter().fold(text, |text, (words, instead)| replace_any_case(&text, words, instead))
}

fn replace_any_case(text: &str, words: &str, instead: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    // ASCII lower case keeps every byte in its place.
    while let Some(position) = rest.to_ascii_lowercase().find(words) {
        out.push_str(&rest[..position]);
        out.push_str(instead);
        rest = &rest[position + words.len()..];
    }
    out + rest
}

#[cfg(test)]
mod tests;
