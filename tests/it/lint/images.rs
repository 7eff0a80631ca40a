//! Images in files, without an engine.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{cudaview, text};

/// A folder with an unpacked image of `docker save` in `image`, and the archive of it.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    fs::create_dir(&image).expect("a folder");
    let config = json!({
        "os": "linux",
        "config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12.4", "CUDA_VISIBLE_DEVICES=0",
                           "CUDA_VISIBLE_DEVICE=1"]},
        "history": [
            {"created_by": "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.4 NVIDIA_VISIBLE_DEVICES=all", "empty_layer": true},
            {"created_by": "RUN /bin/sh -c pip install torch # buildkit"},
            {"created_by": "/bin/sh -c #(nop)  ENV CUDA_VISIBLE_DEVICES=0", "empty_layer": true},
            {"created_by": "CMD [\"python3\" \"train.py\"]", "empty_layer": true},
        ],
    });
    fs::write(image.join("config.json"), config.to_string()).expect("written");
    let manifest = json!([{"Config": "config.json", "RepoTags": ["trainer:v1"], "Layers": []}]);
    fs::write(image.join("manifest.json"), manifest.to_string()).expect("written");
    fs::write(folder.path().join("Dockerfile"), "FROM x\nENV CUDA_VISIBLE_DEVICES=all\n").expect("written");
    let made = Command::new("tar")
        .args(["-cf", "trainer.tar", "-C", "image", "manifest.json", "config.json"])
        .current_dir(folder.path())
        .status();
    assert!(made.expect("tar starts").success());
    folder
}

fn lint(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = cudaview();
    command.current_dir(folder).arg("lint").args(arguments);
    for name in ["DOCKER_HOST", "CONTAINERS_STORAGE_CONF", "CONTAINERD_ADDRESS"] {
        command.env(name, "/nobody/is/here");
    }
    text(&command.output().expect("cudaview starts"))
}

#[test]
fn an_image_in_a_file() {
    let folder = folder();
    let (code, stdout, stderr) = lint(folder.path(), &["trainer.tar"]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(format!("{stdout}--- stderr\n{stderr}"));
    let (_, whole, _) = lint(folder.path(), &["trainer.tar", "--format", "json"]);
    for same in [&["--image", "trainer.tar"][..], &["--image", "trainer.tar:trainer:v1"], &["image"]] {
        let (code, other, _) = lint(folder.path(), &[same, &["--format", "json"]].concat());
        let name = same[same.len() - 1];
        let other = other.replace(&format!("\"image\": \"{name}\""), "\"image\": \"trainer.tar\"");
        assert_eq!((code, other), (Some(1), whole.clone()), "{same:?}");
    }
}

#[test]
fn beside_a_file_and_silenced() {
    let folder = folder();
    let (code, stdout, stderr) = lint(folder.path(), &["Dockerfile", "trainer.tar", "--ignore", "env-cuda-visible"]);
    assert_eq!(code, Some(1));
    assert!(stdout.starts_with("Dockerfile:2:5: warning: "), "{stdout}");
    assert!(stdout.contains("\ntrainer.tar: step 1 of 4: info: the image asks for every GPU"), "{stdout}");
    assert!(!stdout.contains("env-cuda-visible"), "{stdout}");
    assert!(stderr.contains("in 2 files and images"), "{stderr}");
    let all = "env-cuda-visible,env-nvidia-visible,misspelt-variable";
    let (code, stdout, stderr) = lint(folder.path(), &["--image", "trainer.tar", "--ignore", all]);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "nothing found\n", ""));
}

#[test]
fn the_json_of_an_image() {
    let folder = folder();
    let (_, stdout, _) = lint(folder.path(), &["--image", "trainer.tar", "--format", "json"]);
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    let places: Vec<Value> = answer["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .map(|found| json!([found["image"], found["step"], found["steps"], found["instruction"], found["code"]]))
        .collect();
    assert_eq!(
        json!(places),
        json!([
            ["trainer.tar", 1, 4, "ENV … NVIDIA_VISIBLE_DEVICES=all", "env-nvidia-visible"],
            ["trainer.tar", 3, 4, "ENV CUDA_VISIBLE_DEVICES=0", "env-cuda-visible"],
            ["trainer.tar", null, null, "CUDA_VISIBLE_DEVICE=1", "misspelt-variable"],
        ])
    );
    assert!(answer["findings"][0].get("line").is_none() && answer["findings"][0].get("file").is_none());
}

#[test]
fn an_image_that_is_not_there() {
    let folder = folder();
    let (code, stdout, stderr) = lint(folder.path(), &["--image", "nobody/has:this"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("cudaview: no image \"nobody/has:this\" was found"), "{stderr}");
    let (code, _, stderr) = lint(folder.path(), &["--image", "Dockerfile"]);
    assert_eq!(code, Some(4), "{stderr}");
    let (code, _, stderr) = lint(folder.path(), &["--image", "x", "--", "docker", "run", "x"]);
    assert_eq!(code, Some(2), "{stderr}");
    fs::create_dir(folder.path().join("empty")).expect("a folder");
    let (code, _, stderr) = lint(folder.path(), &["empty"]);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("it is a folder"), "{stderr}");
}
