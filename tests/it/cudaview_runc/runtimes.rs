//! Other low-level runtimes, NVIDIA's hook after us, and a configuration that broke while a container ran.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Host, text_of};
use crate::world::command::write_program;
use crate::world::{A100X4, Bundle, CgroupView, find_program, require, spec};

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

/// crun that is held up for a moment before it waits for a hook with a time limit.
fn held_up_crun(folder: &Path) -> PathBuf {
    let path = folder.join("crun");
    let script = format!(
        "#!/bin/sh\nexec '{}' -qq -o /dev/null -e trace=rt_sigtimedwait -e inject=rt_sigtimedwait:delay_enter=300000 \
         '{}' \"$@\"\n",
        find_program("strace").display(),
        find_program("crun").display(),
    );
    write_program(&path, script.as_bytes());
    path
}

/// A hook that reads its state, since crun dies of `SIGPIPE` when one does not.
fn reading_hook() -> Value {
    json!({"path": find_program("cat"), "args": ["cat"]})
}

/// A hook without a time limit, as Docker's for the network, leaves its `SIGCHLD` pending.
fn with_an_earlier_hook(bundle: Bundle) -> Bundle {
    bundle.edit(|spec| spec::add_hook(spec, "prestart", reading_hook()));
    bundle.seeing(CgroupView::WithoutUnified)
}

/// The `SIGCHLD` of a second hook that ends while that of the first is pending is lost, and crun waits for it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_crun_misses_the_end_of_a_hook_with_a_time_limit() {
    require(&["crun", "strace"]);
    let folder = tempfile::tempdir().unwrap();
    let crun = held_up_crun(folder.path());
    for (limit, lost) in [(json!(2), true), (Value::Null, false)] {
        let bundle = with_an_earlier_hook(Bundle::with_runtime(&crun, A100X4, &["true"], &[]));
        let mut hook = reading_hook();
        if !limit.is_null() {
            hook["timeout"] = limit;
        }
        bundle.edit(|spec| spec::add_hook(spec, "createRuntime", hook));
        let ran = bundle.run();
        assert_eq!((ran.code != 0, ran.stderr.contains("timeout expired for `")), (lost, lost), "{ran}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn crun_does_not_miss_the_end_of_our_hook() {
    require(&["crun", "strace"]);
    let folder = tempfile::tempdir().unwrap();
    let crun = held_up_crun(folder.path());
    let host = Host::new(&format!("low_level_runtime = [{crun:?}]\n"));
    let bundle = with_an_earlier_hook(host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=1,3"]));
    assert_eq!(bundle.count().cuda, host.uuids_of(&[1, 3]));
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
