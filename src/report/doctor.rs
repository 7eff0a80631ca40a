//! What `cudaview doctor` found, as text and as JSON.

use serde_json::{Value, json};

use super::Style;
use super::style::Tone;
use crate::doctor::{Check, Status};

/// Where names begin, and where what was found begins.
const NAME: usize = 9;
const LINE: usize = 23;

/// The checks, a line each, and what is to be done about those that are problems.
pub fn doctor(checks: &[Check], problems_only: bool, style: Style) -> String {
    let shown = checks.iter().filter(|check| !problems_only || check.is_problem());
    shown.map(|check| one(check, style)).collect()
}

fn one(check: &Check, style: Style) -> String {
    let (tag, tone) = match check.status {
        Status::Ok => ("ok", Tone::Green),
        Status::Warning => ("warning", Tone::Yellow),
        Status::Error => ("ERROR", Tone::Red),
        Status::Skipped => ("skipped", Tone::Dim),
    };
    let head = format!("{tag:NAME$}{}", check.name);
    let text = style.beside(&head, LINE, std::slice::from_ref(&check.line));
    // Painted last: a colour has no width.
    let mut out = text.replacen(tag, &style.paint(tone, tag), 1);
    if !check.is_problem() {
        return out;
    }
    let indent = " ".repeat(NAME);
    for line in style.wrap(NAME, &check.consequence) {
        out.push_str(&format!("{indent}{line}\n"));
    }
    if !check.looked_at.is_empty() {
        out.push_str(&style.tagged(NAME, "looked at", &check.looked_at.join(", ")));
    }
    if !check.fix.is_empty() {
        out.push_str(&style.tagged(NAME, "fix", &check.fix));
    }
    out
}

/// How many problems there are, for whoever reads the end first.
pub fn doctor_summary(checks: &[Check]) -> String {
    let count = |status: Status| checks.iter().filter(|check| check.status == status).count();
    let (errors, warnings, skipped) = (count(Status::Error), count(Status::Warning), count(Status::Skipped));
    let some = |count: usize, noun: &str| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    };
    let found: Vec<String> = [some(errors, "error"), some(warnings, "warning")].into_iter().flatten().collect();
    match errors + warnings {
        0 => {
            let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
            format!("no problems ({} checks{skipped})", checks.len() - skipped_count(checks))
        }
        1 => found.join(", "),
        _ => format!("{}: start at the top, one cause may have several effects", found.join(", ")),
    }
}

fn skipped_count(checks: &[Check]) -> usize {
    checks.iter().filter(|check| check.status == Status::Skipped).count()
}

/// The same for programs.
pub fn doctor_json(checks: &[Check], problems_only: bool) -> Value {
    let count = |status: Status| checks.iter().filter(|check| check.status == status).count();
    let shown: Vec<&Check> = checks.iter().filter(|check| !problems_only || check.is_problem()).collect();
    json!({
        "schemaVersion": 1,
        "checks": shown,
        "errors": count(Status::Error),
        "warnings": count(Status::Warning),
        "skipped": count(Status::Skipped),
    })
}
