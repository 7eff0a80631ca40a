//! A device node that a container is to have: path and number, always with mode 0666 and owner 0:0.

use std::fmt;
use std::str::FromStr;

use crate::device::DeviceNumber;

/// Mode of every node that we plan; written always, since crun makes a node without a mode with 000.
pub const NODE_MODE: u32 = 0o666;

/// A character device node, as it shall be in the container.
///
/// Its text form, `PATH=MAJOR:MINOR`, is what the hook gets as an argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNode {
    /// Absolute path in the container, under `/dev/`.
    pub path: String,
    /// What the node is; the path is only its name.
    pub number: DeviceNumber,
}

impl DeviceNode {
    /// The node of a GPU at its usual place.
    pub fn gpu(minor: crate::device::Minor) -> Self {
        Self { path: format!("/dev/nvidia{minor}"), number: DeviceNumber::gpu(minor) }
    }

    /// Its text form after something else. A host can have hundreds of nodes, and put together by hand it takes a quarter
    /// of what a formatter needs.
    pub fn after(&self, before: &str) -> String {
        let mut text = String::with_capacity(before.len() + self.path.len() + "=4294967295:4294967295".len());
        text.push_str(before);
        text.push_str(&self.path);
        text.push('=');
        text.push_str(&self.number.major.to_string());
        text.push(':');
        text.push_str(&self.number.minor.to_string());
        text
    }

    /// Whether its text form reads back.
    pub fn is_plain(&self) -> bool {
        is_plain(&self.path)
    }
}

/// A path under `/dev/` without detours.
fn is_plain(path: &str) -> bool {
    let name = path.strip_prefix("/dev/");
    name.is_some_and(|name| name.split('/').all(|component| !matches!(component, "" | "." | "..")))
}

impl fmt::Display for DeviceNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.number)
    }
}

/// A text that is no device node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a device node (/dev/NAME=MAJOR:MINOR)")]
pub struct InvalidNode(String);

impl FromStr for DeviceNode {
    type Err = InvalidNode;

    fn from_str(text: &str) -> Result<Self, InvalidNode> {
        let parse = || {
            let (path, number) = text.rsplit_once('=')?;
            let (major, minor) = number.split_once(':')?;
            let number = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
            is_plain(path).then(|| Self { path: path.to_owned(), number })
        };
        parse().ok_or_else(|| InvalidNode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_reads_back() {
        let node = DeviceNode::gpu(crate::device::Minor(3));
        assert_eq!(node.to_string(), "/dev/nvidia3=195:3");
        assert!(node.is_plain());
        assert_eq!(node.after("--node="), format!("--node={node}"));
        assert_eq!(node.to_string().parse(), Ok(node));
        for bad in ["", "/dev/=1:2", "/dev/../x=1:2", "/etc/x=1:2", "/dev/a//b=1:2", "/dev/x=1", "/dev/x=a:b"] {
            assert!(bad.parse::<DeviceNode>().is_err(), "{bad:?}");
        }
    }
}
