//! `docker exec` and health checks: Docker sends its own copy of the environment, with the value that was typed.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{GPUS_1_3, Host, IMAGE_CVD_0};
use crate::world::command::run;
use crate::world::count::Count;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, CUDA_ERROR_NO_DEVICE};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_sees_the_containers_numbers() {
    let host = Host::new("");
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    let with = |flags: &[&str]| host.docker.exec_count(flags, "one");

    let count = with(&[]);
    assert_eq!((count.cuda, count.nvml), (host.uuids_of(&[1, 3]), host.uuids_of(&[1, 3])));
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "0,1");
    assert_eq!(count.env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], "1,3");
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], host.uuids_of(&[1, 3]).join(","));

    let with_value = |value: &str, view: &[usize], emitted: &str| {
        let count = with(&["-e", &format!("CUDA_VISIBLE_DEVICES={value}")]);
        assert_eq!(count.cuda, host.uuids_of(view), "{value}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted, "{value}");
        let trace: Vec<String> = view.iter().map(ToString::to_string).collect();
        assert_eq!(count.env.get("CUDAVIEW_HOST_GPUS").cloned().unwrap_or_default(), trace.join(","), "{value}");
        assert_eq!(count.nvml, host.uuids_of(&[1, 3]), "exec changes no node");
        count
    };
    with_value("1", &[3], "1");
    with_value("0", &[1], "0");
    with_value("1,0", &[3, 1], "1,0");
    // Only a host number can be meant.
    with_value("3", &[3], "1");
    with_value("all", &[1, 3], "0,1");
    assert_eq!(with_value("", &[], "").cuda_error, CUDA_ERROR_NO_DEVICE);
    assert_eq!(with_value("-1", &[], "-1").cuda_error, CUDA_ERROR_NO_DEVICE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_counts_among_what_was_kept() {
    let host = Host::new("");
    host.up("one", IMAGE, &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2,3"]);
    let count = host.docker.exec_count(&[], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[2, 3]), "0,1"));
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "1"));
    // 0 was narrowed away: it is a number inside now.
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=0"], "one");
    assert_eq!(count.cuda, host.uuids_of(&[2]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_without_a_value_of_the_containers_own() {
    let host = Host::new("");
    host.up("one", IMAGE, &GPUS_1_3);
    let count = host.docker.exec_count(&[], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
    host.up("hidden", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=-1"]].concat());
    let count = host.docker.exec_count(&[], "hidden");
    assert_eq!((count.cuda_error, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (CUDA_ERROR_NO_DEVICE, "-1"));
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "hidden");
    assert_eq!(count.cuda, host.uuids_of(&[3]));
    // A container that nobody gave a GPU.
    host.up("plain", IMAGE, &[]);
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "plain");
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1");
    assert_eq!(count.env.len(), 1, "{count:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_health_check_sees_the_containers_numbers() {
    let host = Host::new("");
    host.docker.import(A100X4, "health", &["HEALTHCHECK --interval=1s --timeout=10s CMD gpu-count --json"]);
    host.up("one", "health", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    let count = host.docker.health_count("one");
    assert_eq!(count.cuda, host.uuids_of(&[3, 1]));
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1,0");
}

/// Docker's process file is the same whether `-e` repeats the container's own value or nothing was typed, so this one
/// value cannot be heard; a spelling of it that differs can.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_cannot_tell_the_containers_own_value_from_none() {
    let host = Host::new("");
    host.up("one", IMAGE_CVD_0, &GPUS_1_3);
    for (flags, view, value) in [
        (&[][..], &[1, 3][..], "0,1"),
        (&["-e", "CUDA_VISIBLE_DEVICES=0"], &[1, 3], "0,1"),
        (&["-e", "CUDA_VISIBLE_DEVICES=0,"], &[1], "0"),
        (&["-e", "CUDA_VISIBLE_DEVICES=+0"], &[1], "0"),
        (&["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "1"),
    ] {
        let count = host.docker.exec_count(flags, "one");
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(view), value), "{flags:?}");
    }
    // Where the container's own value is a user's, it says the same either way.
    host.up("typed", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    for flags in [&[][..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]] {
        assert_eq!(host.docker.exec_count(flags, "typed").cuda, host.uuids_of(&[3, 1]), "{flags:?}");
    }
}

/// An annotation that looks like the label by which runc remembers the bundle stands before that label. Docker has
/// `--annotation` from version 24 on, and an older one refuses it itself.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_an_annotation_does_not_pass_for_the_bundle() {
    let host = Host::new("");
    let wish = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat();
    host.up("other", IMAGE, &["--gpus", "device=0"]);
    let exec_root = host.docker.path().join("exec");
    let bundle = exec_root.join("containerd/daemon/io.containerd.runtime.v2.task/moby");
    let bundle = bundle.join(host.docker.inspect("other")["Id"].as_str().unwrap());
    let annotation = format!("bundle={}", bundle.display());
    let flags = [&["--annotation", annotation.as_str()], &wish[..]].concat();
    if host.docker.version() < 24 {
        let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("unknown flag: --annotation"), "{ran}");
        return;
    }
    host.up("one", IMAGE, &flags);
    assert_eq!(host.docker.exec_count(&[], "one").cuda, host.uuids_of(&[3, 1]));

    // Without Docker's --log, which is in the bundle, runc's own state is what tells.
    let id = host.docker.inspect("one")["Id"].as_str().unwrap().to_owned();
    let state = exec_root.join("runtime-runc/moby").join(&id).join("state.json");
    let labels: Value = serde_json::from_slice(&fs::read(state).unwrap()).unwrap();
    let labels: Vec<&str> = labels["config"]["labels"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let like: Vec<&&str> = labels.iter().filter(|label| label.starts_with("bundle=")).collect();
    assert!(like.len() == 2 && *like[0] == annotation, "{labels:?}");
    let process = json!({
        "args": ["gpu-count", "--json"], "cwd": "/", "user": {"uid": 0, "gid": 0},
        "env": ["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=3,1"],
    });
    let file = host.docker.path().join("tmp/process.json");
    fs::write(&file, process.to_string()).unwrap();
    let mut command = Command::new(host.install.runtime());
    command.arg("--root").arg(exec_root.join("runtime-runc/moby"));
    let ran = run(command.arg("exec").arg("--process").arg(&file).arg(&id).current_dir("/"));
    let count = Count::of(ran);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3, 1]), "1,0"));
}
