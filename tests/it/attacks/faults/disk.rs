//! Disks that are really full at each possible place, or read-only, for `create` and for `exec`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::json;

use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::run;
use crate::world::{mounts, require};

/// A sandbox in which the bundle of `c1` is a file system of so many pages.
struct Small {
    sandbox: Sandbox,
}

impl Small {
    fn new(pages: usize) -> Small {
        require(&["mount"]);
        let sandbox = Sandbox::new("");
        fs::create_dir(sandbox.path("c1")).unwrap();
        let options = CString::new(format!("size={}k,mode=755", 4 * pages)).unwrap();
        mount("tmpfs", sandbox.path("c1"), "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        Small { sandbox }
    }

    /// Takes what is free but for so many pages.
    fn fill(&self, free: usize) {
        let path = self.sandbox.path("c1/filler");
        let mut file = File::create(&path).unwrap();
        while file.write(&[0; 4096]).is_ok_and(|count| count == 4096) {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(4096 * free as u64)).unwrap();
    }

    /// The names beside the filler.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sandbox.path("c1")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "filler");
        names.sort();
        names
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for point in mounts::mounts_below(Path::new(&self.sandbox.path(""))) {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

/// T25: room for none, one, two … pages of the new file. Where it does not fit, the old one stays, and nothing starts.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_disk_that_is_full_at_any_page() {
    let mut spec = gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]);
    spec["annotations"] = json!({"long": "x".repeat(30_000)});
    let process = json!({"args": ["true"], "env": ["CUDA_VISIBLE_DEVICES=3", format!("LONG={}", "x".repeat(30_000))]});
    for command in ["create", "exec"] {
        let (mut fits, mut does_not) = (0, 0);
        for free in 0..14 {
            let small = Small::new(40);
            let sandbox = &small.sandbox;
            sandbox.write("c1/config.json", spec.to_string());
            let create = |sandbox: &Sandbox| {
                let mut wrapper = std::process::Command::new(sandbox.runtime());
                run(wrapper.args(["create", "--bundle"]).arg(sandbox.path("c1")).arg("c1"))
            };
            let file = if command == "exec" {
                create(sandbox).ok();
                fs::remove_file(sandbox.path("low-level.started")).unwrap();
                sandbox.write("c1/process", process.to_string());
                sandbox.path("c1/process")
            } else {
                sandbox.path("c1/config.json")
            };
            small.fill(free);
            let (before, names) = (fs::read(&file).unwrap(), small.names());
            let ran = if command == "exec" {
                let mut wrapper = std::process::Command::new(sandbox.runtime());
                wrapper.arg("--log").arg(sandbox.path("c1/log.json")).args(["exec", "--process"]).arg(&file);
                run(wrapper.arg("c1"))
            } else {
                create(sandbox)
            };
            let now = fs::read(&file).unwrap();
            let complete: serde_json::Value = serde_json::from_slice(&now).unwrap();
            if ran.code == 0 {
                assert_ne!(now, before, "{command} with {free} pages: {complete}");
                assert_eq!(sandbox.started().len(), 1, "{command}");
                fits += 1;
            } else {
                assert!(ran.stderr.contains("ENOSPC"), "{command} with {free} pages: {ran}");
                assert_eq!((now, sandbox.started()), (before, Vec::new()), "{command} with {free} pages");
                does_not += 1;
            }
            let mut after = small.names();
            after.retain(|name| name != "log.json");
            assert_eq!(after, names, "{command} with {free} pages: nothing is left beside it");
        }
        assert!(fits > 2 && does_not > 5, "{command}: {fits} {does_not}");
    }
}

/// T25: really read-only.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_read_only_process_file_is_not_started_with() {
    let small = Small::new(40);
    let sandbox = &small.sandbox;
    sandbox.write("c1/config.json", gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]).to_string());
    let mut wrapper = std::process::Command::new(sandbox.runtime());
    run(wrapper.args(["create", "--bundle"]).arg(sandbox.path("c1")).arg("c1")).ok();
    fs::remove_file(sandbox.path("low-level.started")).unwrap();
    let process = json!({"args": ["true"], "env": ["CUDA_VISIBLE_DEVICES=3"]}).to_string();
    sandbox.write("c1/process", &process);
    mount_remount(sandbox.path("c1"), MountFlags::RDONLY, "").unwrap();
    let mut wrapper = std::process::Command::new(sandbox.runtime());
    wrapper.arg("--log").arg(sandbox.path("c1/log.json")).args(["exec", "--process"]).arg(sandbox.path("c1/process"));
    let ran = run(wrapper.arg("c1")).failed_with(1);
    assert!(ran.stderr.contains("EROFS"), "{ran}");
    assert_eq!(fs::read_to_string(sandbox.path("c1/process")).unwrap(), process);
    assert_eq!(sandbox.started(), [""; 0]);
}
