//! The programs as they are released: no interpreter, no library, nothing that a variable could make them load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::HOSTILE;
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{Ran, run, run_limited, run_with_input, write_program};
use crate::world::{find_program, repository, require};

/// A program of the release build, which `packaging/build` makes where it is not there or not of these sources: minutes the
/// first time, a second afterwards. In the folders of newer engines there is no compiler; there it is what was built.
#[track_caller]
pub(super) fn release(program: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let bin = target.join("dist/bin");
        if run(Command::new("sh").args(["-c", "command -v cargo"])).code == 0 {
            // Tests are processes of their own; cargo would only build one after the other.
            let lock = fs::File::create(target.join("tmp/release.lock")).unwrap();
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            let mut build = Command::new(repository().join("packaging/build"));
            build.args(["cudaview", "cudaview-runtime", "cudaview-hook", "cudaview-nvml"]);
            build.env("CARGO_TARGET_DIR", target).env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS");
            run_limited(&mut build, Stdio::null(), Duration::from_secs(900)).ok();
        }
        bin
    });
    let file = folder.join(program);
    assert!(file.is_file(), "{} was not built: packaging/build", file.display());
    file
}

const STATIC: [&str; 3] = ["cudaview", "cudaview-runtime", "cudaview-hook"];

/// A sandbox with the released programs.
fn released() -> Sandbox {
    let sandbox = Sandbox::new("");
    for program in ["cudaview-runtime", "cudaview-hook"] {
        write_program(&sandbox.path("prefix/bin").join(program), &fs::read(release(program)).unwrap());
    }
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=1,3"]));
    sandbox
}

/// Runs a program under strace, with more variables; what it asked of the kernel, from its own start until it becomes
/// another one: the runtime is not ours.
fn trace(
    sandbox: &Sandbox,
    calls: &str,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
    input: &[u8],
) -> (Ran, String) {
    let file = sandbox.path("trace");
    let mut command = Command::new(find_program("strace"));
    command.args(["-f", "-qq", "-s", "4096", "-e", &format!("trace={calls}"), "-o"]).arg(&file);
    // `env` sets what strace itself must not get.
    command.arg("env").args(variables.iter().map(|(name, value)| format!("{name}={value}")));
    let ran = run_with_input(command.arg(program).args(arguments).current_dir(sandbox.path("bundle")), input);
    let trace = fs::read_to_string(file).unwrap();
    let start = format!("execve(\"{}\"", program.display());
    let ours = trace.split_once(&start).unwrap_or_else(|| panic!("{ran} {trace}")).1;
    (ran, ours.split("execve(").next().unwrap_or_default().to_owned())
}

/// T39: nothing is loaded before `main`, and nothing after it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn no_interpreter_no_library_and_none_is_opened() {
    require(&["strace", "readelf"]);
    for program in STATIC {
        let readelf = |what: &str| run(Command::new("readelf").args(["-W", what]).arg(release(program))).ok().stdout;
        assert!(!readelf("-l").contains("INTERP"), "{program}");
        assert!(!readelf("-d").contains("NEEDED"), "{program}");
    }
    // The one that is to load NVML shows that this would be seen.
    let nvml = run(Command::new("readelf").args(["-W", "-l", "-d"]).arg(release("cudaview-nvml"))).ok().stdout;
    assert!(nvml.contains("INTERP") && nvml.contains("NEEDED"));

    let sandbox = released();
    let log = sandbox.path("log/log.json").display().to_string();
    let bundle = sandbox.path("bundle").display().to_string();
    let spec = fs::read(sandbox.path("bundle/config.json")).unwrap();
    sandbox.write("bundle/process", br#"{"args":["true"],"env":["CUDA_VISIBLE_DEVICES=3"]}"#);
    let process = sandbox.path("bundle/process").display().to_string();
    let hook = sandbox.path("prefix/bin/cudaview-hook");
    let lines: [(PathBuf, Vec<&str>, &[u8]); 6] = [
        (sandbox.runtime(), vec!["--log", &log, "create", "--bundle", &bundle, "c1"], b""),
        (sandbox.runtime(), vec!["--log", &log, "exec", "--process", &process, "c1"], b""),
        (sandbox.runtime(), vec!["--version"], b""),
        (hook.clone(), vec!["createRuntime", "--root=/r", "--node=/dev/nvidia1=195:1"], b"{\"id\":\"c\",\"pid\":1}"),
        (hook, vec!["precreate"], &spec),
        (release("cudaview"), vec!["predict", "--inventory", "/nowhere"], b""),
    ];
    let mut opened = 0;
    for (program, arguments, input) in lines {
        let calls = "open,openat,openat2,execve,clone,clone3,fork,vfork,mmap";
        let (_ran, ours) = trace(&sandbox, calls, &program, &arguments, &[], input);
        let libraries: Vec<&str> =
            ours.lines().filter(|line| line.contains(".so") || line.contains("/etc/ld")).collect();
        assert_eq!(libraries, [""; 0], "{arguments:?}");
        if program.ends_with("cudaview-runtime") || program.ends_with("cudaview-hook") {
            assert!(!ours.contains("clone") && !ours.contains("fork("), "R19, R31: no second process; {ours}");
        }
        opened += ours.matches("open").count();
    }
    assert!(opened > 10, "files were opened: {opened}");
}

/// T3: hostile variables change nothing of what the hook and the wrapper do, and nothing that they name is looked at.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn hostile_variables_change_nothing() {
    require(&["strace"]);
    let sandbox = released();
    let hook = sandbox.path("prefix/bin/cudaview-hook");
    let bundle = sandbox.path("bundle").display().to_string();
    let state = serde_json::json!({"id": "c1", "pid": std::process::id(), "bundle": bundle}).to_string();
    let spec = fs::read(sandbox.path("bundle/config.json")).unwrap();
    let lines: [(PathBuf, Vec<&str>, &[u8]); 5] = [
        (hook.clone(), vec!["createRuntime"], state.as_bytes()),
        (hook.clone(), vec!["createRuntime", "--root=/r", "--node=/dev/nvidia1=195:1"], state.as_bytes()),
        (hook.clone(), vec!["bogus"], b""),
        (hook, vec!["precreate"], &spec),
        (sandbox.runtime(), vec!["create", "--bundle", &bundle, "c1"], b""),
    ];
    for (program, arguments, input) in lines {
        let look = |hostile: bool| {
            fs::write(sandbox.path("bundle/config.json"), &spec).unwrap();
            let variables = if hostile { &HOSTILE[..] } else { &[] };
            let (ran, ours) = trace(&sandbox, "%file,%process,%network", &program, &arguments, variables, input);
            let mut calls: BTreeSet<String> = BTreeSet::new();
            for line in ours.lines().skip(1) {
                // Without the number of the process, which also names the temporary file.
                let line = line.split_once(' ').map_or(line, |(_pid, call)| call.trim_start());
                // Nor addresses of its memory.
                let word = |word: &str| (if word.starts_with("0x") { "ADDRESS" } else { word }).to_owned();
                let line = line.split(' ').map(word).collect::<Vec<String>>().join(" ");
                let mut line: Vec<char> = line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
                line.dedup_by(|a, b| (*a, *b) == ('#', '#'));
                calls.insert(line.into_iter().collect());
            }
            // What the wrapper becomes gets the variables as they are, and its loader talks.
            let stderr = if program == sandbox.runtime() { String::new() } else { ran.stderr };
            (ran.code, ran.stdout, stderr, calls)
        };
        let (clean, hostile) = (look(false), look(true));
        let difference: Vec<&String> = clean.3.symmetric_difference(&hostile.3).collect();
        assert!(difference.is_empty(), "{arguments:?}: {difference:#?}");
        assert_eq!(clean, hostile, "{arguments:?}");
        assert!(!clean.3.is_empty(), "{arguments:?}");
        assert!(!hostile.3.iter().any(|call| call.contains("evil") || call.contains("nowhere")), "{:?}", hostile.3);
    }
}
