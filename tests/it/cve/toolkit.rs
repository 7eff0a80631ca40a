//! NVIDIA's Container Toolkit.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{CAP2, GPU1, names_none, past_a_bait};
use crate::hook_nodes::bundle::{Bundle, started};
use crate::world::{Stage, require};

/// Libraries that an image has for the driver to find.
const COMPAT: &str = "mkdir -p $R/usr/local/cuda-12/compat; ln -s cuda-12 $R/usr/local/cuda; \
    echo bait >$R/usr/local/cuda-12/compat/libcuda.so.999; ln -s libcuda.so.999 $R/usr/local/cuda-12/compat/libcuda.so.1;";

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0132_libraries_of_an_image_are_not_looked_for() {
    let (_, hooked) = past_a_bait(COMPAT);
    names_none(&hooked, &["compat", "libcuda", "usr", "local"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0133_no_file_is_made_through_a_link_of_an_image() {
    for link in ["$F/canary/new", "../../canary/new", "/proc/1/root/tmp/new"] {
        let stage = Stage::new(&format!("ln -s {link} $R/dev/nvidia1"));
        stage.hook(&[GPU1]).refused("found a symbolic link");
        stage.nothing_outside();
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0134_nothing_is_made_through_a_linked_folder() {
    for link in ["$F/canary", "../../canary", "/"] {
        let stage = Stage::new(&format!("ln -s {link} $R/dev/nvidia-caps"));
        let hooked = stage.traced(&[CAP2]);
        assert!(hooked.ran.code == 1 && hooked.ran.stderr.contains("stands in the way"), "{}", hooked.ran);
        names_none(&hooked, &["symlink", "mknod"]);
        stage.nothing_outside();
        assert_eq!(stage.inside("ls / $R | grep -c nvidia || true"), "0\n");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0135_no_program_of_the_host_is_run_in_a_container() {
    let (_, hooked) = past_a_bait("mkdir -p $R/sbin; : >$R/sbin/ldconfig");
    names_none(&hooked, &["execve", "ldconfig"]);
    // strace itself starts the hook: the only program.
    assert_eq!(hooked.calls.matches("execve(").count(), 1, "{}", hooked.calls);
}

/// An ldconfig of an image, by each name under which one was run.
const LDCONFIG: &str = "mkdir -p $R/sbin $R/usr/sbin $R/bin; printf '#!/bin/sh\\ntouch %s' $F/canary/ran >$R/sbin/ldconfig; \
    chmod 755 $R/sbin/ldconfig; cp $R/sbin/ldconfig $R/sbin/ldconfig.real; cp $R/sbin/ldconfig $R/usr/sbin/ldconfig;";

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0136_no_ldconfig_of_an_image_is_run() {
    let (_, hooked) = past_a_bait(LDCONFIG);
    names_none(&hooked, &["execve", "ldconfig", "sbin"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2024_0137_nothing_of_an_image_gets_the_hosts_namespaces() {
    let (_, hooked) = past_a_bait(LDCONFIG);
    // One namespace is joined, that of the mounts, by the only thread, which starts nothing from then on.
    assert_eq!(hooked.calls.matches("setns(").count(), 1, "{}", hooked.calls);
    assert!(hooked.calls_inside().lines().next().unwrap().contains("CLONE_NEWNS)"), "{}", hooked.calls);
    names_none(&hooked, &["execve", "clone", "unshare"]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_23359_nor_are_libraries_looked_for_that_change_their_place() {
    let script = format!(
        "{COMPAT} ln -s $F/canary $R/usr/local/cuda-12/x; \
         $A/exchange 1000 $R/usr/local/cuda-12/compat $R/usr/local/cuda-12/x </dev/null >/dev/null 2>&1 &"
    );
    let (_, hooked) = past_a_bait(&script);
    names_none(&hooked, &["compat", "libcuda", "usr", "local"]);
}

/// The preloaded library of an image, at the stage where it works against a hook without an environment of its own.
fn preloading(env: Option<&str>, args: &[&str], path: &str) -> bool {
    let mut bundle = Bundle::new();
    fs::copy(Stage::attacker("evil.so"), bundle.path("rootfs/evil.so")).unwrap();
    let marker = bundle.path("ran");
    let entries = bundle.config["process"]["env"].as_array_mut().unwrap();
    entries.push("LD_PRELOAD=./evil.so".into());
    entries.push(format!("EVIL_MARKER={}", marker.display()).into());
    let mut hook = json!({"path": path, "args": args, "timeout": 20});
    if let Some(env) = env {
        hook["env"] = json!([env]);
    }
    bundle.config["hooks"] = json!({"createContainer": [hook]});
    let output = bundle.run(&["runc"]);
    // Where the hook refuses, and it does at this stage, nothing has started.
    assert!(path.ends_with("true") || !output.status.success());
    marker.exists()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_23266_a_library_that_an_image_preloads_is_not_loaded() {
    require(&["runc"]);
    let version = String::from_utf8(Command::new("runc").arg("--version").output().unwrap().stdout).unwrap();
    // Newer versions start hooks with an environment of their own.
    if version.starts_with("runc version 1.1.") {
        assert!(preloading(None, &["true"], "/bin/true"), "this test would not see it: {version}");
    }
    // What the wrapper writes has an environment of its own, and even at a stage that it does not use nothing is loaded.
    let hook = env!("CARGO_BIN_EXE_cudaview-hook");
    assert!(!preloading(Some("PATH=/usr/sbin:/usr/bin:/sbin:/bin"), &["cudaview-hook", "createRuntime"], hook));
    // At its own stage it gets the engine's environment.
    let mut bundle = Bundle::new();
    fs::copy(Stage::attacker("evil.so"), bundle.path("rootfs/evil.so")).unwrap();
    let marker = bundle.path("ran");
    let entries = bundle.config["process"]["env"].as_array_mut().unwrap();
    entries.extend(["LD_PRELOAD=/evil.so".into(), format!("EVIL_MARKER={}", marker.display()).into()]);
    bundle.hook(&["--node", GPU1]);
    started(&bundle.run(&["runc"]));
    assert!(!marker.exists());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_23267_the_loaders_cache_of_an_image_is_not_followed() {
    let (stage, hooked) = past_a_bait(
        "mkdir -p $R/etc/ld.so.conf.d; echo host >$F/host-file; ln -s $F/host-file $R/etc/ld.so.cache; \
         ln -s $F/canary/new $R/etc/ld.so.cache~; ln -s $F/canary $R/etc/ld.so.conf",
    );
    names_none(&hooked, &["ld.so", "etc"]);
    assert_eq!(stage.inside("cat $F/host-file"), "host\n");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2026_24260_a_folder_that_becomes_a_link_leads_nowhere() {
    let stage = Stage::new("mkdir $R/dev/nvidia-caps; ln -s $F/canary $R/dev/x; mkfifo $R/dev/fifo");
    let swap = "exec $A/exchange 60000 $R/dev/nvidia-caps $R/dev/x $R/dev/nvidia-caps $R/dev/fifo";
    let mut attacker = stage.beside(swap);
    let (mut made, mut refused) = (0, 0);
    for _ in 0..60 {
        let hooked = stage.hook(&[CAP2]);
        // A FIFO in the way blocks nobody.
        assert!(hooked.took.as_secs() < 5, "{:?}", hooked.took);
        if hooked.ran.code == 0 { made += 1 } else { refused += 1 }
    }
    attacker.kill().unwrap();
    attacker.wait().unwrap();
    stage.nothing_outside();
    assert!(refused > 0, "no race took place: {made} made");
}
