//! Docker's containers: its API, and as root the bundle.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Found, Places, Search, http, is_our_runtime, read_config, runtime_in, short};
use crate::device::DeviceNumber;
use crate::provenance::{Engine, EngineFacts, Requests};
use crate::sys::bundle::DocumentError;
use crate::sys::provenance::docker::requests_of;
use crate::sys::{host, provenance};

/// Where containerd keeps bundles of Docker's: its own, and one that dockerd runs.
const BUNDLES: [&str; 2] = ["/run/containerd", "/run/docker/containerd/daemon"];

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    if let Some(host) = &places.docker_elsewhere {
        search.look(format!("DOCKER_HOST={host:?}"), "only a unix socket is asked");
    }
    for socket in &places.docker {
        match ask(socket, &format!("/containers/{name}/json")) {
            Ok((200, inspected)) => match found(socket, inspected) {
                Some(found) => search.found.push(found),
                None => search.look(socket.display(), "the answer is not Docker's"),
            },
            Ok((404, _)) => {
                search.names.extend(list(socket).into_iter().map(|(_, name)| name));
                search.has_none(socket);
            }
            Ok((_, answer)) if is_ambiguous(&answer) => several(socket, name, search),
            Ok((_, answer)) => search.look(socket.display(), format!("{:?}", message(&answer))),
            Err(error) => search.failed(socket, &error, places.docker_is_named),
        }
    }
}

pub(super) fn running(places: &Places, search: &mut Search) {
    listed_by(places, "/containers/json", search);
}

pub(super) fn all(places: &Places, search: &mut Search) {
    listed_by(places, "/containers/json?all=1", search);
}

/// The containers of a list of Docker's.
fn listed_by(places: &Places, target: &str, search: &mut Search) {
    if let Some(host) = &places.docker_elsewhere {
        search.look(format!("DOCKER_HOST={host:?}"), "only a unix socket is asked");
    }
    for socket in &places.docker {
        match ask(socket, target) {
            Ok((200, Value::Array(all))) => {
                for container in &all {
                    let Some((id, name)) = listed(container) else {
                        search.look(socket.display(), "a container without an id");
                        continue;
                    };
                    let place = || format!("{}: {}", socket.display(), super::label(Engine::Docker, &id, &name));
                    match ask(socket, &format!("/containers/{id}/json")) {
                        Ok((200, inspected)) => match found(socket, inspected) {
                            Some(found) => search.found.push(found),
                            None => search.look(place(), "the answer is not Docker's"),
                        },
                        // It ended meanwhile, and holds nothing any more.
                        Ok((404, _)) => {}
                        Ok((_, answer)) => search.look(place(), format!("{:?}", message(&answer))),
                        Err(error) => search.look(place(), error.to_string()),
                    }
                }
            }
            Ok((200, _)) => search.look(socket.display(), "the answer is not Docker's"),
            Ok((_, answer)) => search.look(socket.display(), format!("{:?}", message(&answer))),
            Err(error) => search.failed(socket, &error, places.docker_is_named),
        }
    }
}

/// An answer's status and JSON.
pub(in crate::sys) fn ask(socket: &Path, target: &str) -> io::Result<(u16, Value)> {
    let answer = http::get(socket, target)?;
    Ok((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// What a daemon says of itself.
#[derive(Debug, Default)]
pub struct Daemon {
    /// Docker's `/info`.
    pub info: Value,
    /// The process that listens, where it is in our pid namespace.
    pub pid: Option<u32>,
}

/// Asks the daemon at a socket about itself.
///
/// # Errors
/// Why it does not answer.
pub fn daemon(socket: &Path) -> io::Result<Daemon> {
    match ask(socket, "/info")? {
        (200, info) if info.is_object() => Ok(Daemon { info, pid: http::listener(socket) }),
        (_, answer) => Err(io::Error::other(message(&answer))),
    }
}

/// What a daemon says of a failure; somebody else's text.
pub(in crate::sys) fn message(answer: &Value) -> String {
    answer["message"].as_str().unwrap_or("an answer that is not Docker's").chars().take(120).collect()
}

/// Docker's word for the beginning of several ids. Nobody else may then say which one was meant.
// moby container/view.go and pkg/truncindex, "Multiple IDs found with provided prefix"
fn is_ambiguous(answer: &Value) -> bool {
    message(answer).to_ascii_lowercase().contains("multiple ids found")
}

/// Those whose id begins so. Nothing is left to guess where they cannot be listed.
fn several(socket: &Path, beginning: &str, search: &mut Search) {
    let listed = list(socket).into_iter().filter(|(id, _)| id.starts_with(beginning)).collect::<Vec<_>>();
    for (id, name) in &listed {
        search.one_of_several(Engine::Docker, id, name);
    }
    if listed.is_empty() {
        search.one_of_several(Engine::Docker, &format!("{beginning}…"), "");
    }
}

/// Every container of a daemon: its id and its name.
fn list(socket: &Path) -> Vec<(String, String)> {
    let Ok((200, Value::Array(all))) = ask(socket, "/containers/json?all=1") else { return Vec::new() };
    all.iter().filter_map(listed).collect()
}

fn listed(container: &Value) -> Option<(String, String)> {
    let name = container.pointer("/Names/0").and_then(Value::as_str).unwrap_or_default();
    let id = container["Id"].as_str().filter(|id| provenance::is_digest(id))?;
    Some((id.to_owned(), name.trim_start_matches('/').to_owned()))
}

fn found(socket: &Path, inspected: Value) -> Option<Found> {
    let text = |pointer: &str| inspected.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let id = text("/Id").filter(|id| provenance::is_digest(id))?;
    let mut out = Found::new(id, EngineFacts::nothing_known(Engine::Docker));
    let socket_said = |target: String| format!("{}: {target}", socket.display());
    out.looked_at.push(socket_said(format!("containers/{}/json", short(&out.id))));
    out.facts.container_name = text("/Name").map(|name| name.trim_start_matches('/').to_owned());
    out.facts.image = text("/Config/Image");
    out.facts.config_env = Some(strings(inspected.pointer("/Config/Env")));
    out.facts.privileged = inspected.pointer("/HostConfig/Privileged").and_then(Value::as_bool);
    out.facts.device_requests = match requests_of(&inspected["HostConfig"]) {
        Ok(requests) => Requests::Known(requests),
        Err(error) => Requests::Unknown(error.to_string()),
    };
    out.state = text("/State/Status");
    // Go's zero time stands for a program that never ran.
    out.ran = text("/State/StartedAt").map(|time| !time.starts_with("0001-"));
    out.since = text("/State/StartedAt").and_then(|time| humantime::parse_rfc3339(&time).ok());
    let failure = text("/State/Error").unwrap_or_default();
    out.was_refused = failure.contains("cudaview: refused");
    if out.ran == Some(false) {
        let reason = if out.was_refused || failure.is_empty() {
            String::new()
        } else {
            format!(": {}", failure.chars().take(300).collect::<String>())
        };
        out.notes.push(format!("its program never ran{reason}"));
    }
    out.image_id = text("/Image").filter(|id| id.strip_prefix("sha256:").is_some_and(provenance::is_digest));
    match image_env(socket, &out) {
        Ok(env) => {
            let image = out.image_id.as_deref().unwrap_or_default();
            out.looked_at.push(socket_said(format!("images/{}/json", short(image))));
            out.facts.image_env = Some(env);
        }
        Err(reason) => out.facts.notes.push(reason),
    }
    runtime(socket, text("/HostConfig/Runtime"), &mut out);
    bundle(inspected.pointer("/State/Pid").and_then(Value::as_u64), &mut out);
    out.inspected = Some(inspected);
    Some(out)
}

pub(in crate::sys) fn strings(list: Option<&Value>) -> Vec<String> {
    let entries = list.and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The image's own environment, as Docker has it; see also [`crate::sys::provenance::docker`].
fn image_env(socket: &Path, found: &Found) -> Result<Vec<String>, String> {
    let Some(id) = &found.image_id else { return Err("the container's image id is not of a known form".to_owned()) };
    if found.facts.image.as_ref() == Some(id) {
        return Err("the image was named by its whole id, as a step of docker build does".to_owned());
    }
    let target = format!("/images/{id}/json");
    match ask(socket, &target) {
        Ok((200, image)) => Ok(strings(image.pointer("/Config/Env"))),
        Ok((status, answer)) => Err(format!("looked for image {}: {status} {:?}", short(id), message(&answer))),
        Err(error) => Err(format!("looked for image {}: {error}", short(id))),
    }
}

/// Which runtime a container has, and whether that is ours. Only the daemon knows what stands behind a name.
fn runtime(socket: &Path, name: Option<String>, out: &mut Found) {
    let Ok((200, info)) = ask(socket, "/info") else {
        out.runtime = name;
        return;
    };
    out.looked_at.push(format!("{}: info", socket.display()));
    let default = info["DefaultRuntime"].as_str().unwrap_or("runc");
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| default.to_owned());
    out.facts.runtime_is_default = Some(name == default);
    let path = info["Runtimes"][&name]["path"].as_str().filter(|path| !path.is_empty());
    out.is_ours = Some(is_our_runtime(path.unwrap_or(&name)));
    let options = info["SecurityOptions"].as_array().into_iter().flatten();
    out.rootless = options.filter_map(Value::as_str).any(|option| option == "name=rootless");
    out.runtime = Some(name);
}

/// The bundle, which its shim stands in. Only root may look there.
fn bundle(pid: Option<u64>, out: &mut Found) {
    let by_shim = pid.filter(|pid| *pid > 1).and_then(|pid| shim_of(pid, &out.id));
    let usual = BUNDLES.iter().map(|root| Path::new(root).join("io.containerd.runtime.v2.task/moby").join(&out.id));
    let mut denied = false;
    for bundle in by_shim.into_iter().chain(usual) {
        match read_config(&bundle) {
            Ok((path, value)) => {
                let path = std::fs::read_link(&bundle).map_or(path, |bundle| bundle.join("config.json"));
                out.looked_at.push(path.display().to_string());
                out.bundle = Some(value);
                if let Some(runtime) = runtime_in(&bundle) {
                    out.is_ours = Some(is_our_runtime(&runtime));
                }
                return;
            }
            Err(DocumentError::System { source, .. }) => denied |= source.kind() == io::ErrorKind::PermissionDenied,
            Err(error) => out.notes.push(error.to_string()),
        }
    }
    let is_running = pid.is_some_and(|pid| pid > 0);
    if denied || (is_running && !rustix::process::geteuid().is_root()) {
        out.notes.push("the record of what was done is in the container's bundle, which only root may read; shown is what the configuration says now".to_owned());
    }
}

/// The folder that a container's shim stands in: the bundle, whatever mount namespace it is in.
fn shim_of(pid: u64, id: &str) -> Option<PathBuf> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent: u64 = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    let folder = PathBuf::from(format!("/proc/{parent}/cwd"));
    let target = std::fs::read_link(&folder).ok()?;
    (target.file_name()?.to_str()? == id).then_some(folder)
}

/// The numbers of the devices that a container was given by path.
pub fn device_numbers(inspected: &Value) -> Vec<(String, DeviceNumber)> {
    let devices = inspected.pointer("/HostConfig/Devices").and_then(Value::as_array).into_iter().flatten();
    let paths = devices.filter_map(|device| device["PathOnHost"].as_str());
    paths.filter_map(|path| Some((path.to_owned(), host::device_number(Path::new(path))?))).collect()
}
