//! The hook's own doors: alone in a plain bundle, and podman's precreate stage; and the two doors after one another.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::command::{run, run_with_input};
use crate::world::{
    A100X4, Access, Bundle, CUDA_ERROR_NO_DEVICE, CgroupView, Install, only_cgroup_v2, require, spec, uuids,
};

/// The rules that let a container open these GPUs and the control nodes, as a covering specification has them.
fn allow(bundle: &Bundle, minors: &[u32]) {
    bundle.edit(|config| {
        let gpus = minors.iter().map(|minor| (195, *minor));
        for (major, minor) in gpus.chain([(195, 255), (510, 0)]) {
            let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rw"});
            spec::push(&mut config["linux"]["resources"]["devices"], rule);
        }
    });
}

/// A plain runc bundle whose only trace of cudaview is a hook entry with the grant in its arguments.
fn alone(install: &Install, env: &[&str]) -> Bundle {
    let bundle = Bundle::new(A100X4, &["gpu-count", "--json"], env);
    let hook = install.bin("cudaview-hook");
    bundle.edit(|config| {
        spec::add_hook(
            config,
            "createRuntime",
            json!({"path": hook, "args": ["cudaview-hook", "createRuntime", "--gpus", "\"device=1,3\""],
                   "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}),
        );
    });
    bundle
}

/// The same where it can work: on cgroup version 2 a hook cannot add the rules, so the specification has them.
fn allowed(install: &Install, env: &[&str]) -> Bundle {
    let bundle = alone(install, env);
    if only_cgroup_v2() {
        allow(&bundle, &[1, 3]);
    }
    bundle
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn alone_it_mounts_what_its_arguments_grant() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let all = uuids(A100X4);
    for env in [&[][..], &["CUDA_VISIBLE_DEVICES=0,1"], &["CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]] {
        let count = allowed(&install, env).count();
        assert_eq!((count.cuda_error, count.cuda), (0, vec![all[1].clone(), all[3].clone()]), "{env:?}");
        assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"]);
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn alone_it_opens_the_grant_only() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let bundle = allowed(&install, &[]);
    bundle.edit(|config| config["process"]["args"] = json!(["sleep", "60"]));
    bundle.up();
    if !only_cgroup_v2() {
        let path = bundle.spec()["linux"]["cgroupsPath"].as_str().unwrap().to_owned();
        let list = std::fs::read_to_string(format!("/sys/fs/cgroup/devices{path}/devices.list")).unwrap();
        let gpus: Vec<&str> = list.lines().filter(|line| line.starts_with("c 195:")).collect();
        assert_eq!(gpus, ["c 195:1 rw", "c 195:3 rw", "c 195:255 rw"], "{list}");
    }
    assert_eq!(bundle.try_mknod(1), Access::Openable);
    assert_eq!(bundle.try_mknod(0), Access::Blocked);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn alone_it_warns_or_refuses_where_the_environment_would_need_a_rewrite() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let all = uuids(A100X4);
    let env = ["CUDA_VISIBLE_DEVICES=1,3"];
    let count = allowed(&install, &env).count();
    assert_eq!(count.cuda, [all[3].clone()], "a hook cannot rewrite the environment");
    assert_eq!(count.nvml, [all[1].clone(), all[3].clone()]);
    let record = &install.audit_records()[0];
    assert_eq!((&record["verdict"], &record["visible"]), (&json!("consistent"), &json!(["3"])), "{record}");
    assert_eq!((&record["before"], &record["kept"]), (&record["after"], &json!(["1", "3"])), "nothing was rewritten");
    // The terminal shows nothing of a hook that does not fail, so the record has to.
    let [finding] = &record["findings"].as_array().unwrap()[..] else { panic!("{record}") };
    assert_eq!((&finding["code"], &finding["severity"]), (&json!("unfixable-env"), &json!("warning")), "{record}");
    assert!(finding["message"].as_str().unwrap().ends_with("will see host GPU 3, not host GPUs 1 and 3"), "{record}");
    for door in ["cudaview-runtime", "precreate"] {
        assert!(finding["hint"].as_str().unwrap().contains(door), "{door}: {record}");
    }
    let config = std::fs::read_to_string(install.config()).unwrap();
    install.configure(&format!("{config}\n[hook]\non_unfixable_env = \"refuse\"\n"));
    let ran = allowed(&install, &env).run();
    assert_ne!(ran.code, 0, "{ran}");
    for words in [
        "CUDA_VISIBLE_DEVICES=\"1,3\" cannot be rewritten by a createRuntime hook",
        "host GPU 3, not host GPUs 1 and 3",
        "cudaview-runtime",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran}");
    }
    let record = install.audit_records().pop().unwrap();
    assert_eq!(
        (&record["verdict"], &record["findings"][0]["severity"]),
        (&json!("refused"), &json!("error")),
        "{record}"
    );
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn alone_on_cgroup_v2_it_refuses_unless_the_spec_allows_the_nodes() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let ran = alone(&install, &[]).seeing(CgroupView::OnlyV2).run();
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("on cgroup v2") && ran.stderr.contains("--runtime cudaview"), "{ran}");
    let bundle = alone(&install, &[]).seeing(CgroupView::OnlyV2);
    allow(&bundle, &[1, 3]);
    let all = uuids(A100X4);
    assert_eq!(bundle.count().cuda, [all[1].clone(), all[3].clone()]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn alone_without_a_grant_it_does_nothing() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let bundle = alone(&install, &["CUDA_VISIBLE_DEVICES=0"]);
    bundle.edit(|config| config["hooks"]["createRuntime"][0]["args"] = json!(["cudaview-hook", "createRuntime"]));
    let count = bundle.count();
    assert_eq!((count.cuda_error, count.nodes.len()), (CUDA_ERROR_NO_DEVICE, 0));
}

/// Edits a bundle's configuration as podman's precreate stage would have it edited.
fn precreate(install: &Install, directory: &Path, config: &Value) -> Value {
    let mut command = Command::new(install.bin("cudaview-hook"));
    command.args(["precreate", "(the reason: above, or in the audit record)"]).current_dir(directory).env_clear();
    let ran = run_with_input(&mut command, config.to_string().as_bytes()).ok();
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn precreate_and_the_wrapper_come_to_the_same_in_any_order_and_number() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let all = uuids(A100X4);
    for (value, seen) in [("1,3", &[1, 3][..]), ("3,1", &[3, 1]), ("1", &[3]), ("0,1", &[1, 3]), ("-1", &[])] {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        let env = [value.as_str(), "NVIDIA_VISIBLE_DEVICES=void"];
        let fresh = || {
            let bundle = Bundle::with_runtime(&install.runtime(), A100X4, &["gpu-count", "--json"], &env);
            bundle.edit(|config| spec::grant_nodes(config, &[1, 3]));
            bundle
        };
        let by_wrapper = fresh();
        let before = by_wrapper.spec();
        let count = by_wrapper.count();
        let expected: Vec<String> = seen.iter().map(|host: &usize| all[*host].clone()).collect();
        assert_eq!(count.cuda, expected, "{value}");
        let wrapped = by_wrapper.spec();

        let by_precreate = fresh();
        let once = precreate(&install, by_precreate.path(), &by_precreate.spec());
        assert_eq!(without_record_paths(&once), without_record_paths(&wrapped), "{value}: either door");
        assert_eq!(precreate(&install, by_precreate.path(), &once), once, "{value}: precreate twice");
        by_precreate.write_spec(&once);
        assert_eq!(by_precreate.count().cuda, expected, "{value}: precreate, then the wrapper");
        assert_eq!(by_precreate.spec(), once, "{value}: the wrapper leaves precreate's result alone");
        assert_ne!(before, wrapped);
    }
}

/// The two bundles are in different places, which their hook entries name.
fn without_record_paths(config: &Value) -> Value {
    let mut config = config.clone();
    let args = config["hooks"]["createRuntime"][0]["args"].as_array_mut().unwrap();
    args.retain(|arg| !arg.as_str().unwrap().starts_with("--root="));
    config["linux"]["cgroupsPath"] = Value::Null;
    config
}

#[test]
fn precreate_prints_nothing_but_a_whole_document() {
    let hook = env!("CARGO_BIN_EXE_cudaview-hook");
    let ask = |input: &[u8]| run_with_input(Command::new(hook).arg("precreate").env_clear(), input);
    let untouched = br#"{"process":{"env":["A=1"]},  "x-vendor": 1}"#;
    assert_eq!(ask(untouched).ok().stdout.as_bytes(), untouched, "without a sign of a GPU the bytes stay");
    for broken in [&b"{\"nvidia\""[..], b"nvidia \xff", b"[\"nvidia\"]", br#"{"process":{"env":["nvidia"]}}"#] {
        let ran = ask(broken).failed_with(4);
        assert_eq!(ran.stdout, "");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    }
    let ran = run(Command::new(hook).args(["precreate", "--gpus=all"]));
    assert_eq!(ran.code, 2, "{ran}");
}
