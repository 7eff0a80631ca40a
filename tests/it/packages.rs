//! What packages are made of: that nothing is forgotten, and what their scripts do. `tests/packages` makes and installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::world::command::{Ran, run, write_program};
use crate::world::repository;

fn packaging(name: &str) -> PathBuf {
    repository().join("packaging").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(packaging(name)).unwrap()
}

/// The words of a variable of the Makefile, its continued lines included.
fn makefile_words(name: &str) -> Vec<String> {
    let text = read("Makefile").replace("\\\n", " ");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('=')).unwrap();
    value.split_whitespace().map(str::to_owned).collect()
}

/// The files below a folder, by their paths in it, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                out.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    out.sort();
    out
}

#[test]
fn every_program_unit_rule_and_snippet_is_installed() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let bins: Vec<&str> =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(makefile_words("PROGRAMS"), bins);
    assert_eq!(makefile_words("UNITS"), files(&packaging("systemd")));
    assert_eq!(makefile_words("RULES"), files(&packaging("udev")));

    let mut hooks = makefile_words("HOOKS");
    hooks.push("precreate/50-cudaview.json".to_owned());
    hooks.sort();
    let there: Vec<String> = files(&repository().join("hooks"));
    let there: Vec<String> =
        there.into_iter().filter(|file| Path::new(file).extension() != Some("md".as_ref())).collect();
    assert_eq!(hooks, there);
}

#[test]
fn every_unit_is_enabled_and_taken_away_again() {
    for unit in makefile_words("UNITS") {
        for script in
            ["debian/postinst", "debian/prerm", "debian/postrm", "rpm/cudaview.spec", "rpm/70-cudaview.preset"]
        {
            assert!(read(script).contains(&unit), "{script}: {unit}");
        }
    }
}

#[test]
fn the_audit_trail_that_is_rotated_is_the_one_that_is_written() {
    let rule = read("logrotate/cudaview");
    let pages = fs::read_to_string(repository().join("src/sys/audit.rs")).unwrap();
    let file = rule.lines().find_map(|line| line.strip_suffix(" {")).unwrap();
    assert!(pages.contains(&format!("const FILE: &str = \"{file}\";")), "{file}");
}

#[test]
fn the_scripts_are_ones_for_a_plain_shell() {
    let before_removal = read("before-removal");
    for script in ["debian/postinst", "debian/prerm", "debian/postrm", "before-removal"] {
        let text = read(script).replace("@BEFORE_REMOVAL@", &before_removal);
        run(Command::new("sh").args(["-n", "-c", &text])).ok();
    }
}

/// What comes of a removal where `cudaview` is this shell script; its words are kept in `said`.
fn removal(script: &str, variables: &[(&str, &str)]) -> (Ran, String) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("cudaview");
    let said = folder.path().join("said");
    write_program(&program, format!("#!/bin/sh\necho \"$*\" >>'{}'\n{script}\n", said.display()).as_bytes());
    let mut command = Command::new("sh");
    command.arg(packaging("before-removal")).env("CUDAVIEW", &program).env_remove("CUDAVIEW_REMOVE");
    let ran = run(command.envs(variables.iter().copied()));
    (ran, fs::read_to_string(said).unwrap_or_default())
}

#[test]
fn a_removal_is_refused_while_a_container_depends_on_it() {
    let (ran, said) = removal("echo 'docker: trainer (running)'; exit 1", &[]);
    let ran = ran.failed_with(1);
    assert!(ran.stderr.contains("docker: trainer (running)\n") && ran.stderr.contains("hint: "), "{ran}");
    assert_eq!(said, "uninstall --all --check\n", "nothing else was done");
}

#[test]
fn a_removal_takes_cudaview_out_of_the_engines() {
    let (ran, said) = removal("", &[]);
    assert_eq!(ran.ok().stderr, "");
    assert_eq!(said, "uninstall --all --check\nuninstall --all\n");
}

#[test]
fn what_cannot_be_taken_out_keeps_the_programs() {
    let (ran, _) = removal("[ \"$3\" = --check ] || { echo 'error: not JSON'; exit 4; }", &[]);
    let ran = ran.failed_with(1);
    assert!(ran.stderr.contains("error: not JSON\n") && ran.stderr.contains("hint: "), "{ran}");
}

#[test]
fn a_program_that_cannot_say_keeps_nobody_from_removing_it() {
    // An older one, which does not know the words; one that does not start.
    for code in [2, 70, 126] {
        let (ran, said) = removal(&format!("exit {code}"), &[]);
        assert!(ran.ok().stderr.contains(&format!("(exit code {code})")), "{code}");
        assert_eq!(said, "uninstall --all --check\nuninstall gpus-flag\n");
    }
    let mut command = Command::new("sh");
    run(command.arg(packaging("before-removal")).env("CUDAVIEW", "/nonexistent/cudaview")).ok();
}

#[test]
fn whoever_insists_removes_it() {
    let (ran, said) = removal("exit 1", &[("CUDAVIEW_REMOVE", "anyway")]);
    assert!(ran.ok().stderr.contains("CUDAVIEW_REMOVE=anyway"), "it is said");
    assert_eq!(said, "");
    removal("exit 1", &[("CUDAVIEW_REMOVE", "yes")]).0.failed_with(1);
}
