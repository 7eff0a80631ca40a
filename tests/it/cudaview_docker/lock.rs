//! Docker holds its lock of a container while it creates it: whoever asks it about that container then waits for ever.
//!
//! So nothing of ours asks. First what would come of it, then that the wrapper and the hook open no socket at all, and
//! that they are through in no time while the lock is held.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{GPUS_1_3, Host};
use crate::world::command::write_program;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, find_program, require};

/// How long somebody waits who asks Docker about the container under creation, in seconds.
const PATIENCE: u32 = 3;

/// A shell script that does something at `create` and then becomes the next runtime.
fn at_create(script: &str, next: &Path) -> String {
    format!(
        "#!/bin/sh\nfor id; do :; done\ncase \" $* \" in *\" create \"*)\n{script}\n;; esac\nexec '{next}' \"$@\"\n",
        next = next.display()
    )
}

/// Docker's command line at that socket; the daemon's folder is written into a file beside the script later.
fn docker_command() -> String {
    format!("'{}' --host \"unix://$(cat \"$0.folder\")/docker.sock\"", find_program("docker").display())
}

#[track_caller]
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|err| panic!("failed to read {}: {err}", path.display()))
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_does_not_answer_about_a_container_that_it_creates() {
    require(&["dockerd", "docker", "containerd", "runc", "jq", "timeout"]);
    let folder = tempfile::tempdir().unwrap();
    let asker = folder.path().join("asker");
    let ask = |of: &str, file: &str| {
        format!("timeout {PATIENCE} {} inspect {of} >\"$0.{file}\" 2>&1; echo $? >\"$0.{file}.code\"", docker_command())
    };
    let script = [ask("other", "other"), ask("\"$id\"", "own")].join("\n");
    write_program(&asker, at_create(&script, &find_program("runc")).as_bytes());
    let docker = Dockerd::start(&[("asker", &asker)], None);
    let beside = |name: &str| folder.path().join(format!("asker.{name}"));
    fs::write(beside("folder"), docker.path().to_str().unwrap()).unwrap();
    docker.import(A100X4, IMAGE, &[]);
    docker.up("other", &[], IMAGE);
    docker.up("one", &["--runtime", "asker"], IMAGE);

    assert_eq!(text(&beside("other.code")), "0\n", "{}", text(&beside("other")));
    assert_eq!(text(&beside("own.code")), "124\n", "ended by timeout: {}", text(&beside("own")));
    let answer = text(&beside("own"));
    assert!(!answer.contains("State"), "not a word of the container: {answer}");
    assert_eq!(docker.inspect("one")["State"]["Running"], true, "and nobody waits any more");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_does_not_wait_for_the_engines_lock() {
    require(&["dockerd", "docker", "containerd", "runc", "jq", "timeout"]);
    let install = Install::new(A100X4, "");
    let (outer, inner) = (install.bin("outer"), install.bin("inner"));
    // Somebody asks all the while, which shows that the lock is held; cudaview runs between the two times.
    let asking = format!(
        "date +%s%N >\"$0.begin\"\ntimeout 50 {} inspect \"$id\" </dev/null >\"$0.answer\" 2>&1 &",
        docker_command()
    );
    write_program(&outer, at_create(&asking, &install.runtime()).as_bytes());
    let slow = format!(
        "date +%s%N >\"$0.end\"\nsleep {PATIENCE}\n[ -s '{answer}' ] || touch \"$0.unanswered\"",
        answer = install.bin("outer.answer").display()
    );
    write_program(&inner, at_create(&slow, &find_program("runc")).as_bytes());
    let config = text(&install.config());
    install.configure(&config.replace("\"runc\"", &format!("'{}'", inner.display())));
    let docker = Dockerd::start(&[("cudaview", &outer)], None);
    fs::write(install.bin("outer.folder"), docker.path().to_str().unwrap()).unwrap();
    let host = Host::of(docker, install);

    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat();
    host.up("one", IMAGE, &flags);
    assert_eq!(host.docker.exec_count(&[], "one").cuda, host.uuids_of(&[3, 1]));
    let record = host.last_audit();
    assert_eq!(
        (&record["engine"], &record["provenance"], &record["name"]),
        (&"docker".into(), &"user".into(), &"one".into())
    );
    let time = |name: &str| -> u64 { text(&host.install.bin(name)).trim().parse().unwrap() };
    let took = time("inner.end") - time("outer.begin");
    println!("{} ms from the engine's call to the low-level runtime", took / 1_000_000);
    assert!(took < 1_000_000_000 * u64::from(PATIENCE), "{took} ns");
    assert!(host.install.bin("inner.unanswered").exists(), "the lock was held all the while");
}

/// Network calls by the program that made them, from what `strace -f` wrote.
fn network_calls(trace: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
    let lines = || trace.lines().filter_map(|line| line.split_once(char::is_whitespace));
    for (pid, call) in lines() {
        let is_fork = ["clone", "fork"].iter().any(|name| call.split(['(', ' ']).any(|word| word.contains(name)));
        if let Some((_, child)) = call.rsplit_once("= ").filter(|_| is_fork) {
            parents.insert(child.trim(), pid);
        }
    }
    let mut programs: BTreeMap<&str, String> = BTreeMap::new();
    let mut pending: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (pid, call) in lines() {
        let call = call.trim_start();
        let mut ancestor = pid;
        while !programs.contains_key(ancestor) {
            let Some(parent) = parents.get(ancestor) else { break };
            ancestor = parent;
        }
        let program = programs.get(ancestor).cloned().unwrap_or_else(|| "?".to_owned());
        if let Some(path) = call.strip_prefix("execve(\"").and_then(|rest| rest.split('"').next()) {
            pending.insert(pid, path);
        }
        if call.contains("execve") && call.trim_end().ends_with("= 0") {
            // runc starts a copy of itself that has no path (execveat): the same program as before.
            if let Some(path) = pending.remove(pid) {
                programs.insert(pid, path.to_owned());
                calls.entry(path.to_owned()).or_default();
            }
            continue;
        }
        let is_network =
            ["socket", "connect(", "send", "recv", "bind(", "listen("].iter().any(|name| call.starts_with(name));
        if is_network {
            calls.entry(program).or_default().insert(call.to_owned());
        }
    }
    calls
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_opens_no_socket() {
    require(&["dockerd", "docker", "containerd", "runc", "jq", "strace"]);
    let install = Install::new(A100X4, "");
    let tracer = install.bin("tracer");
    let script = format!(
        "#!/bin/sh\nexec '{strace}' -D -f -qq -s 256 -e trace=%network,%process -o \"$0.$$\" '{runtime}' \"$@\"\n",
        strace = find_program("strace").display(),
        runtime = install.runtime().display(),
    );
    write_program(&tracer, script.as_bytes());
    let docker = Dockerd::start(&[("cudaview", &tracer)], None);
    let host = Host::of(docker, install);
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    assert_eq!(host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "one").cuda, host.uuids_of(&[3]));
    host.docker.docker(&["rm", "--force", "one"]).ok();

    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let traces = fs::read_dir(host.install.prefix().join("bin")).unwrap().map(|entry| entry.unwrap().path());
    for trace in
        traces.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tracer.")))
    {
        for (program, more) in network_calls(&text(&trace)) {
            calls.entry(program).or_default().extend(more);
        }
    }
    let of = |program: &Path| calls.get(program.to_str().unwrap()).unwrap_or_else(|| panic!("{program:?}: {calls:#?}"));
    let none = BTreeSet::new();
    assert_eq!(*of(&host.install.runtime()), none);
    assert_eq!(*of(&host.install.bin("cudaview-hook")), none);
    // That the trace has what it would show: runc talks to its own children.
    let runc: BTreeSet<&String> =
        calls.iter().filter(|(program, _)| program.ends_with("/runc")).flat_map(|(_, calls)| calls).collect();
    assert!(runc.iter().any(|call| call.starts_with("socketpair(")), "{calls:#?}");
    let all: Vec<PathBuf> = calls.keys().map(PathBuf::from).collect();
    assert!(all.iter().any(|program| program.ends_with("gpu-count")), "{all:?}");
}
