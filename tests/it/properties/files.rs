//! Random configuration files, with what the engine and the host say about them.

use std::collections::BTreeMap;

use cudaview::config::{Base, BaseWord, Config};
use cudaview::device::DeviceNumber;
use cudaview::provenance::{DockerDeviceRequest, Engine, EngineFacts, Requests};
use cudaview::record::Variables;
use cudaview::request::Selection;
use cudaview::situation::HostFacts;
use cudaview::toolkit::Toolkit;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::generate::{configs, inventories, orders, selections, values};
use crate::brain::{Passed, World};

/// A configuration, and the world that it is decided in.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) config: Value,
    pub(crate) world: World,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let World { inventory, facts, host, config } = &self.world;
        let inventory = serde_json::to_string(inventory).unwrap();
        write!(f, "{}\n{inventory}\n{facts:?}\n{host:?}\n{config:?}", self.config)
    }
}

/// Entries of an environment, repeats included.
fn environments() -> impl Strategy<Value = Vec<String>> {
    let name = select(vec![
        Variables::NAMES[0],
        Variables::NAMES[0],
        Variables::NAMES[1],
        Variables::NAMES[2],
        Variables::NAMES[3],
        "PATH",
        "CUDA_VISIBLE_DEVICES_OLD",
        "X",
    ]);
    let entry = (name, values(), orders()).prop_map(|(name, value, order)| {
        if name == Variables::NAMES[1] {
            format!("{name}={}", order.unwrap_or_default())
        } else {
            format!("{name}={value}")
        }
    });
    prop::collection::vec(entry, 0..5)
}

/// How open the device rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    Absent,
    Single,
    Wide,
    All,
}

/// Configurations as engines write them, with what the engine's files say about them.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let nodes = prop_oneof![2 => Just(Vec::new()), 2 => subsequence((0..8_u32).collect::<Vec<_>>(), 0..8)];
    let rules = select(vec![Rules::Absent, Rules::Single, Rules::Single, Rules::Single, Rules::Wide, Rules::All]);
    let hooks = (any::<bool>(), any::<bool>());
    let host = (prop::bool::weighted(0.15), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let toolkit = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.3), any::<bool>(), prop::bool::weighted(0.1));
    let docker = (any::<bool>(), prop::option::weighted(0.7, selections()), any::<bool>(), any::<Option<bool>>());
    (inventories(), configs(), (environments(), environments()), nodes, rules, hooks, (host, toolkit), docker).prop_map(
        |(inventory, config, (user, image), nodes, rules, hooks, (host, toolkit), docker)| {
            let (takes_mounts, takes_variables, has_swarm, has_plugin, nvidia_runtime_possible) = toolkit;
            let (nvidia_runtime, nvidia_cli, rootless, as_mounts) = host;
            let (is_docker, request, is_readable, runtime_is_default) = docker;
            let env = merged(&user, &image);
            let facts = if is_docker {
                EngineFacts {
                    config_env: Some(env.clone()),
                    image_env: Some(image),
                    device_requests: requests(request, is_readable),
                    runtime_is_default,
                    ..EngineFacts::nothing_known(Engine::Docker)
                }
            } else {
                EngineFacts::nothing_known(Engine::Podman)
            };
            let minors: Vec<u32> =
                inventory.gpus.iter().map(|gpu| gpu.minor.0).filter(|minor| nodes.contains(minor)).collect();
            let (mut file, mount_numbers) = file(&env, &minors, rules, hooks, as_mounts);
            if has_plugin {
                let place = "/var/run/nvidia-container-devices/1";
                file["mounts"].as_array_mut().unwrap().push(json!({"destination": place, "source": "/dev/null"}));
            }
            let swarm_resources = if has_swarm { vec!["X".to_owned()] } else { Vec::new() };
            let toolkit = Toolkit { takes_mounts, takes_variables, swarm_resources, ..Toolkit::default() };
            let host =
                HostFacts { nvidia_runtime, nvidia_runtime_possible, toolkit, nvidia_cli, mount_numbers, rootless };
            Case { config: file, world: World { inventory, facts, host, config } }
        },
    )
}

/// As dockerd stores it: the user's entries, then the image's whose key is not there yet.
fn merged(user: &[String], image: &[String]) -> Vec<String> {
    let key = |entry: &str| entry.split_once('=').unwrap().0.to_owned();
    let mut all = user.to_vec();
    for entry in image {
        if user.is_empty() || !all.iter().any(|there| key(there) == key(entry)) {
            all.push(entry.clone());
        }
    }
    all
}

fn requests(selection: Option<Selection>, is_readable: bool) -> Requests {
    if !is_readable {
        return Requests::Unknown("a reason".to_owned());
    }
    let (count, device_ids) = match selection {
        None => return Requests::Known(Vec::new()),
        Some(Selection::Nothing) => (0, Vec::new()),
        Some(Selection::Count(count)) => (i64::from(count), Vec::new()),
        Some(Selection::Names(names)) => (0, names),
        Some(Selection::All | Selection::Minors(_)) => (-1, Vec::new()),
    };
    let capabilities = vec![vec!["gpu".to_owned()]];
    Requests::Known(vec![DockerDeviceRequest { driver: String::new(), count, device_ids, capabilities }])
}

fn file(
    env: &[String],
    minors: &[u32],
    rules: Rules,
    (has_nvidia, has_other): (bool, bool),
    as_mounts: bool,
) -> (Value, Vec<(usize, DeviceNumber)>) {
    let node = |minor: &u32| json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
    let allow = |minor: &u32| json!({"allow": true, "type": "c", "major": 195, "minor": minor, "access": "rwm"});
    let mut devices = vec![json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229})];
    let mut mounts = vec![json!({"destination": "/proc", "type": "proc", "source": "proc", "x-unknown": 1.50})];
    let mut numbers = Vec::new();
    for minor in minors {
        if as_mounts {
            numbers.push((mounts.len(), DeviceNumber { major: 195, minor: *minor }));
            let path = format!("/dev/nvidia{minor}");
            mounts.push(json!({"destination": path, "source": path, "type": "bind", "options": ["bind"]}));
        } else {
            devices.push(node(minor));
        }
    }
    mounts.push(json!({"destination": "/data", "type": "bind", "source": "/data"}));
    let mut allowed = vec![json!({"allow": false, "access": "rwm"})];
    allowed.extend(minors.iter().map(allow));
    match rules {
        Rules::Wide => allowed.push(json!({"allow": true, "type": "c", "major": 195, "access": "rwm"})),
        Rules::All => allowed.push(json!({"allow": true, "access": "rwm"})),
        Rules::Absent | Rules::Single => {}
    }
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {"args": ["sh"], "env": env, "x-unknown": {"big": 12_345_678_901_234_567_890_u64}},
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "linux": {"devices": devices, "resources": {"memory": {"limit": -1}}, "seccomp": {"x": [null, 1e3]}},
        "annotations": {"a": "CUDA_VISIBLE_DEVICES=7"},
    });
    if rules != Rules::Absent {
        config["linux"]["resources"]["devices"] = Value::Array(allowed);
    }
    let mut hooks = BTreeMap::new();
    if has_nvidia {
        let path = "/usr/bin/nvidia-container-runtime-hook";
        hooks.insert("prestart", json!([{"path": path, "args": ["nvidia-container-runtime-hook", "prestart"]}]));
    }
    if has_other {
        hooks.insert("createRuntime", json!([{"path": "/bin/true", "x": 1}]));
        hooks.insert("poststop", json!([{"path": "/bin/false"}]));
    }
    if !hooks.is_empty() {
        config["hooks"] = json!(hooks);
    }
    (config, numbers)
}

/// The host's facts for the file that a door has left: mounts that it took out are gone.
pub(crate) fn mounts_of(case: &Case, passed: &Passed) -> HostFacts {
    let mut host = case.world.host.clone();
    let gone = &passed.edits.withhold_mounts;
    host.mount_numbers.retain(|(position, _)| !gone.contains(position));
    for (position, _) in &mut host.mount_numbers {
        *position -= gone.iter().filter(|gone| **gone < *position).count();
    }
    host
}

/// A host with four GPUs and nothing known about the engine.
pub(crate) fn plain_world() -> World {
    World {
        inventory: crate::brain::inventory("a100mig4"),
        facts: EngineFacts::nothing_known(Engine::Unknown),
        host: HostFacts::default(),
        config: Config { grant: granting_all(), ..Config::built_in() },
    }
}

fn granting_all() -> cudaview::config::GrantPolicy {
    cudaview::config::GrantPolicy { base: Base::Word(BaseWord::All), ..Config::built_in().grant }
}

/// JSON with a configuration's names and anybody's values.
pub(crate) fn broken_configs() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..256_i64).prop_map(Value::from),
        Just(json!(195)),
        select(vec!["c", "b", "a", "u", "", "rwm", "bind", "/dev", "/dev/nvidia1", "cudaview-hook", "createRuntime"])
            .prop_map(Value::from),
        values().prop_map(|value| json!(format!("CUDA_VISIBLE_DEVICES={value}"))),
        any::<String>().prop_map(Value::from),
    ];
    let key = select(vec![
        "process",
        "env",
        "linux",
        "devices",
        "resources",
        "hooks",
        "prestart",
        "createRuntime",
        "mounts",
        "path",
        "args",
        "type",
        "major",
        "minor",
        "allow",
        "access",
        "destination",
        "source",
        "options",
        "root",
        "namespaces",
    ]);
    let tree = leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| json!(map)),
        ]
    });
    let item = prop::collection::btree_map(
        select(vec!["path", "type", "major", "minor", "allow", "access", "args", "destination", "options"]),
        tree.clone(),
        0..6,
    );
    let items = prop::collection::vec(item, 0..4).prop_map(|items| json!(items));
    let entries = prop::collection::vec(values().prop_map(|value| format!("CUDA_VISIBLE_DEVICES={value}")), 0..3);
    let shaped = (items.clone(), items.clone(), items.clone(), items, entries).prop_map(|(a, b, c, d, env)| {
        json!({"process": {"env": env}, "mounts": a, "linux": {"devices": b, "resources": {"devices": c}},
               "hooks": {"createRuntime": d}})
    });
    prop_oneof![1 => tree, 3 => shaped]
}
