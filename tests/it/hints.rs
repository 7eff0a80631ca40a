//! Every hint that is a command is run.
//!
//! `tests/data/hints.json` names every text of the sources that has something to type, and who runs it:
//! the corpus of `followed.rs`, a shell with stand-ins for the host's programs, or a test by its name.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

pub(crate) mod followed;
mod typed_on_a_host;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A text of the sources, and who runs what it says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// As it stands in the source, its holes in braces.
    text: String,
    /// `corpus`, `shell`, `shown` (nothing in it is to be typed: it names a thing, or is a program's own word), or the
    /// name of the test that runs it.
    by: String,
    /// For `shell`: what it may come to.
    #[serde(default)]
    example: String,
    /// For `shell`: what is typed, as it stands in the example.
    #[serde(default)]
    commands: Vec<String>,
}

fn table() -> Vec<Row> {
    let text = std::fs::read(crate::command::data("hints.json")).expect("the table");
    serde_json::from_slice(&text).expect("a table")
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The string literals of a source file, without those of its tests.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            let (text, after) = raw.split_once("\"#").expect("a raw string ends");
            found.push(text.to_owned());
            rest = after;
        } else if let Some(text) = rest.strip_prefix('"') {
            let (text, after) = literal(text);
            found.push(text);
            rest = after;
        } else if first == '\'' {
            rest = &rest[character(rest)..];
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// The value of a literal up to its closing quote, and what stands behind it.
fn literal(text: &str) -> (String, &str) {
    let (mut value, mut characters) = (String::new(), text.char_indices().peekable());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next().expect("something is escaped").1 {
                '\n' => while characters.next_if(|(_, next)| next.is_whitespace()).is_some() {},
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    panic!("a string does not end: {text}");
}

/// How long a character literal is; one byte for a lifetime's apostrophe.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let after = at + escaped.len_utf8();
            after + text[after..].find('\'').map_or(0, |end| end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Words that are typed, each with what makes it a command and not a name.
const TYPED: [(&str, &[&str]); 10] = [
    ("sudo", &[]),
    (
        "cudaview",
        &[
            "explain",
            "lint",
            "doctor",
            "ps",
            "log",
            "flags",
            "inventory",
            "predict",
            "install",
            "uninstall",
            "demo",
            "completion",
            "manual",
            "help",
            "cdi",
            "--",
        ],
    ),
    ("docker", &["run", "exec", "ps", "save", "compose", "inspect", "info", "restart", "start", "rm", "logs"]),
    ("podman", &["run", "exec", "ps", "save", "inspect", "info", "restart", "start", "rm", "logs", "--"]),
    ("systemctl", &[]),
    ("nvidia-smi", &["-"]),
    ("nvidia-ctk", &["cdi"]),
    ("unset", &["{"]),
    ("ls", &["-"]),
    ("-e", &["CUDA", "NVIDIA", "{"]),
];

/// Flags that are typed with a value.
const FLAGS: [&str; 8] =
    ["--gpus", "--device", "--runtime", "--container", "--image", "--service", "--inventory", "--ignore"];

/// Whether a text has something to type.
fn is_typed(text: &str) -> bool {
    let is_word = |at: usize, word: &str| {
        let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(byte));
        let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
        !part(before) && !part(text.as_bytes().get(at + word.len()))
    };
    let after = |word: &str| -> Vec<&str> {
        let places = text.match_indices(word).filter(|(at, _)| is_word(*at, word));
        places.filter_map(|(at, _)| text[at + word.len()..].strip_prefix(' ')).collect()
    };
    TYPED.iter().any(|(word, next)| {
        after(word).iter().any(|rest| next.is_empty() || next.iter().any(|next| rest.starts_with(next)))
    }) || FLAGS.iter().any(|flag| !after(flag).is_empty())
}

/// Pages of `--help`, whose command lines are examples.
fn is_page(text: &str) -> bool {
    text.contains("usage:") || text.contains("Examples") || text.matches('\n').count() > 4 || text.contains("[OPTIONS]")
}

/// Everything in the sources with something to type.
fn in_the_sources() -> BTreeSet<String> {
    let is_test = |path: &PathBuf| {
        path.ancestors().any(|part| part.ends_with("tests"))
            || path.ends_with("tests.rs")
            || path.ends_with("inside.rs")
    };
    let mut found = BTreeSet::new();
    for path in rust_files(&repository().join("src")).into_iter().filter(|path| !is_test(path)) {
        let source = std::fs::read_to_string(&path).expect("a source");
        found.extend(literals(&source).into_iter().filter(|text| is_typed(text) && !is_page(text)));
    }
    found
}

#[test]
fn literals_are_read_as_the_compiler_does() {
    let source =
        "a('\"', '\\'', 'x'); // \"no\"\nf(\"one \\\"two\\\" \\\n    three\", r#\"ra\"w\"#); fn g<'a>(x: &'a str) {}";
    assert_eq!(literals(source), ["one \"two\" three", "ra\"w"]);
    assert!(is_typed("then sudo reboot") && is_typed("-e {name}={value}") && !is_typed("asked with --gpus"));
}

#[test]
fn the_table_has_every_text_with_something_to_type() {
    let (sources, rows) = (in_the_sources(), table());
    let listed: BTreeSet<String> = rows.iter().map(|row| row.text.clone()).collect();
    assert_eq!(listed.len(), rows.len(), "a text is there twice");
    let missing: Vec<&String> = sources.difference(&listed).collect();
    let stale: Vec<&String> = listed.difference(&sources).collect();
    assert!(missing.is_empty(), "who runs these? tests/data/hints.json does not say: {missing:#?}");
    assert!(stale.is_empty(), "no source has these any more: {stale:#?}");
    assert!(rows.len() > 100, "{}", rows.len());
}

/// A row may name a test; that test has to exist.
#[test]
fn the_tests_that_run_hints_exist() {
    let files = [rust_files(&repository().join("tests/it")), rust_files(&repository().join("src"))].concat();
    let sources: Vec<String> = files.iter().map(|path| std::fs::read_to_string(path).expect("a source")).collect();
    for row in table() {
        let is_known = matches!(row.by.as_str(), "corpus" | "shell" | "shown");
        let name = format!("fn {}(", row.by);
        assert!(is_known || sources.iter().any(|source| source.contains(&name)), "{}: no test {:?}", row.text, row.by);
        assert_eq!(row.by == "shell", !row.commands.is_empty(), "{}", row.text);
    }
}

/// Whether a text has come from this literal, or has such a text in it.
fn is_of(literal: &str, text: &str) -> bool {
    let mut rest = text;
    let mut pieces = Vec::new();
    // Words in capitals stand for one of many.
    let literal = literal.replace("CODE", "{}").replace("COMMAND", "{}").replace("FILE", "{}");
    let mut literal = literal.as_str();
    while let Some((before, after)) = literal.split_once('{') {
        pieces.push(before);
        literal = after.split_once('}').map_or("", |(_, after)| after);
    }
    pieces.push(literal);
    pieces.iter().all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}
