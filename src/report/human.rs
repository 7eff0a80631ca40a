//! `cudaview explain` for people.

use super::changes::{self, changed_variables, mapping};
use super::json::container_index;
use super::style::{Tone, USUAL, cut};
use super::words::count;
use super::{Container, Made, Style, Subject, container, hints, image, refusal, said};
use crate::finding::quoted;
use crate::inventory::Device;
use crate::plan::{ExecPlan, Plan, Verdict};
use crate::reconcile::{Basis, View};

/// The whole report.
pub fn explain(subject: &Subject<'_>, style: Style) -> String {
    let mut sections = vec![first_line(subject, style)];
    if subject.inventory.platform.is_usual() {
        sections.push(table(subject, style));
    }
    let is_as_decided = subject.container.is_none_or(|container| container.as_is().is_none());
    if !is_as_decided {
        sections.push(with(subject, style));
    }
    sections.push(said::section(subject, style) + &image::section(subject, style) + &changes::section(subject, style));
    let refused_early = subject.plan.verdict == Verdict::Refused && subject.plan.reconciliation.is_none();
    if !refused_early && is_as_decided {
        sections.push(changes::without(subject, style));
    }
    sections.extend(subject.exec.map(|exec| exec_section(subject, exec, style)));
    let origins = container::section(subject, style);
    if !origins.is_empty() {
        sections.push(origins);
    }
    let findings = hints::section(subject, style);
    if !findings.is_empty() {
        sections.push(findings);
    }
    sections.join("\n")
}

/// The answer, as one sentence.
fn first_line(subject: &Subject<'_>, style: Style) -> String {
    let plan = subject.plan;
    let width = Style { width: style.width + 1, ..style };
    let bold = |text: &str| -> String {
        width.wrap(0, text).into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect()
    };
    if let (Some(container), Some(name)) = (subject.container, subject.name)
        && let Some(now) = container.as_is()
    {
        let seen = match now.visible.as_slice() {
            [] => "no GPU: CUDA finds no device".to_owned(),
            devices => mapping(subject.inventory, devices),
        };
        let sees = container.tense.verb();
        let sees = if now.certain { sees.to_owned() } else { format!("probably {sees}") };
        let who = match container.made {
            Made::Without(_) => "made without cudaview",
            Made::Observed(_) => "observed by cudaview, not changed",
            Made::HookAlone(_) => "made by cudaview's hook alone",
            Made::Cudaview | Made::ChangedAfter(_) => "changed after cudaview",
        };
        return bold(&format!("{name} {sees} {seen} ({who})"));
    }
    let text = decided(subject);
    let text = match subject.name {
        Some(name) if plan.verdict == Verdict::Refused => {
            let refused = if subject.done { "was refused" } else { "would be refused" };
            format!("{name} {refused}: {}", text.trim_start_matches("no container: "))
        }
        Some(name) => format!("{name} {} {text}", subject.container.map_or("sees", |container| container.tense.verb())),
        None => text,
    };
    bold(&format!("{text} ({})", outcome(subject)))
}

/// What was decided, or would be.
fn decided(subject: &Subject<'_>) -> String {
    match subject.plan.verdict {
        Verdict::Refused if subject.observe => format!("would be refused: {}", why_refused(subject)),
        Verdict::Refused => format!("no container: {}", why_refused(subject)),
        Verdict::NotApplicable if subject.plan.is_without_selection(subject.inventory) => {
            "every GPU of this WSL2 host: none can be chosen, and numbers stay as they are".to_owned()
        }
        Verdict::NotApplicable => "no GPU: none is granted".to_owned(),
        Verdict::Consistent | Verdict::Rewritten => seen(subject),
    }
}

/// What there would be with cudaview, for a container that is not as it would have it.
fn with(subject: &Subject<'_>, style: Style) -> String {
    let mut out = "With cudaview\n".to_owned();
    for line in style.wrap(2, &format!("{} ({})", decided(subject), outcome(subject))) {
        out.push_str(&format!("  {line}\n"));
    }
    out
}

/// The verdict, as it stands in parentheses behind the answer.
fn outcome(subject: &Subject<'_>) -> &'static str {
    let verdict = subject.plan.verdict;
    match (verdict, subject.observe) {
        (Verdict::Refused, true) => "observe",
        (Verdict::Rewritten, true) => "would be rewritten: observe",
        (Verdict::Rewritten, false) if subject.situation.decided_before && !subject.done => {
            "already rewritten at create"
        }
        _ => verdict.name(),
    }
}

/// Why there is no container, in a few words.
pub(super) fn why_refused(subject: &Subject<'_>) -> String {
    let Subject { plan, situation, .. } = *subject;
    let no_match = plan.reconciliation.as_ref().is_some_and(|decided| decided.refused);
    match &situation.original.visible_devices {
        Some(value) if no_match => format!("CUDA_VISIBLE_DEVICES={} names none of the granted GPUs", quoted(value)),
        _ => plan.findings.last().map(|finding| finding.message.clone()).unwrap_or_default(),
    }
}

fn seen(subject: &Subject<'_>) -> String {
    let Subject { inventory, plan, situation, .. } = *subject;
    let value = quoted(situation.original.visible_devices.as_deref().unwrap_or_default());
    let decided = plan.reconciliation.as_ref();
    let granted = plan.grant.devices.len();
    let hidden = if granted == 1 { "the one that is".to_owned() } else { format!("the {granted} that are") };
    match decided.map(|decided| (&decided.view, &decided.basis)) {
        Some((View::Hidden, Basis::Hides)) => format!("0 GPUs: CUDA_VISIBLE_DEVICES={value} hides {hidden} granted"),
        Some((View::Hidden, _)) => format!("0 GPUs: CUDA_VISIBLE_DEVICES={value} names none of {hidden} granted"),
        Some((View::AsWritten, _)) if !plan.certain => {
            format!("CUDA_VISIBLE_DEVICES={value} is left as it is: which GPU it means is not certain")
        }
        _ if plan.visible.is_empty() => format!("0 GPUs: CUDA shows none of {hidden} granted"),
        _ if plan.certain => mapping(inventory, &plan.visible),
        _ => format!("{}, in an order that is not certain", count(&plan.visible)),
    }
}

/// A row of the table.
struct Row {
    host: String,
    name: String,
    uuid: String,
    granted: &'static str,
    inside: String,
    program: String,
}

/// Everything in the table but name and UUID, with the two columns before the name.
const FIXED: usize = 2 + 4 + 2 + 2 + 2 + 7 + 2 + 6 + 2 + 7;

fn table(subject: &Subject<'_>, style: Style) -> String {
    let rows = rows(subject, style);
    let widest = |get: fn(&Row) -> &String, least: usize| {
        rows.iter().map(|row| get(row).chars().count()).chain([least]).max().unwrap_or(least)
    };
    let uuid = widest(|row| &row.uuid, 4);
    let room = style.width.saturating_sub(FIXED + uuid);
    let whole = widest(|row| &row.name, 4);
    let name = whole.min(room.max(12));
    let (has_name, has_uuid) = (style.width >= USUAL || whole <= room, FIXED - 2 + uuid <= style.width);
    let line = |host: &str, title: &str, id: &str, granted: &str, inside: &str, program: &str| {
        let title = if has_name { format!("{:name$}  ", cut(title, name)) } else { String::new() };
        let id = if has_uuid { format!("{id:uuid$}  ") } else { String::new() };
        format!("  {host:4}  {title}{id}{granted:7}  {inside:6}  {program}")
    };
    let mut out = line("HOST", "NAME", "UUID", "GRANTED", "INSIDE", "PROGRAM") + "\n";
    for row in &rows {
        let program = style.paint(Tone::Green, &row.program);
        let is_dim = row.granted != "yes" && row.program == "-";
        if is_dim {
            let plain = line(&row.host, &row.name, &row.uuid, row.granted, &row.inside, &row.program);
            out.push_str(&style.paint(Tone::Dim, &plain));
        } else {
            let shown = if row.program == "-" { "-" } else { &program };
            out.push_str(&line(&row.host, &row.name, &row.uuid, row.granted, &row.inside, shown));
        }
        out.push('\n');
    }
    if explains_columns(subject.plan) {
        let text = "HOST, INSIDE: the number in nvidia-smi there. PROGRAM: what CUDA calls it.";
        out.extend(style.wrap(2, text).iter().map(|line| format!("  {line}\n")));
    }
    out
}

/// Whoever typed numbers is told what the numbers mean; where an image's value gave way, nobody here typed any.
fn explains_columns(plan: &Plan) -> bool {
    plan.reconciliation.as_ref().is_none_or(|decided| decided.basis != Basis::ImageYields)
}

fn rows(subject: &Subject<'_>, style: Style) -> Vec<Row> {
    let Subject { inventory, plan, .. } = *subject;
    let (openable, visible, certain) = match subject.container.and_then(Container::as_is) {
        Some(now) => (now.openable.as_slice(), now.visible.as_slice(), now.certain),
        // A refused container has no inside; its numbers are those that the text of the refusal uses.
        None if plan.verdict == Verdict::Refused => (plan.grant.devices.as_slice(), plan.visible.as_slice(), true),
        None => (plan.openable(), plan.visible.as_slice(), plan.certain),
    };
    let mut rows = Vec::new();
    for (position, gpu) in inventory.gpus.iter().enumerate() {
        let devices = inventory.devices_of(position);
        let is_mig = gpu.mig_enabled || !gpu.mig.is_empty();
        if is_mig {
            rows.push(parent_row(subject, position, &devices, openable, style));
        }
        for device in devices {
            let uuid = if style.is_wide() { inventory.uuid(device).to_owned() } else { inventory.short_uuid(device) };
            let mig_name = |profile: &str| format!("  MIG {profile}").trim_end().to_owned();
            let ordinal = visible.iter().position(|seen| *seen == device).filter(|_| certain);
            rows.push(Row {
                host: inventory.host_label(device),
                name: inventory.mig(device).map_or_else(|| gpu.name.clone(), |mig| mig_name(&mig.profile)),
                uuid,
                granted: if plan.grant.devices.contains(&device) { "yes" } else { "no" },
                inside: if openable.contains(&device) { inside(openable, device) } else { "-".to_owned() },
                program: program(ordinal, !certain && openable.contains(&device)),
            });
        }
    }
    rows
}

fn program(ordinal: Option<usize>, is_possible: bool) -> String {
    match ordinal {
        Some(ordinal) => format!("cuda:{ordinal}"),
        None if is_possible => "?".to_owned(),
        None => "-".to_owned(),
    }
}

fn inside(openable: &[Device], device: Device) -> String {
    container_index(openable, device).map_or_else(|| "-".to_owned(), |index| index.to_string())
}

/// The GPU that MIG devices are parts of: `nvidia-smi` lists it, CUDA does not.
fn parent_row(subject: &Subject<'_>, gpu: usize, parts: &[Device], openable: &[Device], style: Style) -> Row {
    let found = &subject.inventory.gpus[gpu];
    let granted = parts.iter().filter(|part| subject.plan.grant.devices.contains(part)).count();
    let uuid = if style.is_wide() { found.uuid.as_str() } else { found.uuid.short() };
    let open = openable.iter().find(|device| device.gpu == gpu);
    Row {
        host: found.index.to_string(),
        name: found.name.clone(),
        uuid: uuid.to_owned(),
        granted: match granted {
            0 => "no",
            all if all == parts.len() => "yes",
            _ => "part",
        },
        inside: open.map_or_else(|| "-".to_owned(), |device| inside(openable, *device)),
        program: "-".to_owned(),
    }
}

/// What a process that is added gets.
fn exec_section(subject: &Subject<'_>, exec: &ExecPlan, style: Style) -> String {
    let Subject { inventory, plan, .. } = *subject;
    let value = exec.current.visible_devices.as_deref();
    let seen = match (exec.verdict, exec.visible.as_slice()) {
        (Verdict::Refused, _) => {
            let value = quoted(value.unwrap_or_default());
            format!("no process: CUDA_VISIBLE_DEVICES={value} names none of this container's GPUs")
        }
        (_, []) => "0 GPUs".to_owned(),
        (_, devices) => mapping(inventory, devices),
    };
    let mut out = "A process that exec adds\n".to_owned();
    for line in style.wrap(2, &format!("{seen} ({})", exec.verdict.name())) {
        out.push_str(&format!("  {line}\n"));
    }
    if exec.verdict == Verdict::Refused {
        let has = |index: u32| inventory.position_of_index(index).is_some();
        let source = subject.situation.way(&plan.grant.requests);
        let (fact, hints) = refusal::exec_advice(value.unwrap_or_default(), inventory, plan.kept(), source, has);
        out.extend(style.wrap(2, &fact).iter().map(|line| format!("  {line}\n")));
        for finding in &exec.findings {
            out.push_str(&format!("  {}", hints::heading(finding, style)));
        }
        out.extend(hints.iter().map(|hint| style.tagged(4, "hint", hint)));
        return out;
    }
    for (name, text) in changed_variables(inventory, &exec.current, &exec.emitted, plan.kept()) {
        out.push_str(&style.beside(&format!("  {name}"), 26, &[text]));
    }
    for finding in &exec.findings {
        out.push_str(&hints::plain(finding, 2, style));
    }
    out
}

#[cfg(test)]
mod tests;
