//! A typed `docker run`, `podman run` or `nerdctl run`.

mod fixed;
mod gpus;
mod layout;

use std::ops::Range;

use self::fixed::{Edit, apply};
use self::layout::Layout;
use super::Fault;
use super::agree::{Asked, Cure, Dialect, compare, may_hold_gpus, selected_twice, voids};
use super::assigned::assigned;
use super::values::{Assignment, CUDA, NVIDIA, ORDER, check, said};
use crate::cuda::{Meaning, Value};
use crate::finding::{Code, Severity, quoted};
use crate::request::{Selection, parse_visible_devices};
use crate::shell;
use crate::spelling;
use crate::typed::{Client, Flag, Typed, TypedRun, parse};

/// What was found in a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The command as it has to be typed; places are in it.
    pub text: String,
    /// The faults, by place.
    pub faults: Vec<Fault>,
    /// The command with the fixes, where all of them are certain.
    pub fixed: Option<String>,
}

/// A fault, and what its fix does to the words.
pub(super) struct Cured {
    pub(super) fault: Fault,
    pub(super) edits: Option<Vec<Edit>>,
}

/// How often the fixes are looked at again.
const ROUNDS: usize = 4;

/// The faults of a command; `ignored` says which codes nobody wants to hear of.
pub fn command(run: &TypedRun, ignored: &dyn Fn(Code) -> bool) -> Checked {
    let (mut checked, mut words) = once(run, ignored);
    // A fault may hide another: the fixed command is looked at again, until there is nothing to be found.
    for _ in 0..ROUNDS {
        let Some(Ok(Typed::Run(again))) = words.as_deref().map(parse) else { break };
        let (next, more) = once(&again, ignored);
        if next.faults.is_empty() {
            checked.fixed = Some(next.text);
            break;
        }
        words = more;
    }
    checked
}

/// One look, and the words with the fixes.
fn once(run: &TypedRun, ignored: &dyn Fn(Code) -> bool) -> (Checked, Option<Vec<String>>) {
    let layout = Layout::of(&run.words);
    let words = Words { run, layout: &layout, dialect: dialect(run) };
    let mut found = Vec::new();
    let selection = words.selection(&mut found);
    words.variables(&mut found);
    words.agreement(selection.as_ref(), &mut found);
    words.twice(selection.as_ref(), &mut found);
    words.privileged(selection.as_ref(), &mut found);
    words.arguments(&mut found);
    found.retain(|cured| !ignored(cured.fault.code));
    found.sort_by_key(|cured| cured.fault.span.start);
    let edits: Option<Vec<Edit>> =
        found.iter().map(|cured| cured.edits.clone()).collect::<Option<Vec<_>>>().map(|edits| edits.concat());
    let words = edits.filter(|edits| !edits.is_empty()).map(|edits| apply(run, &edits));
    let fixed = words.as_deref().map(shell::join);
    (Checked { faults: found.into_iter().map(|cured| cured.fault).collect(), fixed, text: layout.text }, words)
}

fn dialect(run: &TypedRun) -> Dialect {
    let names_cdi = run.values("device").any(|device| device.starts_with("nvidia.com/gpu="));
    if run.client == Client::Podman || (names_cdi && run.named("gpus").next().is_none()) {
        Dialect::Podman
    } else {
        Dialect::Docker
    }
}

/// The command and where its words are shown.
pub(super) struct Words<'a> {
    pub(super) run: &'a TypedRun,
    layout: &'a Layout,
    pub(super) dialect: Dialect,
}

/// An `-e`.
struct Entry {
    flag: usize,
    assignment: Assignment,
}

impl Words<'_> {
    /// Where the value of a flag is shown; of a switch, where it is.
    pub(super) fn span(&self, flag: &Flag) -> Range<usize> {
        match flag.value_at {
            Some((word, byte)) => self.layout.part(word, byte),
            None => self.layout.part(flag.words.start, flag.starts),
        }
    }

    pub(super) fn fault(&self, flag: &Flag, code: Code, severity: Severity, said: [String; 3]) -> Fault {
        let [title, text, fix] = said;
        Fault { code, severity, span: self.span(flag), statement: 0, title, text, fix }
    }

    fn entries(&self) -> Vec<Entry> {
        let flags = self.run.flags.iter().enumerate().filter(|(_, flag)| flag.name == "env");
        flags
            .filter_map(|(position, flag)| {
                let (name, value) = match flag.value.as_deref()?.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (flag.value.as_deref()?, None),
                };
                let assignment = Assignment { name: name.to_owned(), value, span: self.span(flag), statement: 0 };
                Some(Entry { flag: position, assignment })
            })
            .collect()
    }

    fn last(&self, name: &str) -> Option<Entry> {
        self.entries().into_iter().rev().find(|entry| entry.assignment.name == name)
    }

    /// What was selected with flags; what the engine reads otherwise is reported.
    fn selection(&self, found: &mut Vec<Cured>) -> Option<Selection> {
        let mut selections = Vec::new();
        for (position, flag) in self.run.flags.iter().enumerate().filter(|(_, flag)| flag.name == "gpus") {
            selections.push(self.gpus(position, flag, found)?);
        }
        for device in self.run.values("device") {
            selections.extend(crate::request::cdi_selection(device));
        }
        let mut names = Vec::new();
        for selection in &selections {
            match selection {
                Selection::Names(more) => names.extend(more.iter().cloned()),
                other => return (selections.len() == 1 || *other == Selection::All).then(|| other.clone()),
            }
        }
        if !names.is_empty() {
            return Some(Selection::Names(names));
        }
        Some(parse_visible_devices(self.last(NVIDIA)?.assignment.value.as_deref()?))
    }

    /// What is wrong with a variable alone.
    fn variables(&self, found: &mut Vec<Cured>) {
        for entry in self.entries() {
            for fault in check(&entry.assignment, false) {
                let edit = match fault.code {
                    Code::NotACudaValue | Code::DisabledByOverride => Some(Edit::Remove(entry.flag)),
                    // A second one would count in place of what was typed rightly.
                    Code::MisspeltVariable
                        if spelling::variable(&entry.assignment.name).is_some_and(|name| self.last(name).is_some()) =>
                    {
                        Some(Edit::Remove(entry.flag))
                    }
                    Code::MisspeltVariable => spelling::variable(&entry.assignment.name).map(|name| {
                        let value = entry.assignment.value.as_ref().map(|value| format!("={value}"));
                        Edit::Set(entry.flag, format!("{name}{}", value.unwrap_or_default()))
                    }),
                    // `NAME=VALUE`, perhaps with an alternative behind it.
                    _ => {
                        let first = fault.fix.split(", ").next().unwrap_or_default();
                        first.starts_with(&entry.assignment.name).then(|| Edit::Set(entry.flag, first.to_owned()))
                    }
                };
                found.push(Cured { fault, edits: edit.map(|edit| vec![edit]) });
            }
        }
    }

    /// Whether what was selected and `CUDA_VISIBLE_DEVICES` agree.
    fn agreement(&self, selection: Option<&Selection>, found: &mut Vec<Cured>) {
        let Some(entry) = self.last(CUDA) else { return };
        let Some(value) = entry.assignment.value.as_deref() else { return };
        let span = &entry.assignment.span;
        if found.iter().any(|cured| cured.fault.span == *span && cured.fault.code != Code::DisabledByOverride) {
            return;
        }
        if self.grants_nothing() {
            if Value::parse(value).meaning != Meaning::Hidden {
                let text = "Neither --gpus nor --device nor --runtime: unless the engine's default runtime gives it \
                            some, the container has no GPU.";
                let fix = format!("{}, or leave it out", self.all());
                let said = said(format!("{CUDA} is set, and no GPU is asked for"), text, fix);
                let fault = entry.assignment.fault(Code::NothingGranted, Severity::Warning, said);
                found.push(Cured { fault, edits: None });
            }
            return;
        }
        let Some(selection) = selection else { return };
        let order = self.last(ORDER);
        let order_value = order.as_ref().and_then(|entry| entry.assignment.value.clone());
        let asked = Asked { selection, value, order: order_value.as_deref(), dialect: self.dialect };
        let Some(answer) = compare(&asked) else { return };
        if answer.code == Code::DeviceOrderUnset && (order.is_some() || self.run.named("env-file").next().is_some()) {
            return;
        }
        let edits = match answer.cure {
            Cure::LeaveOut => Some(vec![Edit::Remove(entry.flag)]),
            Cure::Value(value) => Some(vec![Edit::Set(entry.flag, format!("{CUDA}={value}"))]),
            Cure::Order => Some(vec![Edit::Behind(entry.flag, vec!["-e".to_owned(), format!("{ORDER}=PCI_BUS_ID")])]),
            Cure::Select(numbers) => self.select(&numbers).map(|edit| vec![edit, Edit::Remove(entry.flag)]),
            Cure::Unclear => None,
        };
        found.push(Cured { fault: entry.assignment.fault(answer.code, answer.severity, answer.said), edits });
    }

    fn all(&self) -> &'static str {
        if self.dialect == Dialect::Podman { "--device nvidia.com/gpu=all" } else { "--gpus all" }
    }

    /// The one `--gpus` with these.
    fn select(&self, numbers: &[u32]) -> Option<Edit> {
        let mut flags = self.run.flags.iter().enumerate().filter(|(_, flag)| flag.name == "gpus");
        let (position, _) = flags.next()?;
        flags.next().is_none().then(|| Edit::Set(position, gpus::list(numbers)))
    }

    /// Whether nothing in the command can give the container a GPU.
    fn grants_nothing(&self) -> bool {
        let other = ["gpus", "device", "runtime", "env-file", "privileged", "device-cgroup-rule"];
        let mut mounts = self.run.values("volume").chain(self.run.values("mount"));
        self.last(NVIDIA).is_none()
            && other.iter().all(|name| self.run.named(name).next().is_none())
            && !mounts.any(may_hold_gpus)
            && self.run.unknown.is_empty()
    }

    /// A selection beside `NVIDIA_VISIBLE_DEVICES`.
    fn twice(&self, selection: Option<&Selection>, found: &mut Vec<Cured>) {
        let Some(flag) = self.run.flags.iter().find(|flag| flag.name == "gpus") else { return };
        let Some(entry) = self.last(NVIDIA) else { return };
        let Some(value) = entry.assignment.value.as_deref() else { return };
        if selection.is_none_or(|selection| *selection == parse_visible_devices(value)) {
            return;
        }
        let other = format!("--gpus {}", quoted(flag.value.as_deref().unwrap_or_default()));
        let fault = selected_twice(&entry.assignment, &other);
        found.push(Cured { fault, edits: Some(vec![Edit::Remove(entry.flag)]) });
    }

    /// `--privileged` beside a selection.
    fn privileged(&self, selection: Option<&Selection>, found: &mut Vec<Cured>) {
        let chosen = selection.filter(|selection| !matches!(selection, Selection::All | Selection::Nothing));
        let (Some(selection), true) = (chosen, self.run.is_on("privileged")) else { return };
        let last = self.run.flags.iter().enumerate().rfind(|(_, flag)| flag.name == "privileged");
        let Some((position, flag)) = last else { return };
        let said = voids(selection, "leave --privileged out; name the capability or device that it is there for");
        let fault = self.fault(flag, Code::CannotNarrow, Severity::Warning, said);
        found.push(Cured { fault, edits: Some(vec![Edit::Remove(position)]) });
    }

    /// What stands behind the image: variables that are set there, and flags that came too late.
    fn arguments(&self, found: &mut Vec<Cured>) {
        for place in self.run.arguments.clone() {
            let part = self.layout.part(place, 0);
            for assigned in assigned(&self.layout.text, part) {
                let fault = assigned.fault(0);
                found.push(Cured { fault, edits: None });
            }
        }
        let typed = self.run.arguments();
        let Some(first) = typed.first() else { return };
        let is_gpus = first == "--gpus" || first.starts_with("--gpus=");
        if !is_gpus || self.run.named("gpus").next().is_some() {
            return;
        }
        let at = self.run.arguments.start;
        let taken = if first == "--gpus" && typed.len() > 1 { 2 } else { 1 };
        let span = self.layout.part(at, 0).start..self.layout.part(at + taken - 1, 0).end;
        let text =
            format!("What stands behind the image is for its program: {} never sees it.", self.run.client.name());
        let said = said("a flag behind the image", text, "put it before the image");
        let [title, text, fix] = said;
        let severity = Severity::Warning;
        let fault = Fault { code: Code::FlagBehindImage, severity, span, statement: 0, title, text, fix };
        found.push(Cured { fault, edits: Some(vec![Edit::BeforeImage(at..at + taken)]) });
    }
}
