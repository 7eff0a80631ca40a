//! Specifications of the Container Device Interface: what a host's administrator, or NVIDIA's generator, wrote down about
//! the files and nodes that a container with a GPU needs. Reading and checking; the files themselves are `sys::cdi`'s.
//!
//! Accepted is what the CDI library accepts, versions 0.3.0 to 1.1.0.
// https://github.com/cncf-tags/container-device-interface, SPEC.md, specs-go/config.go, pkg/cdi/{spec,version}.go.

mod inject;
#[cfg(test)]
mod tests;
mod yaml;

pub use inject::{CdiEdits, Contradiction, Source, inject};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::device::DeviceNumber;
use crate::finding::quoted;

/// The kind of NVIDIA's GPUs.
pub const GPU_KIND: &str = "nvidia.com/gpu";

/// A specification file's content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiSpec {
    /// The version that it was written for.
    pub cdi_version: String,
    /// `VENDOR/CLASS`.
    pub kind: String,
    /// For people.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: Map<String, Value>,
    /// Devices by name.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub devices: Vec<CdiDevice>,
    /// What a container gets with any of them.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub container_edits: Edits,
}

/// A device of a specification.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiDevice {
    /// Its name within the kind.
    pub name: String,
    /// For people.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: Map<String, Value>,
    /// What a container gets with it.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub container_edits: Edits,
}

/// What a container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edits {
    /// `NAME=VALUE`; each replaces an entry of the same name.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub device_nodes: Vec<Node>,
    /// Network interfaces, which no GPU has.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub net_devices: Vec<Value>,
    /// Hooks.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub hooks: Vec<Hook>,
    /// Mounts.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub mounts: Vec<Mount>,
    /// Intel's resource director, which no GPU of NVIDIA's has.
    #[serde(default)]
    pub intel_rdt: Option<Value>,
    /// Further groups of the container's process.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// In the container.
    pub path: String,
    /// On the host, where it is another.
    #[serde(default)]
    pub host_path: Option<String>,
    /// `c`, `b`, `u`, `p`, or empty: as on the host.
    #[serde(default, rename = "type", deserialize_with = "null_is_empty")]
    pub kind: String,
    /// Major number; 0 with a minor of 0: as on the host.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub major: i64,
    /// Minor number.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub minor: i64,
    /// Mode.
    #[serde(default)]
    pub file_mode: Option<u32>,
    /// Some of `rwm`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub permissions: String,
    /// Owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Mount options.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub options: Vec<String>,
    /// File system type.
    #[serde(default, rename = "type", deserialize_with = "null_is_empty")]
    pub kind: String,
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// The stage.
    pub hook_name: String,
    /// The program.
    pub path: String,
    /// Its arguments, the name first.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default)]
    pub timeout: Option<i64>,
}

/// How a file is written; the CDI library goes by the ending too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// The format of a file in a specification folder; other files are no specifications.
    pub fn of(file_name: &str) -> Option<Self> {
        match file_name.rsplit_once('.')?.1 {
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// A file that is no valid specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidCdi {
    /// The member, `devices[1].containerEdits.env[0]`, or `line 3 column 7`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

fn invalid(field: impl Into<String>, problem: impl Into<String>) -> InvalidCdi {
    InvalidCdi { field: field.into(), problem: problem.into() }
}

/// Reads and checks a specification.
///
/// # Errors
/// [`InvalidCdi`] names the first member for which the CDI library would not load the file either.
pub fn parse(text: &str, format: Format) -> Result<CdiSpec, InvalidCdi> {
    let value = match format {
        Format::Json => serde_json::from_str(text).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            invalid(place, without_place(&error.to_string()))
        })?,
        Format::Yaml => yaml::parse(text)?,
    };
    let spec: CdiSpec = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "the file".to_owned() } else { path };
        invalid(field, without_place(&error.into_inner().to_string()))
    })?;
    spec.check()?;
    Ok(spec)
}

/// `serde_json` adds a place, which is said already or, for a value that was not text, is none.
fn without_place(text: &str) -> String {
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Go's library reads a null as an absent member.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Versions that there are.
const VERSIONS: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

impl CdiSpec {
    fn check(&self) -> Result<(), InvalidCdi> {
        let declared = self.cdi_version.strip_prefix('v').unwrap_or(&self.cdi_version);
        let Some(version) = VERSIONS.iter().position(|known| *known == declared) else {
            let known = format!("it is none of the versions {} to {}", VERSIONS[0], VERSIONS[VERSIONS.len() - 1]);
            return Err(invalid("cdiVersion", format!("{}: {known}", quoted(&self.cdi_version))));
        };
        let (vendor, class) = self.kind.split_once('/').unwrap_or((&self.kind, ""));
        if !is_name(vendor, "_-.") || !is_name(class, "_-.") {
            return Err(invalid("kind", format!("{} is no VENDOR/CLASS", quoted(&self.kind))));
        }
        self.container_edits.check("containerEdits")?;
        if self.devices.is_empty() {
            return Err(invalid("devices", "there is none"));
        }
        for (at, device) in self.devices.iter().enumerate() {
            let field = format!("devices[{at}]");
            if !is_name(&device.name, "_-.:") {
                return Err(invalid(format!("{field}.name"), format!("{} is no device name", quoted(&device.name))));
            }
            if let Some(first) = self.devices[..at].iter().position(|other| other.name == device.name) {
                let problem = format!("{} is the name of devices[{first}] too", quoted(&device.name));
                return Err(invalid(format!("{field}.name"), problem));
            }
            if device.container_edits == Edits::default() {
                return Err(invalid(format!("{field}.containerEdits"), "it is empty"));
            }
            device.container_edits.check(&format!("{field}.containerEdits"))?;
        }
        self.check_features(version)
    }

    /// A file must not use what its version does not have: a reader of that version would not see it.
    fn check_features(&self, version: usize) -> Result<(), InvalidCdi> {
        let needs = |minimum: &str, field: String| {
            let allowed = VERSIONS.iter().position(|known| *known == minimum).is_some_and(|at| at <= version);
            let problem = || format!("cdiVersion {} does not have it, {minimum} does", self.cdi_version);
            if allowed { Ok(()) } else { Err(invalid(field, problem())) }
        };
        if self.kind.split_once('/').is_some_and(|(_, class)| class.contains('.')) {
            needs("0.6.0", "kind".to_owned())?;
        }
        if !self.annotations.is_empty() {
            needs("0.6.0", "annotations".to_owned())?;
        }
        let devices = self.devices.iter().enumerate();
        let of_devices = devices.map(|(at, device)| (format!("devices[{at}]."), &device.container_edits));
        for (prefix, edits) in std::iter::once((String::new(), &self.container_edits)).chain(of_devices) {
            let field = |name: &str| format!("{prefix}containerEdits.{name}");
            if !edits.net_devices.is_empty() {
                needs("1.1.0", field("netDevices"))?;
            }
            if edits.intel_rdt.is_some() {
                needs("0.7.0", field("intelRdt"))?;
            }
            if !edits.additional_gids.is_empty() {
                needs("0.7.0", field("additionalGids"))?;
            }
            if let Some(at) = edits.device_nodes.iter().position(|node| node.host_path.is_some()) {
                needs("0.5.0", field(&format!("deviceNodes[{at}].hostPath")))?;
            }
            if let Some(at) = edits.mounts.iter().position(|mount| !mount.kind.is_empty()) {
                needs("0.4.0", field(&format!("mounts[{at}].type")))?;
            }
        }
        for (at, device) in self.devices.iter().enumerate() {
            if device.name.starts_with(|c: char| c.is_ascii_digit()) {
                needs("0.5.0", format!("devices[{at}].name"))?;
            }
            if !device.annotations.is_empty() {
                needs("0.6.0", format!("devices[{at}].annotations"))?;
            }
        }
        Ok(())
    }

    /// A device by its name.
    pub fn device(&self, name: &str) -> Option<&CdiDevice> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// Letters, digits and these; a letter or digit at both ends.
fn is_name(name: &str, more: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(name.chars().next())
        && ends(name.chars().next_back())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

const STAGES: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl Edits {
    fn check(&self, field: &str) -> Result<(), InvalidCdi> {
        check_env(&self.env, &format!("{field}.env"))?;
        for (at, node) in self.device_nodes.iter().enumerate() {
            node.check(&format!("{field}.deviceNodes[{at}]"))?;
        }
        for (at, hook) in self.hooks.iter().enumerate() {
            let field = format!("{field}.hooks[{at}]");
            if !STAGES.contains(&hook.hook_name.as_str()) {
                return Err(invalid(format!("{field}.hookName"), format!("{} is no stage", quoted(&hook.hook_name))));
            }
            check_path(&hook.path, &format!("{field}.path"))?;
            check_env(&hook.env, &format!("{field}.env"))?;
        }
        for (at, mount) in self.mounts.iter().enumerate() {
            // A mount of another type has a source that is no path.
            if mount.kind.is_empty() || mount.kind == "bind" {
                check_path(&mount.host_path, &format!("{field}.mounts[{at}].hostPath"))?;
            }
            check_path(&mount.container_path, &format!("{field}.mounts[{at}].containerPath"))?;
        }
        Ok(())
    }
}

impl Node {
    fn check(&self, field: &str) -> Result<(), InvalidCdi> {
        check_path(&self.path, &format!("{field}.path"))?;
        if let Some(path) = &self.host_path {
            check_path(path, &format!("{field}.hostPath"))?;
        }
        if !["", "b", "c", "u", "p"].contains(&self.kind.as_str()) {
            return Err(invalid(format!("{field}.type"), format!("{} is no kind of node", quoted(&self.kind))));
        }
        if let Some(other) = self.permissions.chars().find(|c| !"rwm".contains(*c)) {
            let problem = format!("{} is none of r, w and m", quoted(&other.to_string()));
            return Err(invalid(format!("{field}.permissions"), problem));
        }
        for (name, number) in [("major", self.major), ("minor", self.minor)] {
            if u32::try_from(number).is_err() {
                return Err(invalid(format!("{field}.{name}"), format!("{number} is no device number")));
            }
        }
        Ok(())
    }

    /// Where it is on the host.
    pub fn on_host(&self) -> &str {
        self.host_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(&self.path)
    }

    /// Its number, where the file says it.
    pub fn number(&self) -> Option<DeviceNumber> {
        let said = !self.kind.is_empty() && self.major != 0;
        let number = DeviceNumber { major: u32::try_from(self.major).ok()?, minor: u32::try_from(self.minor).ok()? };
        said.then_some(number)
    }
}

fn check_path(path: &str, field: &str) -> Result<(), InvalidCdi> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(());
    }
    Err(invalid(field, format!("{} is no absolute path", quoted(path))))
}

fn check_env(env: &[String], field: &str) -> Result<(), InvalidCdi> {
    match env.iter().position(|entry| entry.find('=').is_none_or(|at| at == 0) || entry.contains('\0')) {
        None => Ok(()),
        Some(at) => Err(invalid(format!("{field}[{at}]"), format!("{} has no name and value", quoted(&env[at])))),
    }
}
