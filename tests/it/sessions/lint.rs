//! Session 4: `lint` on a Dockerfile and on commands.

use super::as_it_is;
use super::terminal::screens;
use crate::command::cudaview;

#[test]
fn a_dockerfile() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04",
        "RUN apt-get update && apt-get install -y python3-pip && pip install torch==2.6.0",
        "ENV CUDA_VISIBLE_DEVICES=0 \\",
        "    NVIDIA_VISIBLE_DEVICES=all",
        "CMD [\"python3\", \"train.py\"]\n",
    ];
    std::fs::write(folder.path().join("Dockerfile"), lines.join("\n")).unwrap();
    let lint = || {
        let mut command = cudaview();
        command.current_dir(folder.path()).args(["lint", "Dockerfile"]);
        command
    };
    insta::assert_snapshot!(screens("cudaview lint Dockerfile", lint, as_it_is));
}

#[track_caller]
fn lint_run(flags: &[&str]) -> String {
    let words = [&["docker", "run"], flags, &["pytorch-cuda:v2.6", "python", "train.py"]].concat();
    let lint = || {
        let mut command = cudaview();
        command.args(["lint", "--"]).args(&words);
        command
    };
    let typed: Vec<String> = words.iter().map(|word| cudaview::shell::quote(word)).collect();
    screens(&format!("cudaview lint -- {}", typed.join(" ")), lint, as_it_is)
}

#[test]
fn two_faults_in_a_command() {
    insta::assert_snapshot!(lint_run(&["--rm", "--gpus", "device=0,2", "-e", "CUDA_VISIBLE_DEVICES=0,2"]));
}

#[test]
fn a_fault_that_nobody_notices() {
    insta::assert_snapshot!(lint_run(&["--gpus", "0,2"]));
}

#[test]
fn a_good_command() {
    insta::assert_snapshot!(lint_run(&["--gpus", "\"device=0,2\""]));
}

/// The page to which the footers lead.
#[test]
fn the_page_of_a_code() {
    let page = || {
        let mut command = cudaview();
        command.args(["explain", "gpus-bare-list"]);
        command
    };
    insta::assert_snapshot!(screens("cudaview explain gpus-bare-list", page, as_it_is));
}
