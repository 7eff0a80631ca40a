//! Programs between cudaview and the low-level runtime that make up for what a test machine lacks.
//!
//! None of them knows of GPUs, and what is shown without cudaview is shown with the same program.

use std::path::{Path, PathBuf};

use super::command::write_program;
use super::find_program;

/// Writes a low-level runtime that changes `config.json`, and the process file of an `exec`, by these jq filters and then
/// becomes `program`, with `surroundings` before it.
#[track_caller]
fn write(path: &Path, config: &str, process: &str, surroundings: &str, program: &str) {
    let script = format!(
        r#"#!/bin/sh
set -e
change() {{
    '{jq}' -c "$2" "$1" >"$1.shim"
    mv "$1.shim" "$1"
}}
previous=
for word; do
    case $previous in
        --bundle) change "$word/config.json" '{config}' ;;
        --process) change "$word" '{process}' ;;
    esac
    previous=$word
done
exec {surroundings}'{program}' "$@"
"#,
        jq = find_program("jq").display(),
        program = find_program(program).display(),
    );
    write_program(path, script.as_bytes());
}

/// crun, for engines. Plain crun stops at limits for which a test machine has no controllers, and old versions of it at
/// the sight of a cgroup2 mount beside version 1.
#[track_caller]
pub(crate) fn crun(folder: &Path) -> PathBuf {
    let path = folder.join("crun");
    let filter = "del(.linux.resources | .blockIO, .memory, .cpu, .pids)";
    let hiding = "unshare --mount --propagation slave sh -c \
        '[ ! -d /sys/fs/cgroup/unified ] || mount -t tmpfs none /sys/fs/cgroup/unified; exec \"$@\"' sh ";
    write(&path, filter, ".", hiding, "crun");
    path
}

/// runc for `docker run --privileged`, which asks for every capability that the daemon knows: without the one that a
/// test machine's root lacks.
#[track_caller]
pub(crate) fn runc_without_sys_resource(folder: &Path) -> PathBuf {
    let path = folder.join("runc");
    let filter = |at: &str| format!("({at} | .[]?) |= map(select(. != \"CAP_SYS_RESOURCE\"))");
    write(&path, &filter(".process.capabilities"), &filter(".capabilities"), "", "runc");
    path
}
