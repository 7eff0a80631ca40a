//! What documents name is there: files, paths of a host, keys of the configuration, findings, exit codes.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::collections::BTreeSet;
use std::path::Path;

use cudaview::config::Config;
use cudaview::exit::Exit;

use crate::guide::asks_what_is_there;
use crate::guide::page::{Page, pages, repository};

/// Paths of a host that no source of ours names in one word, and why they are right.
const OF_OTHERS: [(&str, &str); 4] = [
    ("/etc/containerd/conf.d/50-cudaview.toml", "where hooks/README.md puts a file"),
    ("/etc/crio/crio.conf.d", "where hooks/README.md puts a file"),
    ("/etc/crio/crio.conf.d/50-cudaview.conf", "put together from a folder and a name"),
    ("/usr/share/cudaview/hooks", "where packaging/Makefile puts files, as DATADIR/cudaview"),
];

/// Settings of other programs.
const KEYS_OF_OTHERS: [(&str, &str); 3] = [
    ("accept-nvidia-visible-devices-envvar-when-unprivileged", "NVIDIA's toolkit"),
    ("enable_cdi", "containerd"),
    ("runtime", "podman's containers.conf"),
];

/// The documents that people read, and those of who works on it.
fn documents() -> Vec<Page> {
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| Page {
        name: name.to_owned(),
        text: std::fs::read_to_string(repository().join(name)).expect("a document"),
    });
    pages().into_iter().chain(more).collect()
}

/// The lines outside of fences.
fn prose(page: &Page) -> Vec<&str> {
    let mut is_inside = false;
    let outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_inside ^= is_fence;
        !is_inside && !is_fence
    };
    page.text.lines().filter(outside).collect()
}

/// What stands between backticks in a page's prose.
fn spans(page: &Page) -> Vec<String> {
    let lines = prose(page).into_iter().filter(|line| !line.contains("``"));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The name by which a heading is linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let (mut count, mut faults) = (0, Vec::new());
    for page in documents() {
        let folder = repository().join(&page.name).parent().expect("a folder").to_owned();
        let text = prose(&page).join("\n");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { repository().join(&page.name) } else { folder.join(file) };
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            let mut anchors = there.lines().filter(|line| line.starts_with('#')).map(anchor);
            if !path.exists() || !place.is_empty() && anchors.all(|anchor| anchor != place) {
                faults.push(format!("{}: {target} is not there", page.name));
            }
            count += 1;
        }
    }
    assert_eq!(faults, [""; 0]);
    assert!(count > 150, "{count}");
}

/// Every text of the sources, the packages and the hooks, in which a path of a host may be named.
fn sources() -> String {
    let mut text = String::new();
    let mut folders: Vec<_> =
        ["src", "packaging", "hooks", "tests/it"].iter().map(|name| repository().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|extension| extension != "md") && !path.ends_with("named.rs") {
                text += &String::from_utf8_lossy(&std::fs::read(&path).expect("a file"));
            }
        }
    }
    text
}

/// Whether a text is a path, without words that stand for something.
fn is_path(span: &str, starts: &[&str]) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    starts.iter().any(|start| span.starts_with(start)) && span.chars().all(is_plain)
}

#[test]
fn paths_are_those_of_the_sources() {
    let (sources, mut count, mut faults) = (sources(), 0, Vec::new());
    for page in documents() {
        let folder = repository().join(&page.name).parent().expect("a folder").to_owned();
        for span in spans(&page) {
            let word = span.split(' ').next().unwrap_or_default().trim_end_matches('/');
            if is_path(word, &["/etc/", "/usr/", "/var/", "/run/", "/dev/", "/proc/", "/lib/"]) {
                let is_of_others = OF_OTHERS.iter().any(|(path, _)| *path == word);
                let family = word.trim_end_matches(|c: char| c.is_ascii_digit());
                let is_known = sources.contains(word) || family.starts_with("/dev/") && sources.contains(family);
                if !is_known && !is_of_others {
                    faults.push(format!("{}: nothing in the sources is called {word}", page.name));
                }
                count += 1;
            }
            if is_path(word, &["src/", "tests/", "docs/", "hooks/", "packaging/", ".ci/"]) {
                let is_there = [repository(), folder.as_path()].iter().any(|base| base.join(word).exists());
                if !is_there {
                    faults.push(format!("{}: {word} is not there", page.name));
                }
                count += 1;
            }
        }
    }
    assert_eq!(faults, [""; 0]);
    assert!(count > 60, "{count}");
}

/// Whether a line is a setting of ours, in whatever section.
fn is_setting(line: &str) -> bool {
    let in_section = |section: &str| Config::parse(&format!("[{section}]\n{line}\n")).is_ok();
    Config::parse(line).is_ok() || ["reconcile", "grant", "limit", "hook"].into_iter().any(in_section)
}

#[test]
fn settings_are_those_of_the_configuration() {
    let (mut count, mut faults) = (0, Vec::new());
    for page in documents() {
        for span in spans(&page) {
            let Some((key, value)) = span.split_once(" = ").filter(|(key, _)| is_path(key, &[""])) else { continue };
            let is_of_others = KEYS_OF_OTHERS.iter().any(|(name, _)| *name == key);
            if !is_of_others && !is_setting(&format!("{key} = {value}")) {
                faults.push(format!("{}: {span} is no setting", page.name));
            }
            count += 1;
        }
        for block in page.blocks().into_iter().filter(|block| block.language == "toml") {
            let text = block.text.join("\n");
            let is_of_others = text.contains("[plugins") || text.contains("[engine");
            if let Err(error) = Config::parse(&text)
                && !is_of_others
            {
                faults.push(format!("{}:{}: {error}", page.name, block.line));
            }
            count += 1;
        }
    }
    assert_eq!(faults, [""; 0]);
    assert!(count > 20, "{count}");
}

#[test]
fn exit_codes_are_those_of_the_table() {
    let known: BTreeSet<String> = Exit::TABLE.iter().map(|(exit, _)| exit.code().to_string()).collect();
    let mut count = 0;
    for page in documents() {
        for line in prose(&page) {
            for behind in line.split("ends with ").skip(1) {
                let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
                if !number.is_empty() {
                    assert!(known.contains(&number), "{}: {line}", page.name);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 8, "{count}");
}

/// A command of CONTRIBUTING is a script of the repository, and what stands behind it the script knows.
#[test]
fn scripts_know_what_is_typed_behind_them() {
    let (mut count, mut faults) = (0, Vec::new());
    for page in documents() {
        let is_read = |language: &str| page.name == "CONTRIBUTING.md" || language == "console";
        let blocks = page.blocks().into_iter().filter(|block| is_read(&block.language));
        let lines: Vec<String> = blocks.flat_map(|block| block.text).collect();
        for line in lines.into_iter().chain(spans(&page)) {
            let typed = line.trim_start_matches("$ ").trim_start_matches("sudo ");
            let mut words = typed.split(" #").next().unwrap_or_default().split(' ');
            let name = words.next().unwrap_or_default();
            let path = repository().join(name);
            let is_ours = is_path(name, &["tests/", "packaging/", ".ci/"]);
            if is_ours && !path.exists() {
                faults.push(format!("{}: {typed}: {name} is not there", page.name));
            }
            let is_script = path.is_file() && path.extension().is_none() && path.parent() != Some(repository());
            if !is_script || path.starts_with(repository().join("src")) {
                continue;
            }
            let script = std::fs::read_to_string(&path).expect("a script");
            let is_own = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if words.next().filter(is_own).is_some_and(|word| !script.contains(word)) {
                faults.push(format!("{}: {typed}", page.name));
            }
            count += 1;
        }
    }
    assert_eq!(faults, [""; 0]);
    assert!(count > 30, "{count}");
}

/// `cudaview …` between backticks can be typed, and a `docker run …` that is whole can be read.
#[test]
fn commands_in_the_prose_can_be_typed() {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for page in documents().into_iter().filter(|page| page.name != "CHANGELOG.md") {
        for span in spans(&page) {
            let command = span.trim_start_matches("sudo ");
            let is_run = ["docker run ", "podman run ", "podman --runtime "].iter().any(|run| command.starts_with(run));
            let is_whole = is_run && !command.contains(['…', '\'']) && command.contains("IMAGE");
            if (command.starts_with("cudaview ") || is_whole) && seen.insert(command.to_owned()) {
                faults.extend(asks_what_is_there(command).map(|fault| format!("{}: {span}: {fault}", page.name)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen.len() > 25, "{}", seen.len());
    assert!(Path::new(env!("CARGO_BIN_EXE_cudaview")).exists());
}
