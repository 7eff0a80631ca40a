//! Device rules, as a runtime evaluates them.

use serde_json::Value;

use crate::device::{DeviceNumber, Minor};

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

/// A device or rule number; -1 and absence are "any".
pub(super) fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_i64()?).ok()
}

/// A rule as it is written.
pub(crate) fn rule(value: &Value) -> Rule {
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
    /// A line of `devices.list`, such as `c 195:1 rw`; `None` for what is none.
    // Documentation/admin-guide/cgroup-v1/devices.rst
    pub fn of_kernel(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?.chars().next().filter(|kind| *kind != 'a');
        let (major, minor) = words.next()?.split_once(':')?;
        let access = words.next()?;
        let number = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
        let access = (access.contains('r'), access.contains('w'));
        Some(Self { allow: true, kind, major: number(major)?, minor: number(minor)?, access })
    }

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
