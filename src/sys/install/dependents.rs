//! The containers that could not be used any more if the runtime went.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::engines::docker_of;
use crate::finding::printable;
use crate::install::{NAME, daemon_json};
use crate::provenance::Engine;
use crate::sys::child;
use crate::sys::containers::{runtime_in, short};
use crate::sys::processes;
use crate::sys::provenance::is_digest;

/// Where containerd's shims have their bundles, a folder for each namespace.
const TASKS: &str = "run/containerd/io.containerd.runtime.v2.task";

const PROGRAM: &str = "cudaview-runtime";

/// A container that was made with our runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    /// The engine's name.
    pub engine: &'static str,
    /// What people call it.
    pub name: String,
    /// Its id.
    pub id: String,
}

impl Dependent {
    fn new(engine: Engine, name: &str, id: &str) -> Self {
        let name = printable(if name.is_empty() { short(id) } else { name });
        Self { engine: engine.name(), name, id: id.to_owned() }
    }
}

/// Docker's, by its own files: those whose runtime has our name, or another that its configuration gives our program.
///
/// Docker keeps the runtime with a container, the default's name too.
pub fn docker(root: &Path) -> Vec<Dependent> {
    let file = std::fs::read_to_string(root.join("etc/docker/daemon.json")).unwrap_or_default();
    let mut names = daemon_json::names(&file);
    names.push(NAME.to_owned());
    let mut found = BTreeSet::new();
    for data in docker_data(root, &file) {
        for container in folders(&data.join("containers")) {
            let host = json(&container.join("hostconfig.json"));
            let runtime = host["Runtime"].as_str().unwrap_or_default();
            let is_ours = names.iter().any(|name| name == runtime) || runtime.ends_with("/cudaview-runtime");
            let id = file_name(&container);
            if is_ours && is_digest(&id) {
                let config = json(&container.join("config.v2.json"));
                let name = config["Name"].as_str().unwrap_or_default().trim_start_matches('/').to_owned();
                found.insert(Dependent::new(Engine::Docker, &name, &id));
            }
        }
    }
    found.into_iter().collect()
}

/// Where Docker has its containers: by its file, by what the daemon that runs was told, and where it is usual; with
/// userns-remap in a folder `UID.GID` below.
fn docker_data(root: &Path, file: &str) -> BTreeSet<PathBuf> {
    let said: Value = serde_json::from_str(file).unwrap_or_default();
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mut places: BTreeSet<PathBuf> =
        ["data-root", "graph"].iter().filter_map(|key| said[*key].as_str()).map(below).collect();
    places.insert(root.join("var/lib/docker"));
    if root == Path::new("/") {
        for daemon in docker_of(&root.join("etc/docker/daemon.json")) {
            places.extend(["--data-root", "--graph", "-g"].iter().filter_map(|flag| daemon.argument(flag)).map(below));
            let words = daemon.arguments().iter().filter_map(|word| word.to_str());
            places.extend(words.filter_map(|word| word.strip_prefix("--data-root=")).map(below));
        }
    }
    let is_remapped = |path: &PathBuf| {
        let name = file_name(path);
        name.split_once('.').is_some_and(|(uid, gid)| [uid, gid].iter().all(|part| part.parse::<u32>().is_ok()))
    };
    let remapped: Vec<PathBuf> = places.iter().flat_map(|place| folders(place)).filter(is_remapped).collect();
    places.extend(remapped);
    places
}

/// podman's: those that it lists, by its own word, and those of other users that run.
pub fn podman(root: &Path) -> Vec<Dependent> {
    let mut found: BTreeSet<Dependent> = crio(root).into_iter().collect();
    if root == Path::new("/") {
        found.extend(listed_by_podman());
    }
    found.into_iter().collect()
}

/// CRI-O's, and podman's of whatever user: those that run, by their monitors' word, who serve either.
pub fn crio(root: &Path) -> Vec<Dependent> {
    let mut found = BTreeSet::new();
    if root == Path::new("/") {
        let monitors = processes::called("conmon").chain(processes::of_others("conmon").map(|(_, process)| process));
        for monitor in monitors.filter(|monitor| monitor.argument("-r").is_some_and(is_ours)) {
            let id = monitor.argument("-c").unwrap_or_default();
            found.insert(Dependent::new(Engine::Podman, monitor.argument("-n").unwrap_or_default(), id));
        }
    }
    found.into_iter().collect()
}

fn listed_by_podman() -> Vec<Dependent> {
    let ask = |words: &[&str]| {
        let answer = child::ask(Command::new("podman").args(words), Duration::from_secs(30), 16 << 20).ok()?;
        answer.status.success().then_some(answer.output)
    };
    let ids = ask(&["ps", "--all", "--quiet", "--no-trunc"]).unwrap_or_default();
    let ids = String::from_utf8_lossy(&ids).into_owned();
    let ids: Vec<&str> = ids.split_whitespace().filter(|id| is_digest(id)).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let inspected = ask(&[&["container", "inspect"], ids.as_slice()].concat()).unwrap_or_default();
    let inspected: Value = serde_json::from_slice(&inspected).unwrap_or_default();
    let ours = inspected.as_array().into_iter().flatten().filter(|one| {
        let runtime = one["OCIRuntime"].as_str().unwrap_or_default();
        runtime == NAME || is_ours(runtime)
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ours.map(|one| Dependent::new(Engine::Podman, &text(&one["Name"]), &text(&one["Id"]))).collect()
}

/// containerd's own: those that run, by their bundles. Docker's are in its namespaces, and are [`docker`]'s.
pub fn containerd(root: &Path) -> Vec<Dependent> {
    let namespaces = folders(&root.join(TASKS));
    let own = namespaces.into_iter().filter(|folder| !file_name(folder).starts_with("moby"));
    let bundles = own.flat_map(|folder| folders(&folder));
    let ours = bundles.filter(|bundle| runtime_in(bundle).is_some_and(|runtime| is_ours(&runtime)));
    let found: BTreeSet<Dependent> =
        ours.map(|bundle| Dependent::new(Engine::Containerd, "", &file_name(&bundle))).collect();
    found.into_iter().collect()
}

fn is_ours(runtime: &str) -> bool {
    Path::new(runtime).file_name().is_some_and(|name| name == PROGRAM)
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn json(path: &Path) -> Value {
    std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
