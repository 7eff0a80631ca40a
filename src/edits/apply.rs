//! Applying edits to a `config.json` or an environment, in place.

use oci_spec::runtime::HookBuilder;
use serde_json::{Map, Value, json};

use super::write::{new_node, new_rule};
use super::{ContainerEdits, HOOK_ENV, HookEntry, is_gpu_path};
use crate::cdi::{self, CdiEdits};
use crate::device::DeviceNumber;
use crate::node::{DeviceNode, NODE_MODE};
use crate::spec::{is_nvidia_hook, is_our_hook, rule};

/// Applies edits to a configuration that [`super::Spec::new`] accepted. Members that are not edited stay as they are.
pub fn apply(config: &mut Value, edits: &ContainerEdits) {
    apply_without_new(config, edits);
    make_room(config, edits);
    // Plain data with string keys always becomes a value.
    if let Some(nodes) = config.pointer_mut("/linux/devices").and_then(Value::as_array_mut) {
        nodes.extend(edits.device_nodes.iter().filter_map(|node| serde_json::to_value(new_node(node)?).ok()));
    }
    if let Some(rules) = config.pointer_mut("/linux/resources/devices").and_then(Value::as_array_mut) {
        rules.extend(edits.allow.iter().filter_map(|number| serde_json::to_value(new_rule(*number)?).ok()));
    }
}

/// An absent list stays absent where nothing comes into it.
pub(super) fn make_room(config: &mut Value, edits: &ContainerEdits) {
    if !edits.device_nodes.is_empty() {
        edit_array(object(config, "linux"), "devices", |_| {});
    }
    if !edits.allow.is_empty() {
        edit_array(object(object(config, "linux"), "resources"), "devices", |_| {});
    }
}

/// All of it but new nodes and rules, which come last.
pub(super) fn apply_without_new(config: &mut Value, edits: &ContainerEdits) {
    if !edits.env.is_empty() || !edits.unset_env.is_empty() {
        edit_array(object(config, "process"), "env", |env| {
            let name = |entry: &Value| entry.as_str().and_then(|entry| Some(entry.split_once('=')?.0.to_owned()));
            env.retain(|entry| name(entry).is_none_or(|name| !edits.unset_env.contains(&name)));
            for (name, value) in &edits.env {
                set_env(env, name, value);
            }
        });
    }
    apply_devices(config, edits);
    // By their positions, so before others come.
    if !edits.withhold_mounts.is_empty() {
        let mut position = 0;
        let keep = |_: &Value| {
            position += 1;
            !edits.withhold_mounts.contains(&(position - 1))
        };
        edit_array(config, "mounts", |mounts| mounts.retain(keep));
    }
    apply_cdi(config, &edits.cdi);
    if !edits.device_mounts.is_empty() {
        let mount = |place: &String| json!({"destination": place, "type": "bind", "source": "/dev/null", "options": ["bind", "ro"]});
        edit_array(config, "mounts", |mounts| mounts.extend(edits.device_mounts.iter().map(mount)));
    }
    if edits.remove_nvidia_hook {
        for stage in ["prestart", "createRuntime"] {
            remove_hooks(config, stage, is_nvidia_hook);
        }
    }
    if let Some(annotations) = config.pointer_mut("/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !edits.remove_annotations.contains(key));
    }
    if let Some(hook) = &edits.hook {
        apply_hook(config, hook);
    }
}

fn apply_devices(config: &mut Value, edits: &ContainerEdits) {
    let gone =
        |value: &Value| number_of(value).is_some_and(|number| edits.withhold.contains(&number)) && value["type"] != "b";
    // Rootless engines leave the rules out, and an empty list of rules is another thing than none.
    let has =
        |config: &Value, pointer| !edits.withhold.is_empty() && config.pointer(pointer).is_some_and(Value::is_array);
    if !edits.mend.is_empty() || has(config, "/linux/devices") {
        edit_array(object(config, "linux"), "devices", |devices| {
            devices.retain(|device| !gone(device));
            for node in &edits.mend {
                apply_mend(devices, node);
            }
        });
    }
    if has(config, "/linux/resources/devices") {
        edit_array(object(object(config, "linux"), "resources"), "devices", |rules| {
            // One without a type is about every device, whatever numbers stand beside: it is nobody's own.
            rules.retain(|value| !edits.withhold.iter().any(|number| rule(value).is_single(*number)));
        });
    }
}

/// As the CDI library merges its edits: variables by name, nodes by path, mounts by destination.
// pkg/cdi/container-edits.go, Apply.
fn apply_cdi(config: &mut Value, cdi: &CdiEdits) {
    if *cdi == CdiEdits::default() {
        return;
    }
    // Who the nodes belong to where the specification does not say it: the container's own user.
    let user = |key: &str| config["process"]["user"][key].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    let (uid, gid) = (user("uid"), user("gid"));
    if !cdi.env.is_empty() {
        edit_array(object(config, "process"), "env", |env| {
            for (name, value) in cdi.env.iter().filter_map(|entry| entry.split_once('=')) {
                set_env(env, name, value);
            }
        });
    }
    if !cdi.nodes.is_empty() {
        edit_array(object(config, "linux"), "devices", |devices| {
            devices.retain(|device| !cdi.nodes.iter().any(|node| device["path"] == node.path.as_str()));
            devices.extend(cdi.nodes.iter().map(|node| cdi_node(node, uid, gid)));
        });
        edit_array(object(object(config, "linux"), "resources"), "devices", |rules| {
            let new = cdi.nodes.iter().filter_map(cdi_rule);
            let new: Vec<Value> = new.filter(|rule| !rules.contains(rule)).collect();
            rules.extend(new);
        });
    }
    if !cdi.mounts.is_empty() {
        edit_array(config, "mounts", |mounts| cdi.mounts.iter().for_each(|mount| add_mount(mounts, mount)));
    }
    for hook in &cdi.hooks {
        let mut entry = json!({"path": hook.path});
        // Never without an environment, see `HOOK_ENV`.
        let env = if hook.env.is_empty() { vec![HOOK_ENV.to_owned()] } else { hook.env.clone() };
        entry["args"] = hook.args.clone().into();
        entry["env"] = env.into();
        if let Some(timeout) = hook.timeout {
            entry["timeout"] = timeout.into();
        }
        edit_array(object(config, "hooks"), &hook.hook_name, |stage| {
            if !stage.contains(&entry) {
                stage.push(entry);
            }
        });
    }
    if !cdi.gids.is_empty() {
        edit_array(object(object(config, "process"), "user"), "additionalGids", |gids| {
            let new: Vec<Value> = cdi.gids.iter().map(|gid| (*gid).into()).filter(|gid| !gids.contains(gid)).collect();
            gids.extend(new);
        });
    }
}

fn cdi_node(node: &cdi::Node, uid: u32, gid: u32) -> Value {
    let kind = if node.kind == "u" { "c" } else { &node.kind };
    json!({
        "path": node.path, "type": kind, "major": node.major, "minor": node.minor,
        "fileMode": node.file_mode.unwrap_or(NODE_MODE),
        "uid": node.uid.unwrap_or(uid), "gid": node.gid.unwrap_or(gid),
    })
}

fn cdi_rule(node: &cdi::Node) -> Option<Value> {
    let kind = match node.kind.as_str() {
        "b" => "b",
        "c" | "u" => "c",
        _ => return None,
    };
    let access = if node.permissions.is_empty() { "rwm" } else { &node.permissions };
    Some(json!({"allow": true, "type": kind, "major": node.major, "minor": node.minor, "access": access}))
}

/// In place of one with the same destination, and before those that lie below it, which it would hide.
fn add_mount(mounts: &mut Vec<Value>, mount: &cdi::Mount) {
    let destination = mount.container_path.as_str();
    let mut entry = json!({"destination": destination, "source": mount.host_path});
    if !mount.kind.is_empty() {
        entry["type"] = mount.kind.clone().into();
    }
    if !mount.options.is_empty() {
        entry["options"] = mount.options.clone().into();
    }
    let of = |mount: &Value| mount["destination"].as_str().unwrap_or_default().trim_end_matches('/').to_owned();
    let destination = destination.trim_end_matches('/');
    if let Some(there) = mounts.iter_mut().find(|there| of(there) == destination) {
        *there = entry;
        return;
    }
    let below = format!("{destination}/");
    let position = mounts.iter().position(|there| of(there).starts_with(&below)).unwrap_or(mounts.len());
    mounts.insert(position, entry);
}

/// The device number of a node or a rule.
fn number_of(value: &Value) -> Option<DeviceNumber> {
    let number = |key: &str| value[key].as_i64().and_then(|number| u32::try_from(number).ok());
    number("major").zip(number("minor")).map(|(major, minor)| DeviceNumber { major, minor })
}

fn apply_mend(devices: &mut [Value], node: &DeviceNode) {
    let is_it = |device: &Value| number_of(device) == Some(node.number) && device["type"] != "b";
    let named = devices.iter().position(|device| is_it(device) && device["path"] == node.path.as_str());
    let misnamed =
        || devices.iter().position(|device| is_it(device) && device["path"].as_str().is_some_and(is_gpu_path));
    let position = named.or_else(misnamed);
    let Some(device) = position.and_then(|position| devices.get_mut(position)?.as_object_mut()) else { return };
    device.insert("path".to_owned(), node.path.clone().into());
    if device.get("fileMode").is_none_or(Value::is_null) {
        device.insert("fileMode".to_owned(), NODE_MODE.into());
    }
}

fn apply_hook(config: &mut Value, hook: &HookEntry) {
    // Without a `timeout`: the hook ends itself, and with one crun may miss its end (ADR 9).
    let entry = HookBuilder::default().path(&hook.path).args(Vec::new()).env(vec![HOOK_ENV.to_owned()]).build();
    let Some(mut entry) = entry.ok().and_then(|entry| serde_json::to_value(entry).ok()) else { return };
    // On their own, and copied once: there can be hundreds.
    entry["args"] = hook.args.clone().into();
    let ours = |stage: &[Value]| stage.iter().any(is_our_hook);
    if config.pointer("/hooks/prestart").and_then(Value::as_array).is_some_and(|stage| ours(stage)) {
        remove_hooks(config, "prestart", is_our_hook);
    }
    edit_array(object(config, "hooks"), "createRuntime", |stage| {
        let mut entry = Some(entry);
        // In place of an earlier one of ours, so that applying twice changes nothing.
        for slot in stage.iter_mut().filter(|slot| is_our_hook(slot)) {
            *slot = entry.take().unwrap_or(Value::Null);
        }
        stage.retain(|slot| !slot.is_null());
        stage.extend(entry);
    });
}

fn remove_hooks(config: &mut Value, stage: &str, is: fn(&Value) -> bool) {
    if let Some(hooks) = config.pointer_mut(&format!("/hooks/{stage}")).and_then(Value::as_array_mut) {
        hooks.retain(|hook| !is(hook));
    }
}

/// Leaves exactly one entry for a variable, where the first one was.
pub fn set_env(env: &mut Vec<Value>, name: &str, value: &str) {
    let entry = Value::String(format!("{name}={value}"));
    let is_name =
        |entry: &Value| entry.as_str().and_then(|e| e.strip_prefix(name)).is_some_and(|rest| rest.starts_with('='));
    let Some(first) = env.iter().position(is_name) else {
        env.push(entry);
        return;
    };
    env[first] = entry;
    let mut position = 0;
    env.retain(|entry| {
        position += 1;
        position - 1 == first || !is_name(entry)
    });
}

/// The object under a key, made where it is absent or null.
fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    let slot = slot(parent, key);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot
}

/// Edits the array under a key, which is made where it is absent or null.
pub fn edit_array(parent: &mut Value, key: &str, edit: impl FnOnce(&mut Vec<Value>)) {
    let slot = slot(parent, key);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    if let Value::Array(items) = slot {
        edit(items);
    }
}

fn slot<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    &mut parent[key]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_go_by_their_positions_before_others_come() {
        let mount = |at: &str| json!({"destination": at, "source": "x"});
        let mut config = json!({"mounts": [mount("/a/b"), mount("/gone"), mount("/c")]});
        let new = cdi::Mount {
            host_path: "x".to_owned(),
            container_path: "/a".to_owned(),
            options: Vec::new(),
            kind: String::new(),
        };
        let cdi = CdiEdits { mounts: vec![new], ..CdiEdits::default() };
        let told = vec!["/told".to_owned()];
        let edits = ContainerEdits { withhold_mounts: vec![1], device_mounts: told, cdi, ..ContainerEdits::default() };
        apply(&mut config, &edits);
        let mounts = config["mounts"].as_array().expect("mounts");
        let places: Vec<&str> = mounts.iter().filter_map(|mount| mount["destination"].as_str()).collect();
        assert_eq!(places, ["/a", "/a/b", "/c", "/told"]);
    }

    #[test]
    fn a_rule_for_every_device_stays_beside_the_one_that_goes() {
        let of = |kind: &str| json!({"allow": true, "type": kind, "major": 195, "minor": 2, "access": "rwm"});
        let mut without = of("c");
        without.as_object_mut().expect("a rule").remove("type");
        let stay = [json!({"allow": false, "access": "rwm"}), without, of("a"), of("b")];
        let rules = [stay.to_vec(), vec![of("c")]].concat();
        let mut config = json!({"linux": {"resources": {"devices": rules}}});
        let withhold = vec![DeviceNumber { major: 195, minor: 2 }];
        apply(&mut config, &ContainerEdits { withhold, ..ContainerEdits::default() });
        assert_eq!(config["linux"]["resources"]["devices"], json!(stay));
    }

    #[test]
    fn a_variable_that_goes_goes_with_all_its_entries() {
        let mut config = json!({"process": {"env": ["A=1", "AB=2", "A=3", "C"]}});
        let edits = ContainerEdits { unset_env: vec!["A".to_owned()], ..ContainerEdits::default() };
        apply(&mut config, &edits);
        assert_eq!(config["process"]["env"], json!(["AB=2", "C"]));
    }
}
