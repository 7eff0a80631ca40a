//! podman's configuration and hook files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Root;
use crate::doctor::{HookFile, Podman, Trouble};

/// Folders of hook files that buildah and CRI-O read too.
// oci-hooks(5)
const SHARED: [&str; 2] = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"];

/// What all files together say; the last one counts.
#[derive(Default)]
struct Engine {
    runtimes: BTreeMap<String, Vec<String>>,
    runtime: Option<String>,
    hooks: Option<Vec<String>>,
}

pub(super) fn look(root: &Root) -> Podman {
    let mut out = Podman { installed: root.program("podman").is_some(), ..Podman::default() };
    let mut engine = Engine::default();
    for path in files(root) {
        let text = match root.text_of(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => continue,
        };
        let shown = root.shown(&path);
        out.files.push(shown.clone());
        match toml::from_str::<toml::Table>(&text) {
            Ok(table) => engine.read(&table),
            Err(error) => {
                let line = error.message().lines().next().unwrap_or_default().to_owned();
                let fix = format!("correct {shown}");
                out.trouble.get_or_insert(Trouble { text: format!("{shown} is no TOML: {line}"), fix });
            }
        }
    }
    for (name, paths) in &engine.runtimes {
        // podman takes the first that is there.
        let usable = paths.iter().find(|path| root.problem(path).is_none());
        if let Some(path) = usable.or(paths.first()) {
            out.runtimes.push(root.runtime(name, path));
        }
    }
    out.default_runtime = engine.runtime;
    let mut folders = engine.hooks.unwrap_or_default();
    folders.extend(SHARED.map(str::to_owned));
    let mut seen: Vec<String> = Vec::new();
    for folder in folders {
        if !seen.contains(&folder) {
            out.hooks.extend(hooks(root, &folder));
            seen.push(folder);
        }
    }
    out
}

/// Where podman reads its configuration, the last one counts.
// containers.conf(5)
fn files(root: &Root) -> Vec<PathBuf> {
    let mut bases = vec![root.at("/usr/share/containers/containers.conf"), root.at("/etc/containers/containers.conf")];
    if root.is_ours() && !rustix::process::geteuid().is_root() {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
        let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
        bases.extend(own.map(|folder| folder.join("containers/containers.conf")));
    }
    let with_folder = |base: PathBuf| {
        let mut parts: Vec<PathBuf> = fs::read_dir(base.with_extension("conf.d"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
            .collect();
        parts.sort();
        std::iter::once(base).chain(parts).collect::<Vec<_>>()
    };
    bases.into_iter().flat_map(with_folder).collect()
}

impl Engine {
    fn read(&mut self, table: &toml::Table) {
        let Some(engine) = table.get("engine").and_then(toml::Value::as_table) else { return };
        for (name, paths) in engine.get("runtimes").and_then(toml::Value::as_table).into_iter().flatten() {
            self.runtimes.insert(name.clone(), strings(paths));
        }
        if let Some(runtime) = engine.get("runtime").and_then(toml::Value::as_str) {
            self.runtime = Some(runtime.to_owned());
        }
        if let Some(folders) = engine.get("hooks_dir") {
            self.hooks = Some(strings(folders));
        }
    }
}

fn strings(value: &toml::Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect()
}

/// The files in a folder that name our hook.
fn hooks(root: &Root, folder: &str) -> Vec<HookFile> {
    let entries = fs::read_dir(root.at(folder)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|name| name == "json")).collect();
    paths.sort();
    let hook = |path: &PathBuf| {
        let value: Value = serde_json::from_slice(&root.read(path).ok()?).ok()?;
        let program = value["hook"]["path"].as_str()?.to_owned();
        let stages = value["stages"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let is_ours = Path::new(&program).file_name().is_some_and(|name| name == "cudaview-hook");
        is_ours.then(|| HookFile {
            path: root.shown(path),
            stages: stages.map(str::to_owned).collect(),
            is_missing: root.problem(&program).is_some(),
            in_shared_folder: SHARED.contains(&folder),
            program,
        })
    };
    paths.iter().filter_map(hook).collect()
}
