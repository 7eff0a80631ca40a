//! Beside a real Docker.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::command::run;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, require};

/// What `doctor` finds about Docker: status, line, fix.
fn docker(docker: &Dockerd, install: &Install) -> (String, String, String) {
    let mut command = Command::new(install.bin("cudaview"));
    command.args(["doctor", "--format", "json"]).env("DOCKER_HOST", docker.address());
    let ran = run(&mut command);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let check = json["checks"].as_array().unwrap().iter().find(|check| check["name"] == "Docker").unwrap();
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("line"), text("fix"))
}

fn write(docker: &Dockerd, change: impl FnOnce(&mut Value)) {
    let path = docker.config_file();
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
}

/// The file names the runtime, and the daemon has not read it: what `doctor` says to type is what helps.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_that_has_not_read_its_file() {
    require(&["dockerd", "docker", "containerd", "runc"]);
    let install = Install::new(A100X4, "");
    let daemon = Dockerd::start(&[], None);
    let version = daemon.docker(&["version", "--format", "{{.Server.Version}}"]).ok().stdout.trim().to_owned();
    let (status, line, fix) = docker(&daemon, &install);
    assert_eq!((status.as_str(), line), ("error", format!("{version} does not know cudaview")));
    let config = daemon.config_file().display().to_string();
    assert!(fix.starts_with("add \"runtimes\": {\"cudaview\"") && fix.contains(&config), "{fix}");

    let runtime = install.runtime();
    write(&daemon, |value| value["runtimes"]["cudaview"] = json!({"path": runtime}));
    let (status, line, fix) = docker(&daemon, &install);
    assert_eq!((status.as_str(), line), ("error", format!("{version} does not know the runtime \"cudaview\"")));
    // Nothing of systemd is here, so it names the process.
    let reload = format!("sudo kill -HUP {}", daemon.pid());
    assert_eq!(fix, format!("{reload} (running containers stay up)"));

    kill_process(Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
    wait_until(&daemon, &install, "ok", &format!("{version}: the runtime \"cudaview\" is {}", runtime.display()));

    // The program goes away.
    fs::rename(&runtime, runtime.with_extension("away")).unwrap();
    let (status, line, _) = docker(&daemon, &install);
    assert_eq!((status.as_str(), line.as_str()), ("error", gone(&runtime).as_str()));
}

fn gone(runtime: &Path) -> String {
    format!("the runtime \"cudaview\" is {}, which is not there", runtime.display())
}

/// A daemon reads its file some time after the signal.
#[track_caller]
fn wait_until(daemon: &Dockerd, install: &Install, status: &str, line: &str) {
    for _ in 0..100 {
        let found = docker(daemon, install);
        if (found.0.as_str(), found.1.as_str()) == (status, line) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{:?}\n{}", docker(daemon, install), daemon.logs());
}

/// What `doctor --container` finds: the exit code, and each check's status and line.
fn inside(docker: &Dockerd, install: &Install, name: &str) -> (i32, Value) {
    let mut command = Command::new(install.bin("cudaview"));
    command.args(["doctor", "--container", name, "--format", "json"]).env("DOCKER_HOST", docker.address());
    let ran = run(&mut command);
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    (ran.code, json)
}

#[track_caller]
fn says(found: &(i32, Value), name: &str, status: &str, line: &str) {
    let check = found.1["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap();
    let is_so = check["status"] == status && check["line"].as_str().unwrap().contains(line);
    assert!(is_so, "{name} is not {status}, {line}: {:#}", found.1);
}

/// What happens in a container after its start is seen from outside.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_containers_seen_from_outside() {
    require(&["dockerd", "docker", "containerd", "runc"]);
    let install = Install::new(A100X4, "");
    let daemon = Dockerd::start(&[("cudaview", &install.runtime())], None);
    daemon.import(A100X4, IMAGE, &[]);
    let gpus = ["--runtime", "cudaview", "--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3"];
    daemon.up("well", &gpus, IMAGE);
    let found = inside(&daemon, &install, "well");
    assert_eq!((found.0, &found.1["skipped"]), (0, &json!(0)), "{:#}", found.1);
    says(&found, "container", "ok", "well: running, its first process is ");
    says(&found, "cudaview", "ok", "decided for host GPUs 1 and 3");
    says(&found, "nodes", "ok", "are there, with the right numbers");
    says(&found, "device rules", "ok", "they let it open each of them");
    says(&found, "variables", "ok", "has what was decided");

    // Where the kernel tells the rules in force, those count: as after systemd wrote its own over them.
    let rules = found.1["checks"].as_array().unwrap().iter().find(|check| check["name"] == "device rules").unwrap();
    if let Some(folder) = rules["lookedAt"][0].as_str().unwrap().strip_suffix("devices.list") {
        fs::write(Path::new(folder).join("devices.deny"), "c 195:3 rw").unwrap();
        let found = inside(&daemon, &install, "well");
        assert_eq!(found.0, 1);
        says(&found, "device rules", "error", "they do not let it open /dev/nvidia3");
        says(&found, "nodes", "ok", "are there");
    }
    daemon.exec(&[], "well", &["rm", "/dev/nvidia1"]).ok();
    let found = inside(&daemon, &install, "well");
    assert_eq!(found.0, 1);
    says(&found, "nodes", "error", "/dev/nvidia1 is not there");

    // A script that sets the variable again.
    let script = ["sh", "-c", "export CUDA_VISIBLE_DEVICES=3; exec sleep 1000"];
    let flags = [&["run", "--detach", "--network", "none", "--name", "again"], &gpus[..], &[IMAGE], &script].concat();
    daemon.docker(&flags).ok();
    let mut found = inside(&daemon, &install, "again");
    // Until the shell is there.
    for _ in 0..50 {
        if found.0 == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        found = inside(&daemon, &install, "again");
    }
    says(&found, "variables", "warning", "CUDA_VISIBLE_DEVICES is \"3\", and \"0,1\" was decided");

    daemon.up("plain", &["-e", "CUDA_VISIBLE_DEVICES=1,3"], IMAGE);
    let found = inside(&daemon, &install, "plain");
    assert_eq!(found.0, 1);
    says(&found, "cudaview", "warning", "had no hand in it: it was started with runc");
    daemon.docker(&["kill", "plain"]).ok();
    daemon.docker(&["wait", "plain"]).ok();
    let found = inside(&daemon, &install, "plain");
    says(&found, "container", "warning", "plain does not run (exited)");
}
