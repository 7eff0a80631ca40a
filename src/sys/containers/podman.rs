//! podman's containers, in the storage of whoever asks.

use std::path::Path;

use super::{Found, Places, Search, choose, is_our_runtime, read_config};
use crate::provenance::{Engine, EngineFacts};
use crate::sys::bundle::DocumentError;
use crate::sys::provenance::{self, podman};
use crate::sys::trusted;

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    for root in &places.storage {
        // Root must not be led around in a folder that somebody else can rebuild meanwhile.
        match trusted::folder(root) {
            Ok(()) => {}
            Err(trusted::Untrusted::Read { source, .. }) => {
                search.failed(root, &source);
                continue;
            }
            Err(error) => {
                search.look(root.display(), error.to_string());
                continue;
            }
        }
        let listed = match podman::list(root) {
            Ok(listed) => listed,
            Err(reason) => {
                search.look(root.display(), reason);
                continue;
            }
        };
        match choose(name, &listed, |one| &one.id, |one| one.names.iter().any(|own| own == name)) {
            Ok(Some(container)) => search.found.push(found(container)),
            Ok(None) => search.look(root.display(), "no such container"),
            Err(count) => search.look(root.display(), format!("{count} containers have an id that begins so")),
        }
    }
}

fn found(listed: &podman::Listed) -> Found {
    let mut facts = EngineFacts::nothing_known(Engine::Podman);
    facts.container_name = listed.names.first().cloned();
    let mut out = Found::new(listed.id.clone(), facts);
    out.looked_at.push(listed.list.display().to_string());
    match read_config(&listed.bundle) {
        Ok((path, value)) => {
            out.looked_at.push(path.display().to_string());
            if provenance::is_podman(&value) {
                out.facts = provenance::facts(&listed.bundle, &value, &listed.id, None);
            }
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
    out.rootless = !rustix::process::geteuid().is_root();
    monitor(&listed.id, &mut out);
    out
}

/// conmon holds a container from its start to its end, and was told which runtime to use.
fn monitor(id: &str, out: &mut Found) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let arguments = processes.filter(|path| is_monitor(path)).find_map(|path| {
        let text = std::fs::read(path.join("cmdline")).ok()?;
        let words: Vec<String> =
            text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let after = |flag: &str| words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).cloned();
        (after("-c").as_deref() == Some(id)).then(|| after("-r"))
    });
    out.state = Some(if arguments.is_some() { "running" } else { "not running" }.to_owned());
    if let Some(runtime) = arguments.flatten() {
        out.is_ours = Some(is_our_runtime(&runtime));
        out.runtime = Some(runtime);
    }
}

/// Of root or of whoever asks: anybody else may call a process so.
fn is_monitor(process: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    let is_trusted = || std::fs::metadata(process).is_ok_and(|metadata| [0, own].contains(&metadata.uid()));
    std::fs::read(process.join("comm")).is_ok_and(|name| name == b"conmon\n") && is_trusted()
}
