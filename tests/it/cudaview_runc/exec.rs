//! `exec` and `update` in the forms that engines use.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Host, text_of};
use crate::sandbox::Untouched;
use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::{Access, Bundle, CgroupView, only_cgroup_v2, require};

/// The options that name a file.
type Form<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// `exec` with a process file as the engine wrote it: with the value from before any rewriting.
fn exec(bundle: &Bundle, env: &[&str], options: Form<'_>) -> (Ran, Value) {
    let mut process = bundle.spec()["process"].clone();
    process["args"] = json!(COUNT);
    process["env"] = json!(env);
    process["unknown"] = json!({"z": 1, "a": 2});
    let file = bundle.path().join("process");
    fs::write(&file, process.to_string()).unwrap();
    let ran = run(bundle.command().arg("exec").args(options(file.to_str().unwrap())).arg(bundle.id()));
    (ran, serde_json::from_slice(&fs::read(&file).unwrap()).unwrap())
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_reads_the_process_file_in_every_form() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1,3"]);
    bundle.up();
    let forms: [Form<'_>; 5] = [
        &|file| vec!["--process".to_owned(), file.to_owned()],
        &|file| vec!["-p".to_owned(), file.to_owned()],
        &|file| vec![format!("--process={file}")],
        &|file| vec![format!("-p={file}")],
        &|file| vec!["--cwd".to_owned(), "/".to_owned(), "--process".to_owned(), file.to_owned()],
    ];
    for form in forms {
        let env = ["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=1,3", "A=b"];
        let (ran, process) = exec(&bundle, &env, form);
        let count = Count::of(ran);
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
        assert_eq!(
            process["env"],
            json!([
                "PATH=/bin:/usr/bin",
                "CUDA_VISIBLE_DEVICES=0,1",
                "A=b",
                "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                "CUDAVIEW_HOST_GPUS=1,3"
            ])
        );
        assert_eq!(process["unknown"].to_string(), r#"{"z":1,"a":2}"#);
    }
}

/// The last entry counts, and one remains.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_with_a_repeated_variable() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1,3"]);
    bundle.up();
    let env = ["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=1,3", "CUDA_VISIBLE_DEVICES=0"];
    let (ran, process) = exec(&bundle, &env, &|file| vec!["--process".to_owned(), file.to_owned()]);
    assert_eq!(Count::of(ran).cuda, host.uuids_of(&[1]));
    let entries = process["env"].as_array().unwrap().iter().filter_map(Value::as_str);
    assert_eq!(entries.filter(|e| e.starts_with("CUDA_VISIBLE")).collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES=0"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_in_a_container_that_is_not_ours_is_left_alone() {
    let host = Host::new("");
    let bundle = host.bundle(&["sleep", "1000"], &[]);
    bundle.up();
    let env = ["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=1,3"];
    let (ran, process) = exec(&bundle, &env, &|file| vec!["--process".to_owned(), file.to_owned()]);
    assert_eq!(Count::of(ran).env["CUDA_VISIBLE_DEVICES"], "1,3");
    assert_eq!(process["env"], json!(env));
}

/// Typed by hand: nothing in the command line says where the bundle is, the low-level runtime's own state does.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_finds_the_container_by_the_runtimes_state() {
    require(&["crun"]);
    for (low_level, view) in [("runc", CgroupView::Machine), ("crun", CgroupView::WithoutUnified)] {
        let host = Host::new(&format!("low_level_runtime = [\"{low_level}\"]\n"));
        let bundle = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1,3"]).seeing(view);
        bundle.up();
        let elsewhere = tempfile::tempdir().unwrap();
        let file = elsewhere.path().join("process");
        let mut process = bundle.spec()["process"].clone();
        process["args"] = json!(COUNT);
        process["env"] = json!(["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=1,3"]);
        fs::write(&file, process.to_string()).unwrap();
        // The last --log counts.
        let mut command = bundle.command();
        command.arg("--log").arg(elsewhere.path().join("log")).arg("exec").arg("-p").arg(&file).arg(bundle.id());
        let count = Count::of(run(&mut command));
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
    }
}

/// podman sends device rules of its own with every update.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn update_keeps_the_containers_gpus() {
    let host = Host::new("");
    let ours = host.granted(&[1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=3"]);
    ours.up();
    let foreign = host.bundle(&["sleep", "1000"], &[]);
    foreign.up();
    // On the version 2 hierarchy the machine may have no such controller to limit anything with.
    let limits = !only_cgroup_v2() || text_of(Path::new("/sys/fs/cgroup/cgroup.controllers")).contains("pids");
    let pids = if limits { r#","pids":{"limit":100}"# } else { "" };
    let resources = format!(r#"{{"unknown":1.10,"devices":[{{"allow":false,"access":"rwm"}}]{pids}}}"#);
    let update = |bundle: &Bundle, form: Form<'_>| {
        let file = bundle.path().join("resources");
        fs::write(&file, &resources).unwrap();
        let before = Untouched::of(&file);
        let arguments = form(file.to_str().unwrap());
        run(bundle.command().arg("update").args(arguments).arg(bundle.id())).ok();
        (fs::read_to_string(&file).unwrap(), before.stamp() == Untouched::of(&file).stamp())
    };
    let forms: [Form<'_>; 3] = [
        &|file| vec!["--resources".to_owned(), file.to_owned()],
        &|file| vec!["-r".to_owned(), file.to_owned()],
        &|file| vec![format!("--resources={file}")],
    ];
    for form in forms {
        let stripped = format!(r#"{{"unknown":1.10{pids}}}"#);
        assert_eq!(update(&ours, form), (stripped, false));
        assert_eq!(update(&foreign, form), (resources.clone(), true));
    }
    assert_eq!(ours.try_mknod(3), Access::Openable);
    assert_eq!(ours.try_mknod(1), Access::Blocked);
    if limits {
        run(ours.command().args(["update", "--pids-limit", "90", ours.id()])).ok();
    }
    assert_eq!(ours.exec_count(&[]).cuda, host.uuids_of(&[3]));
}
