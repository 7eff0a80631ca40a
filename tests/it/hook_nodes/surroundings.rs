//! What the hook makes of where it was started, and the device cgroup that it would work with alone.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use cudaview::device::{DeviceNumber, Minor};
use cudaview::sys::cgroup::{self, DeviceCgroup};
use serde_json::json;

use super::bundle::Bundle;
use super::{GPU1, HOOK};
use crate::world::only_cgroup_v2;

#[test]
fn nothing_inherited_matters() {
    // crun starts hooks with nearly every signal blocked.
    let mut hook = Command::new("env");
    hook.args(["--block-signal", "sh", "-c", "umask 077; exec \"$0\" createRuntime 7</ 8<&1", HOOK]);
    hook.env("LD_BIND_NOW", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = hook.spawn().unwrap();
    let proc = Path::new("/proc").join(hook.id().to_string());
    let field = |name: &str| {
        let status = fs::read_to_string(proc.join("status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    // It waits for its state; by then all of it is done.
    while field("NoNewPrivs:").as_deref() != Some("1")
        || fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd != Path::new("/"))
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(hook.try_wait().unwrap().is_none(), "the hook ended");
    }
    assert_eq!(field("SigBlk:").as_deref(), Some("0000000000000000"));
    let ignored = u64::from_str_radix(&field("SigIgn:").unwrap(), 16).unwrap();
    // 32 and 33 are the C library's own and cannot be changed.
    assert_eq!(ignored & !0x1_8000_0000, 1 << 12, "SIGPIPE only");
    assert_eq!(field("Umask:").as_deref(), Some("0000"));
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    // Not dumpable, so only root may look.
    if let Ok(entries) = fs::read_dir(proc.join("fd")) {
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["0", "1", "2"]);
    }
    drop(hook.stdin.take());
    assert_eq!(hook.wait().unwrap().code(), Some(4));
}

/// T1, R5: the misuse that CVE-2025-23266 needs.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn at_the_stage_of_the_container_it_refuses() {
    let mut bundle = Bundle::new();
    bundle.hook(&["--node", GPU1]);
    let hooks = bundle.config["hooks"]["createRuntime"].take();
    bundle.config["hooks"] = json!({"createContainer": hooks});
    let message = bundle.refused();
    assert!(message.contains("wrong stage: the state's pid is 1"), "{message}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_has_a_device_cgroup_and_the_host_is_not_one() {
    let bundle = Bundle::new();
    let pid = bundle.create();
    let found = cgroup::find(pid).unwrap();
    let number = DeviceNumber::gpu(Minor(1));
    if only_cgroup_v2() {
        assert_eq!(found, DeviceCgroup::V2);
        let error = cgroup::allow(&found, number).unwrap_err().to_string();
        assert!(error.contains("no v1 device cgroup of its own"), "{error}");
    } else {
        let DeviceCgroup::V1 { dir } = &found else { panic!("{found:?}: the machine has the v1 devices controller") };
        let rules = || fs::read_to_string(dir.join("devices.list")).unwrap();
        assert!(!rules().contains("195:1"), "{}", rules());
        cgroup::allow(&found, number).unwrap();
        assert!(rules().contains("c 195:1 rw\n"), "{}", rules());
    }
    bundle.delete();
    assert!(cgroup::allow(&found, number).is_err());
    // This test is in its own cgroup, and process 1 in that or in the root.
    assert_eq!(cgroup::find(std::process::id()).unwrap(), DeviceCgroup::Shared);
    assert!(cgroup::allow(&DeviceCgroup::Shared, number).is_err());
    let elsewhere = DeviceCgroup::V1 { dir: bundle.path("rootfs") };
    let error = cgroup::allow(&elsewhere, number).unwrap_err().to_string();
    assert!(error.contains("no cgroup v1 directory"), "{error}");
}
