//! `cudaview explain --container`: a container that exists, or the audit record of one that is gone.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cli::{ExplainArgs, Format};
use super::explain::{exec, show};
use super::image;
use super::output::{Failure, note, print, print_json, style};
use crate::config::{Config, Mode};
use crate::exit::Exit;
use crate::finding::{Code, Severity, printable, quoted};
use crate::image::SetBy;
use crate::inspected;
use crate::inventory::Inventory;
use crate::plan::{Plan, Verdict, plan};
use crate::provenance::{Engine, Provenance, found_later};
use crate::record::{Record, Variables, devices};
use crate::recorded::{as_is, as_recorded, from_audit as record_from};
use crate::report::{
    AsIs, Container, Fate, ImageEnv, ImageSource, Made, Origin, Subject, Tense, Told, gone, gone_json,
};
use crate::situation::{HostFacts, Situation, from_spec};
use crate::spec::Spec;
use crate::spelling;
use crate::sys::containers::{self, Found, Look, Places, Search};
use crate::sys::images::Store;
use crate::sys::{audit, host, inventory};
use crate::whatif::last;

pub(super) fn run(name: &str, arguments: &ExplainArgs, config: &Config) -> Result<(), Failure> {
    if !containers::is_name(name) {
        let hint = "a name or an id as docker ps and podman ps print it";
        return Err(Failure::usage(format!("no container can be called {}", quoted(name)), hint));
    }
    let mut search = containers::find(name, &Places::of_environment());
    if let Some(labels) = search.ambiguity() {
        return Err(several(name, &labels));
    }
    let Some(found) = search.found.pop() else { return from_audit(name, arguments.format, config, &search) };
    let inventory = inventory::look(config, arguments.inventory.as_deref())?;
    explain(&found, arguments, inventory, config)
}

/// Reports on one that exists.
fn explain(found: &Found, arguments: &ExplainArgs, inventory: Inventory, config: &Config) -> Result<(), Failure> {
    let bad = |error| {
        let text = format!("failed to read the configuration of the container {}", found.label());
        Failure::new(Exit::BadInput, anyhow::Error::new(error).context(text), "")
    };
    let bundle = found.bundle.as_ref().map(|value| Spec::new(value).map_err(bad)).transpose()?;
    let record = bundle.and_then(Spec::record);
    let mut notes = found.notes.clone();
    // A GPU that was there then may be gone.
    let knows_all = |record: &Record| devices(&inventory, &record.granted).len() == record.granted.len();
    let inventory = match &record {
        Some(record) if !knows_all(record) => {
            notes.push("GPUs of this container are not on this host any more; only its own are shown".to_owned());
            record.inventory()
        }
        _ => inventory,
    };
    let by_engine = by_engine(found, &inventory);
    let spec = match (&by_engine, bundle) {
        (Some(value), _) => Spec::new(value).map_err(bad)?,
        (None, Some(bundle)) => bundle,
        (None, None) => return Err(nothing_to_look_at(found)),
    };
    let mut situation = situation(found, spec, &inventory, config);
    let audited = if found.bundle.is_none() && found.is_ours != Some(false) { newest(&found.id, config) } else { None };
    let of_audit = audited.as_ref().filter(|audited| audited["mode"] == "enforce" && audited["verdict"] != "refused");
    let record = record.or_else(|| record_from(of_audit?, &situation, &inventory));
    let origins = origins(found, &situation, record.as_ref());
    if let (Some(record), Engine::Docker) = (&record, found.engine) {
        situation.provenance = record.provenance;
        situation.current.clone_from(&situation.original);
    }
    let mut decided = plan(&inventory, &situation, config);
    let past = Past { record: record.as_ref(), audited: audited.as_ref(), observes: config.mode == Mode::Observe };
    let made = made(found, &situation, &mut decided, bundle, &inventory, &past, &mut notes);
    let is_refused = decided.verdict == Verdict::Refused;
    let was_refused = found.was_refused || audited.as_ref().is_some_and(|audited| audited["verdict"] == "refused");
    let tense = tense(found, &made, record.is_some());
    let done = if is_refused { was_refused } else { tense != Tense::Would };
    if was_refused && !is_refused {
        notes.push("cudaview refused it when it was to be created".to_owned());
    }
    if tense == Tense::Would && made == Made::Cudaview && !(is_refused && was_refused) {
        notes.push("no record says what was done: shown is what would be done now, by this configuration".to_owned());
    }
    notes.extend(limits(found, record.as_ref()));
    let exec = exec(arguments, &inventory, &situation, &decided, config);
    let mut container = container(found, made, tense, origins, notes);
    container.looked_at.extend(audited.as_ref().map(|_| audit::place(&config.audit)));
    let short = containers::short(&found.id).to_owned();
    let name = found.facts.container_name.as_ref().map_or(short, |name| printable(name));
    let image = image_env(found);
    let subject = Subject {
        inventory: &inventory,
        situation: &situation,
        plan: &decided,
        exec: exec.as_ref(),
        image: &image,
        name: Some(&name),
        container: Some(&container),
        done,
        told: Told::Engine,
        observe: false,
        origin_unknown: "see where it comes from, below",
    };
    show(&subject, arguments.format)
}

/// The `config.json` that Docker makes of what it was asked for; what was done to it stands in the bundle.
fn by_engine(found: &Found, inventory: &Inventory) -> Option<Value> {
    let said = found.inspected.as_ref()?;
    Some(inspected::spec(said, &found.facts, inventory, &containers::device_numbers(said)))
}

fn situation(found: &Found, spec: Spec<'_>, inventory: &Inventory, config: &Config) -> Situation {
    let host = HostFacts { mount_numbers: host::mount_numbers(spec), rootless: found.rootless, ..HostFacts::default() };
    from_spec(spec, inventory, &found.facts, &host, config)
}

/// What a running container can open, and what a program in it sees; `None` where there is nothing to look at.
pub(super) fn seen(found: &Found, inventory: &Inventory, config: &Config) -> Option<AsIs> {
    let bundle = found.bundle.as_ref().and_then(|value| Spec::new(value).ok());
    let by_engine = by_engine(found, inventory);
    let spec = by_engine.as_ref().and_then(|value| Spec::new(value).ok()).or(bundle)?;
    let mut situation = situation(found, spec, inventory, config);
    let record = bundle.and_then(Spec::record);
    if let (Some(record), Engine::Docker) = (&record, found.engine) {
        situation.provenance = record.provenance;
        situation.current.clone_from(&situation.original);
    }
    let mut decided = plan(inventory, &situation, config);
    let past = Past { record: record.as_ref(), audited: None, observes: config.mode == Mode::Observe };
    Some(match made(found, &situation, &mut decided, bundle, inventory, &past, &mut Vec::new()) {
        Made::Cudaview => {
            AsIs { openable: decided.openable().to_vec(), visible: decided.visible, certain: decided.certain }
        }
        Made::ChangedAfter(is) | Made::HookAlone(is) | Made::Observed(is) | Made::Without(is) => is,
    })
}

/// What would become of a container of Docker's under cudaview; `None` where nothing tells.
pub(super) fn fate(found: &Found, inventory: &Inventory, config: &Config, default: bool) -> Option<Fate> {
    let value = by_engine(found, inventory)?;
    let spec = Spec::new(&value).ok()?;
    let mut situation = situation(found, spec, inventory, config);
    situation.runtime_named = Some(!default);
    let decided = plan(inventory, &situation, config);
    let injects = found.runtime.as_deref().is_some_and(|runtime| runtime.contains("nvidia"));
    let has_now = !as_is(&decided, &situation, inventory, injects).openable.is_empty();
    let only_image = decided.findings.iter().any(|finding| finding.code == Code::ImageRequestIgnored);
    Some(match (decided.verdict, &situation.original.visible_devices, &decided.emitted.visible_devices) {
        (Verdict::Refused | Verdict::NotApplicable, ..) if only_image && has_now => Fate::Lost,
        (Verdict::Refused, ..) => {
            let error = decided.findings.iter().find(|finding| finding.severity == Severity::Error);
            Fate::Refused(error.map_or_else(String::new, |finding| finding.message.clone()))
        }
        (Verdict::Rewritten, Some(typed), Some(given)) if typed != given => {
            Fate::Renumbered { typed: typed.clone(), given: given.clone() }
        }
        _ => Fate::Same,
    })
}

/// What the report says of it beside the plan.
fn container(found: &Found, made: Made, tense: Tense, origins: Vec<Origin>, notes: Vec<String>) -> Container {
    Container {
        engine: found.engine,
        id: found.id.clone(),
        image: found.facts.image.clone(),
        image_id: found.image_id.clone(),
        runtime: found.runtime.clone(),
        state: found.state.clone(),
        made,
        tense,
        origins,
        looked_at: found.looked_at.clone(),
        notes,
    }
}

/// What is written down about a container.
struct Past<'a> {
    /// What was done, by its bundle or by the audit trail.
    record: Option<&'a Record>,
    /// Its newest line in the audit trail, looked for where there is no bundle.
    audited: Option<&'a Value>,
    /// The configuration says to do nothing.
    observes: bool,
}

/// What may be said as a fact, of what there is or was.
fn tense(found: &Found, made: &Made, has_record: bool) -> Tense {
    match (found.is_running(), found.ran) {
        (true, _) => Tense::Sees,
        (false, Some(false)) => Tense::Would,
        // Only what was decided depends on more than the container itself.
        (false, _) if *made == Made::Cudaview && !has_record => Tense::Would,
        (false, Some(true)) => Tense::Saw,
        (false, None) => Tense::WasSetUp,
    }
}

/// Who had a hand in it; the plan then says what was done, where that is known.
fn made(
    found: &Found,
    situation: &Situation,
    decided: &mut Plan,
    bundle: Option<Spec<'_>>,
    inventory: &Inventory,
    past: &Past<'_>,
    notes: &mut Vec<String>,
) -> Made {
    let injects = found.runtime.as_deref().is_some_and(|runtime| runtime.contains("nvidia"));
    let now = |decided: &Plan| as_is(decided, situation, inventory, injects);
    if let Some(record) = bundle.and_then(Spec::record) {
        // Docker's own answer is from before cudaview; elsewhere the bundle itself says whether all is as it was left.
        if found.inspected.is_none() && !situation.decided_before {
            let after = "its variables or nodes changed after cudaview had decided; of a secret only the wrapper knows";
            notes.push(after.to_owned());
            return Made::ChangedAfter(now(decided));
        }
        if as_recorded(decided, &record, inventory) {
            notes.push("shown is what was done when it was created; it would be decided otherwise now".to_owned());
        }
        return Made::Cudaview;
    }
    if bundle.is_none()
        && let (Some(record), Some(audited)) = (past.record, past.audited)
    {
        let time = printable(audited["time"].as_str().unwrap_or_default());
        notes.push(format!("shown is what was done, by the audit record of {time}; its bundle is gone"));
        as_recorded(decided, record, inventory);
        return Made::Cudaview;
    }
    if bundle.is_some_and(|spec| !spec.our_hooks().is_empty()) {
        notes.push("a createRuntime hook alone cannot rewrite an environment; cudaview-runtime does".to_owned());
        return Made::HookAlone(now(decided));
    }
    if found.is_ours != Some(true) {
        return Made::Without(now(decided));
    }
    let applies = decided.verdict != Verdict::NotApplicable;
    if bundle.is_some() && applies {
        notes.push("its bundle has no record of cudaview's: it only observed, or came later".to_owned());
        return Made::Observed(now(decided));
    }
    let was_observed = past.audited.map(|audited| audited["mode"] == "observe");
    if applies && was_observed.unwrap_or(past.observes) {
        let source = if was_observed.is_some() { "the audit trail" } else { "the configuration" };
        notes.push(format!("{source} says that cudaview only observes: mode = \"observe\""));
        return Made::Observed(now(decided));
    }
    Made::Cudaview
}

/// Whose each variable is, by what can be looked at now.
fn origins(found: &Found, situation: &Situation, record: Option<&Record>) -> Vec<Origin> {
    let original = record.map_or(&situation.original, |record| &record.original);
    let asked = situation.visible_devices_request.as_deref();
    let [visible_devices, device_order, nvidia, _] = Variables::NAMES;
    let values = [
        (visible_devices, original.visible_devices.as_deref(), record.map(|record| record.provenance)),
        (device_order, original.device_order.as_deref(), None),
        // Not what `--gpus` makes Docker append, and not what we wrote.
        (nvidia, if record.is_some() && found.inspected.is_none() { None } else { asked }, None),
    ];
    let origin = |(name, value, recorded): (&'static str, Option<&str>, Option<Provenance>)| {
        let value = value?;
        let whose = found_later(&found.facts, name, Some(value));
        Some(Origin { name, value: value.to_owned(), found: whose, recorded, why: why(found, name, value, whose) })
    };
    values.into_iter().filter_map(origin).collect()
}

fn why(found: &Found, name: &str, value: &str, whose: Provenance) -> String {
    let of_image = found.facts.image_env.as_ref().map(|env| last(env, name).flatten());
    match (whose, of_image) {
        (Provenance::User, Some(Some(other))) if other != value => format!("in place of the image's {}", quoted(other)),
        (Provenance::User, Some(None)) => "is not in the image".to_owned(),
        (Provenance::Image, _) => "is in the image".to_owned(),
        (Provenance::Unknown, None) => {
            let reasons: Vec<String> = found.facts.notes.iter().map(|note| printable(note)).collect();
            match reasons.as_slice() {
                [] => "from -e or from the image: the image could not be looked at".to_owned(),
                reasons => format!("from -e or from the image: {}", reasons.join("; ")),
            }
        }
        (Provenance::Unknown, Some(_)) => "from -e or from the image: what the engine keeps does not tell".to_owned(),
        _ => String::new(),
    }
}

fn image_env(found: &Found) -> ImageEnv {
    let get = |name| last(found.facts.image_env.as_deref().unwrap_or_default(), name).flatten().map(str::to_owned);
    let [visible_devices, device_order, nvidia, _] = Variables::NAMES;
    ImageEnv {
        visible_devices: get(visible_devices),
        device_order: get(device_order),
        nvidia_visible_devices: get(nvidia),
        source: source(found),
    }
}

/// Which steps of the image's making set its variables, where it has any and its engine can say.
fn source(found: &Found) -> Option<ImageSource> {
    let id = found.image_id.as_deref().filter(|_| found.facts.image_env.is_some())?;
    let store = match found.engine {
        Engine::Docker => Store::Docker,
        Engine::Podman => Store::Podman,
        Engine::Containerd | Engine::Unknown => return None,
    };
    let (_, source) = image::look_if_there(id, store);
    let is_known = |(_, _, set_by): &(_, _, SetBy)| *set_by != SetBy::Unknown;
    let has_steps = source.found.as_ref().is_ok_and(|found| found.set_by.iter().any(is_known));
    let name = found.facts.image.clone().unwrap_or_else(|| containers::short(id).to_owned());
    has_steps.then_some(ImageSource { name, ..source })
}

/// What no door can do for this container.
fn limits(found: &Found, record: Option<&Record>) -> Option<String> {
    let record = record.filter(|_| found.engine == Engine::Podman && found.is_ours == Some(false))?;
    let typed = match &record.original.visible_devices {
        Some(value) => format!("CUDA_VISIBLE_DEVICES={} as it was typed", quoted(value)),
        None => "no CUDA_VISIBLE_DEVICES".to_owned(),
    };
    (record.original.visible_devices != record.emitted.visible_devices).then(|| {
        format!(
            "podman exec is not reached by the precreate hook: it gets {typed}; podman --runtime cudaview reaches it"
        )
    })
}

fn nothing_to_look_at(found: &Found) -> Failure {
    let reasons = if found.notes.is_empty() { String::new() } else { format!(": {}", found.notes.join("; ")) };
    let text = format!("there is nothing to look at yet of the container {}{reasons}", found.label());
    Failure::new(Exit::Failed, anyhow::anyhow!(text), "start it, or ask as root")
}

fn several(name: &str, labels: &[String]) -> Failure {
    let text =
        format!("{name:?} is the name of several containers, or the beginning of their ids: {}", labels.join(", "));
    Failure::usage(text, "use the whole id, or more of it")
}

/// The newest audit record of the container with this id, for who may read the trail.
fn newest(id: &str, config: &Config) -> Option<Value> {
    let trail = audit::read(&config.audit).ok()?;
    trail.records().rfind(|record| record["id"] == id)
}

/// The newest audit record of a container that no engine has any more.
fn from_audit(name: &str, format: Format, config: &Config, search: &Search) -> Result<(), Failure> {
    let place = audit::place(&config.audit);
    let reason = match audit::read(&config.audit) {
        Ok(trail) => match choose(name, &trail.records().collect::<Vec<_>>())?.cloned() {
            Some(record) => {
                match format {
                    Format::Json => print_json(&gone_json(&record, &place))?,
                    Format::Human => print(&gone(&record, &place, style()))?,
                }
                // After the answer, where a terminal shows both.
                note(&whether_it_is_gone(name, search));
                return Ok(());
            }
            None => "no such container".to_owned(),
        },
        Err(reason) => reason,
    };
    let denied = reason == audit::DENIED || search.looks.iter().any(|look| look.denied);
    let mut looked: Vec<String> = search.looks.iter().map(look).collect();
    looked.push(format!("{place} ({reason})"));
    looked.dedup();
    let nobody = if search.looks.is_empty() { ", and no engine in its usual place" } else { "" };
    let text = format!("no container {name:?} was found{nobody}; looked at {}", looked.join(", "));
    let hint = if let Some(near) = similar(name, &search.names) {
        format!("did you mean --container {}?", printable(near))
    } else if denied {
        let name = crate::shell::quote(name);
        format!("sudo cudaview explain --container {name}, or ask as somebody who may talk to the engine")
    } else {
        "docker ps --all, podman ps --all; a rootless container is asked about by its owner".to_owned()
    };
    Err(Failure::new(Exit::Failed, anyhow::anyhow!(text), hint))
}

/// The newest record of this name, of this id, or of the one id that begins so.
fn choose<'a>(name: &str, records: &'a [Value]) -> Result<Option<&'a Value>, Failure> {
    let id = |record: &'a Value| record["id"].as_str().unwrap_or_default();
    let newest = |is_it: &dyn Fn(&Value) -> bool| records.iter().rev().find(|record| is_it(record));
    // By the id first: anybody may call a container by another one's id.
    let named = newest(&|record| record["id"] == name).or_else(|| newest(&|record| record["name"] == name));
    if named.is_some() {
        return Ok(named);
    }
    let begun = || records.iter().rev().filter(|record| id(record).starts_with(name));
    let ids: BTreeSet<&str> = begun().map(id).collect();
    if ids.len() > 1 {
        let labels: Vec<String> = ids.into_iter().take(8).map(|id| printable(containers::short(id))).collect();
        return Err(several(name, &labels));
    }
    Ok(begun().next())
}

fn look(look: &Look) -> String {
    format!("{} ({})", look.place, look.outcome)
}

/// What an answer from the audit trail leaves open.
fn whether_it_is_gone(name: &str, search: &Search) -> String {
    let unanswered: Vec<String> = search.looks.iter().filter(|look| look.unanswered).map(look).collect();
    if unanswered.is_empty() {
        format!("no engine has {name:?} any more: see the audit trail")
    } else {
        let places = unanswered.join(", ");
        format!("this is from the audit trail, and {name:?} may still be there: not everybody could be asked: {places}")
    }
}

/// What somebody who typed half a name may have meant.
fn similar<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let names = || names.iter().map(String::as_str).filter(|one| containers::is_name(one));
    names().find(|one| one.starts_with(name)).or_else(|| spelling::nearest(name, names()))
}
