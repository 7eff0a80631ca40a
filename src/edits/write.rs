//! An edited `config.json` as text, where the new nodes and rules never become JSON values.
//!
//! A host of sixteen GPUs with seven MIG devices each has 240 of both; values of them, their keys and their numbers would be
//! ten thousand pieces of memory, and most of what a create costs there.

use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

use super::ContainerEdits;
use super::apply::{apply_without_new, make_room};
use crate::device::DeviceNumber;
use crate::node::{DeviceNode, NODE_MODE};

/// The text of a configuration with these edits: what [`super::apply()`] makes of it, written down.
///
/// # Errors
/// None is known: a value with string keys always serialises.
pub fn write(config: &mut Value, edits: &ContainerEdits) -> serde_json::Result<Vec<u8>> {
    apply_without_new(config, edits);
    make_room(config, edits);
    let arguments: usize = edits.hook.iter().flat_map(|hook| &hook.args).map(|argument| argument.len() + 8).sum();
    // About what it comes to: growing from nothing copies half of it and touches as much memory again.
    let size = (12 << 10) + 112 * edits.device_nodes.len() + 72 * edits.allow.len() + arguments + arguments / 8;
    let mut text = Vec::with_capacity(size);
    serde_json::to_writer(&mut text, &Written { value: config, place: Place::Top, edits })?;
    Ok(text)
}

/// A node of `linux.devices`.
pub(super) fn new_node(node: &DeviceNode) -> Option<LinuxDevice> {
    LinuxDeviceBuilder::default()
        .path(&node.path)
        .typ(LinuxDeviceType::C)
        .major(i64::from(node.number.major))
        .minor(i64::from(node.number.minor))
        .file_mode(NODE_MODE)
        .uid(0_u32)
        .gid(0_u32)
        .build()
        .ok()
}

/// A rule of `linux.resources.devices`.
pub(super) fn new_rule(number: DeviceNumber) -> Option<LinuxDeviceCgroup> {
    LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(LinuxDeviceType::C)
        .major(i64::from(number.major))
        .minor(i64::from(number.minor))
        .access("rw")
        .build()
        .ok()
}

/// Where in the configuration a value stands.
#[derive(Clone, Copy)]
enum Place {
    Top,
    Linux,
    Resources,
    Nodes,
    Rules,
}

impl Place {
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Top, "linux") => Some(Self::Linux),
            (Self::Linux, "devices") => Some(Self::Nodes),
            (Self::Linux, "resources") => Some(Self::Resources),
            (Self::Resources, "devices") => Some(Self::Rules),
            _ => None,
        }
    }
}

struct Written<'a> {
    value: &'a Value,
    place: Place,
    edits: &'a ContainerEdits,
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.place, self.value) {
            (Place::Nodes, Value::Array(items)) => {
                extended(serializer, items, self.edits.device_nodes.iter().filter_map(new_node))
            }
            (Place::Rules, Value::Array(items)) => {
                extended(serializer, items, self.edits.allow.iter().copied().filter_map(new_rule))
            }
            (place, Value::Object(members)) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, value) in members {
                    match place.below(key) {
                        Some(place) => map.serialize_entry(key, &Written { value, place, edits: self.edits })?,
                        None => map.serialize_entry(key, value)?,
                    }
                }
                map.end()
            }
            (_, value) => value.serialize(serializer),
        }
    }
}

fn extended<S: Serializer, T: Serialize>(
    serializer: S,
    items: &[Value],
    new: impl Iterator<Item = T>,
) -> Result<S::Ok, S::Error> {
    let mut seq = serializer.serialize_seq(None)?;
    for item in items {
        seq.serialize_element(item)?;
    }
    for item in new {
        seq.serialize_element(&item)?;
    }
    seq.end()
}
