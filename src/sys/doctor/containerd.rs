//! containerd's configuration: the handlers for which it starts our wrapper.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Root, time};
use crate::doctor::{Containerd, Runtime, Trouble};
use crate::sys::processes;

/// The only place, unless the daemon is told another.
const FILE: &str = "/etc/containerd/config.toml";

pub(super) fn look(root: &Root) -> Containerd {
    let mut out = Containerd { installed: root.program("containerd").is_some(), ..Containerd::default() };
    let mut waiting = vec![root.at(FILE)];
    let mut read: Vec<PathBuf> = Vec::new();
    while let Some(path) = waiting.pop() {
        if read.contains(&path) {
            continue;
        }
        let Ok(text) = root.text_of(&path) else { continue };
        let shown = root.shown(&path);
        out.files.push(shown.clone());
        read.push(path.clone());
        match toml::from_str::<toml::Table>(&text) {
            Ok(table) => {
                waiting.extend(imports(root, &path, &table));
                handlers(root, "", &toml::Value::Table(table), &mut out.handlers);
            }
            Err(error) => {
                let line = error.message().lines().next().unwrap_or_default().to_owned();
                let fix = format!("correct {shown}");
                out.trouble.get_or_insert(Trouble { text: format!("{shown} is no TOML: {line}"), fix });
            }
        }
    }
    if root.is_ours() {
        // One that Docker has started for itself names a file of Docker's.
        let pid =
            processes::called("containerd").find(|one| one.argument("--config").is_none()).and_then(|one| one.pid());
        let newer = |pid| read.iter().filter_map(move |path| time::is_newer(path, pid)).max();
        out.is_changed = pid.and_then(newer);
    }
    out
}

/// The files that a file takes in; a star stands for what is in one folder.
fn imports(root: &Root, file: &Path, table: &toml::Table) -> Vec<PathBuf> {
    let listed = table.get("imports").and_then(toml::Value::as_array).into_iter().flatten();
    let mut out = Vec::new();
    for pattern in listed.filter_map(toml::Value::as_str) {
        let path = if pattern.starts_with('/') {
            root.at(pattern)
        } else {
            file.parent().unwrap_or(Path::new("/")).join(pattern)
        };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match (name.split_once('*'), path.parent()) {
            (Some((start, end)), Some(folder)) => {
                let fits = |path: &PathBuf| {
                    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
                };
                let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
                let mut found: Vec<PathBuf> = entries.filter(fits).collect();
                found.sort();
                out.extend(found);
            }
            _ => out.push(path),
        }
    }
    out
}

/// Every table `NAME.options` whose `BinaryName` is ours, whatever the version of the file calls the plugin.
fn handlers(root: &Root, name: &str, value: &toml::Value, out: &mut Vec<Runtime>) {
    let Some(table) = value.as_table() else { return };
    let binary = table.get("options").and_then(|options| options.get("BinaryName")).and_then(toml::Value::as_str);
    if let Some(binary) = binary {
        let runtime = root.runtime(name, binary);
        if runtime.is_ours() {
            out.push(runtime);
        }
    }
    for (key, value) in table {
        handlers(root, key, value, out);
    }
}
