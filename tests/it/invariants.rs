//! What holds for the whole source tree, read as text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cudaview::exit::Exit;
use cudaview::finding::Code;

/// Folders of the repository that people write text into.
const FOLDERS: [&str; 7] = ["src", "tests", "docs", "hooks", "packaging", ".ci", ".config"];

/// The longest source file that a reader is asked to take in.
const MOST_LINES: usize = 600;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every regular file under a folder, by its path in the repository; an absent folder has none.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path().strip_prefix(repository()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The files at the top of the repository.
fn top_files() -> Vec<String> {
    let entries = std::fs::read_dir(repository()).unwrap().map(Result::unwrap);
    let names = entries.filter(|entry| entry.file_type().unwrap().is_file()).map(|entry| entry.file_name());
    // In a worktree `.git` is a file, and git's own.
    names.map(|name| name.into_string().unwrap()).filter(|name| name != ".git").collect()
}

/// The text of a file; `None` for one that is not text.
fn text(file: &str) -> Option<String> {
    String::from_utf8(std::fs::read(repository().join(file)).unwrap()).ok()
}

fn sources() -> Vec<(String, String)> {
    let sources: Vec<String> = files("src").into_iter().filter(|file| has_extension(file, "rs")).collect();
    assert!(sources.len() > 30, "the sources were not found: {sources:?}");
    sources.into_iter().map(|file| (file.clone(), text(&file).unwrap())).collect()
}

fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file).extension().is_some_and(|found| found == extension)
}

fn is_impure(file: &str) -> bool {
    ["src/sys/", "src/cmd/", "src/bin/"].iter().any(|folder| file.starts_with(folder))
}

/// The places where one of these words stands in code, as `file:line: word`.
fn mentions(file: &str, text: &str, words: &[&str]) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .flat_map(|(number, line)| {
            words
                .iter()
                .filter(move |word| has_word(line, word))
                .map(move |word| format!("{file}:{}: {word}", number + 1))
        })
        .collect()
}

/// Whether a word stands in a line with no letter, digit or underscore around it.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_part(before) && !is_part(bytes.get(at + word.len()))
    })
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("use libc::c_int;", "libc"));
    assert!(!has_word("libcuda and glibc", "libc"));
    assert_eq!(mentions("f", "// std::fs\nlet x = std::fs::read(y);", &["std::fs"]), ["f:2: std::fs"]);
}

/// What `clippy.toml` enforces call by call, here by the name of the door to the system.
#[test]
fn the_brain_cannot_reach_the_system() {
    let doors = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net",
        "std::io",
        "std::thread",
        "std::os::unix::net",
        "Instant::now",
        "SystemTime::now",
        "rustix",
        "libc",
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "dbg!",
        "crate::sys",
        "crate::cmd",
    ];
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(file, _)| !is_impure(file))
        .flat_map(|(file, text)| mentions(&file, &text, &doors))
        .collect();
    assert!(found.is_empty(), "only src/sys, src/cmd and src/bin may do this: {found:#?}");
}

/// An engine holds the lock of the container that it creates: who is called then must not call back. Two modules ask
/// engines, few shells name them, and the wrapper and the hooks name neither.
#[test]
fn only_three_commands_ask_an_engine() {
    let places = |words: &[&str]| -> BTreeSet<String> {
        let mentioned = |(file, text): &(String, String)| !mentions(file, text, words).is_empty();
        sources().into_iter().filter(mentioned).map(|(file, _)| file).collect()
    };
    let only = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(places(&["UnixStream", "rustix::net"]), only(&["src/sys/containers/http.rs"]));
    let images = [
        "src/sys/images/containerd.rs",
        "src/sys/images/docker.rs",
        "src/sys/images/mod.rs",
        "src/sys/images/podman.rs",
    ];
    let shells = ["src/cmd/container.rs", "src/cmd/image.rs", "src/cmd/install/engine.rs", "src/cmd/ps.rs"];
    let doctor = ["src/sys/doctor/container.rs", "src/sys/doctor/docker.rs", "src/sys/install/dependents.rs"];
    assert_eq!(places(&["sys::doctor", "doctor::facts"]), only(&["src/cmd/doctor.rs"]));
    assert_eq!(places(&["doctor::run"]), only(&["src/cmd/cli.rs"]));
    assert_eq!(places(&["sys::containers", "containers::"]), only(&[&images[..], &shells, &doctor].concat()));
    let shells = ["src/cmd/command.rs", "src/cmd/compose.rs", "src/cmd/container.rs", "src/cmd/image.rs"];
    assert_eq!(places(&["sys::images", "images::"]), only(&shells));
    assert_eq!(places(&["mod containers", "mod images"]), only(&["src/sys/mod.rs"]));
    assert_eq!(places(&["container::run", "command::run"]), only(&["src/cmd/explain.rs"]));
    assert_eq!(places(&["compose::run"]), only(&["src/cmd/command.rs", "src/cmd/explain.rs"]));
    assert_eq!(places(&["explain::run"]), only(&["src/cmd/cli.rs"]));
    assert_eq!(places(&["ps::run"]), only(&["src/cmd/cli.rs"]));
    // Nor do they start a client of an engine's.
    let starts = places(&["Command::new"]);
    let doors = ["alone", "door", "hook", "precreate", "runtime"].map(|door| format!("src/cmd/{door}.rs"));
    assert!(doors.iter().all(|door| !starts.contains(door)), "{starts:?}");
}

#[test]
fn unsafe_code_is_in_one_place() {
    let allowed = |file: &str| file.starts_with("src/sys/") || file == "src/bin/cudaview-runtime.rs";
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(file, _)| !allowed(file))
        .flat_map(|(file, text)| mentions(&file, &text, &["unsafe"]))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_is_left_unfinished() {
    // In pieces, so that this file does not find itself.
    let words = ["todo", "unimplemented"].map(|word| format!("{word}!"));
    let marks = [["FIX", "ME"], ["XX", "X"], ["TO", "DO"]].map(|[one, two]| format!("{one}{two}"));
    let words: Vec<&str> = words.iter().chain(&marks).map(String::as_str).collect();
    let found: Vec<String> = sources()
        .into_iter()
        .flat_map(|(file, text)| {
            let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
            lines
                .into_iter()
                .flat_map(|(number, line)| words.iter().filter(move |w| has_word(line, w)).map(move |w| (number, *w)))
                .map(|(number, word)| format!("{file}:{}: {word}", number + 1))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn files_are_short_enough_to_read() {
    let long: Vec<(String, usize)> = sources()
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn every_finding_has_its_page() {
    if !repository().join("docs/findings").is_dir() {
        return;
    }
    let pages: BTreeSet<String> = files("docs/findings").into_iter().collect();
    let missing: Vec<&str> = Code::ALL
        .iter()
        .map(|code| code.name())
        .filter(|c| !pages.contains(&format!("docs/findings/{c}.md")))
        .collect();
    assert!(missing.is_empty(), "no page in docs/findings: {missing:?}");
}

/// A table in the docs whose first column is headed `exit code` repeats [`Exit::TABLE`], or it is wrong.
#[test]
fn exit_codes_are_the_same_everywhere() {
    let expected: BTreeMap<String, String> =
        Exit::TABLE.iter().map(|(exit, meaning)| (exit.code().to_string(), (*meaning).to_owned())).collect();
    let pages = files("docs").into_iter().chain(top_files()).filter(|file| has_extension(file, "md"));
    for file in pages {
        let text = text(&file).unwrap();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if cells(line).first().is_none_or(|head| !head.eq_ignore_ascii_case("exit code")) {
                continue;
            }
            let rows = lines.by_ref().skip(1).map(cells).take_while(|cells| cells.len() > 1);
            let found: BTreeMap<String, String> = rows.map(|cells| (cells[0].clone(), cells[1].clone())).collect();
            assert_eq!(found, expected, "{file}");
        }
    }
}

fn cells(line: &str) -> Vec<String> {
    let Some(inner) = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else { return Vec::new() };
    inner.split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect()
}

#[test]
fn the_map_names_every_source_file() {
    let Ok(map) = std::fs::read_to_string(repository().join("ARCHITECTURE.md")) else { return };
    let is_named = |file: &str| {
        let name = file.rsplit('/').next().unwrap();
        let folder = file.trim_end_matches("/mod.rs").rsplit('/').next().unwrap();
        has_word(&map, name) && (name != "mod.rs" || map.contains(&format!("{folder}/")) || map.contains(folder))
    };
    let missing: Vec<String> = files("src").into_iter().filter(|file| !is_named(file)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name: {missing:#?}");
}

/// Nothing of the machine that something was written on gets into the repository.
#[test]
fn no_file_names_a_developers_machine() {
    let homes = [["/wo", "rk/"], ["/ho", "me/"], ["/Us", "ers/"], ["/ro", "ot/."]].map(|parts| parts.concat());
    let all = FOLDERS.iter().flat_map(|folder| files(folder)).chain(top_files());
    let mut found = Vec::new();
    let mut read = 0;
    for (file, text) in all.filter_map(|file| Some((file.clone(), text(&file)?))) {
        read += 1;
        for (number, line) in text.lines().enumerate() {
            let is_home = homes.iter().any(|home| line.contains(home));
            if is_home || line.split("://").skip(1).any(is_private_host) {
                found.push(format!("{file}:{}: {line}", number + 1));
            }
        }
    }
    assert!(read > 50, "only {read} files were read");
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether what follows `://` is a host that only some network knows: no public name, or a mirror of a registry.
fn is_private_host(rest: &str) -> bool {
    let host = rest.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))).next().unwrap_or_default();
    let suffixes = [".internal", ".intranet", ".local", ".lan", ".corp"];
    let words = ["mirror", "artifactory", "nexus", "proxy"];
    let host = host.to_ascii_lowercase();
    suffixes.iter().any(|suffix| host.ends_with(suffix))
        || words.iter().any(|word| host.split(['.', '-']).any(|label| label == *word))
}

#[test]
fn private_hosts_are_told_from_public_ones() {
    for private in ["pypi.corp/simple", "crates-mirror.example/", "build.internal:8080/"] {
        assert!(is_private_host(private), "{private}");
    }
    for public in ["github.com/x", "docs.nvidia.com/", "localhost/", "/run/x.sock"] {
        assert!(!is_private_host(public), "{public}");
    }
}

#[test]
fn dependencies_come_from_the_public_registry() {
    let lock = text("Cargo.lock").unwrap();
    let sources: BTreeSet<&str> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["\"registry+https://github.com/rust-lang/crates.io-index\""]);
}
