//! Whoever runs a process: it may call itself an engine's, and none of what it says about the engine counts.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use cudaview::provenance::{Engine, EngineFacts};
use cudaview::sys::provenance::docker_daemon::runtime_is_default;

/// Whether `gpu` is the default runtime of the daemon with this data, beside a process that says so.
fn asked_beside(within: &[&str], data_root: &Path) -> Option<bool> {
    const SCRIPT: &str = "printf dockerd >/proc/self/comm; echo ready; read -r line";
    let words = [within, &["sh", "-c", SCRIPT, "dockerd", "--default-runtime=gpu", "--data-root"]].concat();
    let mut process = Command::new(words[0]);
    let mut process =
        process.args(&words[1..]).arg(data_root).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    process.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    let answer = runtime_is_default(&EngineFacts {
        data_root: Some(data_root.to_owned()),
        privileged: Some(false),
        runtime: Some("gpu".to_owned()),
        ..EngineFacts::nothing_known(Engine::Docker)
    });
    drop(process.stdin.take());
    process.wait().unwrap();
    answer
}

/// An image's request is refused or ignored by it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_daemon_is_roots_and_in_no_container() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |within: &[&str]| asked_beside(within, folder.path());
    assert_eq!(asked(&["env"]), Some(true), "as a daemon would be");
    assert_eq!(asked(&["setpriv", "--reuid", "61234", "--clear-groups"]), None, "an ordinary user's");
    assert_eq!(asked(&["unshare", "--pid", "--fork"]), None, "in a container");
}
