//! The hook, stopped where it waits for its state: by then nothing of what it inherited is left.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{HOSTILE, Waiting};
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::command::{run, run_with_input, write_program};
use crate::world::{find_program, require};

const HOOK: &str = env!("CARGO_BIN_EXE_cudaview-hook");

/// A program that starts another with twenty more descriptors, one of them the host's root, one of them to be written to,
/// a low limit for core dumps that may be raised, and a working directory of its own.
const SURROUNDINGS: &str = r#"
for n in /proc/$$/fd/*; do n=${n##*/}; [ "$n" -le 2 ] || eval "exec $n>&-"; done
for n in {3..22}; do eval "exec $n</dev/null"; done
exec 7</ 9<>/dev/null
ulimit -c unlimited
umask 077
exec "$@"
"#;

fn surrounded(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--block-signal", "--ignore-signal=TERM,INT,ALRM,CHLD", "bash", "-c", SURROUNDINGS, "bash"]);
    command
        .arg(program)
        .args(arguments)
        .envs(HOSTILE.into_iter().filter(|(name, _)| !name.starts_with("LD_") && *name != "PATH"));
    command
}

/// T13 (the hook's part), T29 (blocked signals). From outside, since the program may say what it likes.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nothing_inherited_is_left_in_the_hook() {
    require(&["bash", "runc"]);
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        [&["createRuntime"][..], &["createRuntime", "--root=/r", "--node=/dev/nvidia1=195:1"], &["precreate"]];
    for arguments in arguments {
        // First, that this is what a program inherits.
        let plain =
            Waiting::start(surrounded(&find_program("cat"), &[]).current_dir(folder.path()), &find_program("cat"));
        assert_eq!(plain.descriptors(), (0..23).collect::<Vec<u32>>());
        assert_ne!(plain.signals("SigBlk:") & 1 << 13, 0);
        assert_eq!((plain.field("Umask:").as_str(), plain.field("NoNewPrivs:").as_str()), ("0077", "0"));
        plain.finish();

        let hook = Waiting::start(surrounded(Path::new(HOOK), arguments).current_dir(folder.path()), Path::new(HOOK));
        assert_eq!(hook.descriptors(), [0, 1, 2], "{arguments:?}: R6");
        assert_eq!(hook.signals("SigBlk:"), 0, "{arguments:?}: R4, no signal is blocked");
        assert_eq!(hook.signals("SigIgn:"), 1 << 12, "{arguments:?}: R4, SIGPIPE alone is ignored");
        assert_eq!(hook.field("NoNewPrivs:"), "1", "{arguments:?}: R4");
        assert_eq!(hook.field("Umask:"), "0000", "{arguments:?}: R4");
        assert_eq!(hook.field("Threads:"), "1", "{arguments:?}: R19");
        assert_eq!(fs::read_link(hook.path("cwd")).unwrap(), Path::new("/"), "{arguments:?}: R4");
        let limits = hook.text("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{arguments:?}: R4 {core}");
        // Of a process that is not dumpable root's are the files, whoever runs it; of root's own process that says
        // nothing, so another user looks at it below.
        let (code, error) = hook.finish();
        assert!(matches!(code, Some(4 | 0)), "{arguments:?}: {code:?} {error}");
    }
}

/// R4: a process that may not be dumped may not be looked into either, not by its own user.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_hook_cannot_be_traced_by_its_own_user() {
    require(&["runc"]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("cudaview-hook");
    write_program(&copy, &fs::read(HOOK).unwrap());
    let as_user = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(61234).gid(61234).current_dir("/");
        command
    };
    let readable = |waiting: &Waiting| {
        let mut look = as_user(&find_program("ls"));
        run(look.arg(waiting.path("fd"))).code == 0
    };
    let plain = Waiting::start(&mut as_user(&find_program("cat")), &find_program("cat"));
    assert!(readable(&plain), "a user may look into another process of the same user");
    plain.finish();
    let hook = Waiting::start(as_user(&copy).arg("createRuntime"), &copy);
    assert!(!readable(&hook));
    hook.finish();
}

/// R4, R5, R37: whatever stands in the hook's environment, what it starts gets none of it.
#[test]
fn what_the_hook_starts_gets_no_variable() {
    let sandbox = Sandbox::new("");
    let config = fs::read_to_string(sandbox.path("prefix/etc/cudaview/config.toml")).unwrap();
    let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("inventory")).collect();
    sandbox.write("prefix/etc/cudaview/config.toml", config.join("\n"));
    let seen = sandbox.path("seen");
    let script = format!("#!/bin/sh\n/bin/cat /proc/$$/environ >'{0}'; echo done >>'{0}'; exit 3\n", seen.display());
    write_program(&sandbox.path("prefix/bin/cudaview-nvml"), script.as_bytes());
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    let state = serde_json::json!({"id": "c1", "pid": std::process::id(), "bundle": sandbox.path("bundle")});
    let mut hook = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
    // Of the loader's own only the harmless one: this build of the hook is a dynamic one.
    hook.arg("createRuntime")
        .envs(HOSTILE.into_iter().filter(|(name, _)| !name.starts_with("LD_")))
        .env("LD_BIND_NOW", "1");
    let ran = run_with_input(&mut hook, state.to_string().as_bytes()).failed_with(5);
    assert!(ran.stderr.contains("cudaview-nvml"), "{ran}");
    assert_eq!(fs::read_to_string(&seen).unwrap(), "done\n");
}

/// R4: made setuid, or given capabilities, it would do for anybody what it does for root.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_setuid_hook_refuses() {
    require(&["mount"]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("cudaview-hook");
    write_program(&copy, &fs::read(HOOK).unwrap());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    // In the tests' own /run setuid has no effect.
    let script = "mount -t tmpfs -o mode=755,suid none \"$0\" && cp -p \"$1\" \"$0/hook\" && cd / && \
                  exec setpriv --reuid 61234 --regid 61234 --clear-groups \"$0/hook\" --version";
    let on = folder.path().join("suid");
    fs::create_dir(&on).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(&on).arg(&copy);
    let ran = run(&mut command).failed_with(1);
    assert!(ran.stderr.contains("must not be setuid"), "{ran}");
}

/// T30: a state that never ends, in pieces that keep coming, and an inventory that is a FIFO or a stopped program.
#[test]
fn nothing_makes_the_hook_wait_for_long() {
    let begin = Instant::now();
    let script = "(printf '{\"id\":\"c\",'; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do printf ' '; sleep 1; done) | \
                  \"$0\" \"$1\"; echo $?";
    let run_drip = |stage: &str| {
        let mut child = Command::new("timeout");
        child.args(["20", "sh", "-c", script, HOOK, stage]).stdin(Stdio::null()).stdout(Stdio::piped());
        child.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> =
            ["createRuntime", "precreate"].map(|stage| scope.spawn(move || run_drip(stage))).into_iter().collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for output in outputs {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("not closed in time"), "{error}");
        assert_eq!(output.stdout, b"4\n", "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(19), "{:?}", begin.elapsed());
    for break_it in ["fifo", "stopped"] {
        let sandbox = Sandbox::new("");
        if break_it == "fifo" {
            fs::remove_file(sandbox.path("inventory.json")).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path("inventory.json"), 0o644.into()).unwrap();
        } else {
            let config = fs::read_to_string(sandbox.path("prefix/etc/cudaview/config.toml")).unwrap();
            let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("inventory")).collect();
            sandbox.write("prefix/etc/cudaview/config.toml", config.join("\n"));
            write_program(&sandbox.path("prefix/bin/cudaview-nvml"), b"#!/bin/sh\nkill -STOP $$\n");
        }
        sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
        let state = serde_json::json!({"id": "c1", "pid": std::process::id(), "bundle": sandbox.path("bundle")});
        let begin = Instant::now();
        let mut hook = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
        run_with_input(hook.arg("createRuntime"), state.to_string().as_bytes()).failed_with(5);
        sandbox.create().failed_with(5);
        let mut precreate = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
        let spec = fs::read(sandbox.path("bundle/config.json")).unwrap();
        let ran = run_with_input(precreate.arg("precreate"), &spec).failed_with(5);
        assert_eq!(ran.stdout, "", "nothing but a whole document");
        assert!(begin.elapsed() < Duration::from_secs(24), "{break_it}: {:?}", begin.elapsed());
    }
}

/// T29: crun in a user namespace calls the bundle `/`, the root by a relative path, and a container "created" that is not.
#[test]
fn a_state_as_crun_has_it_leads_to_the_bundle() {
    let sandbox = Sandbox::new("");
    sandbox.write_spec(&gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]));
    let mut init = Command::new("sleep").arg("60").current_dir(sandbox.path("bundle")).spawn().unwrap();
    let state = serde_json::json!({"id": "c1", "pid": init.id(), "bundle": "/", "root": "rootfs", "status": "created"});
    let mut hook = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
    let found = run_with_input(hook.arg("createRuntime"), state.to_string().as_bytes());
    let record = fs::read_to_string(sandbox.path("audit.jsonl"));
    init.kill().unwrap();
    init.wait().unwrap();
    // A process of the host's own namespaces, so it goes no further; but the bundle was found and decided on.
    assert_ne!(found.code, 0, "{found}");
    assert!(record.unwrap_or_default().contains("\"id\":\"c1\""), "{found}");

    let mut elsewhere = Command::new("sleep").arg("60").current_dir(sandbox.path("log")).spawn().unwrap();
    let state = serde_json::json!({"id": "c1", "pid": elsewhere.id(), "bundle": "/"});
    let mut hook = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
    let refused = run_with_input(hook.arg("createRuntime"), state.to_string().as_bytes());
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(
        refused.code == 4 && refused.stderr.contains("config.json") && refused.stderr.contains("hint"),
        "{refused}"
    );
}

/// T31, beside what `hook_nodes::process` has: a number that belongs to another process by now. That process has a mount
/// namespace of its own, as a container's has, and no such root.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_process_number_that_is_anothers_by_now_is_refused() {
    require(&["runc"]);
    let mut other = Command::new("unshare").args(["-m", "sleep", "60"]).spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    fs::create_dir_all(root.join("dev")).unwrap();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let link = format!("/proc/{}/ns/mnt", other.id());
    while fs::read_link(&link).unwrap() == own {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut hook = Command::new(HOOK);
    hook.arg("createRuntime").arg(format!("--root={}", root.display())).arg("--node=/dev/nvidia1=195:1");
    let state = format!("{{\"id\":\"c\",\"pid\":{}}}", other.id());
    let ran = run_with_input(&mut hook, state.as_bytes());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_ne!(ran.code, 0, "{ran}");
    assert!(!root.join("dev/nvidia1").exists());
}

/// R5: the name by which it was called decides between the hook and NVIDIA's stand-in, and nothing else.
#[test]
fn an_odd_name_changes_nothing() {
    for name in ["", "--help", "createRuntime", "/proc/self/exe", "cudaview-runtime", "\u{1b}[2J"] {
        let mut hook = Command::new(HOOK);
        hook.arg0(name).arg("bogus").stdin(Stdio::null());
        let ran = run(&mut hook).failed_with(2);
        assert!(ran.stderr.starts_with("cudaview-hook: "), "{name:?}: {ran}");
        let mut child = Command::new(HOOK)
            .arg0(name)
            .arg("createRuntime")
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"{\"id\":\"c\",\"pid\":1}").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4), "{name:?}");
    }
}
