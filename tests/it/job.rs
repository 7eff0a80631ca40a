//! `cudaview flags`: the GPUs of a shell for a container that is started in it.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::fs;
use std::process::Command;

use crate::command::{cudaview, data, json, text};

const VARIABLES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_STEP_GPUS"];

/// A host of which this shell can open these nodes only.
struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new(minors: &[u32]) -> Job {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::create_dir(root.join("dev")).expect("made");
        for minor in minors {
            // What is opened need not be a device to be refused or not.
            fs::write(root.join(format!("dev/nvidia{minor}")), "").expect("written");
        }
        let inventory = data("inventories").join("a100x4.json");
        let config = format!("dev_root = {root:?}\ninventory = {inventory:?}\n");
        fs::write(root.join("config.toml"), config).expect("written");
        Job { folder }
    }

    fn command(&self, arguments: &[&str], env: &[(&str, &str)]) -> Command {
        let mut command = cudaview();
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.arg("flags").arg("--config").arg(self.folder.path().join("config.toml")).args(arguments);
        command.envs(env.iter().copied());
        command
    }

    #[track_caller]
    fn flags(&self, arguments: &[&str], env: &[(&str, &str)]) -> String {
        let (code, stdout, stderr) = text(&self.command(arguments, env).output().expect("cudaview starts"));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout.trim_end().to_owned()
    }

    /// The host GPUs that a container gets by the flags, as a shell splits them, in CUDA's order.
    #[track_caller]
    fn started_with(&self, flags: &str) -> Vec<u64> {
        let mut command = cudaview();
        command.args(["explain", "--config"]).arg(self.folder.path().join("config.toml"));
        command.args(["--format", "json"]).args(flags.split_whitespace());
        let report = json(&mut command);
        report["visible"].as_array().expect("a list").iter().filter_map(|gpu| gpu["hostIndex"].as_u64()).collect()
    }
}

#[test]
fn a_container_gets_the_gpus_of_the_shell() {
    for (minors, env, expected) in [
        (&[0, 1, 2, 3][..], &[][..], &[0, 1, 2, 3][..]),
        (&[1, 3], &[], &[1, 3]),
        (&[1, 3], &[("CUDA_VISIBLE_DEVICES", "1")], &[3]),
        (&[1, 3], &[("CUDA_VISIBLE_DEVICES", "1,0")], &[3, 1]),
        (&[0, 1, 2, 3], &[("SLURM_STEP_GPUS", "2,0")], &[2, 0]),
        (&[0, 1, 2, 3], &[("CUDA_VISIBLE_DEVICES", "1"), ("SLURM_STEP_GPUS", "2")], &[1]),
        (&[2], &[("SLURM_STEP_GPUS", "1")], &[2]),
    ] {
        let job = Job::new(minors);
        for form in [&[][..], &["--device"]] {
            let flags = job.flags(form, env);
            assert_eq!(job.started_with(&flags), expected, "{minors:?} {env:?}: {flags}");
        }
    }
}

#[test]
fn a_shell_leaves_the_inner_quotes_alone() {
    let job = Job::new(&[1, 3]);
    let script = format!(
        "printf '[%s]' $('{}' flags --config '{}')",
        env!("CARGO_BIN_EXE_cudaview"),
        job.folder.path().join("config.toml").display()
    );
    let mut command = Command::new("sh");
    for name in VARIABLES {
        command.env_remove(name);
    }
    let (_, stdout, stderr) = text(&command.args(["-c", &script]).output().expect("sh starts"));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("[--gpus][\"device=1,3\"]", ""));
}

#[test]
fn no_gpu_is_no_flags_and_a_note() {
    for (minors, env, expected) in [
        (&[][..], &[][..], "this shell can open no GPU: no flags"),
        (&[1], &[("CUDA_VISIBLE_DEVICES", "-1")], "CUDA_VISIBLE_DEVICES hides every GPU from this shell: no flags"),
    ] {
        let (code, stdout, stderr) = text(&Job::new(minors).command(&[], env).output().expect("cudaview starts"));
        assert_eq!((code, stdout.as_str(), stderr), (Some(0), "", format!("note: {expected}\n")));
    }
}

#[test]
fn what_is_not_certain_is_not_printed() {
    let job = Job::new(&[1, 3]);
    for (env, expected) in [
        (("CUDA_VISIBLE_DEVICES", "3"), "CUDA_VISIBLE_DEVICES=\"3\" shows no GPU here"),
        (("CUDA_VISIBLE_DEVICES", "+1"), "it is not certain which GPUs CUDA_VISIBLE_DEVICES=\"+1\" means here"),
    ] {
        let (code, stdout, stderr) = text(&job.command(&[], &[env]).output().expect("cudaview starts"));
        assert_eq!((code, stdout.as_str()), (Some(4), ""), "{env:?}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    let all = Job::new(&[0, 1, 2, 3]);
    let (code, stdout, stderr) =
        text(&all.command(&[], &[("SLURM_STEP_GPUS", "9")]).output().expect("cudaview starts"));
    assert_eq!((code, stdout.as_str()), (Some(4), ""));
    assert!(stderr.contains("SLURM_STEP_GPUS=\"9\" does not name GPUs of this host"), "{stderr}");
}
