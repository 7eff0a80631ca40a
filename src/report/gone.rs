//! A container that is gone, as the audit trail has it.

use serde_json::{Value, json};

use super::Style;
use super::log::tone;
use super::style::Tone;
use crate::finding::{printable, quoted};
use crate::inventory::list;
use crate::record::Variables;

/// The column beside the longest name, `NVIDIA_VISIBLE_DEVICES`.
const COLUMN: usize = 26;

/// `cudaview explain --container --format json` of a container that is gone.
pub fn gone_json(record: &Value, place: &str) -> Value {
    json!({
        "schemaVersion": 1,
        "verdict": record["verdict"],
        "provenance": {"CUDA_VISIBLE_DEVICES": record["provenance"]},
        "findings": record["findings"],
        "audit": {"place": place, "record": record},
    })
}

/// The same for people. A record holds what people and images wrote.
pub fn gone(record: &Value, place: &str, style: Style) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or_default();
    let name = if text("name").is_empty() { text("id") } else { text("name") };
    let width = Style { width: style.width + 1, ..style };
    let why = why_refused(record);
    let end = match why["message"].as_str() {
        Some(message) => format!(": {}", plain(message)),
        None if text("mode") == "observe" => " (observed)".to_owned(),
        None => format!(" ({})", plain(text("verdict"))),
    };
    let first = format!("{} {}{end}", plain(name), saw(record));
    let mut out: String = width.wrap(0, &first).into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect();
    out.push_str("\nFrom the audit trail\n");
    let mut row = |label: &str, text: String| out.push_str(&style.beside(&format!("  {label}"), COLUMN, &[text]));
    row("when", plain(text("time")));
    // The engine is null where no file of one says whose it is.
    let of = if text("engine").is_empty() { String::new() } else { format!(" of {}", plain(text("engine"))) };
    row("container", plain(&cut(text("id"))) + &of);
    if !text("image").is_empty() {
        row("image", quoted(text("image")));
    }
    row("through", format!("{}, mode {}", plain(text("door")), plain(text("mode"))));
    row("granted", hosts(record, "granted"));
    let values = |key: &str| serde_json::from_value::<Variables>(record[key].clone()).unwrap_or_default();
    let (before, after) = (values("before"), values("after"));
    for ((name, before), after) in Variables::NAMES.iter().zip(before.values()).zip(after.values()) {
        let shown = |value: Option<&str>| value.map_or_else(|| "unset".to_owned(), quoted);
        match (before, after) {
            (None, None) => {}
            (Some(value), _) if text("verdict") == "refused" && *name == Variables::NAMES[0] => {
                row(name, format!("{} refused", quoted(value)));
            }
            (before, after) if before == after => row(name, format!("{} stayed", shown(before))),
            (before, after) => row(name, format!("{} -> {}", shown(before), shown(after))),
        }
    }
    if before.visible_devices.is_some() {
        row("origin of the first", plain(text("provenance")));
    }
    row("looked at", plain(place));
    for finding in record["findings"].as_array().into_iter().flatten() {
        let part = |key: &str| printable(finding[key].as_str().unwrap_or_default());
        let severity = part("severity");
        let tag = tone(finding).map_or_else(|| severity.clone(), |tone| style.paint(tone, &severity));
        out.push_str(&format!("\n{tag}: {}\n", part("code")));
        let is_said_above = finding["message"].is_string() && finding["message"] == why["message"];
        if !is_said_above {
            out.extend(style.wrap(2, &part("message")).iter().map(|line| format!("  {line}\n")));
        }
        if !part("hint").is_empty() {
            out.push_str(&style.tagged(2, "hint", &part("hint")));
        }
    }
    out
}

/// The finding for which it was refused, if it was.
fn why_refused(record: &Value) -> &Value {
    let mut findings = record["findings"].as_array().into_iter().flatten();
    let error = findings.find(|finding| record["verdict"] == "refused" && finding["severity"] == "error");
    error.unwrap_or(&Value::Null)
}

fn saw(record: &Value) -> String {
    let seen: Vec<String> = labels(record, "visible");
    let is_observed = record["mode"] == "observe";
    // It is written before the program is started, and whether that came to be is in no record.
    let saw = if is_observed { "would have been set up to see" } else { "was set up to see" };
    match (record["verdict"].as_str(), seen.as_slice()) {
        (Some("refused"), _) if is_observed => "would have been refused".to_owned(),
        (Some("refused"), _) => "was refused".to_owned(),
        (_, []) => format!("{saw} no GPU"),
        (_, [only]) => format!("{saw} 1 GPU: cuda:0 was host GPU {only}"),
        (_, [first, second]) => format!("{saw} 2 GPUs: cuda:0 was host GPU {first}, cuda:1 was host GPU {second}"),
        (_, all) => format!("{saw} {} GPUs: cuda:0 to cuda:{} were host GPUs {}", all.len(), all.len() - 1, list(all)),
    }
}

fn hosts(record: &Value, key: &str) -> String {
    match labels(record, key).as_slice() {
        [] => "no GPU".to_owned(),
        [only] => format!("host GPU {only}"),
        all => format!("host GPUs {}", list(all)),
    }
}

fn labels(record: &Value, key: &str) -> Vec<String> {
    record[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain).collect()
}

fn plain(text: &str) -> String {
    super::style::cut(&printable(text), 100)
}

/// An id as engines show it.
fn cut(id: &str) -> String {
    let is_long = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_long { id[..12].to_owned() } else { id.to_owned() }
}
