//! What the documents say to type is typed.
//!
//! Every command of a `console` block in README, `docs/`, `hooks/` and the like falls under one rule of [`Rule`].
//! One that falls under none fails the test; what nobody runs stands in `tests/data/commands.json`, with the reason.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

pub(crate) mod page;
mod shell;

use std::collections::{BTreeMap, BTreeSet};

use cudaview::finding::Code;
use serde::Deserialize;

use page::{Page, Step, pages, repository};
use shell::{Shell, is_printed};

/// A command that is not typed here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    command: String,
    /// The name of the test that does it, or `nobody`.
    by: String,
    why: String,
}

/// What is done with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// It is run, and prints what stands below it.
    Run,
    /// It asks the host or an engine: its arguments are read, and what stands below it is in a snapshot of a session.
    Asks,
    /// `docker run` and its kin: looked at by `lint`, or by `explain` where the comment says what comes of it.
    Engine,
    /// `cat` of a file: the page's own.
    File,
    /// `docker save` of an image: the one of the tests of lint.
    Save,
    /// `name=(…)`: an array of the shell, for what is typed below.
    Array,
    /// `echo $?`.
    Ending,
    /// It stands in the table.
    Table,
}

/// Questions to a host or an engine.
const ASKING: [&str; 9] = ["ps", "log", "doctor", "flags", "install", "uninstall", "completion", "manual", "help"];

fn words(command: &str) -> Vec<String> {
    cudaview::shell::split(command).into_iter().map(|word| word.text).collect()
}

/// Whether a shell would do more than run one program: what is quoted does not count.
fn has_operators(command: &str) -> bool {
    let mut quote = None;
    let mut outside = String::new();
    for character in command.chars() {
        match quote {
            Some(open) if open == character => quote = None,
            Some(_) => {}
            None if character == '\'' || character == '"' => quote = Some(character),
            None => outside.push(character),
        }
    }
    outside.contains([';', '>', '&'])
}

/// Whether it gives a name to a list of words, all of which stand there.
fn is_array(command: &str) -> bool {
    let parts = command.strip_suffix(')').and_then(|command| command.split_once("=("));
    parts.is_some_and(|(name, list)| name.chars().all(|c| c.is_ascii_lowercase()) && !list.contains(['$', '(', '`']))
}

fn rule(command: &str) -> Option<Rule> {
    let words = words(command);
    let words: Vec<&str> = words.iter().map(String::as_str).skip_while(|word| *word == "sudo").collect();
    let names_a_thing = words.iter().take_while(|word| **word != "--").any(|w| matches!(*w, "--container" | "--image"));
    let is_path = |name: &str| std::path::Path::new(name).components().count() > 1;
    match words[..] {
        _ if is_array(command) => Some(Rule::Array),
        _ if has_operators(command) => None,
        ["cudaview", ..] if command.starts_with("sudo ") => Some(Rule::Asks),
        ["cudaview", name, ..] if ASKING.contains(&name) || names_a_thing => Some(Rule::Asks),
        ["cudaview", ..] => Some(Rule::Run),
        ["docker" | "podman" | "nerdctl", "run" | "create", ..]
        | ["docker", "compose", ..]
        | ["podman", "--runtime", _, "run", ..] => Some(Rule::Engine),
        ["docker", "save", "-o", name, _] if !is_path(name) => Some(Rule::Save),
        ["cat", name] if !is_path(name) => Some(Rule::File),
        ["echo", "$?"] => Some(Rule::Ending),
        _ => None,
    }
}

fn table() -> Vec<Row> {
    let text = std::fs::read(crate::command::data("commands.json")).expect("the table");
    serde_json::from_slice(&text).expect("a table")
}

/// Every command of the documents but what `pages.rs` runs: the first block of a finding's page.
fn steps(page: &Page) -> Vec<Step> {
    let is_seen_elsewhere = |section: &str| page.name.starts_with("docs/findings/") && section == "You see";
    let blocks = page.blocks().into_iter().filter(|block| !is_seen_elsewhere(&block.section));
    blocks
        .flat_map(|block| match block.language.as_str() {
            "console" => page.steps(&block),
            "yaml" => page.runs(&block),
            _ => Vec::new(),
        })
        .collect()
}

/// What is wrong with a step; nothing, if it does what the page says.
fn fault(shell: &mut Shell, rule: Rule, step: &Step) -> Option<String> {
    match rule {
        Rule::Run => {
            let (code, printed) = shell.type_in(&step.command);
            let is_lint = words(&step.command).get(1).is_some_and(|name| name == "lint");
            let ends_well = code == 0 || code == 1 && is_lint;
            (!ends_well || !step.output.is_empty() && !is_printed(&step.output, &printed))
                .then(|| format!("it ends with {code} and prints\n{printed}"))
        }
        Rule::Asks => asks(shell, step),
        Rule::Engine => engine(shell, step),
        Rule::File => {
            shell.write(&words(&step.command)[1], &step.output);
            None
        }
        Rule::Save => {
            let image = crate::lint::images::folder();
            shell.copy(&image.path().join("trainer.tar"), &words(&step.command)[3]);
            None
        }
        Rule::Array => {
            shell.remember(&step.command);
            None
        }
        Rule::Ending => (step.output != [shell.last().to_string()]).then(|| format!("it ended with {}", shell.last())),
        Rule::Table => None,
    }
}

/// Arguments are read up to `--help`, which is put at their end; what is printed, a session has printed.
fn asks(shell: &mut Shell, step: &Step) -> Option<String> {
    let command = step.command.trim_start_matches("sudo ");
    let (code, printed) = shell.type_in(&format!("{command} --help"));
    let snapshots = snapshots();
    let strange: Vec<&String> =
        step.output.iter().filter(|line| line.trim() != "…" && !snapshots.contains(line.trim_end())).collect();
    (code != 0 || !strange.is_empty()).then(|| format!("{printed}\nno session has printed {strange:#?}"))
}

/// What is wrong with a command between backticks, of which words may stand for something.
pub(crate) fn asks_what_is_there(command: &str) -> Option<String> {
    let command = command.trim_end_matches('…').trim_end().trim_end_matches(" --").split(" -- ").next()?;
    let words = words(command);
    let is_code = |word: &String| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let mut shell = Shell::new(&Page { name: String::new(), text: String::new() });
    if words[0] != "cudaview" {
        let (code, printed) = shell.type_in(&format!("cudaview lint --format json -- {command}"));
        return (code > 1).then_some(printed);
    }
    let (code, printed) = match words.get(2).filter(|word| words[1] == "explain" && is_code(word)) {
        Some(_) => shell.type_in(command),
        None => shell.type_in(&format!("{command} --help")),
    };
    (code != 0).then_some(printed)
}

/// The lines of all sessions.
fn snapshots() -> BTreeSet<String> {
    let folder = repository().join("tests/it/sessions/snapshots");
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let texts: Vec<String> = files.map(|file| std::fs::read_to_string(file).expect("a snapshot")).collect();
    texts.iter().flat_map(|text| text.lines()).map(|line| line.trim_end().to_owned()).collect()
}

/// Without a comment lint finds nothing worse than an info; a comment names what it finds, or what comes of the command.
fn engine(shell: &mut Shell, step: &Step) -> Option<String> {
    let command = step.command.replace("$(cudaview flags)", r#"--gpus '"device=1,3"'"#);
    let command = command.replace("$(cudaview flags --device)", "--device nvidia.com/gpu=1");
    let comment = step.comment.as_deref().unwrap_or_default();
    let codes: BTreeSet<&str> = comment.split(", ").filter(|word| !word.is_empty()).collect();
    let is_known = |name: &&str| Code::ALL.iter().any(|code| code.name() == *name);
    if codes.iter().all(is_known) {
        let (_, printed) = shell.type_in(&format!("cudaview lint --format json -- {command}"));
        let found: serde_json::Value = serde_json::from_str(&printed).unwrap_or_default();
        let Some(findings) = found["findings"].as_array() else { return Some(printed) };
        let is_info = |finding: &&serde_json::Value| finding["severity"] == "info";
        let found: BTreeSet<&str> =
            findings.iter().filter(|f| !is_info(f)).filter_map(|finding| finding["code"].as_str()).collect();
        (found != codes).then(|| format!("lint finds {found:?}"))
    } else {
        let (_, printed) = shell.type_in(&format!("cudaview explain -- {command}"));
        let first = printed.lines().next().unwrap_or_default();
        (!first.starts_with(comment)).then_some(printed)
    }
}

#[test]
fn what_is_to_be_typed_does_what_the_page_says() {
    let rows: BTreeMap<String, Row> = table().into_iter().map(|row| (row.command.clone(), row)).collect();
    let (mut faults, mut typed, mut used) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for page in pages() {
        let mut shell = Shell::new(&page);
        for step in steps(&page) {
            let row = rows.get(&step.command).map(|row| used.insert(row.command.clone()));
            let rule = row.map(|_| Rule::Table).or_else(|| rule(&step.command));
            let Some(rule) = rule else {
                faults.push(format!(
                    "{}: {}\nno rule is for it, and tests/data/commands.json has it not",
                    step.place, step.command
                ));
                continue;
            };
            if let Some(fault) = fault(&mut shell, rule, &step) {
                faults.push(format!("{}: {}\n{fault}", step.place, step.command));
            }
            *typed.entry(format!("{rule:?}")).or_insert(0) += 1;
        }
    }
    println!("{typed:?}");
    assert!(faults.is_empty(), "{} commands do not do what the page says:\n{}", faults.len(), faults.join("\n\n"));
    let stale: Vec<&String> = rows.keys().filter(|command| !used.contains(*command)).collect();
    assert!(stale.is_empty(), "no page has these any more: {stale:#?}");
    assert!(typed["Run"] > 40 && typed["Engine"] > 40, "{typed:?}");
}

/// What is to be typed stands where it is found: in a block of a terminal.
#[test]
fn no_command_stands_in_another_block() {
    for page in pages() {
        for block in page.blocks() {
            let known = ["console", "yaml", "toml", "json", "text", "dockerfile", "svg"];
            let is_old = page.name == "docs/performance.md" && block.language.is_empty();
            assert!(known.contains(&block.language.as_str()) || is_old, "{}:{}", page.name, block.line);
            let is_typed = |line: &&String| line.starts_with("$ ") || line.starts_with("sudo ");
            let typed = block.text.iter().find(is_typed).filter(|_| block.language != "console");
            assert_eq!(typed, None, "{}:{}", page.name, block.line);
        }
    }
}

/// The first screen is the same in Chinese: what is typed, and what the tables name.
#[test]
fn the_chinese_readme_says_the_same() {
    let page = |name: &str| pages().into_iter().find(|page| page.name == name).expect("a page");
    let (english, chinese) = (page("README.md"), page("README.zh-CN.md"));
    let blocks = |page: &Page| page.blocks().into_iter().map(|block| block.text).collect::<Vec<_>>();
    let count = blocks(&chinese).len();
    assert!(count >= 4, "{count}");
    assert_eq!(blocks(&chinese), blocks(&english)[..count]);
    let spans = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = |page: &Page| page.text.lines().filter(|line| line.starts_with("| ")).map(spans).collect::<Vec<_>>();
    let count = rows(&chinese).len();
    assert!(count >= 13, "{count}");
    assert_eq!(rows(&chinese), rows(&english)[..count]);
}

/// What is installed in the README is this version.
#[test]
fn the_readme_installs_this_version() {
    for page in pages().iter().filter(|page| page.name.starts_with("README")) {
        let packages = page.text.split_whitespace().filter(|word| word.starts_with("./cudaview"));
        let versions: Vec<bool> = packages.map(|name| name.contains(env!("CARGO_PKG_VERSION"))).collect();
        assert_eq!(versions, [true, true], "{}", page.name);
    }
}

/// A row names a test that exists, or says why nobody does it.
#[test]
fn the_table_says_who_does_it() {
    let mut sources = String::new();
    let mut folders = vec![repository().join("tests/it"), repository().join("src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &std::fs::read_to_string(path).expect("a source");
            }
        }
    }
    for row in table() {
        let is_test = sources.contains(&format!("fn {}(", row.by));
        assert!(row.by == "nobody" || is_test, "{}: no test {:?}", row.command, row.by);
        assert!(row.why.len() > 15, "{}: why?", row.command);
        assert!(rule(&row.command) != Some(Rule::Run), "{}: it can be run", row.command);
    }
}
