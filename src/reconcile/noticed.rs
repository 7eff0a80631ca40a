//! What reconciliation has to tell people about a value.

use super::list::{Kept, read_list};
use super::{Question, Reading, positions};
use crate::cuda::{EntryKind, Meaning, Value};
use crate::finding::{Code, Finding, Severity, quoted, quoted_list};
use crate::inventory::Device;
use crate::provenance::Provenance;
use crate::spelling;

pub(super) fn report_withheld(
    question: &Question<'_>,
    kept: &[Device],
    openable: &[Device],
    findings: &mut Vec<Finding>,
) {
    let gone: Vec<Device> = question.granted.iter().copied().filter(|device| !openable.contains(device)).collect();
    if !gone.is_empty() {
        let were = if gone.len() == 1 { "was granted and is" } else { "were granted and are" };
        let message = format!("{} {were} left out by the value", question.hosts(&gone));
        let hint = "to keep what was left out, set narrow = false under [reconcile] in /etc/cudaview/config.toml";
        findings.push(Finding::new(Code::Withheld, Severity::Info, message, hint));
    }
    let more: Vec<Device> = openable.iter().copied().filter(|device| !kept.contains(device)).collect();
    if !more.is_empty() && question.provenance != Provenance::Exec {
        let message = format!(
            "the container can open {} too: its device rules allow more than was chosen",
            question.hosts(&more)
        );
        let hint = "leave --privileged (or the wide --device-cgroup-rule) out";
        findings.push(Finding::new(Code::CannotNarrow, Severity::Warning, message, hint));
    }
}

pub(super) fn report_list(
    question: &Question<'_>,
    text: &str,
    reading: Reading,
    taken: &Kept,
    other: &Kept,
    findings: &mut Vec<Finding>,
) {
    let inside = positions(&taken.devices, question.granted);
    if reading == Reading::Host {
        let message = format!("CUDA_VISIBLE_DEVICES={} holds host numbers; inside they are {inside}", quoted(text));
        // Left out, CUDA shows all that was granted, in the host's order.
        let hint = if taken.devices == question.granted {
            format!("leave CUDA_VISIBLE_DEVICES out, or count from 0: {inside}")
        } else {
            format!("count from 0 among the granted GPUs: {inside}")
        };
        findings.push(Finding::new(Code::HostIndexOverride, Severity::Info, message, hint));
    } else if !other.devices.is_empty() && other.devices.len() == taken.devices.len() && other.devices != taken.devices
    {
        report_ambiguous(question, text, &taken.devices, &other.devices, findings);
    }
    if !taken.lost.is_empty() {
        let lost = quoted_list(&taken.lost);
        let message = format!("CUDA_VISIBLE_DEVICES={} names more than was granted; left out: {lost}", quoted(text));
        let has_all = question.granted.len() == question.inventory.all_devices().len();
        let hint = match question.asked {
            _ if question.provenance == Provenance::Exec => {
                "leave those entries out: a process that exec adds gets GPUs of its container only".to_owned()
            }
            _ if has_all => "leave those entries out: every GPU of this host is granted".to_owned(),
            source => format!("grant more with {}, or leave those entries out", spelling::flag(source)),
        };
        findings.push(Finding::new(Code::OverrideExceedsGrant, Severity::Warning, message, hint));
    }
    if !taken.repeats.is_empty() {
        let message = format!(
            "CUDA_VISIBLE_DEVICES={} names a GPU twice, for which CUDA would show none; the repeat was dropped",
            quoted(text)
        );
        findings.push(Finding::new(Code::DuplicateEntries, Severity::Warning, message, format!("type {inside}")));
    }
}

/// A number that means one thing inside and another on the host.
pub(super) fn report_ambiguous(
    question: &Question<'_>,
    text: &str,
    taken: &[Device],
    other: &[Device],
    findings: &mut Vec<Finding>,
) {
    let message = format!(
        "CUDA_VISIBLE_DEVICES={} is {} as a number inside, and {} as a host number; \
         the number inside was taken",
        quoted(text),
        question.hosts(taken),
        question.hosts(other),
    );
    let uuids = |devices: &[Device]| -> String {
        devices.iter().map(|device| question.inventory.uuid(*device)).collect::<Vec<_>>().join(",")
    };
    let hint = format!(
        "-e CUDA_VISIBLE_DEVICES={} for {}, -e CUDA_VISIBLE_DEVICES={} for {}",
        uuids(taken),
        question.hosts(taken),
        uuids(other),
        question.hosts(other),
    );
    findings.push(Finding::new(Code::AmbiguousIndex, Severity::Warning, message, hint));
}

/// Rule 6: quotes, or characters that were ignored in an entry that was kept.
pub(super) fn report_malformed(
    question: &Question<'_>,
    text: &str,
    value: &Value,
    taken: &Kept,
    findings: &mut Vec<Finding>,
) {
    let trailing = taken.used.iter().any(|entry| matches!(entry.kind, EntryKind::Index { trailing: true, .. }));
    if !value.quoted && !trailing {
        return;
    }
    let what = if value.quoted {
        "the quotes are part of the value"
    } else {
        "only the number at the start of an entry counts"
    };
    let understood = positions(&taken.devices, question.granted);
    let range = taken.used.iter().any(|entry| entry.text.contains('-')) && trailing;
    let note = if range { " (0-2 is not a range)" } else { "" };
    let message = format!("CUDA_VISIBLE_DEVICES={}: {what}; understood as {understood}{note}", quoted(text));
    // What `0-2` or `1 3` was meant to be, where all of it was granted: by one way of counting or by the other.
    let plain = spelling::numbers(text.trim().trim_matches(['"', '\'']));
    let inside = |n: &u32| usize::try_from(*n).is_ok_and(|n| n < question.granted.len());
    let on_host = |n: &u32| question.granted.iter().any(|device| question.inventory.gpu(*device).index.0 == *n);
    let plain = plain.filter(|all| all.iter().all(inside) || all.iter().all(on_host));
    // `0:1` is a MIG device to `--gpus`, and the number 0 to CUDA.
    let mig = question.granted.iter().any(|device| device.mig.is_some());
    let meant = spelling::meant_first(question.inventory, text.trim().trim_matches(['"', '\'']), question.granted);
    let hint = match (plain, meant.first()) {
        (_, Some(first)) if mig => {
            format!("MIG devices are named by their UUIDs: -e CUDA_VISIBLE_DEVICES={}", question.inventory.uuid(*first))
        }
        (Some(numbers), _) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("write plain numbers: {}", numbers.join(","))
        }
        (None, _) => "write plain numbers: 0,1".to_owned(),
    };
    findings.push(Finding::new(Code::MalformedValue, Severity::Warning, message, hint));
}

/// Rule 3's finding, unless the image's value shows just what was granted.
pub(super) fn report_image_default(question: &Question<'_>, text: &str, value: &Value, findings: &mut Vec<Finding>) {
    let wanted = match &value.meaning {
        Meaning::Hidden => Vec::new(),
        Meaning::All => question.granted.to_vec(),
        Meaning::List(entries) => read_list(question, entries, Reading::Container).devices,
    };
    if wanted == question.granted && value.meaning != Meaning::All {
        return;
    }
    let fewer = wanted.len() < question.granted.len();
    let severity = if question.broad && fewer { Severity::Warning } else { Severity::Info };
    let message = format!(
        "the image's CUDA_VISIBLE_DEVICES={} yields to what was typed: {}",
        quoted(text),
        question.hosts(question.granted)
    );
    let hint = match question.granted {
        [only] => {
            format!("image maintainers: delete the ENV; {} is granted either way", question.hosts(&[*only]))
        }
        [first, ..] => {
            let flags = spelling::flags(question.asked, &[question.inventory.host_label(*first)]);
            format!("to keep to one GPU, type {flags}")
        }
        [] => String::new(),
    };
    findings.push(Finding::new(Code::ImageDefaultYields, severity, message, hint));
}

pub(super) fn report_mixed_order(question: &Question<'_>, text: &str, wide: &[Device], findings: &mut Vec<Finding>) {
    let order = question.order.map_or_else(
        || "without CUDA_DEVICE_ORDER".to_owned(),
        |order| format!("with CUDA_DEVICE_ORDER={}", quoted(order)),
    );
    let message = format!(
        "CUDA_VISIBLE_DEVICES={} {order} over different models: \
         nobody can say which GPUs it means, so it was left as it is",
        quoted(text)
    );
    let uuids: Vec<&str> = wide.iter().map(|device| question.inventory.uuid(*device)).collect();
    let hint = format!("CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs: {}", uuids.join(" "));
    findings.push(Finding::new(Code::DeviceOrderMixed, Severity::Warning, message, hint));
}
