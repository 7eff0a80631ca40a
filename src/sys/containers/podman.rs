//! podman's containers, in the storage of whoever asks.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Found, Places, Search, choose, is_our_runtime, made, read_config};
use crate::provenance::{Engine, EngineFacts};
use crate::sys::bundle::{Document, DocumentError};
use crate::sys::provenance::{self, podman};
use crate::sys::{processes, trusted};

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    for root in &places.storage {
        let Some(listed) = list(root, places, search) else { continue };
        match choose(name, &listed, |one| &one.id, |one| one.names.iter().any(|own| own == name)) {
            Ok(Some(container)) => search.found.push(found(container)),
            Ok(None) => {
                search.names.extend(listed.iter().flat_map(|one| one.names.iter().cloned()));
                search.has_none(root);
            }
            Err(several) => {
                for one in several {
                    let name = one.names.first().map(String::as_str).unwrap_or_default();
                    search.one_of_several(Engine::Podman, &one.id, name);
                }
            }
        }
    }
}

pub(super) fn running(places: &Places, search: &mut Search) {
    for root in &places.storage {
        for one in list(root, places, search).unwrap_or_default() {
            // Whether it runs is known before anything else of it is read.
            if processes::called("conmon").any(|process| process.argument("-c") == Some(&one.id)) {
                search.found.push(found(&one));
            }
        }
    }
}

/// The largest configuration of another user's container that is read, in bytes, and of all of one user's.
const THEIRS: u64 = 1 << 20;
const ALL_THEIRS: u64 = 8 << 20;

/// Containers of rootless podmans of other users, by their monitors: for root, who may look, and by those users' word.
///
/// So nothing may depend on it but what is said of that user: an id that is none would stand in any cgroup.
pub(super) fn of_others(search: &mut Search) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut read: BTreeMap<u32, u64> = BTreeMap::new();
    for (uid, monitor) in processes::of_others("conmon") {
        let user = processes::user_of(uid);
        let mut unseen = |why: &str| search.look(format!("a container of {}", crate::finding::printable(&user)), why);
        let (Some(id), Some(bundle)) = (monitor.argument("-c"), monitor.argument("-b")) else {
            unseen("its monitor says neither its id nor its bundle");
            continue;
        };
        if !provenance::is_digest(id) {
            unseen("its id is none of podman's");
            continue;
        }
        let read = read.entry(uid).or_default();
        let bundle = Path::new(bundle);
        let Ok(document) = Document::read_of(&bundle.join("config.json"), uid, THEIRS.min(ALL_THEIRS - *read)) else {
            unseen("its bundle cannot be read");
            continue;
        };
        *read += document.bytes.len() as u64;
        let Ok(value) = serde_json::from_slice(&document.bytes) else {
            unseen("its bundle cannot be read");
            continue;
        };
        let mut facts = EngineFacts::nothing_known(Engine::Podman);
        facts.container_name = monitor.argument("-n").map(str::to_owned);
        let mut out = Found::new(id.to_owned(), facts);
        out.bundle = Some(value);
        out.state = Some("running".to_owned());
        out.is_ours = monitor.argument("-r").map(is_our_runtime);
        out.rootless = true;
        out.since = made(bundle);
        out.user = Some(user);
        search.found.push(out);
    }
}

/// The containers of a storage, or a word on why they are not known.
fn list(root: &Path, places: &Places, search: &mut Search) -> Option<Vec<podman::Listed>> {
    // Root must not be led around in a folder that somebody else can rebuild meanwhile.
    match trusted::folder(root) {
        Ok(()) => {}
        Err(trusted::Untrusted::Read { source, .. }) => {
            search.failed(root, &source, places.storage_is_named);
            return None;
        }
        Err(error) => {
            search.look(root.display(), error.to_string());
            return None;
        }
    }
    podman::list(root).map_err(|reason| search.look(root.display(), reason)).ok()
}

fn found(listed: &podman::Listed) -> Found {
    let mut facts = EngineFacts::nothing_known(Engine::Podman);
    facts.container_name = listed.names.first().cloned();
    let mut out = Found::new(listed.id.clone(), facts);
    out.looked_at.push(listed.list.display().to_string());
    match read_config(&listed.bundle) {
        Ok((path, value)) => {
            out.looked_at.push(path.display().to_string());
            out.facts = provenance::facts(&listed.bundle, &value, &listed.id, None);
            out.bundle = Some(value);
        }
        Err(DocumentError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            out.notes.push("it has not been started yet".to_owned());
        }
        Err(error) => out.notes.push(format!("{:#}", anyhow::Error::new(error))),
    }
    if let Some((id, config)) = &listed.image {
        out.image_id = Some(id.clone());
        if out.facts.image_env.is_some() {
            out.looked_at.push(config.display().to_string());
        }
    }
    out.since = made(&listed.bundle);
    out.rootless = !rustix::process::geteuid().is_root();
    monitor(&listed.id, &mut out);
    if !out.is_running() && out.bundle.is_some() {
        out.notes.push("podman's storage does not say whether its program ever ran".to_owned());
    }
    out
}

/// conmon holds a container from its start to its end, and was told which runtime to use.
fn monitor(id: &str, out: &mut Found) {
    let monitor = processes::called("conmon").find(|process| process.argument("-c") == Some(id));
    out.state = Some(if monitor.is_some() { "running" } else { "stopped" }.to_owned());
    if let Some(runtime) = monitor.as_ref().and_then(|process| process.argument("-r")) {
        out.ran = Some(true);
        out.is_ours = Some(is_our_runtime(runtime));
        out.runtime = Some(runtime.to_owned());
    }
}
