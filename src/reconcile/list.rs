//! Rules 6 to 8, and 15: a list, and which numbers it was written in.

use super::noticed::{report_ambiguous, report_list, report_malformed};
use super::{Basis, Question, Reading, View};
use crate::config::OnNoMatch;
use crate::cuda::{self, Entry, Value};
use crate::finding::{Code, Finding, Severity, quoted};
use crate::inventory::Device;

/// A list as it stands in the variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    /// The variable's value.
    pub(super) text: &'a str,
    /// What was read from it.
    pub(super) value: &'a Value,
    /// Its entries.
    pub(super) entries: &'a [Entry],
}

/// A list as one of the two readings keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) devices: Vec<Device>,
    /// Entries used, in the order of `devices`, then repeats.
    pub(super) used: Vec<Entry>,
    pub(super) repeats: Vec<String>,
    pub(super) lost: Vec<String>,
}

pub(super) fn read_list(question: &Question<'_>, entries: &[Entry], reading: Reading) -> Kept {
    let mut kept = Kept { devices: Vec::new(), used: Vec::new(), repeats: Vec::new(), lost: Vec::new() };
    for (position, entry) in entries.iter().enumerate() {
        let Some(device) = find(question, entry, reading) else {
            kept.lost = entries[position..].iter().map(|entry| entry.text.clone()).collect();
            break;
        };
        kept.used.push(entry.clone());
        if kept.devices.contains(&device) {
            kept.repeats.push(entry.text.clone());
        } else {
            kept.devices.push(device);
        }
    }
    kept
}

fn find(question: &Question<'_>, entry: &Entry, reading: Reading) -> Option<Device> {
    let Some(index) = entry.index() else {
        return cuda::named_or_begun(question.inventory, question.granted, &entry.text);
    };
    match reading {
        Reading::Container => question.granted.get(usize::try_from(index).ok()?).copied(),
        Reading::Host => {
            question.granted.iter().copied().find(|device| question.inventory.gpu(*device).index.0 == index)
        }
    }
}

/// Rules 6 to 8, and 15.
pub(super) fn decide_list(question: &Question<'_>, written: Written<'_>, findings: &mut Vec<Finding>) -> (View, Basis) {
    let Written { text, value, entries } = written;
    let has_index = entries.iter().any(|entry| entry.index().is_some());
    let has_mig = question.granted.iter().any(|device| device.mig.is_some());
    if has_index && has_mig {
        return decide_mig_index(question, written, findings);
    }
    let container = read_list(question, entries, Reading::Container);
    let host = read_list(question, entries, Reading::Host);
    let (reading, taken, other) = if host.devices.len() > container.devices.len() {
        (Reading::Host, host, container)
    } else {
        (Reading::Container, container, host)
    };
    if taken.devices.is_empty() {
        return no_match(question, text, None, findings);
    }
    report_list(question, text, reading, &taken, &other, findings);
    report_malformed(question, text, value, &taken, findings);
    let basis = Basis::List { reading, lost: taken.lost, other: other.devices };
    (View::Devices(taken.devices), basis)
}

/// Rule 15: integers over MIG devices follow `predict`, where it is certain.
fn decide_mig_index(question: &Question<'_>, written: Written<'_>, findings: &mut Vec<Finding>) -> (View, Basis) {
    let Written { text, value, entries } = written;
    // Without the quotes and white space that rule 6 takes away, over which CUDA would trip.
    let plain = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",");
    let prediction = cuda::predict(question.inventory, question.granted, Some(&plain), question.order);
    if !prediction.certain || prediction.visible.is_empty() {
        let doubt = prediction.notes.first().filter(|_| !prediction.certain);
        return no_match(question, text, doubt.map(String::as_str), findings);
    }
    let asked = entries.len();
    if prediction.visible.len() < asked {
        let message = format!(
            "CUDA_VISIBLE_DEVICES={} has {asked} entries, and CUDA shows {} of them: {}",
            quoted(text),
            prediction.visible.len(),
            prediction.notes.join("; ")
        );
        let hint = format!("-e CUDA_VISIBLE_DEVICES={}", question.inventory.uuid(prediction.visible[0]));
        findings.push(Finding::new(Code::OverrideExceedsGrant, Severity::Warning, message, hint));
    }
    let other = read_list(question, entries, Reading::Host);
    // What typing those devices would show: with older drivers one MIG device, however many are named.
    let names: Vec<&str> = other.devices.iter().map(|device| question.inventory.uuid(*device)).collect();
    let other_view =
        cuda::predict(question.inventory, question.granted, Some(&names.join(",")), question.order).visible;
    if !other_view.is_empty() && other.lost.is_empty() && other_view != prediction.visible {
        report_ambiguous(question, text, &prediction.visible, &other_view, findings);
    }
    let devices = prediction.visible;
    let taken = Kept { devices, used: entries.to_vec(), repeats: Vec::new(), lost: Vec::new() };
    report_malformed(question, text, value, &taken, findings);
    (View::Devices(taken.devices), Basis::List { reading: Reading::Container, lost: Vec::new(), other: Vec::new() })
}

/// A value that names nothing that was granted, or of which nobody can say what it names.
fn no_match(question: &Question<'_>, text: &str, doubt: Option<&str>, findings: &mut Vec<Finding>) -> (View, Basis) {
    let granted = question.hosts(question.granted);
    let message = match doubt {
        None => format!("CUDA_VISIBLE_DEVICES={} names none of the granted GPUs ({granted})", quoted(text)),
        Some(doubt) => format!("CUDA_VISIBLE_DEVICES={} over {granted}: {doubt}", quoted(text)),
    };
    let uuids: Vec<&str> = question.granted.iter().map(|d| question.inventory.uuid(*d)).collect();
    let has_mig = question.granted.iter().any(|device| device.mig.is_some());
    let hint = match uuids.as_slice() {
        [only] if has_mig => format!("-e CUDA_VISIBLE_DEVICES={only}"),
        [first, ..] if has_mig => format!("-e CUDA_VISIBLE_DEVICES={first} (one of: {})", uuids.join(" ")),
        _ => "leave CUDA_VISIBLE_DEVICES out, or count from 0 among the granted GPUs".to_owned(),
    };
    let severity = if question.refuses() { Severity::Error } else { Severity::Warning };
    findings.push(Finding::new(Code::OverrideMatchesNothing, severity, message, hint));
    let view = match (question.typed(), question.rules.on_no_match) {
        (true, OnNoMatch::Hide | OnNoMatch::Refuse) => View::Hidden,
        _ => question.all_granted(),
    };
    (view, Basis::NoMatch)
}
