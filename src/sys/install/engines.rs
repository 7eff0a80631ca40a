//! What has to be known of an engine before its configuration is changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::sys::child;
use crate::sys::processes::{self, Process};

/// Flags with which dockerd does not start where the same is in its file too.
// moby daemon/config, findConfigurationConflicts
const DOCKER_FLAGS: [(&str, &str); 2] = [("--add-runtime", "runtimes"), ("--default-runtime", "default-runtime")];

/// What the daemon that runs was told on its command line: flags that clash with members of this file.
pub fn docker_clashes(file: &Path, default: bool) -> Vec<&'static str> {
    let mut found = Vec::new();
    for daemon in docker_of(file) {
        let words = daemon.arguments().iter().filter_map(|word| word.to_str());
        for (flag, _) in DOCKER_FLAGS.iter().filter(|(_, member)| default || *member == "runtimes") {
            if words.clone().any(|word| word == *flag || word.starts_with(&format!("{flag}="))) {
                found.push(*flag);
            }
        }
    }
    found
}

/// The file of the only daemon that runs, where that is another than this one.
pub fn docker_reads_another(file: &Path) -> Option<PathBuf> {
    let mut daemons = processes::called("dockerd");
    let only = docker_file(&daemons.next()?);
    if daemons.next().is_some() || is_same(&only, file) {
        return None;
    }
    Some(only)
}

/// The daemons that go by a file.
pub(super) fn docker_of(file: &Path) -> impl Iterator<Item = Process> {
    let file = file.to_owned();
    processes::called("dockerd").filter(move |daemon| is_same(&docker_file(daemon), &file))
}

fn docker_file(daemon: &Process) -> PathBuf {
    let words = daemon.arguments().iter().filter_map(|word| word.to_str());
    let joined = words.into_iter().find_map(|word| word.strip_prefix("--config-file="));
    PathBuf::from(daemon.argument("--config-file").or(joined).unwrap_or(DOCKER_FILE))
}

// dockerd(8)
const DOCKER_FILE: &str = "/etc/docker/daemon.json";

/// Whether two paths are one file; one that is not there has its name alone.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    one == other || file(one).is_some_and(|found| Some(found) == file(other))
}

/// The major version of containerd, by its own word; `None` where it is not installed or does not say.
pub fn containerd_version(root: &Path) -> Option<u32> {
    let folders = ["usr/bin", "usr/local/bin", "usr/sbin", "bin"];
    let program = folders.iter().map(|folder| root.join(folder).join("containerd")).find(|path| path.is_file())?;
    let answer = child::ask(Command::new(program).arg("--version"), Duration::from_secs(5), 1 << 16).ok()?;
    let text = String::from_utf8_lossy(&answer.output).into_owned();
    // `containerd github.com/containerd/containerd/v2 2.1.9 …`, `containerd containerd.io 1.7.24 …`
    let word = text.split_whitespace().nth(2)?;
    word.trim_start_matches('v').split('.').next()?.parse().ok()
}

/// The files that podman or CRI-O reads beside ours, in their order, each with whether it comes later.
///
/// `bases` are main files, each with the folder of its parts.
pub fn parts(bases: &[(PathBuf, PathBuf)], own: &Path) -> Vec<(PathBuf, String, bool)> {
    let mut all = Vec::new();
    for (file, folder) in bases {
        all.push(file.clone());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut parts: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "conf")).collect();
        if folder == own.parent().unwrap_or(Path::new("/")) && !parts.iter().any(|part| part == own) {
            parts.push(own.to_owned());
        }
        parts.sort();
        all.extend(parts);
    }
    let at = all.iter().position(|path| path == own).unwrap_or(all.len());
    let others = all.iter().enumerate().filter(|(index, _)| *index != at);
    others.filter_map(|(index, path)| Some((path.clone(), std::fs::read_to_string(path).ok()?, index > at))).collect()
}
