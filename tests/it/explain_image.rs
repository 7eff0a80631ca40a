//! `cudaview explain --image` on images that real builders made, in their stores and saved.

mod containerd;
mod docker;
mod podman;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::command::run;

/// A Dockerfile that sets both variables, the one twice.
fn dockerfile(base: &str) -> String {
    format!(
        "FROM {base}\n\
         ENV CUDA_VISIBLE_DEVICES=7\n\
         COPY Dockerfile /x\n\
         ENV OTHER=\"a b\" \\\n    CUDA_VISIBLE_DEVICES=0\n\
         ENV CUDA_DEVICE_ORDER PCI_BUS_ID\n\
         LABEL CUDA_VISIBLE_DEVICES=5\n\
         CMD [\"env\", \"CUDA_VISIBLE_DEVICES=3\", \"sleep\", \"1\"]\n"
    )
}

/// What `explain` says of an image, over a host of four.
#[track_caller]
fn ask(mut command: Command, image: &str) -> Value {
    command.args(["explain", "--gpus", "\"device=1,3\"", "--image", image, "--format", "json"]).env_remove("COLUMNS");
    let ran = run(&mut command).ok();
    assert_eq!(ran.stderr, "", "{ran}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// Value, step and instruction of a variable; the step is none where no instruction set it.
#[track_caller]
fn set_by<'a>(answer: &'a Value, variable: &str) -> (&'a str, Option<u64>, Option<&'a str>) {
    let env = answer["image"]["env"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let found = env.iter().find(|one| one["variable"] == variable).unwrap_or_else(|| panic!("{variable}: {answer:#}"));
    (found["value"].as_str().unwrap(), found["step"].as_u64(), found["instruction"].as_str())
}

/// What every answer about an image of [`dockerfile`] has; `before` steps are its base's.
#[track_caller]
fn check_built(answer: &Value, place: &str, before: u64) {
    assert_eq!(answer["image"]["place"], place, "{answer:#}");
    let (value, step, instruction) = set_by(answer, "CUDA_VISIBLE_DEVICES");
    assert_eq!((value, step, instruction), ("0", Some(before + 3), Some("ENV … CUDA_VISIBLE_DEVICES=0")), "{answer:#}");
    let (value, step, instruction) = set_by(answer, "CUDA_DEVICE_ORDER");
    assert_eq!((value, step), ("PCI_BUS_ID", Some(before + 4)), "{answer:#}");
    // podman leaves it as it is written.
    let spellings = [Some("ENV CUDA_DEVICE_ORDER=PCI_BUS_ID"), Some("ENV CUDA_DEVICE_ORDER PCI_BUS_ID")];
    assert!(spellings.contains(&instruction), "{answer:#}");
    assert_eq!(answer["provenance"]["CUDA_VISIBLE_DEVICES"], "image", "{answer:#}");
}

/// What `lint` finds in an image of [`dockerfile`]: the last value once, at its step, and the command's.
#[track_caller]
fn check_linted(mut command: Command, image: &str, before: u64) {
    command.args(["lint", "--format", "json", "--image", image]);
    let ran = run(&mut command).failed_with(1);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let findings = answer["findings"].as_array().unwrap();
    let of = |code: &str| findings.iter().filter(|found| found["code"] == code).collect::<Vec<_>>();
    let [cuda] = of("env-cuda-visible")[..] else { panic!("{answer:#}") };
    assert_eq!(
        (&cuda["step"], &cuda["instruction"]),
        (&json!(before + 3), &json!("ENV … CUDA_VISIBLE_DEVICES=0")),
        "{answer:#}"
    );
    let [set] = of("set-in-command")[..] else { panic!("{answer:#}") };
    assert_eq!(set["step"], before + 6, "{answer:#}");
    assert!(set["instruction"].as_str().unwrap().starts_with("CMD ["), "{answer:#}");
}

/// The UUIDs that a program will see, in the order of CUDA's ordinals.
#[track_caller]
fn visible(answer: &Value) -> Vec<&str> {
    answer["visible"].as_array().unwrap().iter().map(|device| device["uuid"].as_str().unwrap()).collect()
}

/// The same of the host without cudaview.
#[track_caller]
fn without(answer: &Value) -> Vec<&str> {
    answer["withoutCudaview"]["visible"].as_array().unwrap().iter().map(|uuid| uuid.as_str().unwrap()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
