//! `tests/gpu/run`, the script for a machine with a real GPU, over the doubles and without anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::command::{cudaview, data, json, text};
use crate::world::command::{Ran, run, run_limited, write_program};
use crate::world::{A100X4, artifacts, repository, require};

/// The script may take four minutes on a real machine; the doubles answer at once.
const LIMIT: Duration = Duration::from_secs(150);

/// The folder of the programs that cargo built.
fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cudaview")).parent().unwrap()
}

fn script() -> PathBuf {
    repository().join("tests/gpu/run")
}

/// A machine of the doubles: its folder has the libraries and the inventory.
fn machine(inventory: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        fs::copy(artifacts::doubles().join(library), folder.path().join(library)).unwrap();
    }
    fs::copy(data("inventories").join(inventory), folder.path().join("inventory.json")).unwrap();
    folder
}

/// Puts a command on that machine.
fn on<'a>(machine: &Path, command: &'a mut Command) -> &'a mut Command {
    command.env("LD_LIBRARY_PATH", machine).env("GPU_DOUBLE_INVENTORY", machine.join("inventory.json"))
}

fn limited(command: &mut Command) -> Ran {
    run_limited(command, Stdio::null(), LIMIT)
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Runs it where every GPU can be opened, and gives what it wrote.
#[track_caller]
fn asked(inventory: &str) -> (Ran, Value) {
    let machine = machine(inventory);
    let output = machine.path().join("answers.json");
    let mut command = Command::new(script());
    command.arg("--bin").arg(programs()).arg("--output").arg(&output).env("GPU_DOUBLE_NO_NODES", "1");
    let ran = limited(on(machine.path(), &mut command)).ok();
    (ran, report(&output))
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["table"].as_array().unwrap().iter()
}

/// It ends with the code for "no inventory" and one line that says this.
#[track_caller]
fn check_no_gpu(machine: &Path, command: &mut Command, reason: &str) {
    let output = machine.join("answers.json");
    let (code, stdout, stderr) = text(&command.arg("--output").arg(&output).output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(5), ""), "{stderr}");
    assert!(stderr.starts_with("tests/gpu/run: no GPU here: ") && stderr.contains(reason), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!output.exists());
}

#[test]
fn without_a_gpu_it_says_so() {
    let machine = machine(A100X4);
    let no_nodes = machine.path().join("dev");
    fs::create_dir(&no_nodes).unwrap();
    let mut command = Command::new(script());
    on(machine.path(), command.arg("--bin").arg(programs()).env("GPU_DOUBLE_DEV", &no_nodes));
    check_no_gpu(machine.path(), &mut command, "cuInit ends with 100");

    // Whatever is installed on the machine that runs the tests: this one is found first, and is no library.
    fs::write(machine.path().join("libcuda.so.1"), "").unwrap();
    let mut command = Command::new(script());
    on(machine.path(), command.arg("--bin").arg(programs()));
    check_no_gpu(machine.path(), &mut command, "libcuda.so.1");
}

/// Every row that is known is as predicted, none is left out, and the inventory in the answer is a fixture.
#[track_caller]
fn check_rows(inventory: &str, gpus: usize, least: usize) {
    let (ran, report) = asked(inventory);
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{ran}");
    assert_eq!(report["schemaVersion"], 1);
    assert_eq!(report["driver"]["version"], report["inventory"]["driverVersion"]);

    let known: Vec<&Value> = rows(&report).filter(|row| row["certain"] == true && row["open"] == false).collect();
    assert!(known.len() >= least, "{} rows", known.len());
    for row in known {
        assert_eq!((&row["agrees"], &row["expected"]), (&Value::Bool(true), &row["actual"]), "{row}");
    }
    assert!(rows(&report).all(|row| row["agrees"].is_boolean()), "nothing was left unasked");
    assert_eq!(report["comparisons"][0]["agrees"], true, "{}", report["comparisons"]);
    assert!(report["timings"]["nvmlInitMs"]["median"].is_number() && report["timings"]["procReadMs"].is_object());
    assert_eq!(report["container"]["ran"], false);

    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), report["inventory"].to_string()).unwrap();
    let again = json(cudaview().args(["inventory", "--format", "json", "--inventory"]).arg(file.path()));
    assert_eq!(again["gpus"], report["inventory"]["gpus"]);
    assert_eq!(again["gpus"].as_array().unwrap().len(), gpus);
}

#[test]
fn rows_of_equal_gpus_are_as_predicted() {
    check_rows(A100X4, 4, 70);
}

#[test]
fn rows_of_mig_devices_are_as_predicted() {
    // With full GPUs behind MIG devices no number is certain in the order in which the table asks.
    check_rows("a100mig4.json", 4, 45);
}

#[test]
fn rows_of_different_gpus_are_as_predicted() {
    check_rows("mixed5.json", 5, 60);
}

/// What was packed runs elsewhere, and tells a prediction that is wrong from one that holds.
#[test]
fn a_packed_script_finds_a_disagreement() {
    let machine = machine(A100X4);
    let liar = machine.path().join("bin");
    fs::create_dir(&liar).unwrap();
    for program in ["cudaview-runtime", "cudaview-hook", "cudaview-nvml"] {
        fs::copy(programs().join(program), liar.join(program)).unwrap();
    }
    // It predicts for another value than the one that it was given.
    let real = programs().join("cudaview");
    let lie = format!("#!/bin/bash\nexec '{}' \"${{@/%=0,1/=1,0}}\"\n", real.display());
    write_program(&liar.join("cudaview"), lie.as_bytes());
    let tar = machine.path().join("pack.tar");
    run(Command::new(script()).args(["pack", "--bin"]).arg(&liar).arg(&tar)).ok();
    run(Command::new("tar").arg("-C").arg(machine.path()).arg("-xf").arg(&tar)).ok();

    let output = machine.path().join("answers.json");
    let mut command = Command::new(machine.path().join("cudaview-gpu/run"));
    command.arg("--output").arg(&output).env("GPU_DOUBLE_NO_NODES", "1").current_dir(machine.path());
    let ran = limited(on(machine.path(), &mut command)).failed_with(1);
    let report = report(&output);
    let wrong = rows(&report).filter(|row| row["open"] == false && row["agrees"] == false);
    assert_eq!(wrong.map(|row| row["value"].as_str().unwrap()).collect::<Vec<_>>(), ["0,1"]);
    assert!(ran.stdout.lines().any(|line| line.starts_with("! number") && line.contains("\"0,1\"")), "{ran}");
}

#[test]
fn a_wrong_command_line_is_told() {
    for arguments in [&["--bogus"][..], &["pack"], &["extra"], &["pack", "--output", "x"]] {
        let (code, stdout, stderr) = text(&Command::new(script()).args(arguments).output().unwrap());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains("tests/gpu/run pack"), "{stderr}");
    }
}

/// In containers over the machine's own files: plain runc shows no GPU where the host's number was written, we do.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn it_counts_in_containers() {
    require(&["runc", "unshare"]);
    let machine = machine(A100X4);
    fs::set_permissions(machine.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = machine.path().join("answers.json");
    // A /dev of its own: other tests share the world's.
    let nodes = "set -e; . \"$0\"; private_dev /dev; for n in 0 1 2 3; do make_node /dev/nvidia$n 666 195 $n; done; \
                 make_node /dev/nvidiactl 666 195 255; make_node /dev/nvidia-uvm 666 510 0; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "bash", "-c", nodes]).arg(repository().join("tests/world.bash"));
    command.arg(script()).arg("--bin").arg(programs()).arg("--output").arg(&output);
    limited(on(machine.path(), &mut command)).ok();

    let report = report(&output);
    let container = &report["container"];
    assert_eq!((&container["ran"], &container["agrees"]), (&Value::Bool(true), &Value::Bool(true)), "{container}");
    let by_host_number = &container["cases"][1];
    assert_eq!((&by_host_number["value"], &by_host_number["runc"]), (&"3".into(), &Value::Array(vec![])));
    assert_eq!(by_host_number["cudaview"], by_host_number["expected"]);
    assert_eq!(report["comparisons"][2]["agrees"], true, "{}", report["comparisons"]);
}
