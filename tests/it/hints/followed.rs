//! The hints of `explain` are followed: what they say is typed in place of what was typed, and gives what they promise.
//!
//! The questions are those of the scenarios, those of the public reports, and every selection with every value.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cudaview::lint::command;
use cudaview::shell;
use cudaview::typed::{Typed, parse};
use serde_json::Value;

use crate::command::{cudaview, data, json, text};

use super::{is_of, is_typed, table};

const CUDA: &str = "CUDA_VISIBLE_DEVICES=";

/// A question to `explain`.
#[derive(Clone, Debug)]
struct Question {
    inventory: PathBuf,
    config: PathBuf,
    arguments: Vec<String>,
}

/// What a hint says, and of which finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hint {
    code: String,
    text: String,
    of_exec: bool,
}

impl Question {
    fn ask(&self, format: &str) -> std::process::Command {
        let mut command = cudaview();
        command.args(["explain", "--format", format, "--inventory"]).arg(&self.inventory);
        command.arg("--config").arg(&self.config).args(&self.arguments).env("COLUMNS", "2000");
        command
    }

    fn hints(&self) -> Vec<Hint> {
        let (_, stdout, _) = text(&self.ask("human").output().expect("cudaview starts"));
        let (mut code, mut of_exec, mut found) = (String::new(), false, Vec::new());
        for line in stdout.lines().map(str::trim) {
            of_exec |= line == "A process that exec adds";
            if let Some((tag, name)) = line.split_once(": ") {
                match tag {
                    // The findings of the container stand behind the process.
                    "error" | "warning" | "info" => {
                        of_exec &= stdout.contains(&format!("\n  {line}\n"));
                        name.clone_into(&mut code);
                    }
                    "hint" => found.push(Hint { code: code.clone(), text: name.to_owned(), of_exec }),
                    _ => {}
                }
            }
        }
        found
    }

    /// The flags in pairs with their values; a flag without one stands alone.
    fn flags(&self) -> Vec<Vec<String>> {
        let mut flags: Vec<Vec<String>> = Vec::new();
        for word in &self.arguments {
            match flags.last_mut() {
                Some(last) if last.len() == 1 && !is_alone(&last[0]) => last.push(word.clone()),
                _ => flags.push(vec![word.clone()]),
            }
        }
        flags
    }

    fn with(&self, flags: &[Vec<String>]) -> Question {
        Question { arguments: flags.concat(), ..self.clone() }
    }

    /// Without the variable, as far as somebody typed it; `everywhere` for an image's too.
    fn without_value(&self, everywhere: bool) -> Question {
        let is_value = |flag: &Vec<String>| {
            flag.get(1).is_some_and(|value| value.starts_with(CUDA)) && (everywhere || flag[0] != "--image-env")
        };
        self.with(&self.flags().into_iter().filter(|flag| !is_value(flag)).collect::<Vec<_>>())
    }

    /// With another value where the one in question was typed.
    fn with_value(&self, value: &str, of_exec: bool) -> Question {
        let flag = if of_exec { "--exec-env" } else { "-e" };
        let kept = self.flags().into_iter().filter(|typed| {
            let is_it = if of_exec { typed[0] == "--exec-env" } else { is_variable(&typed[0]) };
            !(is_it && typed.get(1).is_some_and(|typed| typed.starts_with(CUDA)))
        });
        self.with(&kept.chain([vec![flag.to_owned(), format!("{CUDA}{value}")]]).collect::<Vec<_>>())
    }

    /// With another request for GPUs, and nothing for a process that exec adds.
    fn with_request(&self, request: &[String], keeps_the_value: bool) -> Question {
        let base = if keeps_the_value { self.clone() } else { self.without_value(true) };
        let is_request = |flag: &Vec<String>| {
            matches!(flag[0].as_str(), "--gpus" | "--device" | "--exec-env" | "--default-runtime" | "--privileged")
                || (is_variable(&flag[0])
                    && flag.get(1).is_some_and(|value| value.starts_with("NVIDIA_VISIBLE_DEVICES=")))
        };
        let kept = base.flags().into_iter().filter(|flag| !is_request(flag));
        base.with(&kept.chain([request.to_vec()]).collect::<Vec<_>>())
    }
}

fn is_alone(flag: &str) -> bool {
    matches!(flag, "--privileged" | "--default-runtime" | "--rootless")
}

fn is_variable(flag: &str) -> bool {
    matches!(flag, "-e" | "--env" | "--unknown-env" | "--image-env")
}

/// Flags of a container in a hint that stand together, with what stands before and behind them.
#[derive(Debug)]
pub(crate) struct Flags<'a> {
    before: &'a str,
    pub(crate) words: Vec<String>,
    behind: &'a str,
}

pub(crate) fn typed(hint: &str) -> Vec<Flags<'_>> {
    const FLAGS: [&str; 3] = ["--gpus ", "--device ", "-e "];
    let (mut found, mut from): (Vec<Flags<'_>>, usize) = (Vec::new(), 0);
    // A variable without a value is only named.
    let is_typed = |at: usize| {
        !hint[at..].starts_with("-e ") || hint[at + 3..].split(' ').next().is_some_and(|word| word.contains('='))
    };
    let places =
        |from: usize| FLAGS.iter().flat_map(move |flag| hint[from..].match_indices(flag).map(move |(at, _)| from + at));
    let next = |from: usize| places(from).filter(|at| is_typed(*at)).min();
    while let Some(start) = next(from) {
        let mut end = start;
        let ends = |at: usize| hint[..at].ends_with(',');
        while FLAGS.iter().any(|flag| hint[end..].starts_with(flag)) {
            let value = hint[end..].find(' ').map_or(hint.len(), |at| end + at + 1);
            let stop = match hint[value..].strip_prefix('\'') {
                Some(quoted) => value + 2 + quoted.find('\'').unwrap_or_default(),
                None => hint[value..].find([' ', ';']).map_or(hint.len(), |at| value + at),
            };
            from = stop;
            end = if hint[stop..].starts_with(' ') && !ends(stop) { stop + 1 } else { hint.len() };
        }
        let words = shell::words(hint[start..from].trim_end_matches(',')).into_iter().map(|word| word.text).collect();
        found.push(Flags { before: &hint[..start], words, behind: &hint[from..] });
    }
    found
}

/// `1`, `1 and 3`, `0 to 2`, `0, 2 and 5`: as they stand behind "host GPU" or "host GPUs".
fn hosts(text: &str) -> Option<Vec<u64>> {
    let list = text.strip_prefix("host GPU")?.trim_start_matches('s').trim();
    if let Some((first, last)) = list.split_once(" to ") {
        return Some((first.parse().ok()?..=last.parse().ok()?).collect());
    }
    list.replace(" and ", ", ").split(", ").map(|number| number.parse().ok()).collect()
}

/// Which host GPUs the words around some flags promise.
pub(crate) fn promised(typed: &Flags<'_>, hint: &str) -> Option<Vec<u64>> {
    let after = |text: &str| hosts(text.split([';', ',']).next().unwrap_or_default());
    let request = typed.words[0] != "-e" || typed.words[1].starts_with("NVIDIA");
    if let Some(behind) = typed.behind.strip_prefix(" gives it ") {
        return after(behind);
    }
    if let (false, Some(behind)) = (request, typed.behind.strip_prefix(" for ")) {
        return hosts(behind.split(", -e").next().unwrap_or_default());
    }
    let before = hint.strip_prefix("for ").filter(|_| request)?;
    hosts(before.split(", -").next()?.split(", start").next()?)
}

/// A question that follows a hint, and the host GPUs that were promised.
type Way = (Question, Option<Vec<u64>>);

/// Follows what a hint says in words or flags.
fn ways(question: &Question, hint: &Hint) -> Vec<Way> {
    let mut ways = Vec::new();
    for typed in typed(&hint.text) {
        if !typed.words[1].starts_with(CUDA) {
            let keeps = !hint.text.starts_with("leave CUDA_VISIBLE_DEVICES out: ")
                && (hint.text.starts_with("to keep to one GPU") || hint.code == "nothing-granted");
            ways.push((question.with_request(&typed.words, keeps), promised(&typed, &hint.text)));
            continue;
        }
        let of_exec = hint.of_exec || typed.before.ends_with("docker exec ");
        ways.push((question.with_value(&typed.words[1][CUDA.len()..], of_exec), promised(&typed, &hint.text)));
        // The others of a list are offered as well.
        let others = typed.behind.split_once("(one of: ").map(|(_, list)| list.trim_end_matches(')'));
        for other in others.into_iter().flat_map(|list| list.split(' ')) {
            ways.push((question.with_value(other, of_exec), None));
        }
    }
    let text = hint.text.as_str();
    if hint.code == "nothing-granted" {
        return ways;
    }
    if text.contains("leave CUDA_VISIBLE_DEVICES out")
        || text.contains("leave -e CUDA_VISIBLE_DEVICES out")
        || text.starts_with("leave -e out: ")
    {
        let hosts = text.strip_prefix("for ").and_then(|text| hosts(text.split(", leave").next()?));
        ways.push((question.without_value(false), hosts));
    }
    for start in ["or count from 0: ", "count from 0 among the granted GPUs: ", "write plain numbers: "] {
        if let Some((_, value)) = text.split_once(start) {
            ways.push((question.with_value(value, hint.of_exec), None));
        }
    }
    if let Some(value) = text.strip_prefix("type ") {
        ways.push((question.with_value(value, hint.of_exec), None));
    }
    ways
}

/// What came of a way, if it is not what it should be.
fn fault(hint: &Hint, (way, promised): &Way) -> Option<String> {
    let answer = json(&mut way.ask("json"));
    let exec = hint.of_exec || hint.code == "one-mig-device";
    let answer = if exec && !answer["exec"].is_null() { &answer["exec"] } else { &answer };
    let seen: Vec<u64> =
        answer["visible"].as_array().into_iter().flatten().filter_map(|gpu| gpu["hostIndex"].as_u64()).collect();
    let again = answer["findings"].as_array().into_iter().flatten().any(|found| found["code"] == hint.code.as_str());
    // WSL2 has one device for all GPUs, and an image's default goes on yielding.
    let lasting = ["image-default-yields", "device-order-changed", "image-request-ignored", "one-mig-device"];
    let problem = match promised {
        // CUDA shows one MIG device of all that were granted, and the finding says so.
        Some(hosts) if *hosts != seen && !answer["findings"].to_string().contains("one-mig-device") => {
            format!("{seen:?} instead of {hosts:?}")
        }
        _ if answer["verdict"] == "refused" || seen.is_empty() => "no GPU".to_owned(),
        _ if again && !lasting.contains(&hint.code.as_str()) => "the same finding".to_owned(),
        _ => return None,
    };
    Some(format!("{}: {:?}: {problem}: {:?}", hint.code, hint.text, way.arguments))
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// Every selection with every value, and each way in which a value gets there.
fn products(config: &Path) -> Vec<Question> {
    let selections: [&[&str]; 13] = [
        &[],
        &["--gpus", "all"],
        &["--gpus", "1"],
        &["--gpus", "device=1"],
        &["--gpus", "\"device=1,3\""],
        &["--device", "nvidia.com/gpu=1"],
        &["--device", "nvidia.com/gpu=all"],
        &["--device", "/dev/nvidia1"],
        &["-e", "NVIDIA_VISIBLE_DEVICES=1"],
        &["-e", "NVIDIA_VISIBLE_DEVICES=all"],
        &["--gpus", "device=1-3"],
        &["--gpus", "all", "--privileged"],
        &["--image-env", "CUDA_VISIBLE_DEVICES=0", "--gpus", "\"device=1,3\""],
    ];
    let values = ["0", "1", "3,1", "1,3", "0,9", "6,5", "all", "0-2", "\"0\"", "0:1", "1,1", "01", "GPU-1234"];
    let mut found = Vec::new();
    for inventory in ["a100x4", "a100mig4", "a100old2", "mixed5"] {
        for selection in selections {
            for value in values {
                for flag in ["-e", "--image-env", "--exec-env", "--unknown-env"] {
                    let value = [flag.to_owned(), format!("{CUDA}{value}")];
                    let arguments = selection.iter().map(|word| (*word).to_owned()).chain(value).collect();
                    let inventory = data("inventories").join(format!("{inventory}.json"));
                    found.push(Question { inventory, config: config.to_owned(), arguments });
                }
            }
        }
    }
    found
}

fn questions(folder: &Path) -> Vec<Question> {
    let read =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(data(name)).expect("a file")).expect("JSON") };
    let config = folder.join("config.toml");
    std::fs::write(&config, "").expect("written");
    let mut found = products(&config);
    for (number, scenario) in read("scenarios.json")["scenarios"].as_array().expect("a list").iter().enumerate() {
        let config = folder.join(format!("{number}.toml"));
        std::fs::write(&config, scenario["config"].as_str().unwrap_or_default()).expect("written");
        let inventory = data("inventories").join(scenario["inventory"].as_str().expect("a name"));
        found.push(Question { inventory, config, arguments: words(&scenario["args"]) });
    }
    for case in read("reports.json").as_array().expect("a list").iter().filter(|case| case["not"].is_null()) {
        let name = case["inventory"].as_str().unwrap_or("a100x4.json");
        let inventory = data("inventories").join(name);
        found.push(Question { inventory, config: config.clone(), arguments: words(&case["arguments"]) });
    }
    found
}

/// The same hint with other numbers is followed once an inventory.
fn shape(question: &Question, hint: &Hint) -> (PathBuf, bool, String) {
    let digits = |text: &str| text.chars().filter(|c| !c.is_ascii_hexdigit() && *c != ',').collect::<String>();
    let value = if hint.code == "nothing-granted" { question.arguments.concat() } else { String::new() };
    (question.inventory.clone(), hint.of_exec, format!("{} {} {}", hint.code, digits(&hint.text), digits(&value)))
}

#[test]
fn what_explain_hints_at_does_what_it_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut seen, mut texts, mut faults, mut followed) = (BTreeSet::new(), BTreeSet::new(), Vec::new(), 0);
    for question in questions(folder.path()) {
        for hint in question.hints() {
            texts.insert(hint.text.clone());
            if !seen.insert(shape(&question, &hint)) {
                continue;
            }
            let ways = ways(&question, &hint);
            if ways.is_empty() && is_typed(&hint.text) && !is_for_others(&hint.text) {
                faults.push(format!("{}: nobody knows how to follow {:?}", hint.code, hint.text));
            }
            followed += ways.len();
            faults.extend(ways.iter().filter_map(|way| fault(&hint, way)));
        }
    }
    assert!(faults.is_empty(), "{} of {followed}: {faults:#?}", faults.len());
    assert!(followed >= 100, "{followed}");
    let rows = table();
    let unseen: Vec<&str> = rows
        .iter()
        .filter(|row| row.by == "corpus" && !texts.iter().any(|text| is_of(&row.text, text)))
        .map(|row| row.text.as_str())
        .collect();
    assert!(unseen.is_empty(), "no question comes to these: {unseen:#?}");
    for text in texts.iter().filter(|text| is_typed(text)) {
        assert!(rows.iter().any(|row| is_of(&row.text, text)), "no row for {text:?}");
    }
}

/// What a shell or an operator runs, and not `explain`.
fn is_for_others(text: &str) -> bool {
    ["cudaview inventory", "sudo ", "grant more with", "leave --"].iter().any(|start| text.contains(start))
}

/// What `lint` says instead of a flag is one that Docker, podman and `explain` take, and so is the corrected command.
#[test]
fn what_lint_says_instead_is_taken() {
    let mut taken = 0;
    let explained = |arguments: &[String]| {
        let mut command = cudaview();
        command.args(["explain", "--inventory"]).arg(data("inventories/h100x8.json")).args(arguments);
        text(&command.output().expect("cudaview starts"))
    };
    for entry in std::fs::read_dir(data("lint/bad")).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.extension().is_none_or(|extension| extension != "command") {
            continue;
        }
        let line = std::fs::read_to_string(&entry).expect("text");
        let Ok(read) = parse(&[line.trim().to_owned()]) else { panic!("{line}") };
        let Typed::Run(run) = read else { panic!("{line}") };
        let checked = command(&run, &|_| false);
        for fault in &checked.faults {
            for flags in typed(&fault.fix) {
                let (code, _, stderr) = explained(&flags.words);
                assert_eq!(code, Some(0), "{entry:?}: {}: {stderr}", fault.fix);
                taken += 1;
            }
        }
        if let Some(fixed) = checked.fixed {
            let (code, stdout, stderr) = explained(&["--".to_owned(), fixed.clone()]);
            assert_eq!(code, Some(0), "{fixed}: {stderr}");
            assert!(!stdout.contains("(refused)") && !stdout.starts_with("no "), "{fixed}: {stdout}");
            taken += 1;
        }
    }
    assert!(taken >= 20, "{taken}");
}

#[test]
fn a_service_that_was_meant_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("compose.yaml");
    std::fs::write(&file, "services:\n  trainer: {image: a, gpus: all}\n  other: {image: a}\n").expect("written");
    let explained = |arguments: &[&str]| {
        let mut command = cudaview();
        command.args(["explain", "--inventory"]).arg(data("inventories/a100x4.json")).arg("--compose").arg(&file);
        text(&command.args(arguments).output().expect("cudaview starts"))
    };
    let (_, stdout, stderr) = explained(&[]);
    assert!(format!("{stdout}{stderr}").contains("--service NAME"), "{stdout}{stderr}");
    let (code, _, stderr) = explained(&["--service", "traner"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("hint: did you mean --service trainer?"), "{stderr}");
    let (code, stdout, _) = explained(&["--service", "trainer", "--image", "b"]);
    assert!(code.is_some(), "{stdout}");
    assert_eq!(explained(&["--service", "trainer"]).0, Some(0));
}
