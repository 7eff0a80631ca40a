//! `cudaview explain --container` on containers of real engines, as root and as whoever may ask the engine.
//!
//! `pages` shows what it looks like, with a stand-in for Docker's socket; `files` has what nobody should have left.

mod containerd;
mod docker;
mod files;
pub(crate) mod pages;
mod podman;

use std::process::Command;

use serde_json::Value;

use crate::world::command::{Ran, run};

/// An ordinary user, and the group that a daemon's socket belongs to.
const USER: u32 = 61234;
const GROUP: u32 = 61235;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Root,
    /// An ordinary user who is in the group of the daemon's socket.
    Member,
    /// An ordinary user who is not.
    Stranger,
}

impl Asker {
    /// A program, to be run by this person.
    fn command(self, program: &std::path::Path) -> Command {
        let mut command = Command::new("setpriv");
        match self {
            Asker::Root => {}
            Asker::Member => {
                command.args(["--reuid", &USER.to_string(), "--regid", &USER.to_string()]);
                command.args(["--groups", &GROUP.to_string()]);
            }
            Asker::Stranger => {
                command.args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups"]);
            }
        }
        command.arg("--").arg(program).env("HOME", "/nonexistent");
        command
    }
}

/// Runs `cudaview explain --container`, which must end well and say nothing beside its answer.
#[track_caller]
fn answer(mut command: Command, container: &str, more: &[&str]) -> Ran {
    let ran = run(command.args(["explain", "--container", container]).args(more).env_remove("COLUMNS")).ok();
    assert_eq!(ran.stderr, "", "{ran}");
    // A path stays whole, so that it can be copied.
    for line in ran.stdout.lines().filter(|line| !more.contains(&"json") && line.trim().contains(' ')) {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert!(!ran.stdout.contains('\u{1b}'), "colours off a terminal: {ran}");
    ran
}

/// The same, however it ends, in lines that are long enough for any path.
#[track_caller]
fn ask(mut command: Command, container: &str, more: &[&str]) -> Ran {
    run(command.args(["explain", "--container", container]).args(more).env("COLUMNS", "1000"))
}

/// The same as JSON.
#[track_caller]
fn json(command: Command, container: &str, more: &[&str]) -> Value {
    let ran = answer(command, container, &[&["--format", "json"], more].concat());
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// What `cudaview ps` says of each GPU: which of these containers hold it, and as which `cuda:N`.
///
/// Root sees rootless containers of any user, those of another test among them.
#[track_caller]
fn held(mut command: Command, names: &[&str]) -> Vec<Vec<(String, Option<u64>)>> {
    let ran = run(command.args(["ps", "--format", "json"])).ok();
    assert_eq!(ran.stderr, "", "{ran}");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let holder = |holder: &Value| (holder["name"].as_str().unwrap().to_owned(), holder["cudaOrdinal"].as_u64());
    let gpus = told["gpus"].as_array().unwrap().iter();
    let is_own = |holder: &(String, Option<u64>)| names.contains(&holder.0.as_str());
    gpus.map(|gpu| gpu["heldBy"].as_array().unwrap().iter().map(holder).filter(is_own).collect()).collect()
}

/// A holder of a GPU, as [`held`] has it.
fn by(name: &str, ordinal: impl Into<Option<u64>>) -> (String, Option<u64>) {
    (name.to_owned(), ordinal.into())
}

/// Origin and origin at create of a variable.
#[track_caller]
fn origin<'a>(answer: &'a Value, variable: &str) -> (&'a str, Option<&'a str>) {
    let origins = answer["container"]["origins"].as_array().unwrap();
    let found = origins.iter().find(|origin| origin["variable"] == variable);
    let found = found.unwrap_or_else(|| panic!("no {variable} in {answer:#}"));
    (found["origin"].as_str().unwrap(), found["originAtCreate"].as_str())
}

/// Host GPUs in the order of CUDA's ordinals.
#[track_caller]
fn hosts(visible: &Value) -> Vec<u64> {
    visible.as_array().unwrap().iter().map(|device| device["hostIndex"].as_u64().unwrap()).collect()
}

/// Whether something like this was looked at.
fn looked_at(answer: &Value, part: &str) -> bool {
    answer["container"]["lookedAt"].as_array().unwrap().iter().any(|place| place.as_str().unwrap().contains(part))
}
