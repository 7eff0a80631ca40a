//! A container that does not exist: the flags of `docker run`, as the engine would hand them on.

use crate::config::{Config, Inject};
use crate::device::Minor;
use crate::inventory::Inventory;
use crate::provenance::Provenance;
use crate::record::Variables;
use crate::report::ImageEnv;
use crate::request::{DeviceRequest, GpusFlag, Selection, Source, cdi_selection};
use crate::situation::{CAPABILITIES, Injection, Situation, wants_graphics};

/// The flags.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WhatIf {
    /// `--gpus`.
    pub gpus: Vec<GpusFlag>,
    /// `--device`.
    pub devices: Vec<String>,
    /// `--env`: `K=V`, or a bare `K`, which unsets.
    pub env: Vec<String>,
    /// `ENV` of the image.
    pub image_env: Vec<String>,
    /// Entries of unknown origin.
    pub unknown_env: Vec<String>,
    /// `--privileged`.
    pub privileged: bool,
    /// The runtime was not named for the container: it is the engine's default.
    pub default_runtime: bool,
}

/// A line of an `--env-file` that Docker does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnvFile {
    /// `=V`.
    #[error("line {0}: no name before \"=\"")]
    NoName(usize),
    /// `K K=V`.
    #[error("line {0}: white space in the name {1:?}")]
    WhiteSpace(usize, String),
}

/// Reads an `--env-file` as the docker command does: lines `K=V` with the value as it stands, quotes included, and
/// comments. A bare `K` takes its value from the shell there; here it is left out.
///
/// # Errors
/// [`InvalidEnvFile`] for what Docker refuses.
// docker/cli pkg/kvfile/kvfile.go
pub fn parse_env_file(text: &str) -> Result<Vec<String>, InvalidEnvFile> {
    let mut out = Vec::new();
    for (position, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, has_value) = line.split_once('=').map_or((line, false), |(name, _)| (name, true));
        if name.is_empty() {
            return Err(InvalidEnvFile::NoName(position + 1));
        }
        if name.contains(char::is_whitespace) {
            return Err(InvalidEnvFile::WhiteSpace(position + 1, name.to_owned()));
        }
        if has_value {
            out.push(line.to_owned());
        }
    }
    Ok(out)
}

/// The last entry for a name: `Some(None)` is a bare name.
pub fn last<'a>(entries: &'a [String], name: &str) -> Option<Option<&'a str>> {
    entries.iter().rev().find_map(|entry| match entry.split_once('=') {
        Some((key, value)) => (key == name).then_some(Some(value)),
        None => (entry == name).then_some(None),
    })
}

impl WhatIf {
    /// What the rules look at in such a container.
    pub fn situation(&self, inventory: &Inventory, config: &Config) -> Situation {
        let [visible_devices, device_order, nvidia, _] = Variables::NAMES;
        let (request, request_from) = self.variable(nvidia);
        let (value, provenance) = self.variable(visible_devices);
        let requests = self.requests();
        let by_engine = requests.iter().any(|request| matches!(request.source, Source::Cdi | Source::Nodes));
        let variables = Variables {
            visible_devices: value.map(str::to_owned),
            device_order: self.variable(device_order).0.map(str::to_owned),
            nvidia_visible_devices: appended(&requests).or_else(|| request.map(str::to_owned)),
            host_gpus: None,
        };
        Situation {
            visible_devices_request: request.map(str::to_owned),
            visible_devices_from: request_from,
            original: variables.clone(),
            current: variables,
            provenance,
            runtime_named: Some(!self.default_runtime),
            openable_anyway: if self.privileged { inventory.all_devices() } else { Vec::new() },
            graphics: self.wants_graphics(),
            injection: match config.inject {
                Inject::Engine => Injection::Engine,
                Inject::Nvidia => Injection::Nvidia,
                // Docker takes --gpus where NVIDIA's toolkit is, and WSL2 has nothing that cudaview could give.
                Inject::Auto if by_engine || !inventory.platform.is_usual() => Injection::Engine,
                Inject::Native | Inject::Auto => Injection::Native,
            },
            requests,
            ..Situation::blank()
        }
    }

    /// Whether the operator asked for more than CUDA, with `--gpus` or with the variable.
    fn wants_graphics(&self) -> bool {
        let by_flag = wants_graphics(self.gpus.iter().flat_map(|flag| &flag.capabilities).map(String::as_str));
        let (value, origin) = self.variable(CAPABILITIES);
        by_flag || (origin == Provenance::User && value.is_some_and(|value| wants_graphics(value.split(','))))
    }

    /// As podman keeps it: without an order, so that what equals an entry of the image's counts as the image's.
    #[must_use]
    pub fn as_podman_keeps_it(mut self) -> Self {
        for name in Variables::NAMES {
            let Some(Some(value)) = last(&self.env, name) else { continue };
            if self.image_env.contains(&format!("{name}={value}")) {
                self.env.retain(|entry| entry.split('=').next() != Some(name));
            }
        }
        self
    }

    /// As a runtime gets it that cannot be told whose an entry is.
    #[must_use]
    pub fn of_unknown_origin(mut self) -> Self {
        self.unknown_env = self.image_env.iter().cloned().chain(std::mem::take(&mut self.env)).collect();
        self
    }

    /// As nerdctl asks for GPUs since its version 2.3: a CDI name for each.
    // containerd/nerdctl docs/gpu.md
    #[must_use]
    pub fn by_cdi(mut self) -> Self {
        for flag in std::mem::take(&mut self.gpus) {
            let names = match flag.selection {
                Selection::All => vec!["all".to_owned()],
                Selection::Count(count) => (0..count.min(MOST)).map(|number| number.to_string()).collect(),
                Selection::Names(names) => names,
                Selection::Nothing | Selection::Minors(_) => Vec::new(),
            };
            self.devices.extend(names.iter().map(|name| format!("nvidia.com/gpu={name}")));
        }
        self
    }

    /// What the image has built in.
    pub fn image(&self) -> ImageEnv {
        let get = |name| last(&self.image_env, name).flatten().map(str::to_owned);
        ImageEnv {
            visible_devices: get(Variables::NAMES[0]),
            device_order: get(Variables::NAMES[1]),
            nvidia_visible_devices: get(Variables::NAMES[2]),
            source: None,
        }
    }

    /// The variables of a process that is added: the engine's own copy of the container's, then these entries.
    pub fn exec_variables(container: &Variables, exec_env: &[String]) -> Variables {
        let engine: Vec<(&str, Option<&str>)> = Variables::NAMES.into_iter().zip(container.values()).collect();
        Variables::collect(|name| match last(exec_env, name) {
            Some(value) => value,
            None => engine.iter().find(|(key, _)| *key == name).and_then(|(_, value)| *value),
        })
    }

    /// A variable as the container gets it, and whose it is.
    fn variable(&self, name: &str) -> (Option<&str>, Provenance) {
        let sources = [
            (&self.env, Provenance::User),
            (&self.unknown_env, Provenance::Unknown),
            (&self.image_env, Provenance::Image),
        ];
        let found = sources.into_iter().find_map(|(entries, origin)| Some((last(entries, name)?, origin)));
        match found {
            Some((Some(value), origin)) => (Some(value), origin),
            _ => (None, Provenance::Unset),
        }
    }

    fn requests(&self) -> Vec<DeviceRequest> {
        let request = |source, selection| DeviceRequest { source, selection };
        let gpus = self.gpus.iter().map(|flag| request(Source::Gpus, flag.selection.clone()));
        let devices = self.devices.iter().filter_map(|name| {
            let cdi = cdi_selection(name).map(|selection| request(Source::Cdi, selection));
            cdi.or_else(|| Some(request(Source::Nodes, Selection::Minors(vec![node_minor(name)?]))))
        });
        gpus.chain(devices).collect()
    }
}

/// Whether a `--device` value names a GPU at all.
pub fn is_gpu_device(name: &str) -> bool {
    cdi_selection(name).is_some() || node_minor(name).is_some()
}

/// The minor of `/dev/nvidiaN`, or of `/dev/nvidiaN:…`.
fn node_minor(name: &str) -> Option<Minor> {
    let host = name.split(':').next()?;
    host.strip_prefix("/dev/nvidia")?.parse().ok().map(Minor)
}

/// No host has more GPUs; a larger count is refused anyway.
const MOST: u32 = 256;

/// What the engine puts behind the container's own `NVIDIA_VISIBLE_DEVICES`; the last entry counts.
// moby daemon/nvidia_linux.go (countToDevices); `nvidia-ctk cdi generate` writes "void" into its specifications.
pub fn appended(requests: &[DeviceRequest]) -> Option<String> {
    if requests.iter().any(|request| request.source == Source::Cdi) {
        return Some("void".to_owned());
    }
    let gpus = requests.iter().rev().find(|request| request.source == Source::Gpus)?;
    match &gpus.selection {
        Selection::All => Some("all".to_owned()),
        Selection::Count(count) => Some((0..(*count).min(MOST)).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
        Selection::Names(names) => Some(names.join(",")),
        Selection::Nothing | Selection::Minors(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_last_entry_counts_and_a_bare_name_unsets() {
        let what_if = WhatIf {
            env: entries(&["A=1", "A=2", "B"]),
            image_env: entries(&["A=3", "B=4", "C=5", "D=6"]),
            unknown_env: entries(&["C=7"]),
            ..WhatIf::default()
        };
        assert_eq!(what_if.variable("A"), (Some("2"), Provenance::User));
        assert_eq!(what_if.variable("B"), (None, Provenance::Unset));
        assert_eq!(what_if.variable("C"), (Some("7"), Provenance::Unknown));
        assert_eq!(what_if.variable("D"), (Some("6"), Provenance::Image));
        assert_eq!(what_if.variable("E"), (None, Provenance::Unset));
    }

    #[test]
    fn engines_differ_in_what_they_keep_of_whose_a_value_is() {
        let of = |env: &[&str], image_env: &[&str]| WhatIf {
            env: entries(env),
            image_env: entries(image_env),
            ..WhatIf::default()
        };
        let [name, ..] = Variables::NAMES;
        let (zero, one) = ("CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1");
        let podman = |env: &[&str]| {
            let kept = of(env, &[zero]).as_podman_keeps_it();
            let (value, whose) = kept.variable(name);
            (value.map(str::to_owned), whose)
        };
        assert_eq!(podman(&[zero]), (Some("0".to_owned()), Provenance::Image));
        assert_eq!(podman(&[one, zero]), (Some("0".to_owned()), Provenance::Image));
        assert_eq!(podman(&[zero, one]), (Some("1".to_owned()), Provenance::User));
        let unknown = |env: &[&str]| {
            let kept = of(env, &[zero]).of_unknown_origin();
            let (value, whose) = kept.variable(name);
            (value.map(str::to_owned), whose)
        };
        assert_eq!(unknown(&[one]), (Some("1".to_owned()), Provenance::Unknown));
        assert_eq!(unknown(&[]), (Some("0".to_owned()), Provenance::Unknown));
        let gpus = ["\"device=1,3\"", "2", "all"].map(|text| crate::request::parse_gpus(text).expect("a value"));
        let devices = WhatIf { gpus: gpus.to_vec(), ..WhatIf::default() }.by_cdi().devices;
        let devices: Vec<&str> = devices.iter().filter_map(|name| crate::request::cdi_device(name)).collect();
        assert_eq!(devices, ["1", "3", "0", "1", "all"]);
    }

    #[test]
    fn an_env_file_is_taken_as_it_stands() {
        let text = "\u{feff}# GPUs\r\n\n  A=\"0\" \nB\nC=\nD=1=2\r\n";
        assert_eq!(parse_env_file(text), Ok(entries(&["A=\"0\" ", "C=", "D=1=2"])));
        assert_eq!(parse_env_file("A=1\n=2"), Err(InvalidEnvFile::NoName(2)));
        assert_eq!(parse_env_file("export A=1"), Err(InvalidEnvFile::WhiteSpace(1, "export A".to_owned())));
    }

    #[test]
    fn what_the_engine_appends() {
        let appended_by = |source, selection| appended(&[DeviceRequest { source, selection }]);
        assert_eq!(appended_by(Source::Gpus, Selection::All).as_deref(), Some("all"));
        assert_eq!(appended_by(Source::Gpus, Selection::Count(2)).as_deref(), Some("0,1"));
        assert_eq!(appended_by(Source::Gpus, Selection::Names(entries(&["1", "3"]))).as_deref(), Some("1,3"));
        assert_eq!(appended_by(Source::Gpus, Selection::Nothing), None);
        assert_eq!(appended_by(Source::Cdi, Selection::All).as_deref(), Some("void"));
    }

    #[test]
    fn exec_starts_from_the_container_as_the_engine_knows_it() {
        let container = Variables { visible_devices: Some("1,3".to_owned()), ..Variables::default() };
        let of = |exec: &[&str]| WhatIf::exec_variables(&container, &entries(exec)).visible_devices;
        assert_eq!(of(&[]).as_deref(), Some("1,3"));
        assert_eq!(of(&["CUDA_VISIBLE_DEVICES=1"]).as_deref(), Some("1"));
        assert_eq!(of(&["CUDA_VISIBLE_DEVICES"]), None);
    }
}
