//! `cudaview log`: the audit trail as people and programs read it.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::command::{cudaview, text};

/// A folder with a configuration that names a trail.
pub(crate) struct Trail {
    folder: tempfile::TempDir,
}

impl Trail {
    pub(crate) fn new() -> Trail {
        let folder = tempfile::tempdir().expect("a folder");
        let trail = Trail { folder };
        trail.configure(&format!("audit = {:?}\n", trail.file()));
        trail
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    fn configure(&self, text: &str) {
        fs::write(self.config(), text).expect("written");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    pub(crate) fn append(&self, record: &Value) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.file()).expect("the trail");
        file.set_permissions(fs::Permissions::from_mode(0o640)).expect("permissions");
        writeln!(file, "{record}").expect("written");
    }

    /// The three records of a morning, and what is none between them.
    fn filled() -> Trail {
        let trail = Trail::new();
        trail.append(&record("notebook", "12:58:40", "rewritten", ("", "0"), &["2"], &[]));
        trail.append(&json!("no record"));
        trail.append(&record("brave_curie", "13:01:17", "refused", ("1", "1"), &["0"], &["override-matches-nothing"]));
        trail.append(&json!({"schemaVersion": 2, "door": "runtime"}));
        let codes = ["withheld", "ambiguous-index", "host-index-override"];
        trail.append(&record("trainer", "13:05:12", "rewritten", ("1,3", "0,1"), &["1", "3"], &codes));
        trail
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = cudaview();
        command.arg("log").arg("--config").arg(self.config()).args(arguments).env("TZ", "UTC");
        text(&command.output().expect("cudaview starts"))
    }

    #[track_caller]
    fn shown(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{stderr}");
        stdout
    }
}

fn record(name: &str, time: &str, verdict: &str, value: (&str, &str), kept: &[&str], codes: &[&str]) -> Value {
    let variables = |value: &str| if value.is_empty() { json!({}) } else { json!({"cvd": value}) };
    let severity = |code: &str| match code {
        "override-matches-nothing" => "error",
        "ambiguous-index" => "warning",
        _ => "info",
    };
    let findings: Vec<Value> = codes
        .iter()
        .map(|code| json!({"code": code, "severity": severity(code), "message": format!("about {code}"), "hint": "do"}))
        .collect();
    json!({"schemaVersion": 1, "time": format!("2020-11-28T{time}Z"), "door": "runtime", "mode": "enforce",
        "id": "5f0c2c6c1b0e9a7d", "name": name, "engine": "docker", "verdict": verdict, "kept": kept,
        "before": variables(value.0), "after": variables(value.1), "findings": findings})
}

/// U+009B begins a sequence in a terminal as ESC [ does, and JSON lets it stand as it is.
#[test]
fn json_holds_nothing_that_steers_a_terminal() {
    let hostile = "\u{9b}31m\u{9d}0;x\u{9c}\u{202e}\u{7f}\u{1b}[2J\u{e9}";
    let trail = Trail::new();
    trail.append(&record("trainer", "13:05:12", "rewritten", (hostile, "0"), &["1"], &[]));
    let (code, stdout, _) = trail.run(&["--format", "json"]);
    assert_eq!(code, Some(0));
    let steers = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    assert!(!stdout.contains(steers), "{stdout:?}");
    let read: Value = serde_json::from_str(&stdout).expect("JSON");
    assert!(read.to_string().contains('\u{9b}') && stdout.contains('\u{e9}'), "the same value: {stdout}");
}

#[test]
fn the_newest_stands_last_and_where_more_is_to_be_had_beside() {
    let trail = Trail::filled();
    let (code, stdout, stderr) = trail.run(&[]);
    let expected = "\
WHEN        CONTAINER    GPUS  CUDA_VISIBLE_DEVICES  FINDING
2020-11-28  notebook     2     unset -> 0            -
2020-11-28  brave_curie  none  \"1\" refused           override-matches-nothing
2020-11-28  trainer      1,3   \"1,3\" -> 0,1          ambiguous-index +2
";
    assert_eq!((code, stdout.as_str()), (Some(0), expected));
    assert!(
        stderr.ends_with("\nwhy: cudaview explain --container NAME (also for containers that are gone)\n"),
        "{stderr}"
    );
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    assert_eq!(trail.shown(&["-n", "1"]).lines().nth(1), expected.lines().nth(3));
    assert_eq!(trail.shown(&["-n", "0"]), "");
}

#[test]
fn findings_and_what_to_type_instead() {
    let expected = "\
WHEN        CONTAINER    GPUS  CUDA_VISIBLE_DEVICES  FINDING
2020-11-28  trainer      1,3   \"1,3\" -> 0,1          ambiguous-index +2
  info: about withheld [withheld]
    hint: do
  warning: about ambiguous-index [ambiguous-index]
    hint: do
  info: about host-index-override [host-index-override]
    hint: do
";
    assert_eq!(Trail::filled().shown(&["-n", "1", "--findings"]), expected);
}

#[test]
fn programs_get_the_records_as_they_are() {
    let trail = Trail::filled();
    let stdout = trail.shown(&["--format", "json"]);
    let records: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = records.iter().filter_map(|record| record["name"].as_str()).collect();
    assert_eq!(names, ["notebook", "brave_curie", "trainer"]);
    let written = fs::read_to_string(trail.file()).expect("the trail");
    assert!(stdout.lines().all(|line| written.contains(line)));
}

#[test]
fn observed_is_not_done() {
    let trail = Trail::new();
    let mut record = record("x", "10:00:00", "rewritten", ("3", "0"), &["3"], &[]);
    record["mode"] = json!("observe");
    trail.append(&record);
    assert!(trail.shown(&[]).contains("observed: \"3\" -> 0"), "{}", trail.shown(&[]));
}

#[test]
fn what_cannot_be_shown() {
    let trail = Trail::new();
    let (code, stdout, stderr) = trail.run(&[]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    assert!(stderr.starts_with("note: nothing is written down yet in"), "{stderr}");

    trail.append(&record("x", "10:00:00", "refused", ("", ""), &[], &[]));
    fs::set_permissions(trail.file(), fs::Permissions::from_mode(0o666)).expect("permissions");
    let (code, _, stderr) = trail.run(&[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("can be written by"), "somebody else's words: {stderr}");

    trail.configure("audit = \"off\"\n");
    let (code, stdout, stderr) = trail.run(&[]);
    assert_eq!((code, stdout.as_str()), (Some(6), ""));
    assert!(stderr.contains("nothing is written down: the configuration says audit = \"off\""), "{stderr}");
}

/// Ends with the test.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _sent = self.0.kill();
        let _status = self.0.wait();
    }
}

fn follow(trail: &Trail, arguments: &[&str]) -> (Following, impl FnMut() -> String + use<>) {
    let mut command = cudaview();
    command.args(["log", "--follow", "--config"]).arg(trail.config()).args(arguments).env("TZ", "UTC");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("cudaview starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (Following(child), move || lines.next().expect("a line").expect("read"))
}

#[test]
fn following_shows_what_is_written_from_then_on() {
    let trail = Trail::filled();
    let (_following, mut next) = follow(&trail, &["-n", "1"]);
    assert!(next().starts_with("WHEN"));
    assert!(next().contains("trainer"));
    // Part of a line is no record yet.
    let line = record("second", "13:06:00", "rewritten", ("3", "0"), &["3"], &[]).to_string();
    let (one, other) = line.split_at(40);
    append(&trail.file(), one);
    append(&trail.file(), &format!("{other}\n"));
    assert!(next().contains("second"));
    // A new file under the name, as logrotate leaves it.
    fs::rename(trail.file(), trail.folder.path().join("audit.jsonl.1")).expect("renamed");
    trail.append(&record("third", "13:07:00", "rewritten", ("3", "0"), &["3"], &[]));
    assert!(next().contains("third"));
}

fn append(file: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(file).expect("the trail");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn lines_that_are_no_records_are_counted() {
    let trail = Trail::filled();
    let (code, _, stderr) = trail.run(&["-n", "3"]);
    let said = format!("note: 2 lines of {} are no records of this version, and left out\n", trail.file().display());
    assert_eq!((code, stderr.replace("\n      ", " ").starts_with(&said)), (Some(0), true), "{stderr}");
    // Those before the records that are shown are not looked at.
    let (_, _, stderr) = trail.run(&["-n", "1"]);
    assert!(!stderr.contains("no record"), "{stderr}");
    // What is still being written is none of them.
    let trail = Trail::new();
    trail.append(&json!({}));
    fs::write(trail.file(), "half a li").expect("written");
    let (code, stdout, stderr) = trail.run(&[]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(stderr.starts_with("note: nothing is written down yet"), "{stderr}");
}

/// More than can be held at once; what a cut leaves of a line is no record.
#[test]
fn a_trail_of_years_is_read_from_its_end() {
    let trail = Trail::new();
    let filler = format!("{}\n", record("old", "09:00:00", "consistent", ("", ""), &["0"], &[]));
    let times = (80 << 20) / filler.len();
    fs::write(trail.file(), filler.repeat(times)).expect("written");
    trail.append(&record("newest", "10:00:00", "rewritten", ("3", "0"), &["3"], &[]));
    let shown = trail.shown(&["-n", "2"]);
    let names: Vec<&str> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["old", "newest"]);
    let (_following, mut next) = follow(&trail, &["-n", "1"]);
    assert!(next().starts_with("WHEN") && next().contains("newest"));
    trail.append(&record("later", "11:00:00", "rewritten", ("3", "0"), &["3"], &[]));
    assert!(next().contains("later"));
}
