//! A shell in which the commands of a page are typed: `cudaview` in it asks about the page's host.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::page::{Page, repository};

/// In front of the real program: whoever types it has the host of the page.
const FRONT: &str = r#"#!/bin/bash
# Flags of our own go in front, unless the command has them, or is about a code.
command=$1
shift
front=()
case $command in
explain | predict | inventory)
    [[ " $* " == *" --inventory "* || ${1-} == [a-z]* ]] || front=(--inventory "$GUIDE_HOST")
    ;;
esac
[[ $command != explain || ${#front[@]} = 0 || " $* " == *" --config "* ]] || front+=(--config "$GUIDE_CONFIG")
exec "$GUIDE_PROGRAM" "$command" "${front[@]}" "$@"
"#;

pub(crate) struct Shell {
    folder: tempfile::TempDir,
    host: String,
    /// What stands in front of each command.
    remembered: String,
    last: i32,
}

impl Shell {
    pub(crate) fn new(page: &Page) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["bin", "home", "here"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let front = folder.path().join("bin/cudaview");
        std::fs::write(&front, FRONT).expect("written");
        std::fs::set_permissions(&front, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        std::fs::write(folder.path().join("config.toml"), "").expect("written");
        for name in ["tests", "hooks", "docs"] {
            let link = folder.path().join("here").join(name);
            std::os::unix::fs::symlink(repository().join(name), link).expect("a link");
        }
        Self { host: page.host(), folder, remembered: String::new(), last: 0 }
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    /// Types it; what is printed, and how it ends.
    pub(crate) fn type_in(&mut self, command: &str) -> (i32, String) {
        let at = |name: &str| self.folder.path().join(name);
        let path = format!("{}:/usr/bin:/bin", at("bin").display());
        let mut bash = Command::new("/bin/bash");
        bash.args(["-c", &format!("{}{command}", self.remembered)]).current_dir(self.here()).env_clear();
        bash.env("PATH", path).env("HOME", at("home")).env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        bash.env("DOCKER_HOST", "unix:///nowhere").env("CONTAINERD_ADDRESS", "/nowhere");
        bash.env("GUIDE_PROGRAM", env!("CARGO_BIN_EXE_cudaview")).env("GUIDE_HOST", &self.host);
        let output = bash.env("GUIDE_CONFIG", at("config.toml")).output().expect("bash starts");
        self.last = output.status.code().expect("it ends by itself");
        // What only helps a person goes to standard error, and stands below.
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        (self.last, printed)
    }

    /// An assignment, for the commands that follow.
    pub(crate) fn remember(&mut self, assignment: &str) {
        self.remembered += assignment;
        self.remembered.push('\n');
    }

    /// How the last one ended, as `echo $?` tells it.
    pub(crate) fn last(&self) -> i32 {
        self.last
    }

    /// A file of the page's, as `cat` shows it.
    pub(crate) fn write(&self, name: &str, lines: &[String]) {
        std::fs::write(self.here().join(name), lines.join("\n") + "\n").expect("written");
    }

    /// A file from elsewhere.
    pub(crate) fn copy(&self, from: &Path, name: &str) {
        std::fs::copy(from, self.here().join(name)).expect("copied");
    }
}

/// Whether lines are what was printed: `…` stands for any number of lines.
pub(crate) fn is_printed(lines: &[String], printed: &str) -> bool {
    let printed: Vec<&str> = printed.trim_end().lines().collect();
    let pieces: Vec<Vec<&str>> = lines
        .split(|line| line.trim() == "…")
        .map(|piece| piece.iter().map(|line| line.trim_end()).collect())
        .collect();
    let (mut at, last) = (0, pieces.len() - 1);
    for (number, piece) in pieces.iter().enumerate() {
        let fits = |start: &usize| printed[*start..].iter().zip(piece).all(|(one, other)| one.trim_end() == *other);
        let most = printed.len().checked_sub(piece.len());
        let Some(most) = most.filter(|most| *most >= at) else { return false };
        let found = match number {
            _ if number == last && number > 0 && !piece.is_empty() => Some(most).filter(fits),
            0 => Some(0).filter(fits),
            _ => (at..=most).find(fits),
        };
        let Some(found) = found else { return false };
        at = found + piece.len();
        if last == 0 && at != printed.len() {
            return false;
        }
    }
    true
}

#[test]
fn an_ellipsis_stands_for_lines() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let printed = "a\nb\nc\nd\n";
    for good in ["a\nb\nc\nd", "a\n…", "…\nd", "a\n…\nd", "…\nb\nc\n…", "a\nb\n…\nd", "…"] {
        assert!(is_printed(&lines(good), printed), "{good}");
    }
    for bad in ["a\nb\nc", "b\n…", "…\nc", "a\n…\nc", "…\nc\nb\n…", "a\nb\nc\nd\ne", "d\n…\nd\n…\nd"] {
        assert!(!is_printed(&lines(bad), printed), "{bad}");
    }
}
