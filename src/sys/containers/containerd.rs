//! containerd's containers, those of its CRI plugin among them: bundles on disk, and the image through `ctr`.
//!
//! containerd alone reads its database while it runs, so an image's name is looked up by its own client, read-only.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Found, Places, Search, choose, is_our_runtime, made, read_config, runtime_in};
use crate::provenance::{Engine, EngineFacts};
use crate::sys::child::ask;
use crate::sys::{processes, provenance, runtime};

/// Below a folder of containerd's state: bundles, by namespace and id.
const TASKS: &str = "io.containerd.runtime.v2.task";

/// How long `ctr` may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Its longest answer: a container with its whole configuration.
const LIMIT: u64 = 16 << 20;

/// A bundle.
struct Task {
    namespace: String,
    id: String,
    bundle: PathBuf,
    config: Option<Value>,
}

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    for (socket, folder) in &folders(places) {
        let tasks = match tasks(folder) {
            Ok(tasks) => tasks,
            Err(error) => {
                search.failed(socket, &error, places.containerd_is_named);
                continue;
            }
        };
        match choose(name, &tasks, |task| &task.id, |task| task.is_called(name)) {
            // Docker was asked itself.
            Ok(Some(task)) if search.knows(&task.id) => {}
            Ok(Some(task)) => search.found.push(found(socket, task)),
            Ok(None) => {
                let others = tasks.iter().filter(|task| task.engine() == Engine::Containerd);
                search.names.extend(others.map(|task| task.name().unwrap_or(&task.id).to_owned()));
                search.has_none(socket);
            }
            Err(several) => {
                for task in several.into_iter().filter(|task| !search.knows(&task.id)).collect::<Vec<_>>() {
                    search.one_of_several(task.engine(), &task.id, task.name().unwrap_or_default());
                }
            }
        }
    }
}

pub(super) fn running(places: &Places, search: &mut Search) {
    for (socket, folder) in &folders(places) {
        match tasks(folder) {
            // Docker was asked itself, where it may be asked.
            Ok(tasks) => {
                for task in tasks.iter().filter(|task| !search.knows(&task.id)).collect::<Vec<_>>() {
                    search.found.push(of_bundle(task));
                }
            }
            Err(error) => search.failed(socket, &error, places.containerd_is_named),
        }
    }
}

/// Sockets, each with the folder of its tasks: where shims say that they are, and the usual places.
///
/// A shim stands in a bundle and was told its containerd's socket.
fn folders(places: &Places) -> Vec<(PathBuf, PathBuf)> {
    let is_asked = |socket: &PathBuf| !places.containerd_is_named || places.containerd.contains(socket);
    let mut out: Vec<(PathBuf, PathBuf)> = processes::called("containerd-shim")
        .filter_map(|shim| {
            let socket = PathBuf::from(shim.argument("-address")?);
            let bundle = shim.folder()?;
            let folder = bundle.ancestors().nth(2).filter(|path| path.ends_with(TASKS))?;
            Some((socket, folder.to_owned()))
        })
        .filter(|(socket, _)| is_asked(socket))
        .collect();
    for socket in &places.containerd {
        if !out.iter().any(|(known, _)| known == socket) {
            out.push((socket.clone(), socket.parent().unwrap_or(Path::new("/")).join(TASKS)));
        }
    }
    out.sort();
    out.dedup();
    out
}

fn tasks(folder: &Path) -> io::Result<Vec<Task>> {
    let mut out = Vec::new();
    for namespace in names(folder)? {
        // Docker's plugins are no containers of a user.
        for id in names(&folder.join(&namespace))?.into_iter().filter(|_| namespace != "plugins.moby") {
            let bundle = folder.join(&namespace).join(&id);
            let config = read_config(&bundle).ok().map(|(_, value)| value);
            out.push(Task { namespace: namespace.clone(), id, bundle, config });
        }
    }
    Ok(out)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

impl Task {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.config.as_ref()?["annotations"][key].as_str()
    }

    /// By the name that a pod or nerdctl gave it; a pod's sandbox has none of its own.
    fn name(&self) -> Option<&str> {
        self.annotation("io.kubernetes.cri.container-name").or_else(|| self.annotation("nerdctl/name"))
    }

    /// The engine whose namespace it is in.
    fn engine(&self) -> Engine {
        if self.namespace == "moby" { Engine::Docker } else { Engine::Containerd }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name() == Some(name)
    }
}

fn found(socket: &Path, task: &Task) -> Found {
    let mut out = of_bundle(task);
    if out.facts.engine == Engine::Containerd
        && let Err(reason) = image(socket, task, &mut out)
    {
        out.facts.notes.push(reason);
    }
    out
}

/// What the bundle alone says.
fn of_bundle(task: &Task) -> Found {
    let nothing = Value::Null;
    let config = task.config.as_ref().unwrap_or(&nothing);
    let mut facts = provenance::facts(&task.bundle, config, &task.id, None);
    if facts.engine == Engine::Unknown {
        facts = EngineFacts::nothing_known(Engine::Containerd);
    }
    let is_containerds = facts.engine == Engine::Containerd;
    let mut out = Found::new(task.id.clone(), facts);
    out.state = Some("running".to_owned());
    out.ran = Some(true);
    out.runtime = runtime_in(&task.bundle);
    out.is_ours = out.runtime.as_deref().map(is_our_runtime);
    if task.config.is_some() {
        out.looked_at.push(task.bundle.join("config.json").display().to_string());
    } else {
        out.notes.push(format!("{:?} cannot be read", task.bundle.join("config.json")));
    }
    out.bundle.clone_from(&task.config);
    out.since = made(&task.bundle);
    if is_containerds {
        out.facts.container_name = task.name().map(str::to_owned);
        out.facts.image = task.annotation("io.kubernetes.cri.image-name").map(str::to_owned);
    }
    out
}

/// The image by its name in containerd's database, then its environment.
fn image(socket: &Path, task: &Task, out: &mut Found) -> Result<(), String> {
    let ctr = |arguments: &[&str]| client(socket, &task.namespace, arguments);
    let info = ctr(&["containers", "info", &task.id])?;
    let info: Value = serde_json::from_str(&info).map_err(|error| format!("ctr containers info: {error}"))?;
    let name = info["Image"].as_str().unwrap_or_default();
    // It goes into a filter; a name of an image has nothing else in it.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-+".contains(&byte);
    if name.is_empty() {
        return Err("containerd knows no image of the container".to_owned());
    }
    if !name.bytes().all(is_plain) {
        return Err(format!("the image's name is not of a known form: {name:?}"));
    }
    out.facts.image = Some(name.to_owned());
    let list = ctr(&["images", "list", &format!("name==\"{name}\"")])?;
    let digest = digest_of(&list, name).ok_or_else(|| format!("containerd knows no image {name:?} any more"))?;
    out.looked_at.push(format!("ctr --namespace {} containers info, images list", task.namespace));
    out.image_id = Some(digest.to_owned());
    out.facts.image_env = Some(provenance::containerd_image_env(digest, &task.bundle)?);
    out.looked_at.push("the image's configuration in containerd's content store".to_owned());
    Ok(())
}

/// Runs `ctr`, from a system directory.
pub(in crate::sys) fn client(socket: &Path, namespace: &str, arguments: &[&str]) -> Result<String, String> {
    let Ok(program) = runtime::find(&["ctr".to_owned()]) else {
        return Err("containerd's client ctr is not installed, so its image is not known".to_owned());
    };
    if !socket.exists() {
        // ctr would wait for it.
        return Err(format!("containerd's socket {socket:?} is not there, so its image is not known"));
    }
    let mut command = Command::new(program);
    command.arg("--address").arg(socket).args(["--namespace", namespace]).args(arguments);
    let said = |text: &str| format!("ctr {}: {text}", arguments.first().copied().unwrap_or_default());
    let answer =
        ask(&mut command, PATIENCE, LIMIT).map_err(|error| said(&format!("{:#}", anyhow::Error::new(error))))?;
    if !answer.status.success() {
        return Err(said(&answer.first_complaint().chars().take(120).collect::<String>()));
    }
    String::from_utf8(answer.output).map_err(|_| said("the answer is not text"))
}

/// The digest in a table with the columns REF TYPE DIGEST.
fn digest_of<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(&name))?;
    row.iter().copied().find(|word| word.strip_prefix("sha256:").is_some_and(provenance::is_digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_in_the_table() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let table = format!("REF TYPE DIGEST SIZE PLATFORMS LABELS\nlocalhost/box:1 application/x {digest} 1 MiB -\n");
        assert_eq!(digest_of(&table, "localhost/box:1"), Some(digest.as_str()));
        assert_eq!(digest_of(&table, "localhost/box"), None);
        assert_eq!(digest_of("", "x"), None);
    }
}
