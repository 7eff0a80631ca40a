//! Values that somebody wrote to get more than was given, or to stop what was given. The numbers are those of the list
//! of attacks in `docs/threat-model.md`.

use cudaview::config::Config;
use cudaview::provenance::{DockerDeviceRequest, Engine, EngineFacts, Requests};
use cudaview::situation::HostFacts;
use serde_json::{Value, json};

use crate::brain::{INVENTORIES, World, inventory, pass};
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::{A100X4, Bundle, CgroupView, find_program, require};

/// A container of Docker's, with what `--gpus` asked for and an image's environment.
fn docker(gpus: &[&str], user: &[&str], image: &[&str]) -> (Value, World) {
    let owned = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let env: Vec<String> = [owned(user), owned(image)].concat();
    let mut in_file = env.clone();
    let mut requests = Vec::new();
    if !gpus.is_empty() {
        // As dockerd does: behind everything that is there.
        in_file.push(format!("NVIDIA_VISIBLE_DEVICES={}", gpus.join(",")));
        let capabilities = vec![vec!["gpu".to_owned()]];
        requests.push(DockerDeviceRequest { driver: String::new(), count: 0, device_ids: owned(gpus), capabilities });
    }
    let facts = EngineFacts {
        config_env: Some(env),
        image_env: Some(owned(image)),
        device_requests: Requests::Known(requests),
        ..EngineFacts::nothing_known(Engine::Docker)
    };
    let mut spec = gpu_spec(&[]);
    spec["linux"]["devices"] = json!([]);
    spec["linux"]["resources"]["devices"] = json!([{"allow": false, "access": "rwm"}]);
    spec["process"]["env"] = json!(in_file);
    let world = World { inventory: inventory("a100x4"), facts, host: HostFacts::default(), config: Config::built_in() };
    (spec, world)
}

/// The entries of a variable.
fn entries(spec: &Value, name: &str) -> Vec<String> {
    let env = spec["process"]["env"].as_array().unwrap().iter().map(|entry| entry.as_str().unwrap().to_owned());
    env.filter(|entry| entry.split_once('=').unwrap().0 == name).collect()
}

fn minors(spec: &Value) -> Vec<i64> {
    let devices = spec["linux"]["devices"].as_array().unwrap().iter();
    let of_gpus = devices.filter(|device| device["major"] == 195 && device["minor"].as_i64() < Some(254));
    of_gpus.map(|device| device["minor"].as_i64().unwrap()).collect()
}

/// T15. Every CUDA image says `all`, and dockerd appends what was typed: a reader that takes the first gives all.
#[test]
fn t15_an_image_that_says_all_before_what_docker_appends() {
    let images: [&[&str]; 3] = [
        &["NVIDIA_VISIBLE_DEVICES=all"],
        &["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1,2,3"],
        &["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=0,1,2,3"],
    ];
    for image in images {
        let (spec, world) = docker(&["0"], &[], image);
        let passed = pass(&spec, &world);
        assert_eq!(minors(&passed.after), [0], "{image:?}");
        let uuid = world.inventory.gpus[0].uuid.as_str();
        assert_eq!(entries(&passed.after, "NVIDIA_VISIBLE_DEVICES"), [format!("NVIDIA_VISIBLE_DEVICES={uuid}")]);
        assert_eq!(entries(&passed.after, "CUDA_VISIBLE_DEVICES"), ["CUDA_VISIBLE_DEVICES=0"], "{image:?}");
    }
}

/// T16. Sizes, blanks, other cases, and bytes that no list has: none of them gives a GPU that was not granted, and a
/// container starts with them as it does without cudaview.
#[test]
fn t16_entries_that_nobody_would_write() {
    let long = format!("CUDA_VISIBLE_DEVICES=0{}", ",0".repeat(60_000));
    let many = (0..4096).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    let many = format!("CUDA_VISIBLE_DEVICES={many}");
    for entry in [
        long.as_str(),
        many.as_str(),
        "CUDA_VISIBLE_DEVICES=0\n1",
        "CUDA_VISIBLE_DEVICES= 0 , 1 ",
        "CUDA_VISIBLE_DEVICES=\u{fffd}",
        "CUDA_VISIBLE_DEVICES=0\u{1b}[2J",
        "cuda_visible_devices=3",
        "CUDA_VISIBLE_DEVICES =3",
        "NVIDIA_VISIBLE_DEVICES=0\n3",
        "Nvidia_Visible_Devices=all",
        "NVIDIA_VISIBLE_DEVICES= all ",
        "NVIDIA_VISIBLE_DEVICES=none,all",
    ] {
        let (spec, world) = docker(&["0", "2"], &[], &[entry]);
        let passed = pass(&spec, &world);
        assert_eq!(minors(&passed.after), [0, 2], "{entry:.60}");
        assert!(entries(&passed.after, "CUDA_VISIBLE_DEVICES").len() == 1, "{entry:.60}");
        // The same without a request: the image alone gets nothing.
        let (spec, world) = docker(&[], &[], &[entry]);
        assert_eq!(minors(&pass(&spec, &world).after), [0_i64; 0], "{entry:.60}");
    }
}

/// T16. What runc and crun read differently is refused; the runtime is not even started.
#[test]
fn t16_entries_that_are_no_assignments() {
    for entry in ["CUDA_VISIBLE_DEVICES", "=foo", "", "CUDA_VISIBLE_DEVICES=0\u{0}3"] {
        let sandbox = Sandbox::new("");
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=0", entry]));
        let ran = sandbox.create().failed_with(4);
        assert!(ran.stderr.contains("NAME=VALUE"), "{entry:?}: {ran}");
        assert_eq!(sandbox.started(), [""; 0], "{entry:?}");
    }
}

/// T16 on real runtimes: with two entries both take the last, and without `=` they disagree.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn t16_what_runtimes_make_of_odd_entries() {
    require(&["runc", "crun"]);
    let views = [("runc", CgroupView::Machine, None), ("crun", CgroupView::WithoutUnified, Some("unset"))];
    for (name, view, without) in views {
        let command = ["sh", "-c", "echo \"${K-unset}\""];
        let seen = |env: &[&str]| {
            let bundle = Bundle::with_runtime(&find_program(name), A100X4, &command, env).seeing(view);
            let ran = bundle.run();
            (ran.code == 0).then(|| ran.stdout.trim().to_owned())
        };
        assert_eq!(seen(&["K=0", "K=1"]).as_deref(), Some("1"), "{name}");
        assert_eq!(seen(&["K=0", "K="]).as_deref(), Some(""), "{name}");
        // runc refuses, and crun takes the variable away.
        assert_eq!(seen(&["K=0", "K"]).as_deref(), without, "{name}");
    }
}

/// T19. Words and names that stand for none, for all, or for one.
#[test]
fn t19_words_in_what_a_user_asks_for() {
    for (value, expected) in [
        ("none", Some(&[][..])),
        ("void", Some(&[])),
        ("", Some(&[])),
        ("all,void", Some(&[])),
        ("0,none", Some(&[])),
        ("all", Some(&[0, 1, 2, 3])),
        ("all,none", Some(&[0, 1, 2, 3])),
        ("0,0", Some(&[0])),
        ("-1", None),
        ("NoDevFiles", None),
        ("ALL", None),
        ("GPU-", None),
        ("4", None),
        ("0,4", None),
        ("0-1", None),
    ] {
        let entry = format!("NVIDIA_VISIBLE_DEVICES={value}");
        let (spec, world) = docker(&[], &[&entry], &[]);
        let passed = pass(&spec, &world);
        match expected {
            None => assert!(passed.plan.grant.refused && passed.after == spec, "{value:?}"),
            Some(expected) => assert_eq!(minors(&passed.after), expected, "{value:?}"),
        }
    }
    // The beginning of a UUID counts where it is one GPU's.
    let (_, world) = docker(&[], &[], &[]);
    let uuid = world.inventory.gpus[2].uuid.as_str().to_owned();
    let shared = uuid
        .char_indices()
        .map(|(at, _)| &uuid[..at])
        .rfind(|start| world.inventory.gpus.iter().filter(|gpu| gpu.uuid.as_str().starts_with(start)).count() > 1);
    for (name, is_one) in [(uuid.as_str(), true), (shared.unwrap(), false)] {
        let entry = format!("NVIDIA_VISIBLE_DEVICES={name}");
        let (spec, world) = docker(&[], &[&entry], &[]);
        let passed = pass(&spec, &world);
        assert_eq!(passed.plan.grant.refused, !is_one, "{name}");
    }
}

/// T20. A capability that a container may never use, and rules that allow everything: the grant is the same.
#[test]
fn t20_privilege_changes_nothing_in_the_grant() {
    for gpus in [&[][..], &["1"]] {
        let (spec, world) = docker(gpus, &["CUDA_VISIBLE_DEVICES=0"], &["NVIDIA_VISIBLE_DEVICES=all"]);
        let granted = |spec: &Value| pass(spec, &world).plan.grant.devices;
        let usual = granted(&spec);
        let mut may = spec.clone();
        may["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"], "effective": ["CAP_SYS_ADMIN"]});
        assert_eq!(granted(&may), usual);
        may["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
        for minor in 0..4 {
            let node = json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
            may["linux"]["devices"].as_array_mut().unwrap().push(node);
        }
        assert_eq!(granted(&may), usual);
        assert_eq!(usual.len(), gpus.len());
    }
}

/// T22. Depth, and texts that no JSON reader agrees on: an error or nothing, at once, and never a panic.
#[test]
fn t22_files_that_are_hardly_json() {
    let deep = |depth: usize| format!("{{\"x\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    for text in [
        deep(129),
        deep(20_000),
        "[".repeat(20_000),
        r#"{"x":"\ud800","NVIDIA":1}"#.to_owned(),
        r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]},}"#.to_owned(),
        r#"{"a":1}/* nvidia */"#.to_owned(),
        r#"{"x":{"$serde_json::private::Number":"195"},"y":"nvidia"}"#.to_owned(),
        "\u{feff}{}nvidia".to_owned(),
        String::new(),
    ] {
        let sandbox = Sandbox::new("[grant]\nbase = \"all\"\n");
        sandbox.write("bundle/config.json", &text);
        let ran = sandbox.create().failed_with(4);
        assert!(!ran.stderr.contains("panicked"), "{text:.60}: {ran}");
        assert_eq!(std::fs::read_to_string(sandbox.path("bundle/config.json")).unwrap(), text, "{text:.60}");
        assert_eq!(sandbox.started(), [""; 0], "{text:.60}");
    }
}

/// T23. The same container through the door again and again, on every host: byte for byte what the first one left.
#[test]
fn t23_a_third_door_changes_nothing_either() {
    for (name, _) in INVENTORIES {
        let (spec, mut world) = docker(&["1", "0"], &["CUDA_VISIBLE_DEVICES=1"], &["NVIDIA_VISIBLE_DEVICES=all"]);
        world.inventory = inventory(name);
        let once = pass(&spec, &world).after.to_string();
        let mut again = once.clone();
        for _ in 0..3 {
            again = pass(&serde_json::from_str(&again).unwrap(), &world).after.to_string();
            assert_eq!(again, once, "{name}");
        }
    }
}
