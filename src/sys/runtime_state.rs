//! Where a running container's bundle is, and the record in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::argv::Invocation;
use crate::record::Record;
use crate::spec;
use crate::sys::bundle::Document;

/// Where runc and crun keep state when `--root` does not say.
const ROOTS: [&str; 2] = ["/run/runc", "/run/crun"];

/// What stands before a record in the arguments of our hook.
const RECORD: &[u8] = b"--record=";

/// The record of the container that a command is about, if it is one of ours.
pub fn record(invocation: &Invocation, process: Option<&Path>) -> Option<Record> {
    candidates(invocation, process).into_iter().find_map(|bundle| record_in(&bundle))
}

/// Docker and containerd put `--log` into the bundle, podman the process file two levels below it; where neither
/// holds, the low-level runtime's own state tells.
///
/// Those two are guesses, and engines have folders for such files that others write to (`/tmp`), a container with a
/// mount of the host's among them. So a guess must name the container; bundles of engines do.
fn candidates(invocation: &Invocation, process: Option<&Path>) -> Vec<PathBuf> {
    let Some(id) = invocation.id.as_deref().filter(|id| is_plain(id)) else { return Vec::new() };
    let of_log = invocation.log.as_deref().and_then(Path::parent);
    let of_process = process.and_then(Path::parent).and_then(Path::parent);
    let names_container = |folder: &&Path| folder.components().any(|part| part.as_os_str() == id);
    let mut bundles: Vec<PathBuf> =
        of_log.into_iter().chain(of_process).filter(names_container).map(Path::to_owned).collect();
    let roots: Vec<&Path> = match &invocation.root {
        Some(root) => vec![root],
        None => ROOTS.iter().map(Path::new).collect(),
    };
    bundles.extend(roots.iter().filter_map(|root| bundle_in_state(&root.join(id))));
    bundles
}

/// An id that is one component of a path.
fn is_plain(id: &OsStr) -> bool {
    let mut components = Path::new(id).components();
    matches!((components.next(), components.next()), (Some(std::path::Component::Normal(_)), None))
}

fn bundle_in_state(state: &Path) -> Option<PathBuf> {
    let read =
        |name: &str| -> Option<Value> { serde_json::from_slice(&Document::read(&state.join(name)).ok()?.bytes).ok() };
    if let Some(runc) = read("state.json") {
        // A user's annotation may look like this label and stands before it; the last one is runc's.
        let labels = runc["config"]["labels"].as_array()?;
        let bundle = labels.iter().rev().filter_map(Value::as_str).find_map(|label| label.strip_prefix("bundle="))?;
        return Some(PathBuf::from(bundle));
    }
    read("status")?["bundle"].as_str().map(PathBuf::from)
}

fn record_in(bundle: &Path) -> Option<Record> {
    let document = Document::read(&bundle.join("config.json")).ok()?;
    // Most containers are not ours, and need not be parsed.
    document.bytes.windows(RECORD.len()).find(|window| *window == RECORD)?;
    spec::record_in(&document.bytes)
}
