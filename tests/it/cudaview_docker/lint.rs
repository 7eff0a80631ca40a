//! What `cudaview lint` says of Docker and of Compose, asked of them.

use std::fs;
use std::process::Command;

use cudaview::finding::{Code, Severity};
use cudaview::lint::{command, compose};
use cudaview::typed::{Typed, TypedRun, parse};
use serde_json::{Value, json};

use super::Host;
use crate::command::data;
use crate::world::command::run;
use crate::world::dockerd::IMAGE;
use crate::world::find_program;

fn typed(line: &str) -> TypedRun {
    match parse(&[line.trim().to_owned()]) {
        Ok(Typed::Run(run)) => run,
        other => panic!("{line}: {other:?}"),
    }
}

/// The flags of a command, without those for a terminal.
fn flags(run: &TypedRun) -> Vec<&str> {
    let words = &run.words[2..run.image.unwrap()];
    words.iter().map(String::as_str).filter(|word| !matches!(*word, "-it" | "--rm")).collect()
}

impl Host {
    /// What Docker writes down of these words.
    #[track_caller]
    fn created(&self, words: &[&str]) -> Value {
        let id = self.docker.docker(&[&["create"], words].concat()).ok().stdout;
        let shown = self.docker.inspect(id.trim());
        self.docker.docker(&["rm", id.trim()]).ok();
        shown
    }

    #[track_caller]
    fn request(&self, gpus: &str) -> Value {
        let request = self.created(&["--gpus", gpus, IMAGE, "true"])["HostConfig"]["DeviceRequests"][0].clone();
        json!({"Count": request["Count"], "DeviceIDs": request["DeviceIDs"]})
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_does_what_lint_says_of_its_flags() {
    let host = Host::new("");
    // The sentence that lint quotes, and the values that Docker does not take.
    let refused = host.docker.docker(&["run", "--rm", "--gpus", "device=0,2", IMAGE, "true"]).failed_with(125);
    assert!(refused.stderr.contains("cannot set both Count and DeviceIDs on device request"), "{refused}");
    for gpus in ["two", "0-2", "\"0,2\"", "device", "cards=1"] {
        host.docker.docker(&["run", "--rm", "--gpus", gpus, IMAGE, "true"]).failed_with(125);
    }
    // What it takes without a word.
    assert_eq!(host.request("0,2"), json!({"Count": 2, "DeviceIDs": null}));
    assert_eq!(host.request("2,0"), json!({"Count": 0, "DeviceIDs": null}));
    assert_eq!(host.request("0"), json!({"Count": 0, "DeviceIDs": null}));
    assert_eq!(host.request("device=0-2"), json!({"Count": 0, "DeviceIDs": ["0-2"]}));
    let behind = host.created(&[IMAGE, "--gpus", "all"]);
    assert_eq!(behind["Config"]["Cmd"], json!(["--gpus", "all"]));
    assert_eq!(behind["HostConfig"]["DeviceRequests"].as_array().map_or(0, Vec::len), 0);
    // An env file keeps quotes.
    let file = host.docker.path().join("quotes.env");
    fs::write(&file, "CUDA_VISIBLE_DEVICES=\"0,1\"\n").unwrap();
    let created = host.created(&["--env-file", file.to_str().unwrap(), IMAGE, "true"]);
    let env = created["Config"]["Env"].as_array().unwrap();
    assert!(env.contains(&json!("CUDA_VISIBLE_DEVICES=\"0,1\"")), "{env:?}");
}

/// The corrected commands, with cudaview as the runtime: what a program in the container then sees.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_runs_what_lint_types_instead() {
    let host = Host::new("");
    for (file, expected) in [
        ("unquoted", &[0, 2][..]),
        ("bare", &[0, 2]),
        ("zero", &[0]),
        ("count", &[1]),
        ("range", &[0, 1, 2]),
        ("behind", &[0, 1, 2, 3]),
        ("cuda-name", &[1]),
        ("none", &[0, 1, 2, 3]),
        ("twice", &[0]),
        ("outside", &[1]),
        ("more", &[1, 3]),
        ("order", &[2]),
        ("privileged", &[1]),
        ("selected-twice", &[1]),
    ] {
        let line = fs::read_to_string(data("lint/bad").join(format!("{file}.command"))).unwrap();
        let fixed = command(&typed(&line), &|_| false).fixed.unwrap_or_else(|| panic!("{file} has no fix"));
        let count = host.count(IMAGE, &flags(&typed(&fixed)));
        assert_eq!(count.cuda, host.uuids_of(expected), "{fixed}: {count:?}");
        assert_eq!(count.nvml, host.uuids_of(expected), "{fixed}: {count:?}");
    }
}

/// Compose stops where lint says so, and takes the rest. Docker 20.10 of Debian 12 comes without Compose.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_compose_stops_where_lint_says_so() {
    let has_compose = std::env::var_os("CUDAVIEW_TEST_SUITE").is_some();
    let mut stopped = 0;
    for folder in ["lint/bad", "lint/good"] {
        let files = fs::read_dir(data(folder)).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml")) {
            let faults = compose(&fs::read_to_string(&file).unwrap()).unwrap();
            let stops = |code: Code| matches!(code, Code::ComposeCountAndIds | Code::ComposeGpusUnreadable);
            let stops = faults.iter().any(|fault| fault.severity == Severity::Error && stops(fault.code));
            stopped += usize::from(stops);
            if has_compose {
                let mut config = Command::new(find_program("docker-compose"));
                config.env("GPUS", "0").arg("--file").arg(&file).arg("config");
                let ran = run(&mut config);
                assert_eq!(ran.code != 0, stops, "{}: {ran}", file.display());
            }
        }
    }
    assert_eq!(stopped, 4);
}
