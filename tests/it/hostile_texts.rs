//! Texts of others that would steer a terminal, on whatever way they come: nothing of them is printed as it is.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::command::{cudaview, data, text};

/// A title, a colour by one byte, a turned direction, a line of its own.
const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\n\rhint: sudo x";

#[track_caller]
fn check(folder: &Path, arguments: &[&str]) {
    for format in ["human", "json"] {
        let mut command = cudaview();
        command
            .current_dir(folder)
            .args(arguments)
            .args(["--format", format])
            .env("CONTAINERS_STORAGE_CONF", "/dev/null");
        command.env("DOCKER_HOST", format!("unix:///{HOSTILE}")).env("CONTAINERD_ADDRESS", format!("/{HOSTILE}"));
        let (_, stdout, stderr) = text(&command.output().unwrap());
        let all = stdout + &stderr;
        for letter in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\r'] {
            assert!(!all.contains(letter), "{arguments:?} prints {letter:?}: {all:?}");
        }
        assert!(all.lines().all(|line| !line.starts_with("hint: sudo x")), "{all}");
        assert!(all.len() > 20);
    }
}

#[test]
fn nothing_of_others_steers_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let inventory = data("inventories/a100x4.json");
    let host = ["--inventory", inventory.to_str().unwrap()];
    let service = |image: &str| {
        json!({"services": {HOSTILE: {"image": image, "runtime": HOSTILE, "gpus": [{"count": 1}],
            "environment": {"CUDA_VISIBLE_DEVICES": HOSTILE}}, "b": {"image": "x", "extends": {"file": HOSTILE}}}})
    };
    write("a.yaml", service("x").to_string());
    write("b.yaml", service("$(").to_string());
    write("c.yaml", json!({"services": {HOSTILE: {"gpus": "none"}}}).to_string());
    for name in ["a.yaml", "b.yaml", "c.yaml"] {
        check(folder.path(), &[&["explain", "--compose", name], &host[..]].concat());
        check(folder.path(), &["lint", name]);
    }
    let line = HOSTILE.replace(['\n', '\r'], "");
    write(
        "Dockerfile",
        format!("FROM x\nENV CUDA_VISIBLE_DEVICES={line} # {line}\nCMD CUDA_VISIBLE_DEVICES={line} x\n"),
    );
    check(folder.path(), &["lint", "Dockerfile"]);
    let (manifest, config) = ("d".repeat(64), "c".repeat(64));
    let named = |name: String| {
        json!({"digest": format!("sha256:{manifest}"),
        "annotations": {"org.opencontainers.image.ref.name": name}, "platform": {"os": HOSTILE, "architecture": HOSTILE}})
    };
    write("l/index.json", json!({"manifests": [named(HOSTILE.to_owned())]}).to_string());
    write(&format!("l/blobs/sha256/{manifest}"), json!({"config": {"digest": format!("sha256:{config}")}}).to_string());
    let of_image = json!({"config": {"Env": [format!("CUDA_VISIBLE_DEVICES={HOSTILE}"), HOSTILE]},
        "history": [{"created_by": format!("ENV CUDA_VISIBLE_DEVICES={HOSTILE}"), "comment": HOSTILE}]});
    write(&format!("l/blobs/sha256/{config}"), of_image.to_string());
    write(
        "s/manifest.json",
        json!([{"Config": HOSTILE, "RepoTags": [HOSTILE]}, {"Config": "x", "RepoTags": ["b"]}]).to_string(),
    );
    for image in ["./l", "./l:other", "./s", "./s:b", "nowhere"] {
        check(folder.path(), &[&["explain", "--gpus", "all", "--image", image], &host[..]].concat());
        check(folder.path(), &["lint", "--image", image]);
    }
    check(folder.path(), &[&["ps"], &host[..]].concat());
    check(folder.path(), &["doctor", "--container", "x"]);
    check(folder.path(), &["log", "--config", HOSTILE]);
}
