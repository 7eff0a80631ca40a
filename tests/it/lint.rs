//! `cudaview lint`: a corpus of files with a fault each and of good ones, how it ends; its usual screens are in `sessions`.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

pub(crate) mod images;
mod laws;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use cudaview::finding::Code;
use cudaview::lint::{Fault, Kind, command, file};
use cudaview::typed::{Typed, TypedRun, parse};
use serde_json::{Value, json};

use crate::command::{cudaview, data, text};

fn corpus(part: &str) -> Vec<(String, String)> {
    let folder = data("lint").join(part);
    let entries = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    paths.into_iter().map(|path| (name(&path), std::fs::read_to_string(&path).expect("text"))).collect()
}

fn typed(line: &str) -> TypedRun {
    match parse(&[line.trim().to_owned()]) {
        Ok(Typed::Run(run)) => run,
        other => panic!("{line}: {other:?}"),
    }
}

fn faults(name: &str, text: &str) -> Vec<Fault> {
    if name.ends_with(".command") {
        return command(&typed(text), &|_| false).faults;
    }
    file(Kind::of(name, text).expect("a kind"), text).expect("a file that can be read")
}

fn table() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read(data("lint").join("table.json")).expect("a table");
    serde_json::from_slice(&text).expect("a table")
}

#[test]
fn every_seeded_fault_is_found_and_nothing_else() {
    let (bad, table) = (corpus("bad"), table());
    assert!(bad.len() >= 20, "{}", bad.len());
    assert_eq!(bad.iter().map(|(name, _)| name).collect::<Vec<_>>(), table.keys().collect::<Vec<_>>());
    for (name, text) in bad {
        let mut found: Vec<&str> = faults(&name, &text).iter().map(|fault| fault.code.name()).collect();
        found.sort_unstable();
        assert_eq!(found, table[&name], "{name}");
    }
}

/// Public reports of people who were puzzled, as far as the text alone shows why.
#[test]
fn public_reports() {
    let text = std::fs::read(data("lint").join("reports.json")).expect("a table");
    let rows: Vec<Value> = serde_json::from_slice(&text).expect("a table");
    assert!(rows.len() >= 40, "{}", rows.len());
    for row in rows {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        let found = match (text("command"), text("dockerfile"), text("compose")) {
            (Some(line), None, None) => faults("x.command", &line),
            (None, Some(text), None) => faults("Dockerfile", &text),
            (None, None, Some(text)) => faults("compose.yaml", &text),
            other => panic!("{other:?}"),
        };
        let found: Vec<&str> = found.iter().map(|fault| fault.code.name()).collect();
        assert_eq!(json!(found), row["codes"], "{row}");
        // Where nothing is found the row says why.
        assert!(!found.is_empty() || row["note"].is_string(), "{row}");
    }
}

#[test]
fn good_files_give_no_finding() {
    let good = corpus("good");
    assert!(good.len() >= 20, "{}", good.len());
    for (name, text) in good {
        assert_eq!(faults(&name, &text), [], "{name}");
    }
}

/// The codes from `env-cuda-visible` on are those of lint alone.
#[test]
fn every_code_of_lint_has_a_file_in_the_corpus() {
    let found: BTreeSet<String> = table().into_values().flatten().collect();
    let own = Code::ALL.iter().skip_while(|code| **code != Code::EnvCudaVisible).map(|code| code.name());
    let missing: Vec<&str> = own.filter(|name| !found.contains(*name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_documentation_lists_what_is_found() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lint.md");
    let text = std::fs::read_to_string(path).expect("a page");
    let listed: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split_once(']').map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(listed, table().into_values().flatten().collect::<BTreeSet<_>>());
}

#[test]
fn the_corrected_command_has_no_fault() {
    let mut fixed = 0;
    for (name, line) in corpus("bad").into_iter().filter(|(name, _)| name.ends_with(".command")) {
        let Some(text) = command(&typed(&line), &|_| false).fixed else { continue };
        assert_eq!(command(&typed(&text), &|_| false).faults, [], "{name}: {text}");
        fixed += 1;
    }
    assert!(fixed >= 12, "{fixed}");
}

/// Runs it in the folder of bad files.
fn lint(arguments: &[&str]) -> Output {
    let mut command = cudaview();
    command.current_dir(data("lint").join("bad")).arg("lint").args(arguments);
    command.output().expect("cudaview starts")
}

/// What a terminal of 80 columns shows: the report, the footer, how it ended.
fn screen(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = text(&lint(arguments));
    for line in stdout.lines().chain(stderr.lines()) {
        // A command cannot be broken.
        assert!(
            line.chars().count() <= 80
                || ["  docker", "  podman", "  nerdctl"].iter().any(|start| line.starts_with(start)),
            "{line}"
        );
    }
    format!("{stdout}{stderr}exit {}", code.expect("an exit code"))
}

#[test]
fn every_report_fits_the_terminal() {
    for (name, line) in corpus("bad") {
        let shown = if name.ends_with(".command") { screen(&["--", line.trim()]) } else { screen(&[&name]) };
        assert!(shown.ends_with("exit 1"), "{name}: {shown}");
    }
}

#[test]
fn a_place_far_to_the_right_is_shown() {
    let mounts = "-v /data/sets/imagenet:/data -v /data/models:/models -v /scratch/user/experiments:/out";
    insta::assert_snapshot!(screen(&[
        "--",
        &format!("docker run {mounts} --gpus 0,2 image python train.py --epochs 300")
    ]));
}

#[test]
fn json_for_programs() {
    let (code, stdout, stderr) = text(&lint(&["--format", "json", "Dockerfile.cuda-visible", "no-count.yaml"]));
    assert_eq!((code, stderr.as_str()), (Some(1), ""));
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(value["schemaVersion"], 1);
    let first = &value["findings"][0];
    assert_eq!(first["file"], "Dockerfile.cuda-visible");
    assert_eq!([&first["line"], &first["column"], &first["endLine"], &first["endColumn"]], [2, 5, 2, 27]);
    assert_eq!([&first["code"], &first["severity"]], ["env-cuda-visible", "warning"]);
    assert_eq!(value["findings"][1]["code"], "compose-no-count");

    let (code, stdout, _) = text(&lint(&["--format", "json", "--", "docker", "run", "--gpus", "0,2", "IMAGE"]));
    assert_eq!(code, Some(1));
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(value["fixed"], "docker run --gpus '\"device=0,2\"' IMAGE");
    let (code, stdout, _) = text(&lint(&["--format", "json", "../good/gpus.yaml"]));
    assert_eq!(code, Some(0));
    assert_eq!(serde_json::from_str::<Value>(&stdout).expect("JSON"), json!({"schemaVersion": 1, "findings": []}));
}

#[test]
fn a_finding_is_silenced_by_a_flag() {
    assert_eq!(screen(&["--ignore", "env-cuda-visible", "Dockerfile.cuda-visible"]), "nothing found\nexit 0");
    assert_eq!(screen(&["--ignore=gpus-bare-list", "--", "docker run --gpus 0,2 IMAGE"]), "nothing found\nexit 0");
    let two = screen(&["--ignore", "env-cuda-visible,env-nvidia-visible", "Dockerfile.continued"]);
    assert_eq!(two, "nothing found\nexit 0");
}

#[test]
fn standard_input_and_compose_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = cudaview()
        .args(["lint", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cudaview starts");
    child.stdin.take().expect("a pipe").write_all(b"FROM a\nENV CUDA_VISIBLE_DEVICES=0\n").expect("written");
    let (code, stdout, _) = text(&child.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(1));
    assert!(stdout.starts_with("-:2:5: warning: "), "{stdout}");
    assert!(screen(&["--", "docker", "compose", "-f", "no-count.yaml", "up", "-d"]).contains("[compose-no-count]"));
}

#[test]
fn the_env_file_of_a_command() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gpu.env"), "A=1\nCUDA_VISIBLE_DEVICES=\"0,1\"\n").expect("written");
    let run = |gpus: &str| {
        let command = ["lint", "--", "docker", "run", "--gpus", gpus, "--env-file", "gpu.env", "IMAGE"];
        let output = cudaview().current_dir(folder.path()).args(command).output();
        let (code, stdout, stderr) = text(&output.expect("cudaview starts"));
        format!("{stdout}{stderr}exit {}", code.expect("an exit code"))
    };
    insta::assert_snapshot!(run("all"));
    insta::assert_snapshot!(run("0,2"));
}

#[test]
fn what_cannot_be_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.yaml"), "a: [1\nb: 2\n").expect("written");
    std::fs::write(folder.path().join("notes"), "nothing\n").expect("written");
    std::fs::write(folder.path().join("image.tar.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).expect("written");
    std::fs::write(folder.path().join("Dockerfile"), "# cudaview: ignore=env-cuda-visibel\nFROM a\n").expect("written");
    let run = |arguments: &[&str]| {
        let output = cudaview().current_dir(folder.path()).arg("lint").args(arguments).output();
        let (code, stdout, stderr) = text(&output.expect("cudaview starts"));
        format!("{stdout}{stderr}exit {}", code.expect("an exit code"))
    };
    insta::assert_snapshot!(
        [
            run(&[]),
            run(&["missing/Dockerfile"]),
            run(&["."]),
            run(&["a.yaml"]),
            run(&["notes"]),
            run(&["image.tar.gz"]),
            run(&["Dockerfile"]),
            run(&["--ignore", "env-cuda-visibel", "Dockerfile"]),
            run(&["Dockerfile", "--", "docker", "run", "IMAGE"]),
            run(&["--", "python", "train.py"]),
            run(&["--", "docker", "run", "--gpus"]),
            run(&["--", "docker", "compose", "up"]),
            run(&["--", "docker", "run", "--gpu", "all", "IMAGE"]),
            run(&["docker", "run", "IMAGE"]),
            run(&["docker", "run", "--gpus", "1", "IMAGE"]),
            run(&["--", "docker", "run", "--env-file", "missing", "IMAGE"]),
        ]
        .join("\n\n")
    );
}

/// In somebody's folder a file can be a pipe that nobody writes into; one of a shell's, `<(…)`, is read.
#[test]
fn nobody_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["Dockerfile", "compose.yaml", "env"] {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join(name), mode).expect("a FIFO");
    }
    let run = |arguments: &[&str]| {
        let output = cudaview().current_dir(folder.path()).arg("lint").args(arguments).output();
        let (_, stdout, stderr) = text(&output.expect("cudaview starts"));
        stdout + &stderr
    };
    assert!(run(&["Dockerfile"]).contains("it is no regular file"));
    assert!(run(&["compose.yaml"]).contains("it is no regular file"));
    assert!(run(&["--", "docker", "run", "--env-file", "env", "IMAGE"]).contains("it is no regular file"));
    let script = "\"$0\" lint <(echo FROM x; echo ENV CUDA_VISIBLE_DEVICES=0) || true";
    let output = std::process::Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_cudaview")]).output();
    let (_, stdout, stderr) = text(&output.expect("bash starts"));
    assert!(!stderr.contains("no regular file"), "{stdout}{stderr}");
}

/// A letter with its value behind it goes as a whole: the dash alone would be the image.
#[test]
fn a_fixed_command_starts_the_same_image() {
    let fixed = |line: &str| command(&typed(line), &|_| false).fixed.expect(line);
    let check = |line: &str, expect: &str| assert_eq!(fixed(line), expect, "{line}");
    check("docker run -eCUDA_VISIBLE_DEVICES=all --gpus all IMAGE", "docker run --gpus all IMAGE");
    check("docker run -iteCUDA_VISIBLE_DEVICES=all --gpus all IMAGE", "docker run -it --gpus all IMAGE");
    check("docker run -ite CUDA_VISIBLE_DEVICES=all --gpus all IMAGE", "docker run -it --gpus all IMAGE");
    // What was typed rightly counts on.
    let both = "docker run --gpus device=1 -e CUDA_VISIBLE_DEVICES=0 -e CUDA_VISIBLE_DEVICE=3 IMAGE";
    check(both, "docker run --gpus device=1 -e CUDA_VISIBLE_DEVICES=0 IMAGE");
    check(
        "docker run --gpus device=1 -e CUDA_VISIBLE_DEVICE=0 IMAGE",
        "docker run --gpus device=1 -e CUDA_VISIBLE_DEVICES=0 IMAGE",
    );
}
