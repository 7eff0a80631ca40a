//! Single cases of a configuration that goes through one door or two, each once decided wrongly.

use cudaview::config::{Config, GrantPolicy, ImageRequest};
use cudaview::plan::Verdict;
use cudaview::provenance::{DockerDeviceRequest, Engine, EngineFacts, Provenance, Requests};
use cudaview::situation::HostFacts;
use serde_json::{Value, json};

use crate::brain::{World, inventory, pass};

fn world(name: &str) -> World {
    World {
        inventory: inventory(name),
        facts: EngineFacts::nothing_known(Engine::Podman),
        host: HostFacts::default(),
        config: Config::built_in(),
    }
}

fn node(minor: u32) -> Value {
    json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor})
}

/// A rootless engine writes no device rules. An empty list of them would be another thing than none.
#[test]
fn withholding_makes_no_empty_list_of_rules() {
    let before = json!({
        "process": {"env": ["CUDA_VISIBLE_DEVICES=0"]},
        "linux": {"devices": [node(1), node(2)], "resources": {}},
    });
    let world = World { host: HostFacts { rootless: true, ..HostFacts::default() }, ..world("a100x4") };
    let passed = pass(&before, &world);
    // What is kept gets the mode that runc would give it, and crun not.
    let mut kept = node(1);
    kept["fileMode"] = json!(0o666);
    assert_eq!(passed.after.pointer("/linux/devices"), Some(&json!([kept])));
    assert_eq!(passed.after.pointer("/linux/resources"), Some(&json!({})));
}

/// CDI specifications of NVIDIA's say `void` to its hook, and podman appends it; without nodes it is a user's word.
#[test]
fn podmans_void_is_nobodys_request() {
    let check = |env: &[&str], nodes: &[Value], request: Option<&str>, from: Provenance| {
        let mut world = world("a100x4");
        world.facts.image_env = Some(vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()]);
        let env: Vec<String> = env.iter().map(|value| format!("NVIDIA_VISIBLE_DEVICES={value}")).collect();
        let config = json!({"process": {"env": env}, "linux": {"devices": nodes}});
        let situation = pass(&config, &world).situation;
        let found = (situation.visible_devices_request.as_deref(), situation.visible_devices_from);
        assert_eq!(found, (request, from), "{env:?} {nodes:?}");
    };
    check(&["all", "void"], &[node(1)], Some("all"), Provenance::Image);
    check(&["1", "void"], &[node(1)], Some("1"), Provenance::User);
    check(&["void"], &[node(1)], None, Provenance::Unset);
    check(&["void"], &[], Some("void"), Provenance::User);
    check(&["2"], &[], Some("2"), Provenance::User);
    check(&["all"], &[], Some("all"), Provenance::Image);
}

/// Under a user namespace podman writes no rules, and runc and crun deny; only a rootless one sets none.
#[test]
fn a_user_namespace_without_rules_gets_them() {
    let before = json!({
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=1"]},
        "linux": {"namespaces": [{"type": "user"}], "resources": {"pids": {"limit": 7}}},
    });
    let rules = |rootless: bool| {
        let mut world = World { host: HostFacts { rootless, ..HostFacts::default() }, ..world("a100x4") };
        world.facts.image_env = Some(Vec::new());
        pass(&before, &world).after.pointer("/linux/resources/devices").cloned()
    };
    let rule = json!({"allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw"});
    assert!(rules(false).is_some_and(|rules| rules.as_array().unwrap().contains(&rule)));
    assert_eq!(rules(true), None);
}

/// podman 5.8 writes rules for a rootless container, where nobody can enforce them.
#[test]
fn a_rootless_containers_rules_stay_as_they_are() {
    let deny = json!([{"allow": false, "access": "rwm"}]);
    let before = json!({
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=1"]},
        "linux": {"resources": {"devices": deny}},
    });
    let mut world = World { host: HostFacts { rootless: true, ..HostFacts::default() }, ..world("a100x4") };
    world.facts.image_env = Some(Vec::new());
    let after = pass(&before, &world).after;
    assert_eq!(after.pointer("/linux/resources/devices"), Some(&deny));
    assert_eq!(after.pointer("/linux/devices/0/path"), Some(&json!("/dev/nvidia1")));
}

/// The driver looks for a GPU by its number's name; another GPU's name there is mended, any other is left.
#[test]
fn a_gpu_under_anothers_name() {
    let named = |path: &str, minor: u32| json!({"path": path, "type": "c", "major": 195, "minor": minor, "fileMode": 0o600, "uid": 7});
    let rule = |minor: u32| json!({"allow": true, "type": "c", "major": 195, "minor": minor, "access": "rwm"});
    let check = |devices: &[Value], expected: &[Value]| {
        let before = json!({
            "process": {"env": []},
            "linux": {"devices": devices, "resources": {"devices": [rule(1), rule(3)]}},
        });
        let passed = pass(&before, &world("a100x4"));
        assert_eq!(passed.after.pointer("/linux/devices"), Some(&json!(expected)), "{devices:?}");
    };
    check(&[named("/dev/nvidia0", 3)], &[named("/dev/nvidia3", 3)]);
    let swapped = [named("/dev/nvidia3", 1), named("/dev/nvidia1", 3)];
    check(&swapped, &[named("/dev/nvidia1", 1), named("/dev/nvidia3", 3)]);
    let both = [named("/dev/nvidia0", 3), named("/dev/nvidia3", 3)];
    check(&both, &both);
    let own =
        json!({"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3, "fileMode": 0o666, "uid": 0, "gid": 0});
    check(&[named("/gpu", 3)], &[named("/gpu", 3), own]);
}

/// The hook verifies a node that we add beside the operator's own name for the GPU, at the first door as at the second.
#[test]
fn a_node_that_is_added_beside_another_name_is_verified() {
    let node = json!({"path": "/gpu", "type": "c", "major": 195, "minor": 3, "fileMode": 0o600});
    let before = json!({"process": {"env": []}, "linux": {"devices": [node]}});
    let once = pass(&before, &world("a100x4")).after;
    let args = once.pointer("/hooks/createRuntime/0/args").unwrap().as_array().unwrap();
    assert!(args.contains(&json!("--node=/dev/nvidia3=195:3")), "{args:?}");
    assert_eq!(pass(&once, &world("a100x4")).after, once);
}

/// Both names of one GPU are verified, at the first door as at the second; nobody gave either of them a mode.
#[test]
fn two_names_of_one_gpu_are_both_verified() {
    let node = |path: &str| json!({"path": path, "type": "c", "major": 195, "minor": 1});
    let before = json!({"process": {"env": []}, "linux": {"devices": [node("/dev/nvidia1"), node("/dev/nvidia3")]}});
    let once = pass(&before, &world("a100x4")).after;
    let args = once.pointer("/hooks/createRuntime/0/args").unwrap().as_array().unwrap();
    for name in ["nvidia1", "nvidia3"] {
        assert!(args.contains(&json!(format!("--node=/dev/{name}=195:1"))), "{args:?}");
    }
    assert_eq!(pass(&once, &world("a100x4")).after, once);
}

/// A refused container is not edited, not even to drop a repeated entry.
#[test]
fn a_refused_plan_has_no_edits() {
    let before = json!({
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=all"]},
        "linux": {},
    });
    let mut world = world("a100x4");
    world.config.grant.image_request = ImageRequest::Refuse;
    let passed = pass(&before, &world);
    assert_eq!(passed.plan.verdict, Verdict::Refused);
    assert_eq!(passed.edits, cudaview::edits::ContainerEdits::default());
}

/// A grant that nobody but the image asked for is not explicit at the second door either.
#[test]
fn a_second_door_knows_that_no_operator_chose() {
    let before = json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=2"]}, "linux": {}});
    let mut world = world("a100x4");
    world.config.grant = GrantPolicy { image_request: ImageRequest::Honour, ..world.config.grant };
    let first = pass(&before, &world);
    assert!(!first.plan.grant.explicit);
    let second = pass(&first.after, &world);
    assert!(!second.plan.grant.explicit);
    assert_eq!(second.after, first.after);
}

/// A rule for every NVIDIA device opens a GPU whose node is there, but no MIG device whose capability nodes are not.
#[test]
fn a_mig_device_needs_its_capability_nodes() {
    let mut world = world("a100mig4");
    for (position, mig) in world.inventory.gpus[0].mig.iter_mut().enumerate() {
        let number = json!({"major": 240, "minor": position});
        let node = json!({"path": format!("/dev/nvidia-caps/nvidia-cap{position}"), "number": number});
        mig.capability_nodes = vec![serde_json::from_value(node).unwrap()];
    }
    let capability = json!({"path": "/dev/nvidia-caps/nvidia-cap0", "type": "c", "major": 240, "minor": 0});
    let before = json!({
        "linux": {
            "devices": [node(0), capability],
            "resources": {"devices": [
                {"allow": true, "type": "c", "major": 195, "access": "rwm"},
                {"allow": true, "type": "c", "major": 240, "access": "rwm"},
            ]},
        },
    });
    let open: Vec<String> = pass(&before, &world)
        .situation
        .openable_anyway
        .iter()
        .map(|device| world.inventory.host_label(*device))
        .collect();
    assert_eq!(open, ["0:0"]);
}

/// A MIG device's nodes, as a CDI specification has them: its GPU's and its capability nodes.
fn mig_nodes(world: &World, gpu: usize, positions: &[usize]) -> Vec<Value> {
    let found = &world.inventory.gpus[gpu];
    let mut nodes = vec![node(found.minor.0)];
    for capability in positions.iter().flat_map(|position| &found.mig[*position].capability_nodes) {
        let number = capability.number;
        let there = json!({"path": capability.path, "type": "c", "major": number.major, "minor": number.minor, "fileMode": 0o666});
        if !nodes.contains(&there) {
            nodes.push(there);
        }
    }
    nodes
}

/// What was granted, by label, where an engine made these nodes.
fn granted(world: &World, nodes: &[Value]) -> Vec<String> {
    let before = json!({"process": {"env": []}, "linux": {"devices": nodes}});
    let granted = pass(&before, world).plan.grant.devices;
    granted.iter().map(|device| world.inventory.host_label(*device)).collect()
}

/// Nodes that an engine made are the MIG devices that they open, and not every one of their GPU.
#[test]
fn nodes_of_mig_devices_grant_those() {
    let world = world("a100mig4");
    let nodes = |gpu: usize, positions: &[usize]| mig_nodes(&world, gpu, positions);
    assert_eq!(granted(&world, &nodes(0, &[1])), ["0:1"]);
    assert_eq!(granted(&world, &nodes(2, &[0, 6])), ["2:0", "2:6"]);
    assert_eq!(granted(&world, &nodes(0, &[0, 1])), ["0:0", "0:1"]);
    assert_eq!(granted(&world, &nodes(0, &[])), ["0:0", "0:1"], "the GPU's node alone");
    assert_eq!(granted(&world, &[nodes(0, &[1]), vec![node(3)]].concat()), ["0:1", "3"]);
    // The GPU instance's node alone opens nothing, and is no reason to grant more.
    assert_eq!(granted(&world, &nodes(0, &[1])[..2]), [""; 0]);
    // Capability nodes without their GPU's node are no GPU.
    assert_eq!(granted(&world, &nodes(0, &[1])[1..]), [""; 0]);
}

/// The engine's record of a request says which MIG device is meant, where the inventory has no capability nodes.
#[test]
fn nodes_beside_a_record_are_that_request() {
    let mut world = world("a100mig4");
    world.facts = EngineFacts::nothing_known(Engine::Docker);
    world.facts.device_requests = Requests::Known(vec![DockerDeviceRequest {
        driver: "cdi".to_owned(),
        count: 0,
        device_ids: vec!["nvidia.com/gpu=mig0:1".to_owned()],
        capabilities: Vec::new(),
    }]);
    let nodes = mig_nodes(&world, 0, &[1]);
    assert_eq!(granted(&world, &nodes), ["0:1"]);
    assert_eq!(granted(&world, &[nodes.clone(), vec![node(1)]].concat()), ["0:1", "1"], "--device /dev/nvidia1");
    for mig in &mut world.inventory.gpus[0].mig {
        mig.capability_nodes.clear();
    }
    assert_eq!(granted(&world, &nodes), ["0:1"]);
}

/// What two compute instances share stays for the one that stays, at a second door too.
#[test]
fn a_shared_capability_node_is_not_withheld() {
    let world = world("h100mig3");
    let second = world.inventory.gpus[1].mig[1].uuid.to_string();
    let nodes = mig_nodes(&world, 1, &[0, 1, 2]);
    let rules: Vec<Value> = nodes
        .iter()
        .map(
            |node| json!({"allow": true, "type": "c", "major": node["major"], "minor": node["minor"], "access": "rwm"}),
        )
        .collect();
    let before = json!({
        "process": {"env": [format!("CUDA_VISIBLE_DEVICES={second}")]},
        "linux": {"devices": nodes, "resources": {"devices": rules}},
    });
    let first = pass(&before, &world);
    let minors = |config: &Value, pointer: &str| -> Vec<u64> {
        config
            .pointer(pointer)
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["minor"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(minors(&first.after, "/linux/devices"), [0, 12, 14], "the GPU's, its instance's, and the second part's");
    let again = pass(&first.after, &world);
    assert!(again.situation.decided_before, "what is there is what was kept");
    assert_eq!(again.after, first.after);
    assert_eq!(minors(&again.after, "/linux/resources/devices")[..3], [0, 12, 14]);
}
