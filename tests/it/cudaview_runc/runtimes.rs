//! Other low-level runtimes, NVIDIA's hook after us, and a configuration that broke while a container ran.

use std::fs;

use serde_json::{Value, json};

use super::{Host, text_of};
use crate::world::command::write_program;
use crate::world::{CgroupView, find_program, require, spec};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn crun_below_us() {
    require(&["crun"]);
    let host = Host::new("low_level_runtime = [\"crun\"]\n");
    let bundle = host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=1,3"]);
    let bundle = bundle.seeing(CgroupView::WithoutUnified);
    assert_eq!(bundle.count().cuda, host.uuids_of(&[1, 3]));

    let bundle = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=3"]);
    let bundle = bundle.seeing(CgroupView::WithoutUnified);
    bundle.up();
    let count = bundle.exec_count(&[]);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "0"));
    assert_eq!(count.nvml, host.uuids_of(&[3]));
}

/// A widely copied podman hook file adds it to every container, and then an image's `all` is all that it looks at.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nvidias_hook_sees_void_where_nobody_granted_anything() {
    require(&["jq"]);
    let host = Host::new("");
    let bundle = host.bundle(&["gpu-count", "--json"], &["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0"]);
    let record = bundle.path().join("seen");
    let hook = bundle.path().join("nvidia-container-runtime-hook");
    let script = format!(
        "#!/bin/sh\n'{cat}' >/dev/null\n'{jq}' -c .process.env '{config}' >>'{record}'\n",
        cat = find_program("cat").display(),
        jq = find_program("jq").display(),
        config = bundle.config().display(),
        record = record.display(),
    );
    write_program(&hook, script.as_bytes());
    bundle.edit(|spec| spec::add_hook(spec, "prestart", json!({"path": hook, "args": ["hook", "prestart"]})));
    let count = bundle.count();
    assert!(count.nodes.is_empty(), "{count:?}");
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "void");
    let seen: Value = serde_json::from_str(&text_of(&record)).unwrap();
    let entries: Vec<&str> =
        seen.as_array().unwrap().iter().filter_map(Value::as_str).filter(|e| e.starts_with("NVIDIA_V")).collect();
    assert_eq!(entries, ["NVIDIA_VISIBLE_DEVICES=void"]);
    assert_eq!(host.findings(), ["image-request-ignored"]);
}

/// What runs must be stopped and deleted whatever the configuration says by now.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_broken_configuration_stops_nothing_but_new_containers() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["sleep", "1000"], &[]);
    bundle.up();
    host.install.configure("narow = true\n");
    assert_eq!(bundle.state().unwrap()["status"], "running");
    bundle.exec(&["true"], &[]).failed_with(6);
    bundle.kill("KILL").ok();
    bundle.delete().ok();
    assert!(bundle.state().is_none());
    let ran = bundle.run().failed_with(6);
    assert!(ran.stderr.contains("narow"), "{ran}");
    assert!(bundle.state().is_none(), "nothing was started");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_inventory_is_gone_while_a_container_runs() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1,3"]);
    bundle.up();
    fs::remove_file(host.install.inventory()).unwrap();
    assert_eq!(bundle.exec_count(&["CUDA_VISIBLE_DEVICES=1"]).cuda, host.uuids_of(&[3]), "exec needs none");
    let other = host.granted(&[1, 3], &["true"], &[]);
    other.run().failed_with(5);
    assert!(other.state().is_none(), "it asked for GPUs and must not run without");
}
