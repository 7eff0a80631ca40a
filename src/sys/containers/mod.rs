//! A container of any engine, found by its id or name, for `explain` and `ps`; and what Docker says of itself, for
//! `doctor`.
//!
//! What is here asks engines, over their sockets and through their clients, and only reads. The wrapper and the hooks
//! never come here: an engine holds the lock of the container that it is creating (`tests/it/invariants.rs`).

pub(in crate::sys) mod containerd;
pub(in crate::sys) mod docker;
mod http;
mod places;
mod podman;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::finding::printable;
use crate::provenance::{Engine, EngineFacts};
use crate::sys::bundle::{Document, DocumentError};

pub use docker::{Daemon, daemon, device_numbers};
pub use places::Places;

/// A container.
#[derive(Debug)]
pub struct Found {
    /// Whose it is.
    pub engine: Engine,
    /// Its whole id.
    pub id: String,
    /// What the engine says about it.
    pub facts: EngineFacts,
    /// The id or digest of its image.
    pub image_id: Option<String>,
    /// The runtime, by name or path.
    pub runtime: Option<String>,
    /// Whether that is `cudaview-runtime`.
    pub is_ours: Option<bool>,
    /// `running`, `exited` and so on.
    pub state: Option<String>,
    /// Whether its program ever ran, where that is known.
    pub ran: Option<bool>,
    /// Whose it is, of another user's than whoever asks.
    pub user: Option<String>,
    /// When it was started, of one that runs.
    pub since: Option<SystemTime>,
    /// cudaview refused it, by the engine's own word.
    pub was_refused: bool,
    /// The engine is an ordinary user's: nobody enforces device rules.
    pub rootless: bool,
    /// `config.json` as it is in the bundle, where there is one that can be read.
    pub bundle: Option<Value>,
    /// What Docker's API says.
    pub inspected: Option<Value>,
    /// What was looked at for all this, each with what it told.
    pub looked_at: Vec<String>,
    /// Why something is not known.
    pub notes: Vec<String>,
}

impl Found {
    fn new(id: String, facts: EngineFacts) -> Self {
        Self {
            engine: facts.engine,
            id,
            facts,
            image_id: None,
            runtime: None,
            is_ours: None,
            state: None,
            ran: None,
            user: None,
            since: None,
            was_refused: false,
            rootless: false,
            bundle: None,
            inspected: None,
            looked_at: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Whether it runs now.
    pub fn is_running(&self) -> bool {
        matches!(self.state.as_deref(), Some("running" | "paused" | "restarting"))
    }

    /// The name, or the beginning of the id, and the engine's.
    pub fn label(&self) -> String {
        label(self.engine, &self.id, self.facts.container_name.as_deref().unwrap_or_default())
    }
}

fn label(engine: Engine, id: &str, name: &str) -> String {
    format!("{} {} {}", engine.name(), short(id), printable(name)).trim_end().to_owned()
}

/// A place that was looked at and had no such container.
#[derive(Debug)]
pub struct Look {
    /// A socket or a folder.
    pub place: String,
    /// What was found out there.
    pub outcome: String,
    /// It is for others to look there.
    pub denied: bool,
    /// Nobody answered, so there may be such a container all the same.
    pub unanswered: bool,
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Search {
    /// The containers that the text names: one, if all is well.
    pub found: Vec<Found>,
    /// The ids that a text is the beginning of, and that nobody may choose among, with what people call them.
    pub several: Vec<(String, String)>,
    /// Where there was none.
    pub looks: Vec<Look>,
    /// What other containers are called, for hints.
    pub names: Vec<String>,
}

impl Search {
    fn has_none(&mut self, place: &Path) {
        let (place, outcome) = (printable(&place.display().to_string()), "no such container".to_owned());
        self.looks.push(Look { place, outcome, denied: false, unanswered: false });
    }

    fn look(&mut self, place: impl std::fmt::Display, outcome: impl Into<String>) {
        let (place, outcome) = (printable(&place.to_string()), printable(&outcome.into()));
        self.looks.push(Look { place, outcome, denied: false, unanswered: true });
    }

    /// One of several that the text may mean.
    fn one_of_several(&mut self, engine: Engine, id: &str, name: &str) {
        if !self.several.iter().any(|(known, _)| known == id) {
            self.several.push((id.to_owned(), label(engine, id, name)));
        }
    }

    /// Whether another place had this container already.
    fn knows(&self, id: &str) -> bool {
        self.found.iter().any(|found| found.id == id) || self.several.iter().any(|(known, _)| known == id)
    }

    /// What people call each container that the text may mean, where these are several.
    pub fn ambiguity(&self) -> Option<Vec<String>> {
        let labels = self.found.iter().map(Found::label).chain(self.several.iter().map(|(_, label)| label.clone()));
        let is_ambiguous = self.found.len() > 1 || !self.several.is_empty();
        is_ambiguous.then(|| labels.collect())
    }

    /// A usual place that is not there is not worth a word; one that somebody named is.
    fn failed(&mut self, place: &Path, error: &std::io::Error, is_named: bool) {
        use std::io::ErrorKind;
        if error.kind() == ErrorKind::NotFound && !is_named {
            return;
        }
        let outcome = match error.kind() {
            ErrorKind::NotFound => "not there".to_owned(),
            ErrorKind::PermissionDenied => "not permitted".to_owned(),
            ErrorKind::ConnectionRefused => "nobody listens".to_owned(),
            _ => error.to_string(),
        };
        let denied = error.kind() == ErrorKind::PermissionDenied;
        let place = printable(&place.display().to_string());
        self.looks.push(Look { place, outcome, denied, unanswered: true });
    }
}

/// Looks for a container by its id, the beginning of it, or its name. Never fails: what cannot be looked at is told.
pub fn find(name: &str, places: &Places) -> Search {
    let mut search = Search::default();
    docker::search(name, places, &mut search);
    podman::search(name, places, &mut search);
    containerd::search(name, places, &mut search);
    search
}

/// Every container that runs and that whoever asks may see, by the engines' own words. Never fails, as [`find`].
pub fn running(places: &Places) -> Search {
    let mut search = Search::default();
    docker::running(places, &mut search);
    podman::running(places, &mut search);
    containerd::running(places, &mut search);
    // After whoever is believed: an id that a user claims must hide nobody's container.
    podman::of_others(&mut search);
    search.found.retain(Found::is_running);
    search
}

/// Every container of Docker's, running or not; as [`running`].
pub fn all_of_docker(places: &Places) -> Search {
    let mut search = Search::default();
    docker::all(places, &mut search);
    search
}

/// Whether a text can be an engine's id or name of a container. It goes into questions, so nothing else may.
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.len() <= 255 && text.bytes().all(is_plain) && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Whether a process's cgroups are those of a container: engines put its id of 64 digits into their names.
pub fn in_one(cgroups: &str) -> bool {
    cgroups.split(|letter: char| !letter.is_ascii_alphanumeric()).any(super::provenance::is_digest)
}

/// An id as engines show it.
pub fn short(id: &str) -> &str {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    if super::provenance::is_digest(hex) { hex.get(..12).unwrap_or(hex) } else { id }
}

/// The one that is called so; else the one whose id begins so, where that is one. The error is those that fit alike.
fn choose<'a, T>(
    name: &str,
    all: &'a [T],
    id: impl Fn(&T) -> &str,
    is_called: impl Fn(&T) -> bool,
) -> Result<Option<&'a T>, Vec<&'a T>> {
    if let Some(found) = all.iter().find(|one| id(one) == name) {
        return Ok(Some(found));
    }
    let called: Vec<&T> = all.iter().filter(|one| is_called(one)).collect();
    let begun = || all.iter().filter(|one| id(one).starts_with(name)).collect();
    let fitting: Vec<&T> = if called.is_empty() { begun() } else { called };
    match fitting.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => Err(fitting),
    }
}

/// A running container's first process, as the host counts.
pub fn first_process(found: &Found) -> Option<u32> {
    let said = found.inspected.as_ref().and_then(|said| said.pointer("/State/Pid")).and_then(Value::as_u64);
    let pid = match said {
        Some(pid) => u32::try_from(pid).ok()?,
        None => written(found)?.trim().parse().ok()?,
    };
    (pid > 1).then_some(pid)
}

/// The file in which conmon or a shim has written that process down.
// conmon(8), --container-pidfile; containerd cmd/containerd-shim-runc-v2/process, InitPidFile.
fn written(found: &Found) -> Option<String> {
    if found.engine == Engine::Podman {
        let mut monitors = super::processes::called("conmon");
        let monitor = monitors.find(|process| process.argument("-c") == Some(&found.id))?;
        return std::fs::read_to_string(monitor.argument("-p")?).ok();
    }
    let bundles = found.looked_at.iter().filter_map(|place| place.strip_suffix("/config.json"));
    bundles.into_iter().find_map(|bundle| std::fs::read_to_string(Path::new(bundle).join("init.pid")).ok())
}

/// `config.json` in a bundle.
fn read_config(bundle: &Path) -> Result<(PathBuf, Value), DocumentError> {
    let path = bundle.join("config.json");
    let document = Document::read(&path)?;
    // What is no JSON is nobody's configuration, and is told where it is looked at.
    Ok((path, serde_json::from_slice(&document.bytes).unwrap_or_default()))
}

/// When a bundle was made: engines write `config.json` anew for each start.
fn made(bundle: &Path) -> Option<SystemTime> {
    bundle.join("config.json").metadata().ok()?.modified().ok()
}

/// The runtime that a shim was told to use, from its bundle.
// containerd cmd/containerd-shim-runc-v2/process, WriteRuntime().
pub(in crate::sys) fn runtime_in(bundle: &Path) -> Option<String> {
    let document = Document::read(&bundle.join("runtime")).ok()?;
    let text = String::from_utf8(document.bytes).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether a path names our wrapper.
fn is_our_runtime(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name == "cudaview-runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_place_that_is_not_there_is_no_news() {
        let mut search = Search::default();
        let error = |kind: std::io::ErrorKind| std::io::Error::from(kind);
        search.failed(Path::new("/usual"), &error(std::io::ErrorKind::NotFound), false);
        assert!(search.looks.is_empty(), "{search:?}");
        search.failed(Path::new("/usual"), &error(std::io::ErrorKind::PermissionDenied), false);
        search.failed(Path::new("/named"), &error(std::io::ErrorKind::NotFound), true);
        let outcomes: Vec<&str> = search.looks.iter().map(|look| look.outcome.as_str()).collect();
        assert_eq!(outcomes, ["not permitted", "not there"]);
    }

    #[test]
    fn names_and_ids() {
        assert!(is_name("trainer") && is_name("a_b.c-1") && is_name(&"f".repeat(64)));
        for bad in ["", "-a", ".a", "a/b", "a b", "a\n", "a?x", "a%2f", "é"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert_eq!((short(&"a".repeat(64)), short("c1")), ("aaaaaaaaaaaa", "c1"));
    }

    #[test]
    fn a_name_goes_before_the_beginning_of_an_id() {
        let all = [("abc1", "web"), ("abd2", "abc"), ("f00", "web2"), ("f1", "dup"), ("f2", "dup")];
        let chosen = |name: &str| {
            let chosen = choose(name, &all, |one| one.0, |one| one.1 == name);
            chosen.map(|one| one.map(|one| one.0)).map_err(|several| several.len())
        };
        assert_eq!(chosen("abc1"), Ok(Some("abc1")));
        assert_eq!(chosen("abc"), Ok(Some("abd2")), "it is called so");
        assert_eq!(chosen("web"), Ok(Some("abc1")));
        assert_eq!(chosen("f0"), Ok(Some("f00")));
        assert_eq!((chosen("ab"), chosen("dup"), chosen("x")), (Err(2), Err(2), Ok(None)));
    }
}
