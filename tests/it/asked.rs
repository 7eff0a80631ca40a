//! Images, Compose files and whole commands as people ask about them, with no engine to be asked.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{cudaview, data, text};

const COMPOSE: &str = "\
services:
  trainer:
    image: pytorch-cuda:v2.6
    runtime: cudaview
    environment:
      CUDA_VISIBLE_DEVICES: \"1,3\"
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: [\"1\", \"3\"]
              capabilities: [gpu]
  eval:
    image: pytorch-cuda:v2.6
    runtime: cudaview
    gpus: [{count: 1}]
    env_file: eval.env
  web:
    image: web
";

/// A folder with an image as `docker save` writes it, and a Compose file.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    let config = json!({
        "os": "linux",
        "config": {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=0"]},
        "history": [
            {"created_by": "/bin/sh -c #(nop) ADD file:0 in / "},
            {"created_by": "/bin/sh -c #(nop)  ENV NVIDIA_VISIBLE_DEVICES=all", "empty_layer": true},
            {"created_by": "RUN pip install torch==2.6.0"},
            {"created_by": "ENV PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=0", "empty_layer": true},
            {"created_by": "CMD [\"python3\" \"train.py\"]", "empty_layer": true},
        ],
    });
    write("config.json", &config.to_string());
    let manifest = json!([{"Config": "config.json", "RepoTags": ["pytorch-cuda:v2.6"], "Layers": []}]);
    write("manifest.json", &manifest.to_string());
    let made = Command::new("tar")
        .args(["-cf", "trainer.tar", "manifest.json", "config.json"])
        .current_dir(folder.path())
        .status();
    assert!(made.expect("tar starts").success());
    write("compose.yaml", COMPOSE);
    write("eval.env", "CUDA_VISIBLE_DEVICES=1 # the second one\n");
    write("config.toml", "");
    folder
}

/// cudaview in that folder, over a host of four, where no engine is.
fn ask(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = cudaview();
    command.current_dir(folder).arg("explain").args(["--config", "config.toml", "--inventory"]);
    command.arg(data("inventories/a100x4.json")).args(arguments);
    command.env("DOCKER_HOST", "unix:///nobody/listens/here").env("CONTAINERS_STORAGE_CONF", "/nobody/is/here");
    command
        .env("CONTAINERD_ADDRESS", "/nobody/listens/here")
        .env("HOME", "/nonexistent")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env("SHELLS", "3");
    text(&command.output().expect("cudaview starts"))
}

/// What it prints; it must end well.
#[track_caller]
fn shown(folder: &Path, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = ask(folder, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
    for line in stdout.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    format!("{stdout}--- stderr\n{stderr}")
}

/// How it fails.
#[track_caller]
fn failed(folder: &Path, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = ask(folder, arguments);
    assert_eq!(stdout, "", "{arguments:?}");
    format!("{stderr}exit {}", code.expect("an exit code"))
}

#[track_caller]
fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = ask(folder, &[&["--format", "json"], arguments].concat());
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

#[test]
fn an_image() {
    let folder = folder();
    let folder = folder.path();
    insta::assert_snapshot!(shown(folder, &["--gpus", "\"device=1,3\"", "--image", "trainer.tar"]));
    insta::assert_snapshot!(shown(
        folder,
        &["--gpus", "all", "--image", "trainer.tar:pytorch-cuda:v2.6", "-e", "CUDA_VISIBLE_DEVICES=2"]
    ));
    // What is typed of the image goes before what it has.
    let told = json_of(folder, &["--gpus", "all", "--image", "trainer.tar", "--image-env", "CUDA_VISIBLE_DEVICES=-1"]);
    assert_eq!(told["env"]["set"]["CUDA_VISIBLE_DEVICES"], "0,1,2,3", "{told:#}");
    let told = json_of(folder, &["--gpus", "all", "--image", "trainer.tar"]);
    assert_eq!(
        told["image"],
        json!({"name": "trainer.tar", "place": "a docker save archive", "id": null, "env": [
            {"variable": "CUDA_VISIBLE_DEVICES", "value": "0", "step": 4, "steps": 5,
             "instruction": "ENV … CUDA_VISIBLE_DEVICES=0", "layer": 2, "layers": 2},
            {"variable": "NVIDIA_VISIBLE_DEVICES", "value": "all", "step": 2, "steps": 5,
             "instruction": "ENV NVIDIA_VISIBLE_DEVICES=all", "layer": 1, "layers": 2},
        ]})
    );
    assert_eq!(told["withoutCudaview"]["visible"].as_array().map(Vec::len), Some(1), "{told:#}");
    insta::assert_snapshot!(failed(folder, &["--image", "trainer.tar:b"]));
    insta::assert_snapshot!(failed(folder, &["--image", "./trainer.tgz"]));
    let missing = failed(folder, &["--image", "trainer"]).replace("\n          ", " ");
    assert!(
        missing.contains("no image \"trainer\" was found; looked at /nobody/listens/here (not there)"),
        "{missing}"
    );
    insta::assert_snapshot!(failed(folder, &["--image", "config.toml"]));
    insta::assert_snapshot!(failed(folder, &["--image", "trainer.tar", "--container", "c"]));
}

#[test]
fn a_compose_file() {
    let folder = folder();
    let folder = folder.path();
    let file = ["--compose", "compose.yaml"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { [&file[..], more].concat() };
    insta::assert_snapshot!(shown(folder, &file));
    insta::assert_snapshot!(shown(folder, &with(&["--service", "trainer", "--image", "trainer.tar"])));
    insta::assert_snapshot!(shown(folder, &with(&["--service", "eval"])));
    let told = json_of(folder, &file);
    let verdicts: Vec<&str> = told["services"]
        .as_array()
        .expect("services")
        .iter()
        .map(|one| one["verdict"].as_str().expect("text"))
        .collect();
    assert_eq!(verdicts, ["rewritten", "refused", "not-applicable"], "{told:#}");
    assert_eq!(json_of(folder, &with(&["--service", "eval"]))["service"], "eval");
    insta::assert_snapshot!(failed(folder, &with(&["--service", "tainer"])));
    insta::assert_snapshot!(failed(folder, &with(&["--gpus", "all"])));
    insta::assert_snapshot!(failed(folder, &with(&["--image", "trainer.tar"])));
    insta::assert_snapshot!(failed(folder, &["--compose", "absent.yaml"]));
    fs::write(folder.join("bad.yaml"), "services:\n  a:\n    gpus: 2\n").expect("written");
    insta::assert_snapshot!(failed(folder, &["--compose", "bad.yaml"]));
    fs::remove_file(folder.join("eval.env")).expect("removed");
    insta::assert_snapshot!(failed(folder, &file));
}

#[test]
fn a_whole_command() {
    let folder = folder();
    let folder = folder.path();
    let words = |command: &'static str| -> Vec<&'static str> { ["--"].into_iter().chain(command.split(' ')).collect() };
    insta::assert_snapshot!(shown(
        folder,
        &words("docker run -it --rm --runtime cudaview --gpus device=1 pytorch-cuda:v2.6 python train.py --gpus 3")
    ));
    // One word that holds all of it is taken apart as a shell would.
    let one = json_of(folder, &["docker run --gpus '\"device=1,3\"' -e CUDA_VISIBLE_DEVICES=1,3 x"]);
    let several = ["--", "docker", "run", "--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3", "x"];
    assert_eq!(one, json_of(folder, &several));
    assert_eq!(one["verdict"], "rewritten", "{one:#}");
    let hosts = |command: &'static str| -> Vec<u64> {
        let told = json_of(folder, &words(command));
        told["visible"].as_array().expect("a list").iter().filter_map(|device| device["hostIndex"].as_u64()).collect()
    };
    assert_eq!(hosts("podman run --device nvidia.com/gpu=2 --device=nvidia.com/gpu=0 x sleep 1"), [0, 2]);
    assert_eq!(hosts("podman run --gpus all x"), [0, 1, 2, 3]);
    assert_eq!(hosts("nerdctl run --gpus device=3 x"), [3]);
    assert_eq!(hosts("sudo docker run --gpus all --env-file eval.env x"), [1]);
    assert_eq!(hosts("docker run --gpus all -eCUDA_VISIBLE_DEVICES=3,1 x"), [3, 1]);
    assert_eq!(hosts("docker compose up -d trainer"), [1, 3]);
    assert_eq!(hosts("docker-compose -f compose.yaml run trainer python -c x"), [1, 3]);
    // A bare name takes the value of the shell that asks.
    let told = json_of(folder, &words("docker run --gpus all -e CUDA_VISIBLE_DEVICES x"));
    assert_eq!(told["provenance"]["CUDA_VISIBLE_DEVICES"], "unset", "{told:#}");
    // With an image in place of the one that is not here.
    let told = json_of(folder, &[&["--image", "trainer.tar"], &words("docker run --gpus all x")[..]].concat());
    assert_eq!(told["provenance"]["CUDA_VISIBLE_DEVICES"], "image", "{told:#}");
    let told = json_of(folder, &words("docker -H ssh://far run --gpus all x"));
    assert_eq!(told["image"]["unknown"], "the command asks another engine than this host's", "{told:#}");
    for command in [
        "docker run --gpus all",
        "docker build .",
        "docker compose down",
        "docker compose -f a.yaml -f b.yaml up",
        "docker run --gpus device=0,2 x",
        "docker run -e",
    ] {
        insta::assert_snapshot!(format!("{command}\n{}", failed(folder, &words(command))));
    }
}
