//! Findings, and what to type instead.

use super::services::in_compose;
use super::style::Tone;
use super::words::{all_of, flags_for};
use super::{Made, Style, Subject, Told, refusal};
use crate::finding::{Code, Finding, Severity, quoted};
use crate::plan::Verdict;
use crate::provenance::Engine;
use crate::reconcile::Reconciliation;

/// The findings, those that matter most first.
pub(super) fn section(subject: &Subject<'_>, style: Style) -> String {
    let mut findings: Vec<&Finding> = subject.plan.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings.into_iter().map(|finding| one(subject, finding, style)).collect()
}

fn one(subject: &Subject<'_>, finding: &Finding, style: Style) -> String {
    let mut out = heading(finding, style);
    let said_above = matches!(finding.code, Code::HostIndexOverride | Code::ImageDefaultYields)
        || (finding.code == Code::OverrideMatchesNothing && finding.severity == Severity::Error);
    if !said_above {
        for line in style.wrap(2, &finding.message) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    for hint in hints(subject, finding) {
        let hint = if matches!(subject.told, Told::Compose { .. }) { in_compose(&hint) } else { hint };
        out.push_str(&style.tagged(2, "hint", &hint));
    }
    let keeps_what_was_typed =
        subject.container.is_none_or(|container| container.engine == Engine::Docker && container.as_is().is_none());
    if finding.code == Code::HostIndexOverride
        && subject.done
        && keeps_what_was_typed
        && let Some(value) = &subject.situation.original.visible_devices
    {
        let text = format!("docker inspect goes on showing {}: Docker keeps what was typed", quoted(value));
        out.push_str(&style.tagged(2, "note", &text));
    }
    out
}

/// A finding with its own message and hint.
pub(super) fn plain(finding: &Finding, indent: usize, style: Style) -> String {
    let mut out = format!("{:indent$}{}", "", heading(finding, style));
    for line in style.wrap(indent + 2, &finding.message) {
        out.push_str(&format!("{:indent$}  {line}\n", ""));
    }
    if !finding.hint.is_empty() {
        out.push_str(&style.tagged(indent + 2, "hint", &finding.hint));
    }
    out
}

pub(super) fn heading(finding: &Finding, style: Style) -> String {
    let tag = match finding.severity {
        Severity::Error => style.paint(Tone::Red, "error"),
        Severity::Warning => style.paint(Tone::Yellow, "warning"),
        Severity::Info => "info".to_owned(),
    };
    format!("{tag}: {}\n", finding.code.name())
}

fn hints(subject: &Subject<'_>, finding: &Finding) -> Vec<String> {
    let decided = subject.plan.reconciliation.as_ref();
    let typed = subject.situation.provenance == crate::provenance::Provenance::User;
    match (finding.code, decided) {
        (Code::HostIndexOverride, Some(decided)) if typed => host_index(subject, decided),
        (Code::ImageDefaultYields, _) => image_default(subject),
        (Code::NothingGranted, _) => nothing_granted(subject, finding),
        (Code::OverrideMatchesNothing, _) if subject.plan.verdict == Verdict::Refused => refusal::hints(subject),
        _ if finding.hint.is_empty() => Vec::new(),
        _ => vec![finding.hint.clone()],
    }
}

/// A container that another runtime made needs cudaview's as well, or the numbers inside are others.
fn nothing_granted(subject: &Subject<'_>, finding: &Finding) -> Vec<String> {
    let is_dockers = subject.container.is_some_and(|container| container.engine == Engine::Docker);
    let without = subject.container.is_some_and(|container| matches!(container.made, Made::Without(_)));
    if is_dockers && without {
        return vec![finding.hint.replacen("--gpus", "--runtime cudaview --gpus", 1)];
    }
    vec![finding.hint.clone()]
}

fn host_index(subject: &Subject<'_>, decided: &Reconciliation) -> Vec<String> {
    let granted = &subject.plan.grant.devices;
    let inside: Vec<String> = subject
        .plan
        .visible
        .iter()
        .filter_map(|device| granted.iter().position(|candidate| candidate == device))
        .map(|position| position.to_string())
        .collect();
    let inside = inside.join(",");
    let same_without = *granted == subject.plan.visible && decided.openable == *granted;
    match subject.image.visible_devices.as_deref() {
        // Whoever has an image with a value of its own must know that leaving -e out does not bring it back.
        Some(image) if same_without && subject.plan.grant.explicit => {
            let still = match granted.len() {
                1 => "it".to_owned(),
                several => all_of(several),
            };
            vec![
                format!(
                    "leave -e out: the image's {} yields to {}, you still get {still}",
                    image.escape_debug(),
                    flag(subject)
                ),
                format!("for hosts without cudaview too: -e CUDA_VISIBLE_DEVICES={inside}"),
            ]
        }
        _ if same_without => vec![format!("leave -e CUDA_VISIBLE_DEVICES out, or count from 0: {inside}")],
        _ => vec![format!("count from 0: -e CUDA_VISIBLE_DEVICES={inside}")],
    }
}

/// The flag that granted the GPUs, without its value.
fn flag(subject: &Subject<'_>) -> &'static str {
    use crate::request::Source;
    match subject.plan.grant.requests.first().map(|request| request.source) {
        Some(Source::Cdi | Source::Nodes) => "--device",
        Some(Source::User) => "-e NVIDIA_VISIBLE_DEVICES",
        Some(Source::Gpus) => "--gpus",
        _ => "the grant",
    }
}

fn image_default(subject: &Subject<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let granted = &subject.plan.grant.devices;
    if let [first, _, ..] = granted.as_slice() {
        let flags = if first.mig.is_none() {
            flags_for(subject, &[first.gpu])
        } else {
            let source = subject.plan.grant.requests.first().map(|request| request.source);
            crate::spelling::flags(source, &[subject.inventory.host_label(*first)])
        };
        out.push(format!("to keep to one GPU, type {flags}"));
    }
    out.push("image maintainers, delete the ENV: it hides GPUs on other hosts".to_owned());
    out
}
