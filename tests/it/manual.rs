//! Completions and manual pages, made from the command line's own definition.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

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
    let (code, _, stderr) = text(&cudaview().args(["manual", "/nowhere/here"]).output().expect("cudaview starts"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("failed to write manual pages to /nowhere/here"), "{stderr}");
}
