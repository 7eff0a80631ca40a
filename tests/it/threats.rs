//! `docs/threat-model.md` and `tests/weakened.d` against the code and the tests that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `tests/weakened.d/*.toml`: what `tests/weakened` changes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weakened {
    weakened: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    rule: String,
    what: String,
    file: String,
    find: String,
    replace: String,
    tests: Vec<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn entries() -> Vec<Entry> {
    let folder = std::fs::read_dir(repository().join("tests/weakened.d")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    files
        .flat_map(|file| toml::from_str::<Weakened>(&std::fs::read_to_string(file).unwrap()).unwrap().weakened)
        .collect()
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/threat-model.md")).unwrap()
}

/// The names of functions under a folder that a test's name may end with.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

/// The last part of a test's path, where its first is a module of the tests or of the sources.
fn missing_tests<'a>(named: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = BTreeSet::new();
    functions(&repository().join("tests/it"), &mut known);
    functions(&repository().join("src"), &mut known);
    let has = |test: &str| {
        let module = test.split("::").next().unwrap();
        let is_module = ["tests/it", "src"].iter().any(|folder| {
            let place = repository().join(folder).join(module);
            place.is_dir() || place.with_extension("rs").is_file()
        });
        is_module && known.contains(test.rsplit("::").next().unwrap())
    };
    named.into_iter().filter(|test| !has(test)).collect()
}

#[test]
fn what_is_weakened_is_there_and_its_tests_are() {
    let entries = entries();
    assert!(entries.len() >= 30, "{}", entries.len());
    for entry in &entries {
        let text = std::fs::read_to_string(repository().join(&entry.file)).unwrap();
        assert_eq!(text.matches(&entry.find).count(), 1, "{} {}: {:?}", entry.rule, entry.file, entry.find);
        assert_ne!(entry.find, entry.replace, "{} {}", entry.rule, entry.what);
        assert!(!entry.what.is_empty() && !entry.tests.is_empty(), "{}", entry.rule);
        assert_eq!(missing_tests(entry.tests.iter().map(String::as_str)), [""; 0], "{} {}", entry.rule, entry.what);
    }
}

/// Rows of a table whose first cell is a letter and a number: the number → the row.
fn rows(page: &str, letter: char) -> BTreeMap<u32, Vec<String>> {
    let row = |line: &str| {
        let cells: Vec<String> = line.strip_prefix('|')?.split('|').map(|cell| cell.trim().to_owned()).collect();
        let number = cells.first()?.strip_prefix(letter)?.parse().ok()?;
        Some((number, cells))
    };
    page.lines().filter_map(row).collect()
}

/// What stands between backticks and has `::` in it.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| word.contains("::"))
}

/// Rules about how the whole is made, which no small patch takes back.
const NOT_WEAKENED: [u32; 3] = [1, 9, 38];

#[test]
fn every_rule_has_its_code_and_its_test() {
    let page = page();
    let rules = rows(&page, 'R');
    assert_eq!(rules.keys().copied().collect::<Vec<_>>(), (1..=38).collect::<Vec<_>>());
    let weakened: BTreeSet<String> = entries().into_iter().map(|entry| entry.rule).collect();
    for (number, cells) in &rules {
        let [_, rule, code, tests, ..] = cells.as_slice() else { panic!("R{number}: {cells:?}") };
        assert!(!rule.is_empty(), "R{number}");
        let applies = !code.starts_with("does not apply");
        let files: Vec<&str> = code.split('`').skip(1).step_by(2).filter(|word| word.contains('/')).collect();
        for file in &files {
            assert!(repository().join(file).exists(), "R{number}: {file}");
        }
        assert!(!applies || !files.is_empty(), "R{number} names no code");
        assert!(!applies || named_tests(tests).next().is_some(), "R{number} names no test");
        let expected = applies && !NOT_WEAKENED.contains(number);
        assert_eq!(expected, weakened.contains(&format!("R{number}")), "R{number} in tests/weakened.d");
    }
}

#[test]
fn every_attack_has_its_test() {
    let page = page();
    let attacks = rows(&page, 'T');
    assert_eq!(attacks.keys().copied().collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    for (number, cells) in &attacks {
        let last = &cells[2];
        assert!(named_tests(last).next().is_some() || last.starts_with("does not apply"), "T{number}: {last}");
    }
    assert_eq!(missing_tests(named_tests(&page)), [""; 0]);
}
