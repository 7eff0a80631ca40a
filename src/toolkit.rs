//! NVIDIA's container toolkit: what it goes by when it runs after us, from its own configuration.

use serde::Deserialize;

use crate::config::{GrantPolicy, ImageRequest, UnknownRequest};
use crate::provenance::{EngineFacts, Provenance, of_variable};
use crate::request::cdi_device;
use crate::spec::{Mount, Spec};

/// Where a device plugin's mounts of `/dev/null` lie. NVIDIA's toolkit looks at nothing but this prefix.
// internal/config/image/cuda_image.go.
const DEVICE_LIST: &str = "/var/run/nvidia-container-devices";

/// How annotations with CDI names begin.
const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

/// Variables for which it gives more than GPUs: other devices, and the rights to divide and to watch them.
// internal/config/image/cuda_image.go, internal/modifier/gated.go, cmd/nvidia-container-runtime-hook/container_config.go.
const SWITCHES: [&str; 7] = [
    "NVIDIA_GDRCOPY",
    "NVIDIA_GDS",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
];

/// The part of its configuration that decides which devices it gives to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// How annotations begin that name devices.
    pub annotation_prefixes: Vec<String>,
    /// Variables that it takes instead of `NVIDIA_VISIBLE_DEVICES` where they are set.
    pub swarm_resources: Vec<String>,
    /// It goes by mounts, and by them before variables.
    pub takes_mounts: bool,
    /// It goes by variables of containers that are not privileged.
    pub takes_variables: bool,
    /// The mode of its runtime, `auto` for example.
    pub mode: String,
}

impl Default for Toolkit {
    /// As it comes: the toolkit's own defaults.
    // api/config/v1, version 1.20.
    fn default() -> Self {
        Self {
            annotation_prefixes: vec![ANNOTATION_PREFIX.to_owned()],
            swarm_resources: Vec::new(),
            takes_mounts: false,
            takes_variables: true,
            mode: "auto".to_owned(),
        }
    }
}

/// Its `config.toml`. What is not named here does not matter to us.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    swarm_resource: Option<String>,
    accept_nvidia_visible_devices_as_volume_mounts: Option<bool>,
    accept_nvidia_visible_devices_envvar_when_unprivileged: Option<bool>,
    #[serde(default)]
    nvidia_container_runtime: Runtime,
}

#[derive(Default, Deserialize)]
struct Runtime {
    mode: Option<String>,
    #[serde(default)]
    modes: Modes,
}

#[derive(Default, Deserialize)]
struct Modes {
    #[serde(default)]
    cdi: Cdi,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cdi {
    annotation_prefixes: Option<Vec<String>>,
}

impl Toolkit {
    /// Reads its configuration; `None` where that is none, and the toolkit will say so itself.
    pub fn parse(text: &str) -> Option<Self> {
        let file: File = toml::from_str(text).ok()?;
        let built_in = Self::default();
        let names = file.swarm_resource.unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut prefixes = built_in.annotation_prefixes;
        prefixes.extend(file.nvidia_container_runtime.modes.cdi.annotation_prefixes.unwrap_or_default());
        // An empty one would take every annotation.
        prefixes.retain(|prefix| !prefix.is_empty());
        prefixes.dedup();
        Some(Self {
            annotation_prefixes: prefixes,
            swarm_resources: names.map(str::to_owned).collect(),
            takes_mounts: file.accept_nvidia_visible_devices_as_volume_mounts.unwrap_or(built_in.takes_mounts),
            takes_variables: file
                .accept_nvidia_visible_devices_envvar_when_unprivileged
                .unwrap_or(built_in.takes_variables),
            mode: file.nvidia_container_runtime.mode.unwrap_or(built_in.mode),
        })
    }

    /// Whether a `config.json` shows anything that it goes by and that is no sign of a GPU to others.
    pub fn has_sign(&self, config: &[u8]) -> bool {
        let signs = self.swarm_resources.iter().chain(&self.annotation_prefixes);
        signs.map(String::as_bytes).any(|sign| config.windows(sign.len()).any(|window| window == sign))
    }

    /// Whether it goes by this container's variables.
    pub fn hears_variables(&self, spec: Spec<'_>) -> bool {
        self.takes_variables || spec.may_administer()
    }

    /// Whether there is a way to tell it what this container is to get.
    pub fn can_be_told(&self, spec: Spec<'_>) -> bool {
        self.hears_variables(spec) || self.takes_mounts
    }

    /// The variables of this container that it would take instead of `NVIDIA_VISIBLE_DEVICES`.
    pub fn swarm_variables<'a>(&'a self, spec: Spec<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.swarm_resources.iter().filter_map(move |name| Some((name.as_str(), spec.var(name)?)))
    }
}

/// The variables of this container that would widen what the toolkit gives, and that nobody but an image is known to
/// have set; where the policy takes an image's word, there are none.
pub fn unasked_switches(spec: Spec<'_>, facts: &EngineFacts, policy: &GrantPolicy) -> Vec<String> {
    let is_asked = |name: &str| match of_variable(facts, name, spec.var(name)) {
        Provenance::Unset | Provenance::User | Provenance::Exec => true,
        Provenance::Unknown => policy.unknown_request == UnknownRequest::User,
        Provenance::Image => false,
    };
    let is_honoured = policy.image_request == ImageRequest::Honour;
    let unasked = SWITCHES.into_iter().filter(|name| !is_honoured && !is_asked(name));
    unasked.map(str::to_owned).collect()
}

/// The device that a device plugin's mount names; `None` for another mount, and for an IMEX channel's.
pub fn device_of_mount<'a>(mount: &Mount<'a>) -> Option<&'a str> {
    if mount.source != "/dev/null" {
        return None;
    }
    let name = mount.destination.strip_prefix(DEVICE_LIST)?.strip_prefix('/')?;
    let cdi = name.strip_prefix("cdi/");
    let named = cdi_device(cdi.unwrap_or(name)).or_else(|| cdi?.strip_prefix("nvidia.com/gpu/"));
    (!name.starts_with("imex/")).then_some(named.unwrap_or(name))
}

/// Whether the toolkit would take a mount for a request of a GPU, however its paths are written.
pub fn is_request(mount: &Mount<'_>) -> bool {
    let is_channel = |rest: &str| rest.trim_start_matches('/').starts_with("imex/");
    clean(mount.source).as_deref() == Some("/dev/null")
        && clean(mount.destination)
            .is_some_and(|path| path.strip_prefix(DEVICE_LIST).is_some_and(|rest| !is_channel(rest)))
}

/// An absolute path as the toolkit compares it: without `.`, `..` and repeated slashes, whatever links there are.
// Go, path/filepath.Clean.
fn clean(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// Where the toolkit looks for a device by this name.
pub fn mount_of_device(name: &str) -> String {
    format!("{DEVICE_LIST}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_as_the_toolkit_writes_it() {
        let text = "#accept-nvidia-visible-devices-envvar-when-unprivileged = true\n\
                    accept-nvidia-visible-devices-as-volume-mounts = true\nswarm-resource = \"A, B\"\n\
                    supported-driver-capabilities = \"utility\"\n[nvidia-container-cli]\nload-kmods = true\n\
                    [nvidia-container-runtime]\nmode = \"legacy\"\nruntimes = [\"runc\"]\n\
                    [nvidia-container-runtime.modes.cdi]\nannotation-prefixes = [\"x/\", \"\"]\n";
        let expected = Toolkit {
            annotation_prefixes: vec![ANNOTATION_PREFIX.to_owned(), "x/".to_owned()],
            swarm_resources: vec!["A".to_owned(), "B".to_owned()],
            takes_mounts: true,
            takes_variables: true,
            mode: "legacy".to_owned(),
        };
        assert!(expected.has_sign(b"{\"env\":[\"B=1\"]}") && expected.has_sign(b"x/") && !expected.has_sign(b"C=1"));
        assert_eq!(Toolkit::parse(text), Some(expected));
        assert_eq!(Toolkit::parse(""), Some(Toolkit::default()));
        assert_eq!(Toolkit::parse("mode = "), None);
    }

    #[test]
    fn mounts_that_name_devices() {
        let check = |source, rest: &str, device: Option<&str>, request: bool| {
            let destination = format!("{DEVICE_LIST}{rest}");
            let mount = Mount { position: 0, destination: &destination, source, bind: true };
            assert_eq!((device_of_mount(&mount), is_request(&mount)), (device, request), "{source} {destination}");
        };
        check("/dev/null", "/1", Some("1"), true);
        check("/dev/null", "/MIG-GPU-x/1/0", Some("MIG-GPU-x/1/0"), true);
        check("/dev/null", "/cdi/nvidia.com/gpu/1", Some("1"), true);
        check("/dev/null", "/cdi/nvidia.com/gpu=1", Some("1"), true);
        check("/dev/null", "/nvidia.com/gpu=1", Some("1"), true);
        check("/dev/null", "/cdi/example.com/x/1", Some("cdi/example.com/x/1"), true);
        check("/dev/null", "/imex/0", None, false);
        check("/dev//null", "/1", None, true);
        check("/dev/../dev/./null", "/1", None, true);
        check("/dev/null/..", "/1", None, false);
        check("/dev/null", "/imex/../1", None, true);
        check("/dev/null", "/../nvidia-container-devices//1/", Some("../nvidia-container-devices//1/"), true);
        check("/dev/null", "/1/../imex/0", Some("1/../imex/0"), false);
        check("/dev/null", "/../../run/x", Some("../../run/x"), false);
        check("/dev/null", "X/1", None, true);
        check("/dev/zero", "/1", None, false);
        check("dev/null", "/1", None, false);
    }
}
