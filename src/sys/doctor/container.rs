//! A running container from outside. Nothing in it is run, read or joined: its nodes are looked at through `/proc`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::time;
use crate::device::DeviceNumber;
use crate::doctor::{Inside, InsideNode, NodeState};
use crate::record::{Record, Variables, devices};
use crate::spec::{Rule, Spec, allowed};
use crate::sys::cgroup::{self, DeviceCgroup};
use crate::sys::containers::{self, Found, Places};
use crate::sys::rootfs;

/// Seconds in which a process counts as just started.
const NEW: f64 = 5.0;

/// How long, and how often, the environment of such a one is looked at again.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// No container can be examined.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// No engine's container can have this name.
    #[error("no container can be called {0:?}")]
    NoName(String),
    /// The text may mean several.
    #[error("several containers fit {0:?}: {1}")]
    Several(String, String),
    /// There is none.
    #[error("found no container {0:?}")]
    None(String, String),
}

impl InsideError {
    /// What to do about it; may be empty.
    pub fn hint(&self) -> String {
        match self {
            Self::NoName(_) => "a name or an id as docker ps and podman ps print it".to_owned(),
            Self::Several(..) => "more of its id tells it from the others".to_owned(),
            Self::None(_, looks) if looks.is_empty() => "no engine is here".to_owned(),
            Self::None(_, looks) => format!("looked at {looks}"),
        }
    }
}

/// What can be found out about a container.
///
/// # Errors
/// [`InsideError`] where there is none.
pub fn inside(name: &str) -> Result<Inside, InsideError> {
    if !containers::is_name(name) {
        return Err(InsideError::NoName(name.to_owned()));
    }
    let mut search = containers::find(name, &Places::of_environment());
    if let Some(labels) = search.ambiguity() {
        return Err(InsideError::Several(name.to_owned(), labels.join(", ")));
    }
    let Some(found) = search.found.pop() else {
        let looks: Vec<String> = search.looks.iter().map(|look| format!("{} ({})", look.place, look.outcome)).collect();
        return Err(InsideError::None(name.to_owned(), looks.join(", ")));
    };
    Ok(look(&found))
}

fn look(found: &Found) -> Inside {
    let spec = found.bundle.as_ref().and_then(|value| Spec::new(value).ok());
    let record = spec.and_then(Spec::record);
    let pid = containers::first_process(found).filter(|_| found.is_running());
    let short = containers::short(&found.id).to_owned();
    let mut out = Inside {
        name: found.facts.container_name.clone().filter(|name| !name.is_empty()).unwrap_or(short),
        state: found.state.clone(),
        is_running: found.is_running(),
        runtime: found.runtime.clone(),
        is_ours: found.is_ours,
        has_bundle: spec.is_some(),
        variables: pid.and_then(|pid| settled(pid, record.as_ref())),
        record,
        pid,
        nodes: Vec::new(),
        more: Vec::new(),
        rules: String::new(),
    };
    let Some(pid) = pid else { return out };
    let rules = rules(pid, spec.filter(|_| !found.rootless));
    let allows = |number| rules.as_ref().map(|(_, rules)| allowed(rules.iter().copied(), number));
    out.rules = rules.as_ref().map(|(place, _)| place.clone()).unwrap_or_default();
    let there = |path: &str| match rootfs::look(pid, path) {
        Ok(Some((number, mode))) => Some(NodeState::There(number, mode)),
        Ok(None) => Some(NodeState::Missing),
        Err(_) => None,
    };
    let planned = planned(spec, out.record.as_ref());
    let node = |(path, number): &(String, DeviceNumber)| InsideNode {
        state: there(path),
        allowed: allows(*number),
        path: path.clone(),
        number: *number,
    };
    out.nodes = planned.iter().map(node).collect();
    if out.record.is_some() {
        // More than the driver has is not looked for.
        let paths = (0..64).map(|minor| (format!("/dev/nvidia{minor}"), minor));
        let is_more = |(path, _): &(String, u32)| {
            let Some(NodeState::There(found, _)) = there(path) else { return false };
            planned.iter().all(|(_, number)| *number != found) && allows(found) != Some(false)
        };
        out.more = paths.filter(is_more).map(|(path, _)| path).collect();
    }
    out
}

/// The nodes that were planned: those of the bundle, and of the GPUs that were decided for.
fn planned(spec: Option<Spec<'_>>, record: Option<&Record>) -> Vec<(String, DeviceNumber)> {
    let is_nvidias = |path: &str| path.starts_with("/dev/nvidia");
    let nodes = spec.map(Spec::nodes).unwrap_or_default();
    let mut out: Vec<(String, DeviceNumber)> = nodes
        .into_iter()
        .filter(|node| is_nvidias(node.path))
        .map(|node| (node.path.to_owned(), node.number))
        .collect();
    if let Some(record) = record {
        let inventory = record.inventory();
        for device in devices(&inventory, record.openable()) {
            let minor = inventory.gpus[device.gpu].minor.0;
            let number = DeviceNumber { major: 195, minor };
            if out.iter().all(|(_, known)| *known != number) {
                out.push((format!("/dev/nvidia{minor}"), number));
            }
        }
    }
    out
}

/// The device rules, and where they were read: those in force, where the kernel tells them, else those of the bundle.
fn rules(pid: u32, spec: Option<Spec<'_>>) -> Option<(String, Vec<Rule>)> {
    match cgroup::find(pid) {
        Ok(DeviceCgroup::V1 { dir }) => {
            let path = dir.join("devices.list");
            let text = fs::read_to_string(&path).ok()?;
            Some((path.display().to_string(), text.lines().filter_map(Rule::of_kernel).collect()))
        }
        Ok(DeviceCgroup::V2) => Some(("its bundle (linux.resources.devices)".to_owned(), spec?.rules())),
        // Nobody enforces any, or nobody can say.
        _ => None,
    }
}

/// The same, once the low-level runtime's own process has become the container's, which takes a moment after a start.
fn settled(pid: u32, record: Option<&Record>) -> Option<Variables> {
    let is_new = time::age(pid).is_some_and(|age| age < NEW);
    let begin = Instant::now();
    loop {
        let found = variables(pid)?;
        let is_expected = record.is_none_or(|record| record.emitted.visible_devices == found.visible_devices);
        if is_expected || !is_new || begin.elapsed() > PATIENCE {
            return Some(found);
        }
        thread::sleep(PAUSE);
    }
}

/// The variables with which a process was started.
fn variables(pid: u32) -> Option<Variables> {
    let text = crate::sys::read_told(&Path::new("/proc").join(pid.to_string()).join("environ")).ok()?;
    let entries: Vec<String> =
        text.split(|byte| *byte == 0).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect();
    // As getenv(3) does it.
    Some(Variables::collect(|name| entries.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))))
}
