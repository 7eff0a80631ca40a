//! `cudaview lint`, for people and as JSON.

use std::ops::Range;

use serde::Serialize;

use super::Style;
use super::style::Tone;
use crate::finding::{Severity, printable, steers};
use crate::lint::{Checked, CheckedImage, Fault, Lines, Origin};

/// A file that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its name as typed.
    pub name: String,
    /// What is in it.
    pub text: String,
    /// What was found.
    pub faults: Vec<Fault>,
    /// Where each line comes from, where the text was made of an image.
    pub origins: Option<Vec<Origin>>,
}

impl Looked {
    /// A file.
    pub fn file(name: String, text: String, faults: Vec<Fault>) -> Self {
        Self { name, text, faults, origins: None }
    }

    /// An image.
    pub fn image(name: String, checked: CheckedImage) -> Self {
        Self { name, text: checked.text, faults: checked.faults, origins: Some(checked.origins) }
    }

    /// The step of a line; `None` where there is none.
    fn step(&self, line: usize) -> Option<(usize, usize)> {
        match self.origins.as_ref()?.get(line - 1)? {
            Origin::Step(step, of) => Some((*step, *of)),
            Origin::Configuration => None,
        }
    }
}

/// What stands before a title in place of a file's name and line.
const COMMAND: &str = "command";

/// The faults of files.
pub fn lint_files(files: &[Looked], style: Style) -> String {
    shown_files(files, style).join("\n")
}

fn shown_files(files: &[Looked], style: Style) -> Vec<String> {
    let mut out = Vec::new();
    for file in files {
        let lines = Lines::of(&file.text);
        for fault in &file.faults {
            let (line, column) = lines.place(fault.span.start);
            let name = printable(&file.name);
            let (location, number) = match (&file.origins, file.step(line)) {
                (None, _) => (format!("{name}:{line}:{column}"), Some(line)),
                (Some(_), Some((step, of))) => (format!("{name}: step {step} of {of}"), Some(step)),
                (Some(_), None) => (format!("{name}: configuration"), None),
            };
            out.push(shown(&location, number, &lines, fault, style));
        }
    }
    out
}

/// The faults of a command and of its env files, and the command with the fixes.
pub fn lint_command(checked: &Checked, env_files: &[Looked], style: Style) -> String {
    let lines = Lines::of(&checked.text);
    let faults = checked.faults.iter().map(|fault| shown(COMMAND, None, &lines, fault, style));
    let mut out = faults.chain(shown_files(env_files, style)).collect::<Vec<_>>().join("\n");
    if let Some(fixed) = &checked.fixed {
        let fixes = if checked.faults.len() == 1 { "With the fix" } else { "With the fixes" };
        let counts = counts(&all(checked, env_files));
        out.push_str(&format!("\n{counts}. {fixes}:\n  {}\n", style.paint(Tone::Cyan, &printable(fixed))));
    }
    out
}

fn all<'a>(checked: &'a Checked, env_files: &'a [Looked]) -> Vec<&'a Fault> {
    checked.faults.iter().chain(env_files.iter().flat_map(|file| &file.faults)).collect()
}

/// What a person is told at the end, beside the report.
pub fn lint_footer(files: &[Looked], style: Style) -> String {
    let faults: Vec<&Fault> = files.iter().flat_map(|file| &file.faults).collect();
    let with = files.iter().filter(|file| !file.faults.is_empty()).count();
    let images = files.iter().filter(|file| file.origins.is_some()).count();
    let noun = match (images, with) {
        (0, 1) => "file",
        (0, _) => "files",
        (all, 1) if all == files.len() => "image",
        (all, _) if all == files.len() => "images",
        _ => "files and images",
    };
    // An image has no comments.
    let silence = if images == files.len() { "--ignore CODE" } else { "# cudaview: ignore=CODE" };
    footer(&format!("{} in {with} {noun}", counts(&faults)), silence, style)
}

/// The same for a command whose fix is not certain.
pub fn lint_command_footer(checked: &Checked, env_files: &[Looked], style: Style) -> String {
    footer(&counts(&all(checked, env_files)), "--ignore CODE", style)
}

/// What to type stays whole: where the line is too narrow it goes to the next.
fn footer(counts: &str, silence: &str, style: Style) -> String {
    let more = format!("(cudaview explain CODE; silence: {silence})");
    let fits = counts.len() + 1 + more.len() <= style.width;
    format!("\n{counts}{}{more}\n", if fits { " " } else { "\n" })
}

/// `1 error, 2 warnings`
fn counts(faults: &[&Fault]) -> String {
    let count = |severity: Severity| faults.iter().filter(|fault| fault.severity == severity).count();
    let said = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "note")];
    let said = said.into_iter().map(|(severity, word)| (count(severity), word)).filter(|(count, _)| *count > 0);
    let said = said.map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }));
    said.collect::<Vec<_>>().join(", ")
}

/// One fault: its title, its line with carets, what comes of it, what to type instead.
fn shown(location: &str, line: Option<usize>, lines: &Lines<'_>, fault: &Fault, style: Style) -> String {
    let (tag, tone) = match fault.severity {
        Severity::Error => ("error", Tone::Red),
        Severity::Warning => ("warning", Tone::Yellow),
        Severity::Info => ("info", Tone::Bold),
    };
    let title = printable(&format!("{} [{}]", fault.title, fault.code.name()));
    let head = format!("{location}: {tag}: {title}");
    let mut title = style.wrap(0, &head);
    let rest = title.split_off(1.min(title.len())).join(" ");
    if !rest.is_empty() {
        title.extend(style.wrap(2, &rest).into_iter().map(|line| format!("  {line}")));
    }
    let mut out = title.join("\n") + "\n";
    if style.colour {
        out = out.replacen(&format!(": {tag}:"), &format!(": {}:", style.paint(tone, tag)), 1);
    }
    let gutter = line.map(|line| line.to_string()).unwrap_or_default();
    let width = gutter.len().max(1);
    let (source, carets) = excerpt(lines, &fault.span, style.width.saturating_sub(width + 4).max(20));
    out.push_str(&format!("{gutter:width$} | {source}\n"));
    let (blank, marks) = carets.split_at(carets.len() - carets.trim_start().len());
    out.push_str(&format!("{:width$} | {blank}{}\n", "", style.paint(tone, marks)));
    for paragraph in style.wrap(2, &printable(&fault.text)) {
        out.push_str(&format!("  {paragraph}\n"));
    }
    if !fault.fix.is_empty() {
        out.push_str(&style.tagged(2, "fix", &printable(&fault.fix)));
    }
    out
}

/// The line of a place as it fits, and the carets under it.
fn excerpt(lines: &Lines<'_>, span: &Range<usize>, room: usize) -> (String, String) {
    let start = lines.start(span.start);
    let line = lines.get(lines.line(span.start));
    // One column a character; what a terminal would act on is not shown.
    let shown: Vec<char> = line.trim_end().chars().map(|c| if steers(c) { ' ' } else { c }).collect();
    // A place that ends in a later line is shown to the end of this one.
    let column = |at: usize| line.get(..at.saturating_sub(start)).map_or(shown.len(), |part| part.chars().count());
    let column = |at: usize| column(at).min(shown.len());
    let (from, to) = (column(span.start), column(span.end).max(column(span.start) + 1));
    if shown.len() <= room {
        return (shown.iter().collect(), carets(from, to));
    }
    let is_gap = |at: usize| shown.get(at) == Some(&' ');
    // From the first word on, or as far to the right as the place needs.
    let least = (to + 4).saturating_sub(room);
    let first = if least == 0 { 0 } else { (least + 4..from).find(|at| is_gap(*at)).unwrap_or(from) };
    let before = if first == 0 { "" } else { "..." };
    let last = first + room.saturating_sub(before.len());
    let (last, after) = if last >= shown.len() {
        (shown.len(), "")
    } else {
        let end = (to.min(last)..last.saturating_sub(3)).rev().find(|at| is_gap(*at)).unwrap_or(last.saturating_sub(4));
        (end.max(first), " ...")
    };
    let middle: String = shown[first..last].iter().collect();
    let moved = |at: usize| at.saturating_sub(first) + before.len();
    (format!("{before}{middle}{after}"), carets(moved(from), moved(to.min(last).max(from + 1))))
}

fn carets(from: usize, to: usize) -> String {
    " ".repeat(from) + &"^".repeat(to.saturating_sub(from).max(1))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonFault<'a> {
    /// Absent for a command and for an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(flatten)]
    place: JsonPlace<'a>,
    code: &'static str,
    severity: Severity,
    message: &'a str,
    text: &'a str,
    fix: &'a str,
}

/// Where it is.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum JsonPlace<'a> {
    /// In a text.
    Text { line: usize, column: usize, end_line: usize, end_column: usize },
    /// In an image; the step is null where no instruction says it.
    Image { image: &'a str, step: Option<usize>, steps: Option<usize>, instruction: &'a str },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    findings: Vec<JsonFault<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<&'a str>,
}

fn json_fault<'a>(file: Option<&'a str>, lines: &Lines<'_>, fault: &'a Fault) -> JsonFault<'a> {
    let (line, column) = lines.place(fault.span.start);
    let (end_line, end_column) = lines.place(fault.span.end);
    JsonFault {
        file,
        place: JsonPlace::Text { line, column, end_line, end_column },
        code: fault.code.name(),
        severity: fault.severity,
        message: &fault.title,
        text: &fault.text,
        fix: &fault.fix,
    }
}

/// The faults of files, as JSON.
pub fn lint_files_json(files: &[Looked]) -> impl Serialize {
    Json { schema_version: 1, command: None, findings: json_faults(files), fixed: None }
}

/// The faults of a command and of its env files, as JSON.
pub fn lint_command_json<'a>(checked: &'a Checked, env_files: &'a [Looked]) -> impl Serialize {
    let lines = Lines::of(&checked.text);
    let mut findings: Vec<_> = checked.faults.iter().map(|fault| json_fault(None, &lines, fault)).collect();
    findings.extend(json_faults(env_files));
    Json { schema_version: 1, command: Some(&checked.text), findings, fixed: checked.fixed.as_deref() }
}

fn json_faults(files: &[Looked]) -> Vec<JsonFault<'_>> {
    let mut out = Vec::new();
    for file in files {
        let lines = Lines::of(&file.text);
        out.extend(file.faults.iter().map(|fault| {
            let found = json_fault(Some(&file.name), &lines, fault);
            if file.origins.is_none() {
                return found;
            }
            let line = lines.line(fault.span.start);
            let (step, steps) = file.step(line).unzip();
            let place = JsonPlace::Image { image: &file.name, step, steps, instruction: lines.get(line) };
            JsonFault { file: None, place, ..found }
        }));
    }
    out
}
