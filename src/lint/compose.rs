//! Compose files.

mod devices;

use std::collections::HashSet;
use std::rc::Rc;

use self::devices::{Requested, requested};
use super::Fault;
use super::agree::{Asked, Dialect, compare, may_hold_gpus, selected_twice, voids};
use super::assigned::assigned;
use super::interpolate::resolve;
use super::values::{Assignment, CUDA, NVIDIA, ORDER, check, said};
use super::yaml::{Content, InvalidYaml, Node, parse};
use crate::cuda::{Meaning, Value};
use crate::finding::{Code, Severity};
use crate::request::{Selection, parse_visible_devices};

/// How many services are looked at: a file that grows by its anchors must not take for ever.
const MOST_SERVICES: usize = 512;

/// How many variables of each.
const MOST_ENTRIES: usize = 1024;

/// The faults of a Compose file.
///
/// # Errors
/// [`InvalidYaml`] for a text that is none.
pub fn compose(text: &str) -> Result<Vec<Fault>, InvalidYaml> {
    let Some(root) = parse(text)? else { return Ok(Vec::new()) };
    let services = root.get("services").map(|services| services.members()).unwrap_or_default();
    let mut out = Vec::new();
    // Services share parts by anchors; what is wrong with a part is said once.
    let mut seen = HashSet::new();
    for (_, service) in services.iter().take(MOST_SERVICES) {
        let found = of_service(text, service).into_iter();
        out.extend(found.filter(|fault| seen.insert((fault.span.start, fault.span.end, fault.code))));
    }
    Ok(out)
}

/// What a service comes to for the rules.
struct Service<'a> {
    node: &'a Node,
    environment: Vec<Assignment>,
    requested: Requested,
}

fn of_service(text: &str, node: &Node) -> Vec<Fault> {
    let mut out = Vec::new();
    let environment = environment(node, &mut out);
    let requested = requested(node, &mut out);
    let service = Service { node, environment, requested };
    let before = out.len();
    for assignment in &service.environment {
        out.extend(check(assignment, false));
    }
    let has_fault = |name: &str| {
        let Some(found) = service.last(name) else { return false };
        out[before..].iter().any(|fault| fault.span == found.span && fault.code != Code::DisabledByOverride)
    };
    if !has_fault(CUDA) {
        out.extend(service.agreement());
    }
    out.extend(service.twice());
    out.extend(service.privileged());
    for name in ["command", "entrypoint"] {
        let Some((key, value)) = node.member(name) else { continue };
        let found = assigned(text, value.span.clone());
        out.extend(found.iter().map(|assigned| assigned.fault(key.span.start)));
    }
    out
}

/// The entries of `environment`, as a map or as a list; the defaults of variables are looked at on the way.
fn environment(service: &Node, out: &mut Vec<Fault>) -> Vec<Assignment> {
    let Some(environment) = service.get("environment") else { return Vec::new() };
    let mut entries = Vec::new();
    gather(environment, &mut entries, 0);
    for (assignment, written) in &mut entries {
        let Some(written) = written else { continue };
        let resolved = resolve(written, &|_| None);
        if assignment.name == NVIDIA && resolved.defaults.iter().any(|default| default.eq_ignore_ascii_case("all")) {
            out.push(fails_open(assignment));
        }
        assignment.value = resolved.text;
    }
    entries.into_iter().map(|(assignment, _)| assignment).collect()
}

/// Each entry with its value as written.
fn gather(environment: &Node, out: &mut Vec<(Assignment, Option<String>)>, depth: usize) {
    match &environment.content {
        Content::Map(members) => {
            for (key, value) in members.iter().take(MOST_ENTRIES) {
                let Some(name) = key.text() else { continue };
                if name == "<<" && depth < 3 {
                    merged(value, out, depth + 1);
                    continue;
                }
                let written = value.text().filter(|_| !value.is_null()).map(str::to_owned);
                out.push((entry(name, &(key.span.start..value.span.end), key.span.start), written));
            }
        }
        Content::List(items) => {
            for item in items.iter().take(MOST_ENTRIES) {
                let Some(text) = item.text() else { continue };
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (text, None),
                };
                out.push((entry(name, &item.span, item.span.start), value));
            }
        }
        Content::Scalar { .. } => {}
    }
}

fn merged(value: &Rc<Node>, out: &mut Vec<(Assignment, Option<String>)>, depth: usize) {
    let mut inner = Vec::new();
    match &value.content {
        Content::List(several) => several.iter().take(8).for_each(|map| gather(map, &mut inner, depth)),
        _ => gather(value, &mut inner, depth),
    }
    // What the map has of its own stands behind and counts.
    out.splice(0..0, inner);
}

fn entry(name: &str, span: &std::ops::Range<usize>, statement: usize) -> Assignment {
    // An alias as the value stands elsewhere.
    let span = if span.end < span.start { span.start..span.start } else { span.clone() };
    Assignment { name: name.to_owned(), value: None, span, statement }
}

fn fails_open(assignment: &Assignment) -> Fault {
    let text = "Whoever forgets to set it gets all GPUs, and takes them from others.";
    let fix = "a default that is one GPU, or ${NAME:?say which GPUs}, which stops";
    assignment.fault(Code::DefaultFailsOpen, Severity::Warning, said("the default is every GPU", text, fix))
}

impl Service<'_> {
    /// The entry that counts.
    fn last(&self, name: &str) -> Option<&Assignment> {
        self.environment.iter().rev().find(|assignment| assignment.name == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.last(name)?.value.as_deref()
    }

    /// What was selected, where that can be told.
    fn selection(&self) -> Option<Selection> {
        match &self.requested {
            Requested::Devices { selection } => selection.clone(),
            Requested::Unknown => None,
            Requested::Nothing => self.value(NVIDIA).map(parse_visible_devices),
        }
    }

    /// Whether the selection and `CUDA_VISIBLE_DEVICES` agree.
    fn agreement(&self) -> Option<Fault> {
        let assignment = self.last(CUDA)?;
        let value = assignment.value.as_deref()?;
        if self.grants_nothing() {
            if Value::parse(value).meaning == Meaning::Hidden {
                return None;
            }
            let text = "The service asks for no GPU: neither gpus, nor a reservation of devices, nor a runtime.";
            let fix = "ask for one with gpus, or delete the variable";
            let said = said(format!("{CUDA} is set, and no GPU is given"), text, fix);
            return Some(assignment.fault(Code::NothingGranted, Severity::Warning, said));
        }
        let selection = self.selection()?;
        let asked = Asked { selection: &selection, value, order: self.value(ORDER), dialect: Dialect::Compose };
        let order_unknown = self.last(ORDER).is_some_and(|order| order.value.is_none());
        let answer = compare(&asked).filter(|answer| answer.code != Code::DeviceOrderUnset || !order_unknown)?;
        Some(assignment.fault(answer.code, answer.severity, answer.said))
    }

    /// Whether nothing here can give it a GPU.
    fn grants_nothing(&self) -> bool {
        let elsewhere = ["runtime", "devices", "extends", "env_file", "privileged", "device_cgroup_rules"];
        let volumes = self.node.get("volumes").map(|volumes| volumes.items()).unwrap_or_default();
        let source = |volume: &Node| {
            let long = volume.get("source").and_then(|source| source.text());
            long.or(volume.text()).is_some_and(may_hold_gpus)
        };
        self.requested == Requested::Nothing
            && self.last(NVIDIA).is_none()
            && elsewhere.iter().all(|name| self.node.get(name).is_none())
            && !volumes.iter().any(|volume| source(volume))
    }

    /// A selection beside `NVIDIA_VISIBLE_DEVICES`.
    fn twice(&self) -> Option<Fault> {
        let Requested::Devices { selection } = &self.requested else { return None };
        let assignment = self.last(NVIDIA)?;
        let value = assignment.value.as_deref()?;
        if selection.as_ref() == Some(&parse_visible_devices(value)) {
            return None;
        }
        Some(selected_twice(assignment, "the devices that the service reserves"))
    }

    /// `privileged` beside a selection.
    fn privileged(&self) -> Option<Fault> {
        let (key, value) = self.node.member("privileged")?;
        let selection =
            self.selection().filter(|selection| !matches!(selection, Selection::All | Selection::Nothing))?;
        if value.text() != Some("true") {
            return None;
        }
        let said = voids(&selection, "delete privileged; name the capability or the device that it is there for");
        let span = key.span.start..value.span.end.max(key.span.start);
        let [title, text, fix] = said;
        let code = Code::CannotNarrow;
        Some(Fault { code, severity: Severity::Warning, span, statement: key.span.start, title, text, fix })
    }
}
