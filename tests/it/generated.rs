//! Documents that are written from the sources: configuration, exit codes, the list of findings.
//!
//! What stands between two marks of a page has to be what the sources say; `INSTA_UPDATE=always cargo test --test it
//! generated::` writes it anew.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::fmt::Write;

use cudaview::config::Config;
use cudaview::exit::Exit;
use cudaview::finding::Code;

use crate::guide::page::repository;

const BEGIN: &str = "<!-- What follows is written by tests/it/generated.rs. -->\n";
const END: &str = "<!-- What is above is written by tests/it/generated.rs. -->\n";

fn read(file: &str) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Compares what stands between the marks, or writes it.
fn check(file: &str, text: &str) {
    let page = read(file);
    let (before, rest) = page.split_once(BEGIN).expect("a mark where it begins");
    let (found, after) = rest.split_once(END).expect("a mark where it ends");
    let wanted = format!("\n{}\n\n", text.trim());
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(repository().join(file), [before, BEGIN, &wanted, END, after].concat()).expect("written");
    } else {
        assert!(found == wanted, "{file} is stale: INSTA_UPDATE=always cargo test --test it generated::\n{wanted}");
    }
}

/// A key as `packaging/config.toml` comments it.
struct Commented {
    section: String,
    key: String,
    value: String,
    meaning: String,
}

impl Commented {
    /// There is no built-in value: the one in the file is an example.
    fn is_example(&self) -> bool {
        self.meaning.contains("(An example")
    }

    /// A file with this key alone.
    fn alone(&self, value: &str) -> String {
        let section = if self.section.is_empty() { String::new() } else { format!("[{}]\n", self.section) };
        format!("{section}{} = {value}\n", self.key)
    }
}

fn commented() -> Vec<Commented> {
    let (mut keys, mut section, mut meaning) = (Vec::new(), String::new(), Vec::new());
    for line in read("packaging/config.toml").lines() {
        if let Some(text) = line.strip_prefix("# ") {
            meaning.push(text.to_owned());
        } else if let Some((key, value)) = line.strip_prefix('#').and_then(|setting| setting.split_once(" = ")) {
            let (key, value, meaning) = (key.to_owned(), value.to_owned(), meaning.join(" ").replace("  ", " "));
            keys.push(Commented { section: section.clone(), key, value, meaning });
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        }
        if line.is_empty() {
            meaning.clear();
        }
    }
    keys
}

/// The fields of a struct of `src/config.rs`, each with its type.
fn fields(source: &str, name: &str) -> Vec<(String, String)> {
    let (_, rest) = source.split_once(&format!("pub struct {name} {{\n")).expect("a struct");
    let (body, _) = rest.split_once("\n}\n").expect("its end");
    let lines = body.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(',')?.split_once(": "));
    lines.map(|(field, kind)| (field.to_owned(), kind.to_owned())).collect()
}

/// The words of an enumeration of `src/config.rs`, each with what it means.
fn words(source: &str, name: &str) -> Vec<(String, String)> {
    let (_, rest) = source.split_once(&format!("    {name} {{\n")).unwrap_or_else(|| panic!("no words {name}"));
    let (body, _) = rest.split_once("    }\n").expect("its end");
    let (mut words, mut meaning) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            meaning.push(text.to_owned());
        } else {
            let word = line.trim_end_matches(',').to_lowercase();
            words.push((word, std::mem::take(&mut meaning).join(" ").trim_end_matches('.').to_owned()));
        }
    }
    words
}

/// What may stand behind a key: the kind of value, and the words with their meaning.
fn kind(source: &str, name: &str) -> (String, Vec<(String, String)>) {
    let plain = match name {
        "String" | "Option<String>" => "a text",
        "Vec<String>" => "a list of texts",
        "bool" => "`true` or `false`",
        "Option<u32>" => "a whole number",
        "Base" => return ("a word, or a list of texts".to_owned(), words(source, "BaseWord")),
        _ => return ("a word".to_owned(), words(source, name)),
    };
    (plain.to_owned(), Vec::new())
}

/// Every key: its section, its name, its type.
fn keys(source: &str) -> Vec<(String, String, String)> {
    let mut keys = Vec::new();
    for (field, kind) in fields(source, "Config") {
        if source.contains(&format!("pub struct {kind} {{")) {
            keys.extend(fields(source, &kind).into_iter().map(|(key, kind)| (field.clone(), key, kind)));
        } else {
            keys.push((String::new(), field, kind));
        }
    }
    keys
}

#[test]
fn the_reference_of_the_configuration() {
    let (source, commented) = (read("src/config.rs"), commented());
    let keys = keys(&source);
    let named = |section: &str, key: &str| format!("[{section}] {key}");
    let of_types: Vec<String> = keys.iter().map(|(section, key, _)| named(section, key)).collect();
    let of_file: Vec<String> = commented.iter().map(|key| named(&key.section, &key.key)).collect();
    assert_eq!(of_file, of_types, "packaging/config.toml and src/config.rs have the same keys");
    let (mut text, mut section) = (String::new(), String::from("the top"));
    for (key, (_, _, name)) in commented.iter().zip(&keys) {
        if key.section != section {
            key.section.clone_into(&mut section);
            let heading = if section.is_empty() { "Above all sections".to_owned() } else { format!("`[{section}]`") };
            write!(text, "## {heading}\n\n").expect("written");
        }
        let (kind, words) = kind(&source, name);
        let default = if key.is_example() { "none".to_owned() } else { format!("`{}`", key.value) };
        let meaning = key.meaning.replace("  ", " ").replace(". ", ".\n");
        write!(text, "### `{}`\n\n{meaning}\n\n- type: {kind}\n- built in: {default}\n", key.key).expect("written");
        for (word, meaning) in words {
            assert!(Config::parse(&key.alone(&format!("{word:?}"))).is_ok(), "{}: {word}", key.key);
            writeln!(text, "- `{word:?}`: {meaning}").expect("written");
        }
        if key.is_example() {
            writeln!(text, "- example: `{} = {}`", key.key, key.value).expect("written");
        }
        text.push('\n');
    }
    check("docs/configuration.md", &text);
}

/// What the file shows is what holds without it.
#[test]
fn the_values_in_the_file_are_the_built_in_ones() {
    for key in commented() {
        let parsed = Config::parse(&key.alone(&key.value)).expect("a value that can be");
        assert_eq!(parsed == Config::built_in(), !key.is_example(), "{} = {}", key.key, key.value);
    }
    assert!(Config::parse(&read("packaging/config.toml")).expect("a configuration") == Config::built_in());
}

/// What `docs/performance.md` has in a line of a section: plain, with cudaview, added, floor, over.
fn measured<'a>(page: &'a str, section: &str, label: &str) -> Vec<&'a str> {
    let (_, rest) = page.split_once(&format!("\n{section}")).unwrap_or_else(|| panic!("nothing measured of {section}"));
    let line = rest.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("no line {label}"));
    line.split_whitespace().collect()
}

/// The README has no number that was not measured.
#[test]
fn the_costs_in_the_readme() {
    let page = read("docs/performance.md");
    let mut table =
        String::from("| | added to runc | of that, what any program in between would add |\n|---|---|---|\n");
    let lines = [
        ("a container without GPU", "create", "without GPU"),
        ("a container with 2 of 8 GPUs", "create", "--gpus, 2 of 8 GPUs"),
        ("`docker exec` into 4 GPUs", "exec", "into 4 GPUs"),
        ("create, start and delete, 2 GPUs, with the hook", "create, start and delete by runc", "env, nodes, hook"),
    ];
    for (what, section, label) in lines {
        let numbers = measured(&page, section, label);
        writeln!(table, "| {what} | {} ms | {} ms |", numbers[2], numbers[3]).expect("written");
    }
    let memory = measured(&page, "peak memory", "wrapper, create with 8 GPUs");
    writeln!(table, "\nAt its peak the wrapper has {} KiB, with 8 GPUs.", memory[0]).expect("written");
    check("README.md", &table);
}

#[test]
fn the_table_of_exit_codes() {
    let mut table = String::from("| exit code | meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::TABLE {
        writeln!(table, "| {} | {meaning} |", exit.code()).expect("written");
    }
    check("docs/exit-codes.md", &table);
}

/// How bad a finding is, as its page shows it: what stands there was printed, `pages.rs` compares it.
fn severity(code: Code) -> &'static str {
    let page = read(&format!("docs/findings/{}.md", code.name()));
    let (_, seen) = page.split_once("## You see\n").expect("a heading");
    let (seen, _) = seen.split_once("\n## ").expect("the next one");
    let tags = ["error", "warning", "info"];
    let tagged = |line: &str| tags.into_iter().find(|tag| line == format!("{tag}: {}", code.name()));
    if let Some(tag) = seen.lines().find_map(tagged) {
        return tag;
    }
    let (before, _) = seen.split_once(&format!("[{}]", code.name())).expect("where lint prints its name");
    let last = |tag: &&str| before.rfind(&format!(": {tag}: "));
    tags.into_iter().filter(|tag| last(tag).is_some()).max_by_key(|tag| last(tag)).expect("a tag")
}

#[test]
fn the_list_of_findings() {
    let mut table = String::from("| finding | severity | what it is |\n|---|---|---|\n");
    for code in Code::ALL {
        let name = code.name();
        writeln!(table, "| [{name}]({name}.md) | {} | {} |", severity(*code), code.meaning()).expect("written");
    }
    check("docs/findings/README.md", &table);
    let folder = std::fs::read_dir(repository().join("docs/findings")).expect("a folder");
    let pages = folder.map(|entry| entry.expect("an entry").file_name()).filter(|name| name != "README.md").count();
    assert_eq!(pages, Code::ALL.len(), "one page for each finding, and no other");
}
