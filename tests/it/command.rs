//! Running the project's own programs.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The `cudaview` command, with an environment that does not colour or widen what it prints.
pub(crate) fn cudaview() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudaview"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR").env_remove("TERM");
    command
}

/// A file below `tests/data`.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// stdout and stderr as text, and the exit code.
pub(crate) fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs it, and reads the JSON that it must print.
pub(crate) fn json(command: &mut Command) -> serde_json::Value {
    let (code, stdout, stderr) = text(&command.output().expect("cudaview starts"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{command:?}");
    serde_json::from_str(&stdout).expect("JSON")
}
