//! Files of podman and containerd as anybody could have left them, without an engine.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command::{cudaview, data, text};

const ID: &str = "5f0c2c6c1b0e9a7d43be8f21c07f6a95d1e2384b6c7f90a1b2c3d4e5f6071829";
const OTHER: &str = "5f0cffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
const POD: &str = "77777777777777777777777777777777777777777777777777777777777777aa";

/// A storage of podman's with the container `llm`, and a state folder of containerd's with `c1`.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        files.write("config.toml", "audit = \"off\"\n");
        let storage = files.path("storage");
        files.write("storage.conf", &format!("[storage]\ngraphroot = \"{}\"\n", storage.display()));
        let list = json!([{"id": ID, "names": ["llm"], "image": "", "layer": "x"}]);
        files.write("storage/overlay-containers/containers.json", &list.to_string());
        let config = config(&["CUDA_VISIBLE_DEVICES=3"], &json!({"io.container.manager": "libpod"}));
        files.write(&Files::bundle("config.json"), &config.to_string());
        files
    }

    fn bundle(name: &str) -> String {
        format!("storage/overlay-containers/{ID}/userdata/{name}")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Exit code, and everything that is said.
    fn ask(&self, container: &str) -> (i32, String) {
        let mut command = cudaview();
        command.args(["explain", "--container", container, "--config"]).arg(self.path("config.toml"));
        command.arg("--inventory").arg(data("inventories/a100x4.json")).env("COLUMNS", "1000");
        command.env("DOCKER_HOST", "unix:///nobody/listens/here").env("CONTAINERD_ADDRESS", self.path("c.sock"));
        command.env("CONTAINERS_STORAGE_CONF", self.path("storage.conf")).env("HOME", "/nonexistent");
        let (code, stdout, stderr) = text(&command.output().unwrap());
        (code.unwrap(), stdout + &stderr)
    }

    #[track_caller]
    fn check(&self, container: &str, code: i32, parts: &[&str]) {
        let (ended, said) = self.ask(container);
        assert_eq!(ended, code, "{said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} in {said}");
        }
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}

fn config(env: &[&str], annotations: &Value) -> Value {
    let node = |minor: u32| json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
    json!({"ociVersion": "1.0.2", "process": {"env": env}, "annotations": annotations,
        "linux": {"devices": [node(1), node(3)], "resources": {"devices": [{"allow": false, "access": "rwm"}]}}})
}

#[test]
fn what_podman_left() {
    let files = Files::new();
    files.check("llm", 0, &["5f0c2c6c1b0e of podman, stopped", "(made without cudaview)"]);
    files.check(
        "llm",
        0,
        &[
            "llm was set up to see no GPU",
            "whether its program ever ran",
            "With cudaview",
            "user: \"3\" is not in the image",
        ],
    );
    files.check(&ID[..6], 0, &["made without cudaview"]);
    files.check("nobody", 1, &["storage (no such container)"]);
    let second = json!([{"id": OTHER, "names": ["second"]}, {"id": "../../x", "names": ["evil\u{1b}"]}]);
    files.write("storage/overlay-containers/volatile-containers.json", &second.to_string());
    files.check(&ID[..4], 2, &["beginning of their ids: podman 5f0c2c6c1b0e llm, podman 5f0cffffffff second"]);
    // Another engine has only one that begins so: that does not make it the one that was meant.
    let task = "io.containerd.runtime.v2.task/default/5f0c-task/config.json";
    files.write(task, &config(&[], &json!({})).to_string());
    files.check("5f0c", 2, &["podman 5f0c2c6c1b0e llm, podman 5f0cffffffff second", "containerd 5f0c-task"]);
    files.check(
        "second",
        1,
        &["nothing to look at yet of the container podman 5f0cffffffff second", "has not been started"],
    );
    files.write("storage/overlay-containers/volatile-containers.json", "[{");
    files.check("llm", 1, &["looked at", "volatile-containers.json", "EOF while parsing"]);
}

/// Nothing is followed or waited for, and nothing is taken that others can write.
#[test]
fn what_somebody_else_left() {
    let files = Files::new();
    let config = files.path(&Files::bundle("config.json"));
    fs::remove_file(&config).unwrap();
    symlink("/etc/hostname", &config).unwrap();
    files.check("llm", 1, &["nothing to look at"]);
    fs::remove_file(&config).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &config, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    files.check("llm", 1, &["is not a regular file"]);
    fs::remove_file(&config).unwrap();
    for (text, code) in [("[]", 4), ("{\"process\": {\"env\": 1}}", 4), ("\u{1b}[31m", 4)] {
        files.write(&Files::bundle("config.json"), text);
        files.check("llm", code, &["failed to read the configuration of the container podman 5f0c2c6c1b0e llm"]);
    }

    let list = files.path("storage/overlay-containers/containers.json");
    fs::set_permissions(&list, PermissionsExt::from_mode(0o666)).unwrap();
    files.check("llm", 1, &["can be written by its group or by others"]);
    fs::set_permissions(&list, PermissionsExt::from_mode(0o600)).unwrap();
    // A folder that leads elsewhere is no part of the storage.
    let (folder, moved) = (files.path("storage/overlay-containers"), files.path("moved"));
    fs::rename(&folder, &moved).unwrap();
    symlink(&moved, &folder).unwrap();
    files.check("llm", 1, &["storage (no such container)"]);
    fs::set_permissions(files.path("storage"), PermissionsExt::from_mode(0o777)).unwrap();
    files.check("llm", 1, &["can be written by its group or by others"]);
    fs::remove_dir_all(files.path("storage")).unwrap();
    symlink(files.path("moved"), files.path("storage")).unwrap();
    files.check("llm", 1, &["is not a folder"]);
}

#[test]
fn what_containerd_left() {
    let files = Files::new();
    let tasks = "io.containerd.runtime.v2.task";
    files.write(
        &format!("{tasks}/default/c1/config.json"),
        &config(&["CUDA_VISIBLE_DEVICES=1,3"], &json!({})).to_string(),
    );
    let named = json!({"io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.image-name": "box\u{1b}"});
    files.write(&format!("{tasks}/k8s.io/{POD}/config.json"), &config(&[], &named).to_string());
    files.check(
        "c1",
        0,
        &["c1 sees 1 GPU: cuda:0 is host GPU 3 (made without cudaview)", "of containerd", "unknown: \"1,3\""],
    );
    files.check("main", 0, &["main sees 2 GPUs", "\"box\\u{1b}\"", "config.json"]);
    files.check(&POD[..12], 0, &["main sees 2 GPUs"]);
    files.write(&format!("{tasks}/default/c2/config.json"), "no JSON");
    files.check("c2", 4, &["failed to read the configuration"]);
    files.write(&format!("{tasks}/moby/{OTHER}/config.json"), &config(&[], &json!({})).to_string());
    files.check(OTHER, 0, &["5f0cffffffff of Docker"]);
}

/// The hook without another door leaves the environment as it was.
#[test]
fn what_the_hook_alone_made() {
    let files = Files::new();
    let mut config = config(&["CUDA_VISIBLE_DEVICES=3"], &json!({}));
    config["linux"]["devices"] = json!([]);
    config["hooks"]["createRuntime"] = json!([{"path": "/usr/bin/cudaview-hook",
        "args": ["cudaview-hook", "createRuntime", "--gpus", "\"device=1,3\""]}]);
    files.write("io.containerd.runtime.v2.task/default/c1/config.json", &config.to_string());
    let first = "c1 sees no GPU: CUDA finds no device (made by cudaview's hook alone)\n";
    files.check("c1", 0, &[first, "note: a createRuntime hook alone cannot rewrite an environment"]);
}

/// A container's own root may call a process as containerd calls its shims, and lead whoever asks to files of its own.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_process_in_a_container_is_no_shim() {
    const SCRIPT: &str = "printf containerd-shim >/proc/self/comm; echo ready; read -r line";
    let files = Files::new();
    let name = format!("forged-{}", std::process::id());
    let bundle = format!("io.containerd.runtime.v2.task/default/{name}");
    files.write(&format!("{bundle}/config.json"), &config(&[], &json!({})).to_string());
    let ask = |within: &[&str]| {
        let words = [within, &["sh", "-c", SCRIPT, "sh", "-address"]].concat();
        let mut process = Command::new(words[0]);
        process.args(&words[1..]).arg(files.path("c.sock")).current_dir(files.path(&bundle));
        let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        process.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
        let mut command = cudaview();
        command.args(["explain", "--container", &name, "--config"]).arg(files.path("config.toml"));
        command.arg("--inventory").arg(data("inventories/a100x4.json")).env_remove("CONTAINERD_ADDRESS");
        command.env("DOCKER_HOST", "unix:///nobody/listens/here");
        let answer = text(&command.output().unwrap());
        drop(process.stdin.take());
        process.wait().unwrap();
        answer
    };
    let (code, _, stderr) = ask(&[]);
    assert_eq!(code, Some(0), "beside whoever asks it may be one: {stderr}");
    let (code, stdout, stderr) = ask(&["unshare", "--pid", "--fork"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
}

/// Names that reach outside are none.
#[test]
fn names_that_are_none() {
    for name in ["../llm", "llm/..", "", ".", "llm\n", "-llm"] {
        let mut command = cudaview();
        command.args(["explain".to_owned(), format!("--container={name}")]);
        let (code, stdout, stderr) = text(&command.output().unwrap());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{name:?} {stderr}");
    }
}
