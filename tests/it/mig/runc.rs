//! Without an engine: what the rules and nodes in the bundle let a program do.

use cudaview::request::{Selection, cdi_selection, parse_gpus, parse_visible_devices};
use serde_json::{Value, json};

use super::{CAPS_MAJOR, FIRST, FIRST_CAPS, MIG, PARENT, SECOND, SECOND_CAPS, check, file, inventory, rows_of};
use crate::semantics::table::Row;
use crate::world::command::run;
use crate::world::count::COUNT;
use crate::world::{Access, Bundle, CUDA_ERROR_NO_DEVICE, CgroupView, Install, require, spec};

fn install(host: &str, config: &str) -> Install {
    require(&["runc"]);
    Install::new(&file(host), config)
}

fn bundle(install: &Install, host: &str, args: &[&str], env: &[&str]) -> Bundle {
    Bundle::with_runtime(&install.runtime(), &file(host), args, env)
}

/// Makes a capability node in a running container and opens it.
#[track_caller]
fn try_capability(bundle: &Bundle, minor: u32) -> Access {
    let command = Access::command_for(CAPS_MAJOR, minor);
    Access::of(bundle.exec(&command.each_ref().map(String::as_str), &[]))
}

/// The codes of the newest audit record's findings, as a row has them.
#[track_caller]
fn findings(install: &Install) -> String {
    let record = install.audit_records().pop().expect("an audit record");
    let findings = record["findings"].as_array().unwrap().iter();
    let mut codes: Vec<&str> = findings.map(|finding| finding["code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    codes.dedup();
    if codes.is_empty() { "–".to_owned() } else { codes.join(", ") }
}

/// What a row's flags name, for the policy: without an engine nobody else can be asked.
fn base(row: &Row, host: &str) -> Value {
    let inventory = inventory(host);
    let mut names: Vec<String> = Vec::new();
    let mut add = |selection: Selection| match selection {
        Selection::Names(more) => names.extend(more),
        Selection::Count(count) => names.extend((0..count).map(|n| n.to_string())),
        Selection::All => names.push("all".to_owned()),
        other => panic!("line {}: {other:?}", row.line),
    };
    for flag in row.spans("asked", &inventory) {
        let (name, value) = flag.split_once(' ').unwrap();
        match name {
            "--gpus" => add(parse_gpus(value.trim_matches('\'')).unwrap().selection),
            _ => add(cdi_selection(value).unwrap()),
        }
    }
    if let Some(value) = row.variables("-e", &inventory).get("NVIDIA_VISIBLE_DEVICES") {
        add(parse_visible_devices(value));
    }
    json!(names)
}

/// Every row but those that are refused: whose a value is, is not known without an engine.
#[track_caller]
fn every_row(host: &str, least: usize) {
    let mut done = 0;
    for row in rows_of(host) {
        if row.cell("verdict") == Some("refused") {
            continue;
        }
        let install = install(host, &format!("[grant]\nbase = {}\n", base(&row, host)));
        let variables = row.variables("-e", &inventory(host));
        let env = variables.iter().filter(|(name, _)| **name != "NVIDIA_VISIBLE_DEVICES");
        let env: Vec<String> = env.map(|(name, value)| format!("{name}={value}")).collect();
        let env: Vec<&str> = env.iter().map(String::as_str).collect();
        let count = bundle(&install, host, &COUNT, &env).count();
        check(&row, &inventory(host), &count);
        assert_eq!(Some(findings(&install).as_str()), row.cell("findings"), "line {}", row.line);
        done += 1;
    }
    assert!(done >= least, "{done} rows");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn every_row_in_a_container() {
    every_row(MIG, 30);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn every_row_with_a_driver_that_shows_several() {
    every_row("h100mig3", 6);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn every_row_with_a_driver_before_mig_uuids() {
    every_row("a100old2", 4);
}

/// The bug: the GPU's node alone shows a program nothing, and no value helps it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_runc_and_the_gpus_node_alone_show_nothing() {
    require(&["runc"]);
    let plain = |nodes: &[(&str, u32, u32)], env: &[&str]| {
        let bundle = Bundle::new(&file(MIG), &COUNT, env);
        bundle.edit(|config| {
            for (path, major, minor) in nodes {
                spec::add_device(config, path, *major, *minor);
            }
        });
        bundle.count()
    };
    let gpu = ("/dev/nvidia0", 195, 0);
    let second = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    for env in [&[][..], &["CUDA_VISIBLE_DEVICES=0"], &[second.as_str()]] {
        let seen = plain(&[gpu], env);
        assert_eq!((seen.cuda_error, seen.nvml.as_slice()), (CUDA_ERROR_NO_DEVICE, [PARENT.to_owned()].as_slice()));
    }
    // Its GPU instance's node is not enough either.
    let caps = [(SECOND_CAPS[0], CAPS_MAJOR, 21), (SECOND_CAPS[1], CAPS_MAJOR, 22)];
    assert_eq!(plain(&[gpu, caps[0]], &[]).cuda_error, CUDA_ERROR_NO_DEVICE);
    assert_eq!(plain(&[gpu, caps[0], caps[1]], &[]).cuda, [SECOND]);
    // And a number of the host's, or a name of another MIG device, is what it cannot use.
    let first = format!("CUDA_VISIBLE_DEVICES={FIRST}");
    for value in ["CUDA_VISIBLE_DEVICES=1", first.as_str()] {
        assert_eq!(plain(&[gpu, caps[0], caps[1]], &[value]).cuda_error, CUDA_ERROR_NO_DEVICE, "{value}");
    }

    let install = install(MIG, "[grant]\nbase = [\"0:1\"]\n");
    let seen = bundle(&install, MIG, &COUNT, &[]).count();
    assert_eq!((seen.cuda, seen.capabilities), (vec![SECOND.to_owned()], SECOND_CAPS.map(str::to_owned).to_vec()));
    assert_eq!(seen.env.get("CUDA_VISIBLE_DEVICES"), None, "programs read integers and die of a MIG name");
}

/// What was not granted, and what was narrowed away, cannot be opened even by who makes the node.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn capability_nodes_of_others_are_blocked() {
    let install = install(MIG, "[grant]\nbase = [\"0\"]\n");
    let value = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    for (env, first) in [(&[][..], Access::Openable), (&[value.as_str()], Access::Blocked)] {
        let bundle = bundle(&install, MIG, &["sleep", "1000"], env);
        bundle.up();
        for minor in [12, 13] {
            assert_eq!(try_capability(&bundle, minor), first, "{env:?}: nvidia-cap{minor}");
        }
        for minor in [21, 22] {
            assert_eq!(try_capability(&bundle, minor), Access::Openable, "{env:?}: nvidia-cap{minor}");
        }
        // GPU 2's, and the right to set MIG up.
        for minor in [1, 2, 282, 283] {
            assert_eq!(try_capability(&bundle, minor), Access::Blocked, "{env:?}: nvidia-cap{minor}");
        }
        assert_eq!(bundle.try_mknod(2), Access::Blocked);
        run(bundle.command().args(["kill", bundle.id(), "KILL"])).ok();
    }
}

/// The engine put two MIG devices there (CDI), and the value leaves one: its nodes, its rules and its bind mounts go.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn what_an_engine_put_there_is_narrowed() {
    let install = install(MIG, "");
    let value = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    let put = |bundle: &Bundle, caps: &[&str]| {
        bundle.edit(|config| {
            spec::add_device(config, "/dev/nvidia0", 195, 0);
            for path in caps {
                let minor = path.trim_start_matches("/dev/nvidia-caps/nvidia-cap").parse().unwrap();
                spec::add_device(config, path, CAPS_MAJOR, minor);
            }
        });
    };
    let both = [FIRST_CAPS, SECOND_CAPS].concat();
    let narrowed = bundle(&install, MIG, &["sleep", "1000"], &[&value]);
    put(&narrowed, &both);
    narrowed.up();
    let seen = narrowed.exec_count(&[]);
    assert_eq!((seen.cuda.as_slice(), seen.nodes.len()), ([SECOND.to_owned()].as_slice(), 1), "{seen:?}");
    assert_eq!(seen.capabilities, SECOND_CAPS);
    assert_eq!(try_capability(&narrowed, 12), Access::Blocked);
    assert_eq!(try_capability(&narrowed, 22), Access::Openable);
    run(narrowed.command().args(["kill", narrowed.id(), "KILL"])).ok();

    // One MIG device's nodes are that one, and not the whole GPU.
    let one = bundle(&install, MIG, &COUNT, &[]);
    put(&one, &SECOND_CAPS);
    let seen = one.count();
    assert_eq!(
        (seen.cuda.as_slice(), seen.capabilities.as_slice()),
        ([SECOND.to_owned()].as_slice(), &SECOND_CAPS.map(str::to_owned)[..])
    );
    // The GPU's node alone is all of it.
    let whole = bundle(&install, MIG, &COUNT, &[]);
    put(&whole, &[]);
    assert_eq!(whole.count().capabilities, both);
}

/// Two compute instances of one GPU instance have its node in common.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_shared_capability_node_stays_for_the_other() {
    let host = "h100mig3";
    let install = install(host, "");
    let inventory = inventory(host);
    let second = inventory.gpus[1].mig[1].uuid.as_str().to_owned();
    let bundle = bundle(&install, host, &COUNT, &[&format!("CUDA_VISIBLE_DEVICES={second}")]);
    bundle.edit(|config| {
        spec::add_device(config, "/dev/nvidia0", 195, 0);
        for minor in [12, 13, 14] {
            spec::add_device(config, &format!("/dev/nvidia-caps/nvidia-cap{minor}"), CAPS_MAJOR, minor);
        }
    });
    let seen = bundle.count();
    assert_eq!(seen.cuda, [second]);
    assert_eq!(seen.capabilities, ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap14"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_in_every_spelling() {
    let install = install(MIG, "[grant]\nbase = [\"0\"]\n");
    let bundle = bundle(&install, MIG, &["sleep", "1000"], &[]);
    bundle.up();
    let seen = |value: &str| bundle.exec_count(&[&format!("CUDA_VISIBLE_DEVICES={value}")]);
    for value in [SECOND, &SECOND[..12], &format!("MIG-{PARENT}/2/0"), "MIG-GPU-a0400000/2/0", &format!(" {SECOND} ")] {
        let seen = seen(value);
        assert_eq!(
            (seen.cuda.as_slice(), seen.env["CUDA_VISIBLE_DEVICES"].as_str()),
            ([SECOND.to_owned()].as_slice(), SECOND)
        );
        assert_eq!(seen.env["CUDAVIEW_HOST_GPUS"], "0:1", "{value}");
        // What exec chooses takes nothing away from the container.
        assert_eq!(seen.capabilities.len(), 4, "{value}");
    }
    for value in ["0", PARENT] {
        assert_eq!(seen(value).cuda, [FIRST], "{value}");
    }
    assert_eq!(seen("-1").cuda_error, CUDA_ERROR_NO_DEVICE);
    assert_eq!(seen(&format!("{SECOND},{FIRST}")).cuda, [SECOND], "a driver before 570 shows one");
    let foreign = inventory(MIG).gpus[2].mig[0].uuid.as_str().to_owned();
    for value in ["1", "7", &foreign] {
        let ran = bundle.exec(&["true"], &[&format!("CUDA_VISIBLE_DEVICES={value}")]).failed_with(3);
        assert!(ran.stderr.contains(FIRST) || ran.stderr.contains(&FIRST[..12]), "it names what there is: {ran}");
    }
    run(bundle.command().args(["kill", bundle.id(), "KILL"])).ok();
}

/// The hook alone makes the nodes of a MIG device, their folder with them.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_hook_alone_makes_capability_nodes() {
    let install = install(MIG, "");
    let bundle = Bundle::new(&file(MIG), &COUNT, &[]);
    bundle.edit(|config| {
        // On cgroup version 2 a hook cannot add rules, so the specification has them.
        for (major, minor) in [(195, 0), (195, 255), (510, 0), (CAPS_MAJOR, 21), (CAPS_MAJOR, 22)] {
            let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rw"});
            spec::push(&mut config["linux"]["resources"]["devices"], rule);
        }
        let args = ["cudaview-hook", "createRuntime", "--gpus", "device=0:1"];
        let env = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
        spec::add_hook(
            config,
            "createRuntime",
            json!({"path": install.bin("cudaview-hook"), "args": args, "env": env}),
        );
    });
    let seen = bundle.count();
    assert_eq!((seen.cuda, seen.capabilities), (vec![SECOND.to_owned()], SECOND_CAPS.map(str::to_owned).to_vec()));
}

/// crun makes the nodes, and their folder, in its own way.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn crun_below_us() {
    require(&["crun"]);
    let install = install(MIG, "low_level_runtime = [\"crun\"]\n[grant]\nbase = [\"0\"]\n");
    let value = format!("CUDA_VISIBLE_DEVICES={SECOND}");
    let bundle = bundle(&install, MIG, &["sleep", "1000"], &[&value]).seeing(CgroupView::WithoutUnified);
    bundle.up();
    let seen = bundle.exec_count(&[]);
    assert_eq!((seen.cuda.as_slice(), seen.nodes.len()), ([SECOND.to_owned()].as_slice(), 1), "{seen:?}");
    assert_eq!(seen.capabilities, SECOND_CAPS);
    assert_eq!(try_capability(&bundle, 12), Access::Blocked);
    assert_eq!(try_capability(&bundle, 21), Access::Openable);
}
