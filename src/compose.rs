//! A Compose file → what the rules look at, service by service.
//!
//! Read is what has to do with GPUs; the rest of the file is Compose's business, and so is whether it is valid.
// https://github.com/compose-spec/compose-spec, 05-services.md and deploy.md; compose-go loader and types

pub mod dotenv;
mod interpolate;
mod service;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use interpolate::Tally;

use crate::finding::{printable, quoted};
use crate::provenance::DockerDeviceRequest;
use crate::request::GpusFlag;
use crate::situation::docker_requests;
use crate::whatif::{WhatIf, is_gpu_device};

/// A file that Compose would not take, or that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct InvalidCompose {
    /// `services.trainer.gpus`, `line 7 column 3`.
    pub place: String,
    /// What is wrong there.
    pub reason: String,
}

impl InvalidCompose {
    fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        // The names of services and members are the file's.
        Self { place: printable(&place.into()), reason: reason.into() }
    }
}

/// A service, as far as GPUs are concerned.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its image, if it names one.
    pub image: Option<String>,
    /// It is built from a Dockerfile.
    pub is_built: bool,
    /// What `gpus` and `deploy.resources.reservations.devices` ask Docker for.
    pub requests: Vec<DockerDeviceRequest>,
    /// `devices`: host paths and CDI names.
    pub devices: Vec<String>,
    /// `runtime`.
    pub runtime: Option<String>,
    /// `privileged`.
    pub privileged: bool,
    /// `env_file`, in order.
    pub env_files: Vec<EnvFile>,
    /// `environment`; a name without a value takes that of the shell.
    pub environment: BTreeMap<String, Option<String>>,
    /// What plays a part and was not read.
    pub notes: Vec<String>,
}

/// An entry of `env_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvFile {
    /// Relative to the project's folder.
    pub path: String,
    /// Without it Compose stops.
    pub required: bool,
    /// `format: raw`: values stand as they are.
    pub raw: bool,
}

/// What looks a variable up: the shell first, then `.env`.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the services of a file, in its order.
///
/// # Errors
/// [`InvalidCompose`] where Compose would stop, as far as this is read.
pub fn parse(text: &str, lookup: Lookup<'_>) -> Result<Vec<Service>, InvalidCompose> {
    let document = yaml::read(text)?;
    let file = document.as_object().ok_or_else(|| InvalidCompose::new("the file", "it is no mapping"))?;
    let services = match file.get("services") {
        Some(Value::Object(services)) if !services.is_empty() => services,
        Some(Value::Object(_) | Value::Null) | None => {
            return Err(InvalidCompose::new("services", "there is no service in it"));
        }
        Some(_) => return Err(InvalidCompose::new("services", "it must be a mapping")),
    };
    let mut notes = Vec::new();
    if file.contains_key("include") {
        notes.push("include is not followed: services of other files are not shown".to_owned());
    }
    let mut out = Vec::new();
    let mut tally = Tally::new();
    for name in services.keys() {
        let members = extended(services, name, &mut Vec::new(), &mut notes)?;
        let members = replaced(&Value::Object(members), &format!("services.{name}"), lookup, &mut tally)?;
        let mut service = service::read(name, &members)?;
        let unset = std::mem::take(&mut tally.unset);
        let not_set = |name: String| format!("the variable {} is not set, and counts as empty", quoted(&name));
        service.notes.extend(unset.into_iter().map(not_set));
        service.notes.extend(notes.iter().cloned());
        out.push(service);
    }
    Ok(out)
}

/// Services that extend one another in a row.
const LONGEST_CHAIN: usize = 50;

/// The members of a service that have to do with GPUs.
const MEMBERS: [&str; 9] =
    ["image", "build", "gpus", "deploy", "devices", "runtime", "privileged", "env_file", "environment"];

/// A service with what `extends` takes from others of this file.
fn extended(
    services: &Map<String, Value>,
    name: &str,
    through: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Map<String, Value>, InvalidCompose> {
    let place = || format!("services.{name}");
    let own = match services.get(name) {
        Some(Value::Object(members)) => members,
        Some(Value::Null) => return Ok(Map::new()),
        Some(_) => return Err(InvalidCompose::new(place(), "it must be a mapping")),
        None => return Err(InvalidCompose::new(place(), "it is extended, and is not there")),
    };
    if through.iter().any(|known| known == name) {
        return Err(InvalidCompose::new(place(), "it extends itself"));
    }
    if through.len() == LONGEST_CHAIN {
        return Err(InvalidCompose::new(place(), format!("it extends more than {LONGEST_CHAIN} others in a row")));
    }
    through.push(name.to_owned());
    let base = match own.get("extends") {
        None | Some(Value::Null) => None,
        Some(Value::String(base)) => Some(base.as_str()),
        Some(extends) if extends.get("file").is_none_or(Value::is_null) => extends["service"].as_str(),
        Some(_) => {
            notes.push(format!("extends of another file is not followed in {}", quoted(name)));
            None
        }
    };
    let mut out = match base {
        Some(base) => extended(services, base, through, notes)?,
        None => Map::new(),
    };
    through.pop();
    for member in MEMBERS {
        let Some(value) = own.get(member) else { continue };
        let value = match out.remove(member) {
            Some(base) => merged(member, base, value.clone()),
            None => value.clone(),
        };
        out.insert(member.to_owned(), value);
    }
    Ok(out)
}

/// Lists are put behind one another, mappings are merged, and whatever else is replaced.
fn merged(member: &str, base: Value, own: Value) -> Value {
    match (base, own) {
        (Value::Array(mut base), Value::Array(own)) => {
            base.extend(own);
            Value::Array(base)
        }
        (Value::Object(mut base), Value::Object(own)) => {
            for (name, value) in own {
                let value = match base.remove(&name) {
                    Some(before) => merged(&name, before, value),
                    None => value,
                };
                base.insert(name, value);
            }
            Value::Object(base)
        }
        // A list of assignments and a mapping are two spellings of one thing.
        (base, own) if member == "environment" => match (service::assignments(&base), service::assignments(&own)) {
            (Some(base), Some(own)) => {
                let all = base.into_iter().chain(own);
                Value::Object(all.map(|(name, value)| (name, value.map_or(Value::Null, Value::String))).collect())
            }
            _ => own,
        },
        // One file, or a list of them.
        (base, own) if member == "env_file" && !own.is_null() => {
            let files = |value: Value| match value {
                Value::Array(files) => files,
                one => vec![one],
            };
            Value::Array(files(base).into_iter().chain(files(own)).collect())
        }
        (base, Value::Null) => base,
        (_, own) => own,
    }
}

/// A value with its variables replaced; names are left alone.
fn replaced(value: &Value, place: &str, lookup: Lookup<'_>, tally: &mut Tally) -> Result<Value, InvalidCompose> {
    Ok(match value {
        Value::String(text) => Value::String(
            interpolate::interpolate(text, lookup, tally)
                .map_err(|error| InvalidCompose::new(place, format!("{}: {error}", quoted(text))))?,
        ),
        Value::Array(items) => {
            let item = |(at, item)| replaced(item, &format!("{place}[{at}]"), lookup, tally);
            Value::Array(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let mut out = Map::new();
            for (name, member) in members {
                out.insert(name.clone(), replaced(member, &format!("{place}.{name}"), lookup, tally)?);
            }
            Value::Object(out)
        }
        other => other.clone(),
    })
}

/// How a variable came to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `environment`.
    Environment,
    /// `env_file`.
    EnvFile,
}

impl Way {
    /// The member of the service.
    pub fn name(self) -> &'static str {
        match self {
            Way::Environment => "environment",
            Way::EnvFile => "env_file",
        }
    }
}

impl Service {
    /// The service as the flags of `docker run`, with the image's `ENV`. What is no GPU is left out.
    pub fn what_if(&self, env: Vec<String>, image_env: Vec<String>) -> WhatIf {
        let mut out = WhatIf {
            env,
            image_env,
            privileged: self.privileged,
            default_runtime: self.runtime.is_none(),
            devices: self.devices.iter().filter(|name| is_gpu_device(name)).cloned().collect(),
            ..WhatIf::default()
        };
        for request in &self.requests {
            let capabilities: Vec<String> = request.capabilities.iter().flatten().cloned().collect();
            if request.driver == "cdi" {
                out.devices.extend(request.device_ids.iter().filter(|name| is_gpu_device(name)).cloned());
                continue;
            }
            let requests = docker_requests(std::slice::from_ref(request)).into_iter();
            out.gpus.extend(
                requests.map(|request| GpusFlag { selection: request.selection, capabilities: capabilities.clone() }),
            );
        }
        out
    }

    /// The service's variables, as Docker gets them: `environment` over `env_file`, of these the last. A name that nobody
    /// gave a value stands bare, and Docker then takes the image's away.
    pub fn env(&self, files: &[Vec<(String, String)>], lookup: Lookup<'_>) -> Vec<(String, Way)> {
        let mut out: BTreeMap<&str, (Option<String>, Way)> = BTreeMap::new();
        for (name, value) in files.iter().flatten() {
            out.insert(name, (Some(value.clone()), Way::EnvFile));
        }
        for (name, value) in &self.environment {
            let value = value.clone().or_else(|| lookup(name));
            out.insert(name, (value, Way::Environment));
        }
        let entry = |name: &str, value: Option<String>| match value {
            Some(value) => format!("{name}={value}"),
            None => name.to_owned(),
        };
        out.into_iter().map(|(name, (value, way))| (entry(name, value), way)).collect()
    }
}
