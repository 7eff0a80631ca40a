//! A bundle that cannot be written: a full disk, and a read-only file system.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_remount};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Untouched, gpu_spec, plain_spec};
use crate::world::command::Ran;
use crate::world::{mounts, require};

/// A sandbox whose bundle is a small file system of its own.
struct Small {
    sandbox: Sandbox,
}

impl Small {
    fn new(spec: &Value) -> Small {
        require(&[]);
        let sandbox = Sandbox::new("");
        let options = CString::new("size=32k,mode=755").unwrap();
        mount("tmpfs", sandbox.path("bundle"), "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        sandbox.write_spec(spec);
        Small { sandbox }
    }

    /// Takes the last free byte.
    fn fill(&self) {
        let mut file = File::create(self.sandbox.path("bundle/filler")).unwrap();
        while file.write(&[0; 512]).is_ok() {}
    }

    fn make_read_only(&self) {
        mount_remount(self.sandbox.path("bundle"), MountFlags::RDONLY, "").unwrap();
    }

    fn config(&self) -> std::path::PathBuf {
        self.sandbox.path("bundle/config.json")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for point in mounts::mounts_below(Path::new(&self.sandbox.path(""))) {
            let _gone = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[track_caller]
fn says(small: &Small, ran: &Ran, word: &str) {
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    assert!(ran.stderr.starts_with("cudaview: failed to ") && ran.stderr.contains("config.json"), "{ran}");
    assert!(ran.stderr.contains(word), "{ran}");
    let log: Value = serde_json::from_str(&small.sandbox.log()).unwrap();
    assert_eq!((&log["level"], &log["msg"]), (&json!("error"), &json!(ran.stderr.trim_end())));
    assert_eq!(small.sandbox.started(), [""; 0], "not without its GPUs");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_full_disk() {
    let small = Small::new(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    small.fill();
    let before = Untouched::of(&small.config());
    says(&small, &small.sandbox.create(), "ENOSPC");
    assert_eq!(Untouched::of(&small.config()), before);
    // There is room again.
    fs::remove_file(small.sandbox.path("bundle/filler")).unwrap();
    small.sandbox.create().ok();
    assert_eq!(small.sandbox.started().len(), 1);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_read_only_bundle() {
    let small = Small::new(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    small.make_read_only();
    let before = Untouched::of(&small.config());
    says(&small, &small.sandbox.create(), "EROFS");
    assert_eq!(Untouched::of(&small.config()), before);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_without_gpus_does_not_care() {
    for env in [json!(["A=b"]), json!(["NVIDIA_VISIBLE_DEVICES=all"])] {
        let mut spec = plain_spec();
        spec["process"]["env"] = env;
        let small = Small::new(&spec);
        small.fill();
        small.make_read_only();
        small.sandbox.create().ok();
        assert_eq!(small.sandbox.started().len(), 1);
    }
}
