//! What Docker's API says about a container, as the `config.json` that Docker makes of it.
//!
//! For who may ask Docker and not read its files: the same rules then look at the same things.

use serde_json::{Value, json};

use crate::device::{DeviceNumber, Minor};
use crate::inventory::Inventory;
use crate::provenance::{EngineFacts, Requests};
use crate::record::Variables;
use crate::request::{DeviceRequest, Source};
use crate::situation::docker_requests;
use crate::whatif::appended;

/// The configuration, as far as the rules look at one. `numbers` are those of `HostConfig.Devices`, by path.
pub fn spec(
    inspected: &Value,
    facts: &EngineFacts,
    inventory: &Inventory,
    numbers: &[(String, DeviceNumber)],
) -> Value {
    let requests = match &facts.device_requests {
        Requests::Known(requests) => docker_requests(requests),
        Requests::Unknown(_) | Requests::NotApplicable => Vec::new(),
    };
    let host = &inspected["HostConfig"];
    let mut devices: Vec<Device> = list(&host["Devices"]).filter_map(|device| given(device, numbers)).collect();
    devices.extend(by_cdi(&requests, inventory));
    let rules = if host["Privileged"] == true {
        devices = inventory.gpus.iter().map(|gpu| Device::gpu(gpu.minor)).collect();
        vec![json!({"allow": true, "access": "rwm"})]
    } else {
        let denied = [json!({"allow": false, "access": "rwm"})];
        let of_devices = devices.iter().map(Device::rule);
        let typed = list(&host["DeviceCgroupRules"]).filter_map(|rule| cgroup_rule(rule.as_str()?));
        denied.into_iter().chain(of_devices).chain(typed).collect()
    };
    let mut out = json!({
        "process": {"env": env(facts, &requests)},
        "mounts": list(&inspected["Mounts"]).filter_map(mount).collect::<Vec<_>>(),
        "linux": {
            "devices": devices.iter().map(Device::node).collect::<Vec<_>>(),
            "resources": {"devices": rules},
        },
    });
    if requests.iter().any(|request| request.source == Source::Gpus) {
        // moby daemon/nvidia_linux.go
        let hook = json!({"path": "/usr/bin/nvidia-container-runtime-hook", "args": [NVIDIA_HOOK, "prestart"]});
        out["hooks"] = json!({"prestart": [hook]});
    }
    out
}

const NVIDIA_HOOK: &str = "nvidia-container-runtime-hook";

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The entries that are assignments, and behind them what Docker appends.
fn env(facts: &EngineFacts, requests: &[DeviceRequest]) -> Vec<String> {
    let stored = facts.config_env.iter().flatten();
    let is_assignment = |entry: &&String| entry.find('=').is_some_and(|at| at > 0) && !entry.contains('\0');
    let mut out: Vec<String> = stored.filter(is_assignment).cloned().collect();
    out.extend(appended(requests).map(|value| format!("{}={value}", Variables::NAMES[2])));
    out
}

/// A node with the rule that Docker writes for it.
struct Device {
    path: String,
    number: DeviceNumber,
    access: String,
}

impl Device {
    fn gpu(minor: Minor) -> Self {
        Self { path: format!("/dev/nvidia{minor}"), number: DeviceNumber::gpu(minor), access: "rwm".to_owned() }
    }

    fn node(&self) -> Value {
        json!({"path": self.path, "type": "c", "major": self.number.major, "minor": self.number.minor})
    }

    fn rule(&self) -> Value {
        let DeviceNumber { major, minor } = self.number;
        json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": self.access})
    }
}

/// An entry of `HostConfig.Devices`.
fn given(device: &Value, numbers: &[(String, DeviceNumber)]) -> Option<Device> {
    let on_host = device["PathOnHost"].as_str()?;
    let by_name = || Some(DeviceNumber::gpu(Minor(on_host.strip_prefix("/dev/nvidia")?.parse().ok()?)));
    let number = numbers.iter().find(|(path, _)| path == on_host).map(|(_, number)| *number).or_else(by_name)?;
    let access = device["CgroupPermissions"].as_str().unwrap_or("rwm").to_owned();
    Some(Device { path: device["PathInContainer"].as_str().unwrap_or(on_host).to_owned(), number, access })
}

/// What CDI specifications put into a container of these requests.
fn by_cdi(requests: &[DeviceRequest], inventory: &Inventory) -> Vec<Device> {
    let asked = requests.iter().filter(|request| request.source == Source::Cdi);
    let mut devices: Vec<_> = asked.flat_map(|request| request.selection.resolve(inventory).devices).collect();
    devices.sort_unstable();
    devices.dedup_by_key(|device| device.gpu);
    devices.into_iter().map(|device| Device::gpu(inventory.gpu(device).minor)).collect()
}

/// `c 195:* rmw`
fn cgroup_rule(text: &str) -> Option<Value> {
    let mut words = text.split_whitespace();
    let (kind, numbers, access) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = numbers.split_once(':')?;
    let number = |text: &str| text.parse::<u32>().ok();
    Some(json!({"allow": true, "type": kind, "major": number(major), "minor": number(minor), "access": access}))
}

fn mount(mount: &Value) -> Option<Value> {
    let (source, destination) = (mount["Source"].as_str()?, mount["Destination"].as_str()?);
    let is_bind = mount["Type"] == "bind";
    is_bind.then(|| json!({"type": "bind", "source": source, "destination": destination, "options": ["rbind"]}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::plan::{Plan, plan};
    use crate::provenance::{DockerDeviceRequest, Engine};
    use crate::situation::{HostFacts, from_spec};
    use crate::spec::Spec;

    fn inventory() -> Inventory {
        Inventory::from_json(include_bytes!("../tests/data/inventories/a100x4.json")).expect("fixture")
    }

    fn planned(host_config: &Value, mounts: &Value, env: &[&str], requests: Vec<DockerDeviceRequest>) -> Plan {
        let inspected = json!({"HostConfig": host_config, "Mounts": mounts});
        let facts = EngineFacts {
            config_env: Some(env.iter().map(|entry| (*entry).to_owned()).collect()),
            image_env: Some(vec!["PATH=/bin".to_owned()]),
            device_requests: Requests::Known(requests),
            runtime_is_default: Some(false),
            ..EngineFacts::nothing_known(Engine::Docker)
        };
        let (inventory, config) = (inventory(), Config::built_in());
        let value = spec(&inspected, &facts, &inventory, &[]);
        let spec = Spec::new(&value).expect("a configuration");
        plan(&inventory, &from_spec(spec, &inventory, &facts, &HostFacts::default(), &config), &config)
    }

    fn request(driver: &str, ids: &[&str]) -> DockerDeviceRequest {
        DockerDeviceRequest {
            driver: driver.to_owned(),
            count: 0,
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            capabilities: if driver == "cdi" { Vec::new() } else { vec![vec!["gpu".to_owned()]] },
        }
    }

    #[track_caller]
    fn check(plan: &Plan, granted: &[usize], open: &[usize], emitted: Option<&str>) {
        let gpus = |devices: &[crate::inventory::Device]| devices.iter().map(|d| d.gpu).collect::<Vec<_>>();
        assert_eq!((gpus(&plan.grant.devices), gpus(plan.openable())), (granted.to_vec(), open.to_vec()), "{plan:?}");
        assert_eq!(plan.emitted.visible_devices.as_deref(), emitted, "{plan:?}");
    }

    #[test]
    fn every_way_to_ask_for_a_gpu() {
        let env = ["PATH=/bin", "CUDA_VISIBLE_DEVICES=1,3", "BARE"];
        let none = || json!([]);
        let gpus = planned(&json!({}), &none(), &env, vec![request("", &["1", "3"])]);
        check(&gpus, &[1, 3], &[1, 3], Some("0,1"));
        let cdi = vec![request("cdi", &["nvidia.com/gpu=1", "nvidia.com/gpu=3"])];
        check(&planned(&json!({}), &none(), &env, cdi), &[1, 3], &[1, 3], Some("0,1"));
        let node = |minor: u32| json!({"PathOnHost": format!("/dev/nvidia{minor}"), "CgroupPermissions": "rwm"});
        let host = json!({"Devices": [node(1), node(3), {"PathOnHost": "/dev/fuse"}]});
        check(&planned(&host, &none(), &env, Vec::new()), &[1, 3], &[1, 3], Some("0,1"));
        check(&planned(&json!(null), &json!(null), &["PATH=/bin"], Vec::new()), &[], &[], None);
    }

    #[test]
    fn what_opens_more_than_was_granted() {
        let gpus = || vec![request("", &["1"])];
        let privileged = planned(&json!({"Privileged": true}), &json!([]), &["PATH=/bin"], gpus());
        check(&privileged, &[1], &[0, 1, 2, 3], Some("1"));
        let dev = json!([{"Type": "bind", "Source": "/dev", "Destination": "/dev"}]);
        let rules = json!({"DeviceCgroupRules": ["c 195:* rmw", "nonsense"]});
        check(&planned(&rules, &dev, &["PATH=/bin"], gpus()), &[1], &[0, 1, 2, 3], Some("1"));
    }
}
