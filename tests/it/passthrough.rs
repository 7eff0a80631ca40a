//! What is not ours to read reaches the low-level runtime byte for byte, and its end is ours.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{Sandbox, Untouched, gpu_spec, plain_spec};
use crate::world::command::{Ran, run};

/// Writes down, beside itself, everything that a program inherits; ends as `RECORDER_EXIT` or `RECORDER_SIGNAL` says.
const RECORDER: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
    char path[4096], link[4096], line[4096], fds[65536] = "", cwd[4096];
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, link, sizeof link - 1);
        if (n < 0) continue;
        link[n] = 0;
        snprintf(fds + strlen(fds), sizeof fds - strlen(fds), "fd %d %s flags %x %x\n", fd, link,
                 fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    }
    snprintf(path, sizeof path, "%s.record", argv[0]);
    FILE *out = fopen(path, "w");
    if (!out) return 99;
    for (int i = 0; i < argc; i++) { fprintf(out, "arg %s", argv[i]); fputc(0, out); }
    for (char **e = environ; *e; e++) { fprintf(out, "env %s", *e); fputc(0, out); }
    fputs(fds, out);
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Sig", 3) && strncmp(line, "SigQ", 4) && strncmp(line, "SigPnd", 6)) fputs(line, out);
    mode_t mask = umask(0);
    fprintf(out, "umask %o cwd %s nice %d\n", mask, getcwd(cwd, sizeof cwd), nice(0));
    if (fclose(out)) return 98;
    if (getenv("RECORDER_SIGNAL")) raise(atoi(getenv("RECORDER_SIGNAL")));
    return getenv("RECORDER_EXIT") ? atoi(getenv("RECORDER_EXIT")) : 0;
}
"#;

fn with_recorder() -> Sandbox {
    let sandbox = Sandbox::new("");
    let source = sandbox.path("recorder.c");
    fs::write(&source, RECORDER).unwrap();
    run(Command::new("cc").args(["-w", "-o"]).arg(sandbox.low_level()).arg(&source)).ok();
    sandbox
}

/// Starts a program with odd descriptors, signals and variables.
fn start(program: &Path, setup: &str, args: &[&OsStr]) -> Ran {
    // `env` sets what a shell cannot, and takes away what shells set themselves.
    let odd = "exec env -u _ -u PWD -u OLDPWD -u SHLVL --block-signal=USR2,HUP --ignore-signal=USR1,PIPE,CHLD \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask 027; {setup}; {odd}"), "sh"]).arg(program).args(args);
    command.env("EMPTY", "").env("ODD", OsStr::from_bytes(b"\xff\xfe\n=")).env("RECORDER", "");
    command.env("CUDA_VISIBLE_DEVICES", "5").env("NVIDIA_VISIBLE_DEVICES", "all").env_remove("_");
    command.current_dir(program.parent().unwrap());
    run(&mut command)
}

/// The program's descriptors, signals, environment and arguments are the same with and without the wrapper.
#[track_caller]
fn same(sandbox: &Sandbox, setup: &str, args: &[&OsStr]) -> Vec<u8> {
    let record = sandbox.path("low-level.record");
    let directly = start(&sandbox.low_level(), &format!("cd '{}'; {setup}", sandbox.path("").display()), args);
    assert_eq!(directly.code, 0, "{directly}");
    let expected = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    let wrapped = start(&sandbox.runtime(), &format!("cd '{}'; {setup}", sandbox.path("").display()), args);
    assert_eq!((wrapped.code, wrapped.stdout.as_str(), wrapped.stderr.as_str()), (0, "", ""), "{args:?}");
    let found = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    // Standard streams are files of their own in each run.
    let comparable = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines()
            .map(|line| if line.contains("(deleted)") { line.split_once(' ').unwrap().0 } else { line }.to_owned())
            .collect::<Vec<String>>()
    };
    assert_eq!(comparable(&found), comparable(&expected), "{args:?}");
    found
}

fn words<'a>(words: &'a [&'a str]) -> Vec<&'a OsStr> {
    words.iter().map(OsStr::new).collect()
}

#[test]
fn commands_that_are_not_ours_pass_unchanged() {
    let sandbox = with_recorder();
    for args in [
        &[][..],
        &["--version"],
        &["-v"],
        &["features"],
        &["--help"],
        &["state", "c1"],
        &["--root", "/r", "kill", "--all", "c1", "KILL"],
        &["delete", "--force", "create"],
        &["start", "c1"],
        &["--unknown", "--flag=x", "unknown-command", "--", "create", "--bundle", "/nowhere"],
        &["", "", "--", ""],
        &["checkpoint", "--image-path", "/i", "c1"],
        &["events", "--stats", "c1"],
        &["create"],
        &["create", "--bundle", "/no/such/bundle", "--unknown", "c1"],
        &["exec", "c1", "sh", "-c", "exit 3"],
        &["exec", "--process", "/no/such/file", "c1"],
        &["update", "--resources", "/no/such/file", "c1"],
        &["update", "--resources", "-", "c1"],
    ] {
        same(&sandbox, ":", &words(args));
    }
}

#[test]
fn arguments_variables_and_paths_need_not_be_utf_8() {
    let sandbox = with_recorder();
    let odd = OsStr::from_bytes(b"\xffcreate\n\xc3");
    let found = same(&sandbox, ":", &[OsStr::new("state"), odd]);
    let contains = |needle: &[u8]| found.windows(needle.len()).any(|window| window == needle);
    assert!(contains(b"arg \xffcreate\n\xc3\0") && contains(b"env ODD=\xff\xfe\n=\0"), "{found:?}");
    same(&sandbox, ":", &[OsStr::new("create"), OsStr::new("--bundle"), odd, odd]);
    let long = OsString::from("x".repeat(100_000));
    same(&sandbox, ":", &[OsStr::new("state"), &long]);
}

#[test]
fn descriptors_and_signals_are_inherited() {
    let sandbox = with_recorder();
    let found = same(&sandbox, "exec 3</dev/null 7>>seven 6<.", &words(&["state", "c1"]));
    let text = String::from_utf8_lossy(&found);
    assert!(text.contains("fd 7 ") && text.contains("/seven") && text.contains("fd 6 "), "{text}");
    assert!(!text.contains("config.toml") && !text.contains("fd 4 "), "nothing of ours stays open: {text}");
    let signals = |line: &str| {
        let mask = text.lines().find_map(|text| text.strip_prefix(line)).unwrap().trim();
        // Without the real-time ones, which whoever runs the tests may have ignored.
        u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff
    };
    // USR1 (10), PIPE (13) and CHLD (17) are ignored, HUP (1) and USR2 (12) blocked.
    assert_eq!((signals("SigIgn:"), signals("SigBlk:")), (1 << 9 | 1 << 12 | 1 << 16, 1 | 1 << 11), "{text}");
    // Closed standard streams stay closed, also while a bundle is read.
    sandbox.write_spec(&plain_spec());
    for closed in ["exec <&-", "exec >&-", "exec 2>&-", "exec <&- >&- 2>&-"] {
        same(&sandbox, closed, &words(&["state", "c1"]));
        same(&sandbox, closed, &words(&["create", "--bundle", "bundle", "c1"]));
    }
}

#[test]
fn a_bundle_without_gpus_passes_untouched() {
    let sandbox = with_recorder();
    let config = sandbox.path("bundle/config.json");
    let pretty = serde_json::to_string_pretty(&plain_spec()).unwrap() + "\n\n";
    sandbox.write("bundle/config.json", &pretty);
    let before = Untouched::of(&config);
    same(&sandbox, "exec 3</dev/null", &words(&["create", "--bundle", "bundle", "c1"]));
    same(&sandbox, "cd bundle", &words(&["run", "c1"]));
    assert_eq!(Untouched::of(&config), before);
    // Not ours to say that it is broken: the runtime says so better.
    sandbox.write("bundle/config.json", b"{\"process\": \xff");
    let before = Untouched::of(&config);
    same(&sandbox, ":", &words(&["create", "--bundle", "bundle", "c1"]));
    assert_eq!(Untouched::of(&config), before);
}

#[test]
fn a_bundle_with_gpus_changes_its_file_and_nothing_else() {
    let sandbox = with_recorder();
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    let args = words(&["create", "--bundle", "bundle", "--console-socket", "/s", "--unknown", "c1"]);
    same(&sandbox, "exec 3</dev/null 9>nine", &args);
    assert!(sandbox.spec().to_string().contains("\"CUDA_VISIBLE_DEVICES=0\""), "{}", sandbox.spec());
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    same(&sandbox, "cd bundle", &words(&["run", "c1"]));
    assert!(sandbox.spec().to_string().contains("\"CUDA_VISIBLE_DEVICES=0\""), "the working directory is the bundle");
}

#[test]
fn exit_codes_and_signals_are_the_runtimes_own() {
    let sandbox = with_recorder();
    for code in [0, 1, 2, 3, 70, 137, 255] {
        let mut command = sandbox.command();
        run(command.args(["state", "c1"]).env("RECORDER_EXIT", code.to_string())).failed_with(code);
    }
    for signal in [9, 15] {
        let mut command = sandbox.command();
        run(command.args(["state", "c1"]).env("RECORDER_SIGNAL", signal.to_string())).failed_with(128 + signal);
    }
    assert_eq!(sandbox.log(), "", "success says nothing");
}
