//! The harness: a simulated GPU host, and real runtimes and engines on it.
//!
//! Tests that use it are marked `#[ignore = "needs root and engines: sudo tests/run"]`: a plain `cargo test` shows them
//! as ignored, and `sudo tests/run` runs them in a world of their own (private mounts, `/dev`, `/run` and process ids).
//! Run without that world they fail and say so; none of them passes by not looking.
#![allow(dead_code, reason = "a harness: what one test module does not use, another does")]

pub(crate) mod artifacts;
pub(crate) mod bundle;
pub(crate) mod cdi;
pub(crate) mod command;
pub(crate) mod containerd;
pub(crate) mod count;
pub(crate) mod cri;
pub(crate) mod dockerd;
pub(crate) mod host;
pub(crate) mod image;
pub(crate) mod install;
pub(crate) mod mounts;
pub(crate) mod namespace;
pub(crate) mod podman;
pub(crate) mod shims;
pub(crate) mod spec;
pub(crate) mod stage;
pub(crate) mod toolkit;

pub(crate) use artifacts::rootfs;
pub(crate) use bundle::{Bundle, CgroupView};
pub(crate) use count::Access;
pub(crate) use dockerd::Dockerd;
pub(crate) use install::Install;
pub(crate) use podman::Podman;
pub(crate) use stage::Stage;

use std::path::{Path, PathBuf};

/// The inventory that most tests use: four A100s, host index and minor the same.
pub(crate) const A100X4: &str = "a100x4.json";

/// The CUDA driver API's code for "no CUDA-capable device is detected" (`cuda.h`, `CUDA_ERROR_NO_DEVICE`).
pub(crate) const CUDA_ERROR_NO_DEVICE: i64 = 100;

/// Fails the test unless it runs as root in the world that `tests/run` makes, with these programs installed.
#[track_caller]
pub(crate) fn require(programs: &[&str]) {
    assert!(rustix::process::geteuid().is_root(), "this test needs root: sudo tests/run");
    assert!(
        std::env::var_os("CUDAVIEW_TEST_WORLD").is_some(),
        "this test must not touch the machine's own /dev, /run and engines: run it through sudo tests/run"
    );
    for program in programs {
        let _path = find_program(program);
    }
}

/// Where a program is: Debian's own directories first, then `PATH`.
#[track_caller]
pub(crate) fn find_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .into_iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed: sudo tests/run installs what the tests need"))
}

/// The repository's root.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file of an inventory fixture.
pub(crate) fn inventory(name: &str) -> PathBuf {
    repository().join("tests/data/inventories").join(name)
}

/// The UUIDs of an inventory fixture's GPUs, in host order.
pub(crate) fn uuids(inventory_name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(inventory(inventory_name)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["gpus"].as_array().unwrap().iter().map(|gpu| gpu["uuid"].as_str().unwrap().to_owned()).collect()
}

/// Whether this machine, or the world that `tests/engines` makes, has nothing but cgroup version 2.
pub(crate) fn only_cgroup_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The cgroup below which everything of this run lives; `tests/run` removes it at the end.
pub(crate) fn cgroup() -> String {
    let name = std::env::var("CUDAVIEW_TEST_CGROUP").expect("CUDAVIEW_TEST_CGROUP is set by tests/run");
    format!("/{name}")
}
