//! Who set a variable: the image, the person who started the container, or nobody who can be named.
//!
//! The container's own configuration does not say; the engine's files do, and [`EngineFacts`] holds what they say.
//! The one law here is that **an image must not be able to pass for a user**: whatever an image's `ENV` looks like,
//! a variable that no user set is never [`Provenance::User`].

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Who set the value that a container would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Nobody: the variable is not there.
    Unset,
    /// The image's own `ENV`.
    Image,
    /// Whoever started the container: `-e`, an env file, a compose file.
    User,
    /// Whoever ran `exec`.
    Exec,
    /// It cannot be told.
    Unknown,
}

/// The program that asked the runtime for the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// dockerd.
    Docker,
    /// podman.
    Podman,
    /// containerd without dockerd: CRI, nerdctl, ctr.
    Containerd,
    /// None of these, or nothing shows which.
    Unknown,
}

impl Engine {
    /// As its users write it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "Docker",
            Engine::Podman => "podman",
            Engine::Containerd => "containerd",
            Engine::Unknown => "an unknown engine",
        }
    }
}

/// What the engine was asked for in the way of devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// The engine keeps no such list.
    NotApplicable,
    /// The list should be there and could not be read, for this reason.
    Unknown(String),
    /// The list; empty when nothing was asked for.
    Known(Vec<DockerDeviceRequest>),
}

/// One `--gpus` or CDI `--device`, as Docker stores it in `hostconfig.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerDeviceRequest {
    /// Driver by name (`cdi`, `nvidia`), or empty: chosen by capability.
    pub driver: String,
    /// How many devices; -1 is all, 0 means that `device_ids` decide.
    pub count: i64,
    /// Devices by name.
    pub device_ids: Vec<String>,
    /// Alternatives, each a set that must be met: `[["gpu"]]`.
    pub capabilities: Vec<Vec<String>>,
}

/// What an engine's own files say about one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineFacts {
    /// Which engine it is.
    pub engine: Engine,
    /// The container's name, without Docker's leading slash.
    pub container_name: Option<String>,
    /// The image, as the user named it.
    pub image: Option<String>,
    /// Environment that the engine stored for the container: the user's entries, then the image's.
    pub config_env: Option<Vec<String>>,
    /// Environment in the image's own configuration.
    pub image_env: Option<Vec<String>>,
    /// Devices that the engine was asked for.
    pub device_requests: Requests,
    /// Whether the container is privileged.
    pub privileged: Option<bool>,
    /// Name of the runtime that the engine stored for the container.
    pub runtime: Option<String>,
    /// Whether that is the engine's default; `None` when it was not looked up or is not known.
    pub runtime_is_default: Option<bool>,
    /// Where the engine keeps its data.
    pub data_root: Option<PathBuf>,
    /// What was looked at and not found, for people.
    pub notes: Vec<String>,
}

impl EngineFacts {
    /// Facts of an engine whose files say nothing.
    pub fn nothing_known(engine: Engine) -> Self {
        Self {
            engine,
            container_name: None,
            image: None,
            config_env: None,
            image_env: None,
            device_requests: Requests::NotApplicable,
            privileged: None,
            runtime: None,
            runtime_is_default: None,
            data_root: None,
            notes: Vec::new(),
        }
    }
}

/// Provenance of the value that the spec carries for this key (of its last entry, which is the one that counts).
///
/// Only Docker's and podman's files can tell, each in its way.
pub fn of_variable(facts: &EngineFacts, key: &str, value_in_spec: Option<&str>) -> Provenance {
    let Some(value) = value_in_spec else { return Provenance::Unset };
    match facts.engine {
        Engine::Docker => under_docker(facts, key, value),
        Engine::Podman => under_podman(facts, key, value),
        Engine::Containerd | Engine::Unknown => Provenance::Unknown,
    }
}

/// As [`of_variable`], for who looks at a container afterwards: containerd too can be asked for an image then.
///
/// It keeps no order either, and an image's entry without `=` is no assignment there.
pub fn found_later(facts: &EngineFacts, key: &str, value: Option<&str>) -> Provenance {
    match (facts.engine, value, &facts.image_env) {
        (Engine::Containerd, Some(value), Some(image)) => {
            let is_images = image.iter().any(|entry| entry.split_once('=') == Some((key, value)));
            if is_images { Provenance::Image } else { Provenance::User }
        }
        _ => of_variable(facts, key, value),
    }
}

/// Podman keeps no order, so a value that any of the image's entries gives is the image's, whoever else said it too.
///
/// Any other value is of somebody who may choose: the command line, a secret, an operator's containers.conf.
fn under_podman(facts: &EngineFacts, key: &str, value: &str) -> Provenance {
    match &facts.image_env {
        None => Provenance::Unknown,
        Some(image) if image.iter().any(|entry| podman_takes(entry, key, value)) => Provenance::Image,
        Some(_) => Provenance::User,
    }
}

/// Whether podman may take this value for the key from this entry of an image: it drops blanks before a name, and for
/// an entry without `=` it takes the value of its own environment, with `*` at the end that of every such variable.
// podman pkg/env, parseEnv().
fn podman_takes(entry: &str, key: &str, value: &str) -> bool {
    let entry = entry.trim_start();
    match entry.split_once('=') {
        Some(pair) => pair == (key, value),
        None => entry == key || entry.strip_suffix('*').is_some_and(|start| key.starts_with(start)),
    }
}

/// The value must be the one that the engine stored: otherwise something changed it later, and it is
/// [`Provenance::Unknown`]. dockerd itself does so for `NVIDIA_VISIBLE_DEVICES`, to which `--gpus` appends an entry;
/// for that key ask with [`config_value`].
///
/// A user's entry can be taken for the image's in one case: it repeats a value that the image has for the key,
/// **and** the user set the key of every image entry before it too (so always when the variable is the image's
/// first entry, and hardly ever when `PATH` is).
/// Position is no proof there: the client sends the user's entries in random order, and a step of `docker build`
/// (legacy builder) sends the image's whole environment as if a user had typed it.
/// A variable that the user did not set is never taken for the user's.
fn under_docker(facts: &EngineFacts, key: &str, value: &str) -> Provenance {
    if config_value(facts, key) != Some(value) {
        return Provenance::Unknown;
    }
    let (Some(config_env), Some(image_env)) = (&facts.config_env, &facts.image_env) else { return Provenance::Unknown };
    let Some((user, image)) = split_env(config_env, image_env) else { return Provenance::Unknown };
    if image.iter().any(|entry| key_of(entry) == key) || repeats_image(user, image_env, key, value) {
        Provenance::Image
    } else {
        Provenance::User
    }
}

/// The value that the engine stored for this key, before anything was appended to the container's environment.
///
/// `None` when there is none, also for a bare key (`-e KEY`, with `KEY` not set in the client), which unsets.
pub fn config_value<'a>(facts: &'a EngineFacts, key: &str) -> Option<&'a str> {
    let entries = facts.config_env.iter().flatten().rev();
    entries.filter_map(|entry| entry.split_once('=')).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Splits Docker's stored environment into the user's entries and the image's.
///
/// dockerd stores the user's entries first, then each image entry whose key is not there yet, which also drops the
/// image's own repeats; without user entries it stores the image's list as it is, repeats included.
/// The result is the smallest prefix for which the rest equals exactly the image's remaining entries, so that an
/// entry counts as the user's only where it cannot be the image's. `None`: there is no such prefix.
// moby daemon/commit.go, merge().
pub fn split_env<'a>(config_env: &'a [String], image_env: &[String]) -> Option<(&'a [String], &'a [String])> {
    if config_env == image_env {
        return Some(config_env.split_at(0));
    }
    let mut first_index = HashMap::new();
    for (index, entry) in config_env.iter().enumerate() {
        first_index.entry(key_of(entry)).or_insert(index);
    }
    // From the back, each image entry is taken off the end where it can be: that leaves the smallest prefix.
    // Those that cannot must have a key that the prefix sets.
    let mut prefix_len = config_env.len();
    let mut overridden = Vec::new();
    for entry in first_entries(image_env).into_iter().rev() {
        let first = first_index.get(key_of(entry)).copied();
        match config_env[..prefix_len].last() {
            Some(last) if last == entry && first == Some(prefix_len - 1) => prefix_len -= 1,
            _ => overridden.push(first),
        }
    }
    let exact = overridden.into_iter().all(|first| first.is_some_and(|index| index < prefix_len));
    exact.then(|| config_env.split_at(prefix_len))
}

/// Whether this entry of the user's could be the image's: see [`under_docker`].
fn repeats_image(user: &[String], image_env: &[String], key: &str, value: &str) -> bool {
    let same_value = |entry: &String| entry.split_once('=') == Some((key, value));
    if !image_env.iter().any(same_value) {
        return false;
    }
    let user_keys: HashSet<&str> = user.iter().map(|entry| key_of(entry)).collect();
    image_env.iter().map(|entry| key_of(entry)).take_while(|name| *name != key).all(|name| user_keys.contains(name))
}

/// The list without the entries whose key came before.
fn first_entries(env: &[String]) -> Vec<&String> {
    let mut seen = HashSet::new();
    env.iter().filter(|entry| seen.insert(key_of(entry))).collect()
}

/// The part before the first `=`; the whole entry when there is none.
fn key_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(key, _)| key)
}

#[cfg(test)]
mod tests;
