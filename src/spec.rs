//! Narrow, tolerant views of `config.json` and of the process file. Nothing here changes them.

use serde::Deserialize;
use serde_json::Value;

use crate::device::{DeviceNumber, Minor};
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

/// A rule of `linux.resources.devices`; `None` is "any".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Allow or deny.
    pub allow: bool,
    /// `c`, `b`, or any.
    pub kind: Option<char>,
    /// Major number.
    pub major: Option<u32>,
    /// Minor number.
    pub minor: Option<u32>,
    /// It is about reading and about writing.
    pub access: (bool, bool),
}

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

/// A device or rule number; -1 and absence are "any".
fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_i64()?).ok()
}

fn rule(value: &Value) -> Rule {
    // Buildah writes rules without `access`; they mean all of it.
    let access = value["access"].as_str().filter(|access| !access.is_empty()).unwrap_or("rwm");
    let kind = value["type"].as_str().and_then(|kind| kind.chars().next()).filter(|kind| *kind != 'a');
    if kind.is_none() {
        // Runtimes and kernel look at nothing else of a rule for every type: it is about all devices and all access.
        return Rule { allow: value["allow"] == true, kind, major: None, minor: None, access: (true, true) };
    }
    Rule {
        allow: value["allow"] == true,
        kind,
        major: number(&value["major"]),
        minor: number(&value["minor"]),
        access: (access.contains('r'), access.contains('w')),
    }
}

impl Rule {
    fn covers(self, device: DeviceNumber) -> bool {
        self.kind == Some('c')
            && self.major.is_none_or(|major| major == device.major)
            && self.minor.is_none_or(|minor| minor == device.minor)
    }

    /// An allow rule for every device there is: a privileged container.
    pub fn allows_everything(self) -> bool {
        self.allow && self.kind.is_none() && self.major.is_none() && self.minor.is_none() && self.access == (true, true)
    }

    /// An allow rule for just this character device.
    pub fn is_single(self, device: DeviceNumber) -> bool {
        self.allow && self.kind != Some('b') && self.major == Some(device.major) && self.minor == Some(device.minor)
    }

    /// An allow rule for just one GPU node.
    pub fn single_gpu(self) -> Option<Minor> {
        let number = DeviceNumber { major: self.major?, minor: self.minor? };
        (self.allow && self.kind != Some('b')).then(|| number.gpu_minor()).flatten()
    }
}

/// Whether a device may be opened for reading and writing under these rules, as the kernel's device cgroup has it, and
/// runc also where the cgroups are version 2. It denies before the first rule.
///
/// A rule for every type starts anew. Any other adds an exception, or takes back just the one that has the same numbers:
/// `deny c 195:*` leaves an earlier `allow c 195:1` as it is. Reading and writing must be allowed by one exception.
// Documentation/admin-guide/cgroup-v1/devices.rst; security/device_cgroup.c; runc cgroups/devices/devices_emulator.go.
pub fn allowed(rules: impl IntoIterator<Item = Rule>, device: DeviceNumber) -> bool {
    let mut default = false;
    let mut exceptions: Vec<Rule> = Vec::new();
    for rule in rules {
        if rule.kind.is_none() {
            default = rule.allow;
            exceptions.clear();
            continue;
        }
        if !rule.covers(device) {
            continue;
        }
        let same = |other: &&mut Rule| (other.kind, other.major, other.minor) == (rule.kind, rule.major, rule.minor);
        match exceptions.iter_mut().find(same) {
            Some(exception) if rule.allow == default => {
                exception.access.0 &= !rule.access.0;
                exception.access.1 &= !rule.access.1;
            }
            Some(exception) => {
                exception.access.0 |= rule.access.0;
                exception.access.1 |= rule.access.1;
            }
            None if rule.allow == default => {}
            None => exceptions.push(rule),
        }
    }
    if default {
        exceptions.iter().all(|exception| exception.access == (false, false))
    } else {
        exceptions.iter().any(|exception| exception.access == (true, true))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GPU1: DeviceNumber = DeviceNumber { major: 195, minor: 1 };

    fn rules(rules: impl serde::Serialize) -> bool {
        let spec = json!({"linux": {"resources": {"devices": rules}}});
        allowed(Spec::new(&spec).expect("spec").rules(), GPU1)
    }

    #[test]
    fn signs_of_a_gpu() {
        let sign = |text: &str| has_gpu_sign(text.as_bytes());
        for text in [
            "nvidia",
            "[\"NVIDIA_VISIBLE_DEVICES=all\"]",
            "CUDA_VISIBLE_DEVICES=0",
            "{\"path\":\"/opt/nvidia/x\"}",
            "{\"major\":195}",
            "{\"major\" :\n 195, \"minor\": 0}",
        ] {
            assert!(sign(text), "{text}");
        }
        for text in
            ["", "v", "V", "major", "j", "vidia", "CUDA_DEVICE_ORDER", "{\"major\":19}", "{\"major\":", "\"major\""]
        {
            assert!(!sign(text), "{text}");
        }
    }

    #[test]
    fn rules_are_evaluated_as_runtimes_do() {
        let deny = json!({"allow": false, "access": "rwm"});
        let gpu = json!({"allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw"});
        assert!(!rules(json!([])));
        assert!(rules(json!([deny, gpu])));
        assert!(!rules(json!([gpu, deny])));
        assert!(rules(json!([deny, {"allow": true, "type": "c", "major": 195, "access": "rwm"}])));
        assert!(rules(json!([deny, {"allow": true, "type": "c", "major": 195, "minor": -1, "access": "rwm"}])));
        assert!(rules(json!([deny, {"allow": true}])));
        assert!(!rules(json!([{"allow": true, "type": "c", "major": 195, "minor": 1, "access": "r"}])));
        assert!(!rules(json!([{"allow": true, "type": "b", "major": 195, "minor": 1, "access": "rw"}])));
        assert!(rules(json!([{"allow": true, "type": "c", "major": 195, "minor": 1}])));
    }

    /// `tests/it/attacks/rules.rs` asks real runtimes the same.
    #[test]
    fn rules_for_every_type_and_rules_that_are_taken_back() {
        let deny = json!({"allow": false, "access": "rwm"});
        let allow = json!({"allow": true, "access": "rwm"});
        let of = |allow: bool, minor: Value, access: &str| json!({"allow": allow, "type": "c", "major": 195, "minor": minor, "access": access});
        let (gpu, all) = (of(true, json!(1), "rw"), of(true, Value::Null, "rw"));
        for any in [
            json!({"allow": true, "type": "a", "major": 195, "minor": 7, "access": "rwm"}),
            json!({"allow": true, "type": "a", "access": "r"}),
            json!({"allow": true, "major": 195, "minor": 7, "access": "m"}),
        ] {
            assert!(rules(json!([deny, any])), "{any}");
        }
        assert!(!rules(json!([deny, gpu, {"allow": false, "type": "a", "major": 1, "minor": 2, "access": "r"}])));
        assert!(rules(json!([deny, gpu, of(false, Value::Null, "rw")])), "only the same numbers are taken back");
        assert!(rules(json!([deny, all, of(false, json!(1), "rw")])), "crun; runc refuses it");
        assert!(!rules(json!([deny, gpu, of(false, json!(1), "w")])));
        assert!(!rules(json!([deny, of(true, json!(1), "r"), of(true, Value::Null, "w")])), "no exception has both");
        assert!(rules(json!([deny, of(true, json!(1), "r"), of(true, json!(1), "w")])));
        assert!(!rules(json!([allow, of(false, json!(1), "w")])));
        assert!(rules(json!([allow, of(false, json!(1), "rw"), gpu])));
        assert!(!rules(json!([allow, of(false, Value::Null, "rw"), gpu])));
    }

    #[test]
    fn wrong_types_and_entries_are_named() {
        let text = |value: Value| Spec::new(&value).map(|_| ()).expect_err("invalid").to_string();
        assert_eq!(text(json!([])), "the file is not an object");
        assert_eq!(text(json!({"process": {"env": {}}})), "/process/env is not an array");
        assert_eq!(text(json!({"process": {"env": [1]}})), "/process/env/0 is not a string");
        assert_eq!(
            text(json!({"process": {"env": ["A=1", "B"]}})),
            "/process/env/1 \"B\" has no name and value (NAME=VALUE)"
        );
        assert_eq!(text(json!({"linux": {"devices": [1]}})), "/linux/devices/0 is not an object");
        assert!(Spec::new(&json!({"linux": null, "mounts": null})).is_ok());
    }

    #[test]
    fn a_record_is_read_from_our_hook_entry_and_from_nowhere_else() {
        let record = json!({"version": 1, "original": {}, "provenance": "user", "emitted": {}, "granted": [],
                            "explicit": true, "kept": [], "openable": [], "gpus": []});
        let argument = format!("--record={record}");
        let entry = |path: &str| json!({"path": path, "args": ["cudaview-hook", "createRuntime", argument]});
        let read = |config: Value| {
            let whole = Spec::new(&config).expect("spec").record();
            assert_eq!(record_in(config.to_string().as_bytes()), whole, "both readers agree");
            whole.is_some()
        };
        let foreign = json!({"path": "/x", "args": null});
        assert!(read(json!({"hooks": {"createRuntime": [foreign, entry("/usr/bin/cudaview-hook")]}})));
        assert!(!read(json!({"hooks": {"createRuntime": [entry("/usr/bin/other")]}})));
        assert!(!read(json!({"process": {"args": ["cudaview-hook", "createRuntime", argument]}, "hooks": {}})));
        assert!(!read(json!({"annotations": {"a": argument}})));
    }

    #[test]
    fn the_last_of_several_values_counts() {
        let spec = json!({"process": {"env": ["A=1", "AB=2", "A=", "B=3"]}});
        let spec = Spec::new(&spec).expect("spec");
        assert_eq!((spec.var("A"), spec.var("AB"), spec.var("C")), (Some(""), Some("2"), None));
    }
}
