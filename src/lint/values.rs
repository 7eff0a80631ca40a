//! What can be said of a variable and its value alone.

use std::ops::Range;

use super::Fault;
use crate::cuda::{Entry, EntryKind, Meaning, Value};
use crate::finding::{Code, Severity, quoted};
use crate::request::cdi_device;
use crate::spelling;

/// The variable that CUDA reads.
pub(super) const CUDA: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that NVIDIA's toolkit reads.
pub(super) const NVIDIA: &str = "NVIDIA_VISIBLE_DEVICES";
/// The variable that says what CUDA's numbers mean.
pub(super) const ORDER: &str = "CUDA_DEVICE_ORDER";

/// A variable that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Its name.
    pub(super) name: String,
    /// Its value as the container gets it; `None` where that is not known.
    pub(super) value: Option<String>,
    /// The whole entry, for the carets.
    pub(super) span: Range<usize>,
    /// Where the statement begins.
    pub(super) statement: usize,
}

impl Assignment {
    /// A finding about it.
    pub(super) fn fault(&self, code: Code, severity: Severity, said: [String; 3]) -> Fault {
        let [title, text, fix] = said;
        Fault { code, severity, span: self.span.clone(), statement: self.statement, title, text, fix }
    }
}

/// A finding's title, text and fix.
pub(super) fn said(title: impl Into<String>, text: impl Into<String>, fix: impl Into<String>) -> [String; 3] {
    [title.into(), text.into(), fix.into()]
}

/// What is wrong with a variable by itself, in an image and elsewhere.
pub(super) fn check(assignment: &Assignment, in_image: bool) -> Vec<Fault> {
    if let Some(meant) = spelling::variable(&assignment.name) {
        let title = format!("nothing reads {}", quoted(&assignment.name));
        let text = format!("The variable is called {meant}. As it stands the value has no effect.");
        let said = said(title, text, format!("write {meant}"));
        return vec![assignment.fault(Code::MisspeltVariable, Severity::Warning, said)];
    }
    let Some(value) = &assignment.value else { return Vec::new() };
    match assignment.name.as_str() {
        CUDA => cuda(assignment, value, in_image),
        NVIDIA => nvidia(assignment, value),
        ORDER => order(assignment, value),
        _ => Vec::new(),
    }
}

/// A `CUDA_VISIBLE_DEVICES` that CUDA reads otherwise than it was meant.
fn cuda(assignment: &Assignment, text: &str, in_image: bool) -> Vec<Fault> {
    let value = Value::parse(text);
    let mut out = Vec::new();
    if value.quoted {
        let inner = text.trim().trim_matches(['"', '\'']);
        let said = said(
            "the quotes are part of the value",
            "The program gets the value with its quotes, and CUDA shows it no GPU.",
            format!("{CUDA}={inner}"),
        );
        out.push(assignment.fault(Code::MalformedValue, Severity::Warning, said));
    }
    match &value.meaning {
        Meaning::Hidden if !in_image => {
            let word = text.trim();
            if word.starts_with(|c: char| c.is_ascii_alphabetic()) {
                let said = said(
                    format!("{} hides every GPU", quoted(word)),
                    format!("CUDA knows no words: any but a number or a UUID ends the list. Words are for {NVIDIA}."),
                    format!("leave it out to see every granted GPU, or say it with {CUDA}=-1"),
                );
                out.push(assignment.fault(Code::DisabledByOverride, Severity::Warning, said));
            }
        }
        Meaning::Hidden => {}
        Meaning::All => {
            let said = said(
                format!("{} is no value of {CUDA}", quoted(text.trim())),
                format!("CUDA knows no words, and shows no GPU. The word is for {NVIDIA}."),
                "delete it; without it CUDA shows every GPU that the container was given",
            );
            out.push(assignment.fault(Code::NotACudaValue, Severity::Warning, said));
        }
        Meaning::List(entries) => list(assignment, text, entries, &mut out),
    }
    out
}

fn list(assignment: &Assignment, text: &str, entries: &[Entry], out: &mut Vec<Fault>) {
    let is_end = |entry: &&Entry| entry.kind == EntryKind::Garbage;
    let is_number = |text: &str| text.starts_with('-') && text[1..].starts_with(|c: char| c.is_ascii_digit());
    let upto = entries.iter().position(|entry| is_end(&entry)).unwrap_or(entries.len());
    if let Some(entry) = entries.iter().find(is_end).filter(|entry| !is_number(&entry.text)) {
        let digits: Vec<&str> =
            entries.iter().map(|e| e.text.trim_start_matches(|c: char| !c.is_ascii_digit())).collect();
        let numbers = spelling::numbers(&digits.join(","));
        let fix = match (entry.text.split_once(':'), numbers) {
            (Some((_, uuid)), _) if uuid.starts_with("GPU-") || uuid.starts_with("MIG-") => format!("{CUDA}={uuid}"),
            (_, Some(numbers)) => format!("{CUDA}={}", joined(&numbers)),
            _ => format!("numbers counted from 0, such as {CUDA}=0,1, or UUIDs"),
        };
        let sees = if upto == 0 { "the program sees no GPU" } else { "what follows it is not seen" };
        let said = said(
            format!("{} names no device", quoted(&entry.text)),
            format!("CUDA takes numbers, GPU- and MIG- names. It ends the list there: {sees}."),
            fix,
        );
        out.push(assignment.fault(Code::EntryNamesNothing, Severity::Warning, said));
    }
    let used = &entries[..upto];
    if let Some(entry) = used.iter().find(|entry| matches!(entry.kind, EntryKind::Index { trailing: true, .. })) {
        let number = entry.index().unwrap_or_default();
        let meant = spelling::numbers(text.trim().trim_matches(['"', '\'']));
        let said = said(
            format!("{} is read as {number}", quoted(&entry.text)),
            "CUDA reads the number at the start of an entry and ignores the rest. There are no ranges.",
            format!("{CUDA}={}", meant.map_or_else(|| number.to_string(), |numbers| joined(&numbers))),
        );
        out.push(assignment.fault(Code::MalformedValue, Severity::Warning, said));
    }
    let repeat = used.iter().enumerate().find(|(position, entry)| {
        used[..*position].iter().any(|earlier| match (earlier.index(), entry.index()) {
            (Some(one), Some(other)) => one == other,
            _ => earlier.text == entry.text,
        })
    });
    if let Some((_, entry)) = repeat {
        let once = each_once(&used.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>());
        let said = said(
            format!("{} stands there twice", quoted(&entry.text)),
            "CUDA shows no GPU at all where a list names one twice. cudaview drops the repeat.",
            format!("{CUDA}={}", once.join(",")),
        );
        out.push(assignment.fault(Code::DuplicateEntries, Severity::Warning, said));
    }
}

/// A `NVIDIA_VISIBLE_DEVICES` that NVIDIA's toolkit refuses, or reads otherwise than it was meant.
fn nvidia(assignment: &Assignment, text: &str) -> Vec<Fault> {
    let fault = |title: String, about: &str, fix: String| {
        vec![assignment.fault(Code::NvidiaValueUnreadable, Severity::Warning, said(title, about, fix))]
    };
    if text.is_empty() || matches!(text, "all" | "none" | "void") {
        return Vec::new();
    }
    let lower = text.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    if matches!(lower.as_str(), "all" | "none" | "void") {
        let about = "NVIDIA's toolkit knows these words in lower case and without quotes; others are names of devices.";
        return fault(format!("{} is no word of {NVIDIA}", quoted(text)), about, format!("{NVIDIA}={lower}"));
    }
    let names: Vec<&str> = text.split(',').collect();
    if let Some(bad) = names.iter().find(|name| !is_nvidia_name(name)) {
        let about =
            "NVIDIA's toolkit takes numbers, UUIDs, GPU:MIG numbers and CDI names, and fails for anything else.";
        let digits: Vec<&str> = names.iter().map(|n| n.trim_matches(|c: char| !c.is_ascii_digit())).collect();
        let fix = match spelling::numbers(&digits.join(",")) {
            Some(numbers) => format!("{NVIDIA}={}", joined(&numbers)),
            None => format!("{NVIDIA}=all, or a list such as {NVIDIA}=0,1"),
        };
        return fault(format!("{} names no device", quoted(bad)), about, fix);
    }
    let repeat = names.iter().enumerate().find(|(position, name)| names[..*position].contains(name));
    if let Some((_, name)) = repeat {
        let about = "In some modes NVIDIA's toolkit gives no GPU at all where a list names one twice.";
        let once = each_once(&names);
        return fault(format!("{} stands there twice", quoted(name)), about, format!("{NVIDIA}={}", once.join(",")));
    }
    Vec::new()
}

fn is_nvidia_name(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |name: &str| crate::device::PciBusId::try_from(name.to_owned()).is_ok();
    digits(name)
        || name.starts_with("GPU-")
        || name.starts_with("MIG-")
        || name.split_once(':').is_some_and(|(gpu, mig)| digits(gpu) && digits(mig))
        || cdi_device(name).is_some()
        || (name.contains('/') && name.contains('='))
        || is_address(name)
}

fn order(assignment: &Assignment, text: &str) -> Vec<Fault> {
    if matches!(text, "PCI_BUS_ID" | "FASTEST_FIRST") {
        return Vec::new();
    }
    let said = said(
        format!("{} is no value of {ORDER}", quoted(text)),
        "CUDA knows PCI_BUS_ID and FASTEST_FIRST, and takes the latter for anything else.",
        format!("{ORDER}=PCI_BUS_ID"),
    );
    vec![assignment.fault(Code::DeviceOrderUnknown, Severity::Warning, said)]
}

/// The names without repeats.
fn each_once<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut once: Vec<&str> = Vec::new();
    for name in names {
        if !once.contains(name) {
            once.push(name);
        }
    }
    once
}

/// Whether a value names a device by its UUID.
pub(super) fn holds_uuid(text: &str) -> bool {
    text.split(',').any(|name| {
        let name = name.trim().trim_matches(['"', '\'']);
        let name = cdi_device(name).unwrap_or(name);
        ["GPU-", "MIG-"].iter().any(|start| name.strip_prefix(start).is_some_and(|rest| rest.len() >= 4))
    })
}

/// `0,1`
pub(super) fn joined(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(name: &str, value: &str) -> Vec<&'static str> {
        let assignment = Assignment { name: name.to_owned(), value: Some(value.to_owned()), span: 0..1, statement: 0 };
        check(&assignment, false).into_iter().map(|fault| fault.code.name()).collect()
    }

    #[test]
    fn cuda_values() {
        for (value, expected) in [
            ("0", vec![]),
            ("0,1", vec![]),
            ("", vec![]),
            ("-1", vec![]),
            ("0,-1", vec![]),
            ("GPU-a1100000,GPU-a3100000", vec![]),
            ("all", vec!["not-a-cuda-value"]),
            ("none", vec!["disabled-by-override"]),
            ("NoDevFiles", vec!["disabled-by-override"]),
            ("0-2", vec!["malformed-value"]),
            ("0;1", vec!["malformed-value"]),
            ("\"0,1\"", vec!["malformed-value"]),
            ("cuda:0", vec!["entry-names-nothing"]),
            ("cuda:GPU-a1100000", vec!["entry-names-nothing"]),
            ("0,one", vec!["entry-names-nothing"]),
            ("0,0", vec!["duplicate-entries"]),
        ] {
            assert_eq!(codes(CUDA, value), expected, "{value:?}");
        }
    }

    #[test]
    fn nvidia_values() {
        for (value, wrong) in [
            ("all", false),
            ("void", false),
            ("", false),
            ("0,1", false),
            ("0:1", false),
            ("nvidia.com/gpu=0", false),
            ("00000000:07:00.0", false),
            ("ALL", true),
            ("0-2", true),
            ("0, 1", true),
            ("cuda:0", true),
            ("all,void", true),
            ("0,0", true),
        ] {
            assert_eq!(codes(NVIDIA, value), if wrong { vec!["nvidia-value-unreadable"] } else { vec![] }, "{value:?}");
        }
    }
}
