//! Which GPUs a service asks for, and whether Compose takes it.
//!
//! What Compose says was tried with docker-compose 2.

use crate::finding::{Code, Severity, quoted};
use crate::lint::Fault;
use crate::lint::agree::Dialect;
use crate::lint::interpolate::resolve;
use crate::lint::values::said;
use crate::lint::yaml::{Content, Node};
use crate::request::{Selection, cdi_selection, count_selection};
use crate::spelling;

/// What a service asks for, beside `NVIDIA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// Nothing.
    Nothing,
    /// These; `None` where that depends on a variable.
    Devices { selection: Option<Selection> },
    /// Something that Compose refuses.
    Unknown,
}

/// What the service asks for; what Compose does not take is reported.
pub(super) fn requested(service: &Node, out: &mut Vec<Fault>) -> Requested {
    let before = out.len();
    let mut found: Vec<Option<Selection>> = Vec::new();
    if let Some((key, gpus)) = service.member("gpus").filter(|(_, gpus)| !gpus.is_null()) {
        of_gpus(key, gpus, &mut found, out);
    }
    let path = ["deploy", "resources", "reservations"];
    let reservations = path.iter().try_fold(service, |node, name| node.get(name).map(AsRef::as_ref));
    if let Some((key, devices)) = reservations.and_then(|node| node.member("devices")) {
        for item in devices.items().iter().filter(|item| is_gpu(item)) {
            found.push(of_request(key, item, false, out));
        }
    }
    for device in service.get("devices").map(|devices| devices.items()).unwrap_or_default() {
        found.extend(device.text().and_then(cdi_selection).map(Some));
    }
    if out[before..].iter().any(|fault| fault.severity == Severity::Error) {
        return Requested::Unknown;
    }
    // Several requests add up.
    let add = |all: Option<Selection>, more: Option<Selection>| match (all, more) {
        (Some(Selection::Names(mut all)), Some(Selection::Names(more))) => {
            all.extend(more);
            Some(Selection::Names(all))
        }
        (Some(Selection::All), _) | (_, Some(Selection::All)) => Some(Selection::All),
        _ => None,
    };
    let mut found = found.into_iter();
    match found.next() {
        None => Requested::Nothing,
        Some(first) => Requested::Devices { selection: found.fold(first, add) },
    }
}

/// `gpus: all`, or a list of requests.
fn of_gpus(key: &Node, gpus: &Node, found: &mut Vec<Option<Selection>>, out: &mut Vec<Fault>) {
    let Some(written) = gpus.text() else {
        found.extend(gpus.items().iter().map(|item| of_request(key, item, true, out)).collect::<Vec<_>>());
        return;
    };
    let resolved = resolve(written, &|_| None);
    match resolved.text.as_deref() {
        Some("all") => {
            if !resolved.defaults.is_empty() {
                out.push(fails_open(key, gpus));
            }
            found.push(Some(Selection::All));
        }
        None => found.push(None),
        Some(text) => {
            let fix = match spelling::numbers(text.trim_start_matches("device=")) {
                Some(numbers) if text.starts_with("device=") || text.contains([',', '-', ';']) => {
                    format!("gpus: with a list: - {}", Dialect::Compose.select(&numbers))
                }
                Some(numbers) => format!("gpus: with a list: - count: {}", numbers[0]),
                None => "gpus: all, or a list of requests with count or device_ids".to_owned(),
            };
            let about = "Compose takes the word all here, or a list of requests, and stops.";
            out.push(fault(
                Code::ComposeGpusUnreadable,
                Severity::Error,
                key,
                gpus,
                said(format!("gpus is not {}", quoted(text)), about, fix),
            ));
        }
    }
}

/// Whether a reservation is for GPUs: by its driver or by its capabilities, or it says neither.
fn is_gpu(item: &Node) -> bool {
    let driver = item.get("driver").and_then(|driver| driver.text());
    let capabilities = item.get("capabilities").map(|list| list.items()).unwrap_or_default();
    let names_gpu = capabilities.iter().any(|name| matches!(name.text(), Some("gpu" | "nvidia")));
    driver == Some("nvidia") || names_gpu
}

/// One request: `count` or `device_ids`.
fn of_request(parent: &Node, item: &Node, short: bool, out: &mut Vec<Fault>) -> Option<Selection> {
    let (count, ids) = (item.member("count"), item.member("device_ids"));
    if !short && item.get("capabilities").is_none() {
        let about = "Compose stops: \"missing property 'capabilities'\".";
        let said = said("the reservation has no capabilities", about, "capabilities: [gpu] beside it");
        out.push(fault(Code::ComposeGpusUnreadable, Severity::Error, item, item, said));
    }
    match (count, ids) {
        (Some((key, value)), Some((_, ids))) => {
            let about = "Compose stops: \"count\" and \"device_ids\" attributes are exclusive.";
            let said = said(
                "a count and device ids exclude each other",
                about,
                "keep the one that is meant, delete the other",
            );
            out.push(fault(Code::ComposeCountAndIds, Severity::Error, key, value, said));
            of_ids(parent, ids, out)
        }
        (Some((key, value)), None) => of_count(key, value, out),
        (None, Some((key, ids))) => of_ids(key, ids, out),
        (None, None) => {
            let about = "Compose 2 takes it for all GPUs, older ones for none.";
            let said = said("neither count nor device_ids", about, "count: 1, count: all, or device_ids: [\"0\"]");
            let at = item.members().first().map_or(item, |(key, _)| key);
            out.push(fault(Code::ComposeNoCount, Severity::Warning, at, at, said));
            Some(Selection::All)
        }
    }
}

fn of_count(key: &Node, value: &Node, out: &mut Vec<Fault>) -> Option<Selection> {
    let resolved = resolve(value.text()?, &|_| None);
    let text = resolved.text?;
    if text == "all" {
        if !resolved.defaults.is_empty() {
            out.push(fails_open(key, value));
        }
        return Some(Selection::All);
    }
    let Ok(count) = text.parse::<i64>() else {
        let about = "Compose stops: the only value allowed is 'all' or a number.";
        let fix = match spelling::numbers(&text) {
            Some(numbers) => Dialect::Compose.select(&numbers),
            None => "count: all, or a number of GPUs".to_owned(),
        };
        let said = said(format!("{} is no count", quoted(&text)), about, fix);
        out.push(fault(Code::ComposeGpusUnreadable, Severity::Error, key, value, said));
        return None;
    };
    if count == 0 {
        let about = "A count of 0 gives the service no GPU.";
        let said = said("0 is a count, not the number of a GPU", about, "device_ids: [\"0\"] for host GPU 0");
        out.push(fault(Code::GpusZero, Severity::Warning, key, value, said));
    }
    Some(count_selection(count))
}

fn of_ids(key: &Node, ids: &Node, out: &mut Vec<Fault>) -> Option<Selection> {
    if let Some(written) = ids.text() {
        let resolved = resolve(written, &|_| None);
        let text = resolved.text?;
        let fix =
            spelling::numbers(&text).map_or_else(|| "a list of texts".to_owned(), |n| Dialect::Compose.select(&n));
        let said = said("device_ids is no list", "Compose stops: device_ids must be a array.", fix);
        out.push(fault(Code::ComposeGpusUnreadable, Severity::Error, key, ids, said));
        return None;
    }
    let numbers: Vec<u32> =
        ids.items().iter().filter(|id| id.is_number()).filter_map(|id| id.text()?.parse().ok()).collect();
    if !numbers.is_empty() {
        let about = "Compose stops: device_ids.0 must be a string.";
        let said = said("device_ids are texts, not numbers", about, Dialect::Compose.select(&numbers));
        let first = ids.items().iter().find(|id| id.is_number())?;
        out.push(fault(Code::ComposeGpusUnreadable, Severity::Error, first, first, said));
        return None;
    }
    let mut names = Vec::new();
    for id in ids.items() {
        let resolved = resolve(id.text()?, &|_| None);
        if resolved.defaults.iter().any(|default| default == "all") {
            out.push(fails_open(id, id));
        }
        names.extend(resolved.text?.split(',').map(|name| name.trim().to_owned()));
    }
    if names.iter().any(|name| name == "all") {
        return Some(Selection::All);
    }
    Some(Selection::Names(names))
}

fn fails_open(key: &Node, value: &Node) -> Fault {
    let text = "Whoever forgets to set it gets all GPUs, and takes them from others.";
    let fix = "a default that is one GPU, or ${NAME:?say which GPUs}, which stops";
    fault(Code::DefaultFailsOpen, Severity::Warning, key, value, said("the default is every GPU", text, fix))
}

/// A fault from a key to the end of its value; an alias as the value stands elsewhere.
fn fault(code: Code, severity: Severity, key: &Node, value: &Node, said: [String; 3]) -> Fault {
    let end = match value.content {
        Content::Scalar { .. } if value.span.end > key.span.start => value.span.end,
        _ => key.span.end,
    };
    let [title, text, fix] = said;
    Fault { code, severity, span: key.span.start..end, statement: key.span.start, title, text, fix }
}
