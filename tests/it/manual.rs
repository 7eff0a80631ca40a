//! Completions and manual pages, made from the command line's own definition.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use cudaview::exit::Exit;

use crate::command::{cudaview, text};

#[test]
fn bash_completes_commands_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, script, _) = text(&cudaview().args(["completion", "bash"]).output().expect("cudaview starts"));
    assert_eq!(code, Some(0));
    let file = folder.path().join("cudaview.bash");
    fs::write(&file, script).expect("written");
    let complete = |words: &[&str]| -> BTreeSet<String> {
        let script = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                      _cudaview cudaview \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
                      printf '%s\\n' \"${COMPREPLY[@]}\"";
        let output = Command::new("bash").args(["-c", script]).arg(&file).args(words).output().expect("bash starts");
        let (_, stdout, stderr) = text(&output);
        assert_eq!(stderr, "");
        stdout.lines().map(str::to_owned).collect()
    };
    assert!(complete(&["cudaview", "ex"]).contains("explain"));
    assert_eq!(complete(&["cudaview", "log", "--fi"]), ["--findings".to_owned()].into());
    assert!(!complete(&["cudaview", "ma"]).contains("manual"), "it is for packages");
}

#[test]
fn every_command_has_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, stdout, stderr) = text(&cudaview().arg("manual").arg(folder.path()).output().expect("cudaview starts"));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    let pages: BTreeSet<String> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    let (_, help, _) = text(&cudaview().arg("help").output().expect("cudaview starts"));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        assert!(pages.contains(&format!("cudaview-{name}.1")), "{name}: {pages:?}");
    }
    let page = fs::read_to_string(folder.path().join("cudaview-log.1")).expect("a page");
    assert!(page.contains(".TH cudaview-log 1") && page.contains("\\-\\-findings"), "{page}");
    // What is there to be pasted is neither filled nor hyphenated, and what follows is again.
    let page = fs::read_to_string(folder.path().join("cudaview-explain.1")).expect("a page");
    assert!(page.contains("\nExamples:\n.nf\n  cudaview explain ") && !page.contains("EXTRA"), "{page}");
    assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count(), "{page}");
    let (code, _, stderr) = text(&cudaview().args(["manual", "/nowhere/here"]).output().expect("cudaview starts"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("failed to write manual pages to /nowhere/here"), "{stderr}");
}

/// The pages of all programs say the same of exit codes, and what `--help` says.
#[test]
fn every_program_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(cudaview().arg("manual").arg(folder.path()).status().expect("cudaview starts").success());
    let plain = |text: &str| text.replace("\\-", "-").replace("\\e", "\\");
    let helps = [
        ("cudaview.1", None),
        ("cudaview-runtime.8", None),
        ("cudaview-hook.8", Some(env!("CARGO_BIN_EXE_cudaview-hook"))),
        ("cudaview-nvml.8", Some(env!("CARGO_BIN_EXE_cudaview-nvml"))),
    ];
    for (name, program) in helps {
        let page = plain(&fs::read_to_string(folder.path().join(name)).expect("a page"));
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "EXIT STATUS", "SEE ALSO"] {
            let heading = page.lines().filter(|line| line.replace('"', "") == format!(".SH {section}"));
            assert_eq!(heading.count(), 1, "{name}: {section}: {page}");
        }
        let exits =
            page.split(".SH EXIT STATUS\n").nth(1).and_then(|rest| rest.split(".SH").next()).expect("a section");
        let codes: Vec<String> =
            exits.split(".TP\n.B ").skip(1).map(|row| row.lines().take(2).collect::<Vec<_>>().join(" ")).collect();
        let table: Vec<String> = Exit::TABLE.iter().map(|(exit, what)| format!("{} {what}", exit.code())).collect();
        assert_eq!(codes, table, "{name}");
        // Nothing that roff would take for a request of its own.
        let known = [".TH", ".SH", ".PP", ".nf", ".fi", ".TP", ".I", ".B", ".ie", ".el", ".RS", ".RE", ".br"];
        let requests = page.lines().filter(|line| line.starts_with(['.', '\'']));
        let unknown: Vec<&str> =
            requests.filter(|line| !known.contains(&line.split(' ').next().unwrap_or_default())).collect();
        assert_eq!(unknown, [""; 0], "{name}");
        let Some(program) = program else { continue };
        let (_, help, _) = text(&Command::new(program).arg("--help").output().expect("it starts"));
        for line in help.replace('…', "...").lines().map(|line| line.trim().trim_start_matches("usage: ")) {
            let line = line.split_once(": ").filter(|_| help.starts_with(line)).map_or(line, |(_, what)| what);
            assert!(page.contains(line), "{name} does not say {line:?}: {page}");
        }
    }
    let (_, help, _) = text(&cudaview().arg("help").output().expect("cudaview starts"));
    let named = help.lines().find_map(|line| line.strip_prefix("More: ")).expect("where there is more");
    for page in named.split(", ").map(|page| page.strip_prefix("man ").expect("a command")) {
        assert!(["1", "8"].iter().any(|section| folder.path().join(format!("{page}.{section}")).exists()), "{page}");
    }
}
