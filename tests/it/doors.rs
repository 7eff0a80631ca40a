//! Single cases of a configuration that goes through one door or two, each once decided wrongly.

use cudaview::config::{Config, GrantPolicy, ImageRequest};
use cudaview::plan::Verdict;
use cudaview::provenance::{Engine, EngineFacts};
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
    assert_eq!(passed.after.pointer("/linux/devices"), Some(&json!([node(1)])));
    assert_eq!(passed.after.pointer("/linux/resources"), Some(&json!({})));
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
