//! Narrow, tolerant views of `config.json` and of the process file. Nothing here changes them.

mod rules;
#[cfg(test)]
mod tests;

use rules::number;
pub(crate) use rules::rule;
pub use rules::{Rule, allowed};
use serde::Deserialize;
use serde_json::Value;

use crate::device::DeviceNumber;
use crate::record::Record;

/// A file that is JSON and yet no container configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// A member that has another type than the specification gives it.
    #[error("{pointer} is not {expected}")]
    Type {
        /// JSON pointer.
        pointer: String,
        /// What it should be.
        expected: &'static str,
    },
    /// An environment entry that is no assignment. Runtimes disagree on what it means.
    #[error("{pointer} {entry} has no name and value (NAME=VALUE)")]
    Env {
        /// JSON pointer.
        pointer: String,
        /// The entry, quoted and cut.
        entry: String,
    },
}

/// A container's `config.json` whose members, where we read or write them, have the right types.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a>(&'a Value);

/// An entry of `linux.devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecNode<'a> {
    /// Path in the container.
    pub path: &'a str,
    /// What it is, for a character device.
    pub number: DeviceNumber,
    /// Whether it says who may open it.
    pub has_mode: bool,
}

/// An entry of `mounts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Position in the array.
    pub position: usize,
    /// Where in the container.
    pub destination: &'a str,
    /// From where; empty if absent.
    pub source: &'a str,
    /// It is a bind mount.
    pub bind: bool,
}

/// Whether the bytes of a `config.json` show any sign of a GPU. Without one the file is not even parsed.
///
/// A false alarm costs a parse; a miss would cost a container its GPUs, so the signs are broad: the word nvidia
/// (paths, hooks, variables, CDI), `CUDA_VISIBLE_DEVICES`, `CUDA_VERSION`, for which alone NVIDIA's runtime gives an image
/// every GPU, and the device major of NVIDIA under any path.
pub fn has_gpu_sign(config: &[u8]) -> bool {
    // One pass by hand, for a letter of each word that is rare elsewhere. A library's search asks first what the
    // processor can do, and in a virtual machine one CPUID costs more than the whole pass.
    let is_word = |at: usize, before: usize, word: &[u8]| {
        at.checked_sub(before).and_then(|start| config.get(start..)).is_some_and(|rest| rest.starts_with(word))
    };
    config.iter().enumerate().any(|(at, letter)| match letter {
        b'v' => is_word(at, 1, b"nvidia"),
        b'V' => is_word(at, 1, b"NVIDIA") || is_word(at, 5, b"CUDA_VISIBLE") || is_word(at, 5, b"CUDA_VERSION"),
        b'j' => is_word(at, 3, b"\"major\"") && is_nvidia_number(&config[at + 4..]),
        _ => false,
    })
}

/// What follows `"major"`.
fn is_nvidia_number(rest: &[u8]) -> bool {
    let number = rest.trim_ascii_start().strip_prefix(b":");
    number.is_some_and(|rest| rest.trim_ascii_start().starts_with(b"195"))
}

/// Where NVIDIA's hook can stand, and ours.
const STAGES: [&str; 2] = ["prestart", "createRuntime"];

const NVIDIA_HOOKS: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

impl<'a> Spec<'a> {
    /// Checks the members that we read or write.
    ///
    /// # Errors
    /// [`InvalidSpec`] for the first one that is not what the OCI runtime specification says.
    pub fn new(value: &'a Value) -> Result<Self, InvalidSpec> {
        let spec = Self(value);
        expect(value, "", "an object", Value::is_object)?;
        for object in ["/process", "/root", "/linux", "/linux/resources", "/hooks", "/annotations"] {
            spec.expect_optional(object, "an object", Value::is_object)?;
        }
        for array in ["/linux/devices", "/linux/resources/devices", "/mounts", "/linux/namespaces"] {
            spec.expect_objects(array)?;
        }
        for stage in STAGES {
            spec.expect_objects(&format!("/hooks/{stage}"))?;
        }
        check_env(value.pointer("/process/env"), "/process/env")?;
        Ok(spec)
    }

    /// Whether this is a Kubernetes pod's own container, which holds the namespaces of the others.
    // containerd internal/cri/annotations, CRI-O pkg/annotations. Whoever else writes this gets nothing for it.
    pub fn is_sandbox(self) -> bool {
        let annotations = &self.0["annotations"];
        ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"]
            .iter()
            .any(|key| annotations[*key] == "sandbox")
    }

    /// The annotations that name CDI devices. Nothing says whose they are: up to podman 4 an image's are among them.
    // CDI specification, "Kubernetes annotations"; NVIDIA Container Toolkit, internal/modifier/cdi.go.
    pub fn cdi_annotations(self, prefixes: &[String]) -> Vec<String> {
        let annotations = self.0["annotations"].as_object();
        let keys = annotations.into_iter().flat_map(serde_json::Map::keys);
        keys.filter(|key| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))).cloned().collect()
    }

    /// Whether it may administer the system, which NVIDIA's toolkit calls privileged.
    // internal/config/image/privileged.go.
    pub fn may_administer(self) -> bool {
        self.array("/process/capabilities/bounding").iter().any(|capability| capability == "CAP_SYS_ADMIN")
    }

    fn expect_optional(self, pointer: &str, expected: &'static str, is: fn(&Value) -> bool) -> Result<(), InvalidSpec> {
        match self.0.pointer(pointer) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => expect(value, pointer, expected, is),
        }
    }

    fn expect_objects(self, pointer: &str) -> Result<(), InvalidSpec> {
        self.expect_optional(pointer, "an array", Value::is_array)?;
        for (position, item) in self.array(pointer).iter().enumerate() {
            expect(item, &format!("{pointer}/{position}"), "an object", Value::is_object)?;
        }
        Ok(())
    }

    fn array(self, pointer: &str) -> &'a [Value] {
        self.0.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The last value of a variable in `process.env`: the one that both runc and crun give to the program.
    pub fn var(self, name: &str) -> Option<&'a str> {
        last_var(self.array("/process/env"), name)
    }

    /// Every value of a variable in `process.env`, in order.
    pub fn values(self, name: &str) -> impl DoubleEndedIterator<Item = &'a str> {
        let entries = self.array("/process/env").iter().filter_map(Value::as_str);
        entries.filter_map(move |entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// The rootfs as the file names it.
    pub fn root_path(self) -> Option<&'a str> {
        self.0.pointer("/root/path").and_then(Value::as_str)
    }

    /// A string by JSON pointer.
    pub fn text(self, pointer: &str) -> Option<&'a str> {
        self.0.pointer(pointer).and_then(Value::as_str)
    }

    /// The value itself.
    pub fn value(self) -> &'a Value {
        self.0
    }

    /// The character devices of `linux.devices`.
    pub fn nodes(self) -> Vec<SpecNode<'a>> {
        self.array("/linux/devices")
            .iter()
            .filter_map(|device| {
                let number = DeviceNumber { major: number(&device["major"])?, minor: number(&device["minor"])? };
                let is_char = matches!(device["type"].as_str(), Some("c" | "u"));
                is_char.then_some(())?;
                let has_mode = !device["fileMode"].is_null();
                Some(SpecNode { path: device["path"].as_str()?, number, has_mode })
            })
            .collect()
    }

    /// The device rules, in order.
    pub fn rules(self) -> Vec<Rule> {
        self.array("/linux/resources/devices").iter().map(rule).collect()
    }

    /// The mounts.
    pub fn mounts(self) -> Vec<Mount<'a>> {
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        self.array("/mounts")
            .iter()
            .enumerate()
            .map(|(position, mount)| Mount {
                position,
                destination: text(&mount["destination"]),
                source: text(&mount["source"]),
                bind: mount["type"] == "bind"
                    || mount["options"].as_array().is_some_and(|o| o.iter().any(|o| o == "bind" || o == "rbind")),
            })
            .collect()
    }

    /// Whether NVIDIA's hook stands in the spec.
    pub fn has_nvidia_hook(self) -> bool {
        self.hooks().any(is_nvidia_hook)
    }

    /// The programs of the hook entries that are called as NVIDIA's.
    pub fn nvidia_hooks(self) -> Vec<&'a str> {
        self.hooks().filter(|hook| is_nvidia_hook(hook)).filter_map(|hook| hook["path"].as_str()).collect()
    }

    /// The arguments of our own hook entries.
    pub fn our_hooks(self) -> Vec<Vec<&'a str>> {
        self.hooks().filter(|hook| is_our_hook(hook)).map(hook_args).collect()
    }

    /// The record of an earlier door.
    pub fn record(self) -> Option<Record> {
        let hooks = self.our_hooks();
        let text = hooks.iter().flatten().find_map(|arg| arg.strip_prefix("--record="))?;
        Record::parse(text)
    }

    fn hooks(self) -> impl Iterator<Item = &'a Value> {
        STAGES.into_iter().flat_map(move |stage| self.array(&format!("/hooks/{stage}")))
    }
}

/// The record in a container's `config.json`, read without building the rest of it: `exec` needs nothing else.
/// Text that only looks like a record, in an image's arguments for one, stands elsewhere and is not looked at.
pub fn record_in(config: &[u8]) -> Option<Record> {
    #[derive(Deserialize)]
    struct Config {
        hooks: Hooks,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Hooks {
        create_runtime: Vec<Hook>,
    }
    #[derive(Deserialize)]
    struct Hook {
        #[serde(default)]
        path: String,
        // Go's engines write `null` for an empty list.
        args: Option<Vec<String>>,
    }
    let config: Config = serde_json::from_slice(config).ok()?;
    let is_ours = |hook: &&Hook| {
        let args: Vec<&str> = hook.args.iter().flatten().map(String::as_str).collect();
        is_our_program(&hook.path, &args)
    };
    let ours = config.hooks.create_runtime.iter().filter(is_ours);
    Record::parse(ours.flat_map(|hook| hook.args.iter().flatten()).find_map(|arg| arg.strip_prefix("--record="))?)
}

fn expect(value: &Value, pointer: &str, expected: &'static str, is: fn(&Value) -> bool) -> Result<(), InvalidSpec> {
    let pointer = if pointer.is_empty() { "the file" } else { pointer };
    if is(value) { Ok(()) } else { Err(InvalidSpec::Type { pointer: pointer.to_owned(), expected }) }
}

/// Checks an environment: an array of `NAME=VALUE`.
///
/// # Errors
/// [`InvalidSpec`] for the first entry that is none.
pub fn check_env(env: Option<&Value>, pointer: &str) -> Result<(), InvalidSpec> {
    let entries = match env {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(InvalidSpec::Type { pointer: pointer.to_owned(), expected: "an array" }),
    };
    for (position, entry) in entries.iter().enumerate() {
        let pointer = format!("{pointer}/{position}");
        let Some(text) = entry.as_str() else { return Err(InvalidSpec::Type { pointer, expected: "a string" }) };
        if text.find('=').is_none_or(|at| at == 0) || text.contains('\0') {
            return Err(InvalidSpec::Env { pointer, entry: crate::finding::quoted(text) });
        }
    }
    Ok(())
}

/// The last value of a variable in a list of entries.
pub fn last_var<'a>(env: &'a [Value], name: &str) -> Option<&'a str> {
    env.iter().rev().filter_map(Value::as_str).find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

fn file_name(path: &Value) -> &str {
    path.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

/// Whether a hook entry is NVIDIA's.
pub fn is_nvidia_hook(hook: &Value) -> bool {
    NVIDIA_HOOKS.contains(&file_name(&hook["path"]))
}

/// Whether a hook entry is our own, by its structure.
pub fn is_our_hook(hook: &Value) -> bool {
    is_our_program(hook["path"].as_str().unwrap_or_default(), &hook_args(hook))
}

fn is_our_program(path: &str, args: &[&str]) -> bool {
    path.rsplit('/').next() == Some("cudaview-hook") && args.get(1) == Some(&"createRuntime")
}

fn hook_args(hook: &Value) -> Vec<&str> {
    hook["args"].as_array().map_or_else(Vec::new, |args| args.iter().filter_map(Value::as_str).collect())
}
