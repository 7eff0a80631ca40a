//! `cudaview ps` where somebody lies, or does not answer: a GPU that is held is not passed over in silence.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::gpu_spec;
use crate::world::command::{run, write_program};
use crate::world::{A100X4, inventory, require};

const NOBODY: &str = "/nobody/listens/here";

/// The ids of containers in whose bundles an engine of root's is to be believed.
const TRUE_ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[track_caller]
fn asked(docker: &str, containerd: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudaview"));
    command
        .args(["ps", "--format", "json", "--inventory"])
        .arg(inventory(A100X4))
        .env("CONTAINERD_ADDRESS", containerd);
    command.env("DOCKER_HOST", format!("unix://{docker}")).env("CONTAINERS_STORAGE_CONF", "/dev/null");
    serde_json::from_str(&run(&mut command).ok().stdout).unwrap()
}

fn holders(told: &Value) -> Vec<String> {
    let gpus = told["gpus"].as_array().unwrap().iter();
    let held = gpus.flat_map(|gpu| gpu["heldBy"].as_array().unwrap());
    let mut all: Vec<String> = held.map(|holder| holder["id"].as_str().unwrap().to_owned()).collect();
    all.dedup();
    all
}

/// Whether it is said that something was not seen, in these words.
#[track_caller]
fn unseen(told: &Value, words: &str) {
    assert_eq!(told["complete"], false);
    assert!(told["unseen"].to_string().contains(words), "{words}: {told:#}");
}

/// A daemon that lists three containers, and of the second and third says this when it is asked more.
fn daemon(socket: &Path, answers: [&'static str; 2]) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            let id = |digit: &str| digit.repeat(64);
            let body = if question.starts_with("GET /containers/json") {
                let one = |digit| json!({"Id": id(digit), "Names": [format!("/of-{digit}")]});
                format!("200 OK\r\n\r\n{}", json!([one("0"), one("1"), one("2")]))
            } else if question.contains(&id("1")) {
                answers[0].to_owned()
            } else if question.contains(&id("2")) {
                answers[1].to_owned()
            } else {
                "404 Not Found\r\n\r\n{}".to_owned()
            };
            let _sent = stream.write_all(format!("HTTP/1.0 {body}").as_bytes());
        }
    });
}

/// dockerd fails so for a container whose lock it cannot get, and for one whose files are damaged.
#[test]
fn a_container_that_docker_says_nothing_of_may_hold_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    daemon(&socket, ["500 Internal Server Error\r\n\r\n{\"message\":\"it is locked\"}", "200 OK\r\n\r\n{}"]);
    let told = asked(socket.to_str().unwrap(), NOBODY);
    unseen(&told, "Docker 111111111111 of-1 (\\\"it is locked\\\")");
    unseen(&told, "Docker 222222222222 of-2 (the answer is not Docker's)");
    assert!(!told.to_string().contains("of-0"), "it ended meanwhile: {told:#}");
}

/// A folder like containerd's, with a bundle of root's.
fn containerd(folder: &Path, config: &str) -> String {
    let bundle = folder.join("io.containerd.runtime.v2.task/default").join(TRUE_ID);
    fs::create_dir_all(&bundle).unwrap();
    fs::write(bundle.join("config.json"), config).unwrap();
    folder.join("containerd.sock").display().to_string()
}

#[test]
fn a_bundle_that_cannot_be_read_may_hold_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let socket = containerd(folder.path(), &gpu_spec(&[]).to_string());
    assert_eq!(holders(&asked(NOBODY, &socket)), [TRUE_ID]);
    let socket = containerd(folder.path(), &" ".repeat(17 << 20));
    let told = asked(NOBODY, &socket);
    assert_eq!(holders(&told), [""; 0]);
    unseen(&told, "containerd aaaaaaaaaaaa (its configuration cannot be read)");
}

struct Monitor(Child);

impl Monitor {
    /// Any user may have a process of this name, with these arguments.
    fn of(folder: &Path, id: &str, bundle: &Path) -> Monitor {
        let program = folder.join("conmon");
        write_program(&program, b"#!/bin/sh\nread word\n");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "61234", "--regid", "61234", "--clear-groups"]).arg(program);
        command.args(["-c", id, "-n", "mine", "-b"]).arg(bundle).stdin(Stdio::piped());
        let monitor = Monitor(command.spawn().unwrap());
        let comm = format!("/proc/{}/comm", monitor.0.id());
        for _ in 0..500 {
            if fs::read_to_string(&comm).unwrap_or_default() == "conmon\n" {
                return monitor;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not start");
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_id_that_a_user_claims_hides_nobodys_container() {
    require(&["setpriv"]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = containerd(folder.path(), &gpu_spec(&[]).to_string());
    let bundle = folder.path().join("bundle");
    fs::create_dir(&bundle).unwrap();
    let config = bundle.join("config.json");
    fs::write(
        &config,
        "{\"ociVersion\": \"1.0.2\", \"process\": {\"args\": [\"x\"], \"cwd\": \"/\"}, \"root\": {\"path\": \"x\"}}",
    )
    .unwrap();
    std::os::unix::fs::chown(&config, Some(61234), Some(61234)).unwrap();
    {
        let _monitor = Monitor::of(folder.path(), TRUE_ID, &bundle);
        assert!(holders(&asked(NOBODY, &socket)).contains(&TRUE_ID.to_owned()));
    }
    // It would stand in every cgroup, so that no process would be outside of it.
    for id in ["", "/", "docker"] {
        let _monitor = Monitor::of(folder.path(), id, &bundle);
        unseen(&asked(NOBODY, &socket), "(its id is none of podman's)");
    }
    // Root does not read gigabytes for a user.
    fs::write(&config, " ".repeat(3 << 20)).unwrap();
    let _monitor = Monitor::of(folder.path(), &"b".repeat(64), &bundle);
    unseen(&asked(NOBODY, &socket), "(its bundle cannot be read)");
}
