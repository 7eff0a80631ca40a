//! A container's life: stop, start, restart, a restarted daemon, commit.

use std::fs;
use std::path::Path;

use super::{GPUS_1_3, Host, paths};
use crate::world::command::write_program;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, Dockerd, Install, find_program, require};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_stop_start_and_restart_give_the_same_view() {
    let mut host = Host::new("");
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    let check = |host: &Host, after: &str| {
        let count = host.docker.exec_count(&[], "one");
        assert_eq!((&count.cuda, &count.nodes), (&host.uuids_of(&[3, 1]), &paths(&[1, 3])), "{after}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1,0", "{after}");
        assert_eq!(host.docker.try_mknod("one", 0), Access::Blocked, "{after}");
        let typed = host.docker.inspect("one")["Config"]["Env"].to_string();
        assert!(typed.contains("CUDA_VISIBLE_DEVICES=3,1"), "Docker keeps what was typed: {typed}");
    };
    check(&host, "run");
    host.docker.docker(&["stop", "one"]).ok();
    host.docker.docker(&["start", "one"]).ok();
    check(&host, "stop and start");
    host.docker.docker(&["restart", "one"]).ok();
    check(&host, "restart");
    host.docker.docker(&["kill", "one"]).ok();
    host.docker.restart();
    host.docker.docker(&["start", "one"]).ok();
    check(&host, "a new daemon");
    host.docker.docker(&["update", "--memory", "64m", "--memory-swap", "64m", "one"]).ok();
    check(&host, "update");
    host.docker.docker(&["pause", "one"]).ok();
    host.docker.docker(&["unpause", "one"]).ok();
    check(&host, "pause");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_commit_keeps_what_was_typed() {
    let host = Host::new("");
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    host.docker.docker(&["commit", "one", "baked"]).ok();
    assert_eq!(
        host.docker.inspect("baked")["Config"]["Env"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| entry.as_str().filter(|entry| entry.contains("CUDA") || entry.contains("NVIDIA")))
            .collect::<Vec<_>>(),
        ["CUDA_VISIBLE_DEVICES=1,3"],
    );
    // It is an image's default from now on.
    let count = host.count("baked", &["--gpus", "device=2"]);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[2]), "0"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_passes_the_programs_exit_code_and_signals_on() {
    let host = Host::new("");
    let flags = [&["--runtime", "cudaview"], &GPUS_1_3[..]].concat();
    host.docker.run(&flags, IMAGE, &["sh", "-c", "exit 42"]).failed_with(42);
    host.docker.run(&flags, IMAGE, &["sh", "-c", "kill -KILL $$; sleep 5; exit 9"]).failed_with(9);
    let ran = host.docker.run(&flags, IMAGE, &["no-such-program"]).failed_with(127);
    assert!(ran.stderr.contains("no-such-program"), "{ran}");
    assert_eq!(host.containers(), [""; 0]);
}

/// Many at once, each with a value of its own; the audit trail has a whole line for each.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_containers_at_the_same_time_do_not_mix() {
    let host = Host::new("");
    std::thread::scope(|scope| {
        for gpu in [0, 1, 2, 3, 0, 1, 2, 3] {
            let host = &host;
            scope.spawn(move || {
                let value = format!("CUDA_VISIBLE_DEVICES={gpu}");
                let count = host.count(IMAGE, &["--gpus", "all", "-e", &value]);
                assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[gpu]), paths(&[gpu])));
            });
        }
    });
    let mut seen: Vec<String> =
        host.install.audit_records().iter().map(|record| record["visible"][0].as_str().unwrap().to_owned()).collect();
    seen.sort();
    // One more for each container that was run again, as Docker had lost its output.
    assert!(seen.len() >= 8, "{seen:?}");
    seen.dedup();
    assert_eq!(seen, ["0", "1", "2", "3"]);
}

/// A runtime is uninstalled while containers of it run: nothing new gets into them, but they can be ended.
fn uninstalled(host: &Host, runtime: &str, program: &Path) {
    let flags = [&["--runtime", runtime], &GPUS_1_3[..]].concat();
    for name in ["stopped", "removed"] {
        host.docker.up(name, &flags, IMAGE);
    }
    let away = program.with_extension("away");
    fs::rename(program, &away).unwrap();
    let missing = format!("{}: no such file or directory", program.display());
    let ran = host.docker.exec(&[], "stopped", &["true"]);
    let text = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code != 0 && text.contains(&missing), "{ran}");
    host.docker.docker(&["stop", "--time", "0", "stopped"]).ok();
    assert_eq!(host.docker.inspect("stopped")["State"]["Running"], false);
    let ran = host.docker.docker(&["start", "stopped"]);
    assert!(ran.code != 0 && !ran.stderr.is_empty(), "{ran}");
    let ran = host.docker.docker(&["run", "--rm", "--network", "none", "--runtime", runtime, IMAGE, "true"]);
    assert!(ran.code != 0 && ran.stderr.contains(&missing), "{ran}");
    let mut ran = host.docker.docker(&["rm", "--force", "removed"]);
    if ran.stderr.contains("cannot remove - open /proc/") {
        // Without its runtime Docker kills the process itself, and then may ask for the state of what has ended.
        ran = host.docker.docker(&["rm", "--force", "removed"]);
    }
    ran.ok();

    fs::rename(&away, program).unwrap();
    let ran = host.docker.docker(&["start", "stopped"]);
    // Docker 20.10 now and then could not clean up without the runtime, and does not try again.
    let is_left_over = host.docker.version() == 20 && ran.stderr.contains("id already in use");
    assert!(ran.code == 0 || is_left_over, "{ran}");
    host.docker.docker(&["rm", "--force", "stopped"]).ok();
    host.docker.up("new", &flags, IMAGE);
    host.docker.exec(&[], "new", &["true"]).ok();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_without_the_runtime_a_container_can_be_ended() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let program = install.bin("copy");
    write_program(&program, format!("#!/bin/sh\nexec '{}' \"$@\"\n", find_program("runc").display()).as_bytes());
    let docker = Dockerd::start(&[("copy", &program)], None);
    uninstalled(&Host::of(docker, install), "copy", &program);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_without_the_wrapper_a_container_can_be_ended() {
    let host = Host::new("");
    uninstalled(&host, "cudaview", &host.install.runtime());
    assert_eq!(host.docker.exec_count(&[], "new").cuda, host.uuids_of(&[1, 3]));
}
