//! Restart policies, and a daemon that is away while its containers live on (`live-restore`).

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::cdi::{self, CDI_1_3, Store};
use super::{GPUS_1_3, Host, paths};
use crate::world::command::LIMIT;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, Dockerd, Install, require};

/// Lives until it is told to fail.
const MORTAL: [&str; 3] = ["sh", "-c", "while [ ! -e /die ]; do sleep 0.1; done; rm /die; exit 3"];

#[track_caller]
fn host(more: &[(&str, serde_json::Value)]) -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let mut settings = cdi::settings(Store::Graphdriver, &install);
    for (key, value) in more {
        settings[key] = value.clone();
    }
    let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, &settings);
    Host::of(docker, install)
}

/// Each way of selecting GPUs 1 and 3 that this Docker has.
fn selections() -> Vec<&'static [&'static str]> {
    if cdi::is_known() { vec![&GPUS_1_3, &CDI_1_3] } else { vec![&GPUS_1_3] }
}

/// Running, and not between two lives: Docker calls that running too.
fn is_running(container: &serde_json::Value) -> bool {
    container["State"]["Running"] == true && container["State"]["Restarting"] == false
}

impl Host {
    /// Starts a container that ends with an error when it is told to, with a policy for that.
    #[track_caller]
    fn up_with_policy(&self, name: &str, policy: &str, flags: &[&str]) {
        let head = ["run", "--detach", "--network", "none", "--stop-timeout", "0", "--runtime", "cudaview"];
        let args = [&head[..], &["--name", name, "--restart", policy], flags, &[IMAGE], &MORTAL].concat();
        self.docker.docker(&args).ok();
    }

    /// Waits until the container's condition holds.
    #[track_caller]
    fn wait(&self, name: &str, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let container = self.docker.inspect(name);
            if condition(&container) {
                return;
            }
            assert!(Instant::now() < end, "{name}: not {what}: {}\n{}", container["State"], self.docker.logs());
            sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_for_restart(&self, name: &str, number: i64) {
        self.wait(name, &format!("restarted {number} times"), |container| {
            container["RestartCount"] == number && is_running(container)
        });
    }

    /// That the container sees GPUs 3 and 1, in this order, and no others.
    #[track_caller]
    fn check_3_1(&self, name: &str, after: &str) {
        let count = self.docker.exec_count(&[], name);
        assert_eq!((count.cuda, count.nodes), (self.uuids_of(&[3, 1]), paths(&[1, 3])), "{name} after {after}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1,0", "{name} after {after}");
        let count = self.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], name);
        assert_eq!(count.cuda, self.uuids_of(&[3]), "{name} after {after}");
        assert_eq!(self.docker.try_mknod(name, 0), Access::Blocked, "{name} after {after}");
        assert_eq!(self.docker.try_mknod(name, 3), Access::Openable, "{name} after {after}");
    }

    /// Kills the container's first process, as the kernel does when memory runs out.
    #[track_caller]
    fn kill_from_outside(&self, name: &str) {
        let pid = self.docker.inspect(name)["State"]["Pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).expect("the container runs");
        kill_process(pid, Signal::KILL).unwrap();
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_restart_policies_give_the_same_view() {
    let host = host(&[]);
    for (number, selection) in selections().into_iter().enumerate() {
        for policy in ["always", "on-failure:5"] {
            let name = format!("{}-{number}", &policy[..2]);
            host.up_with_policy(&name, policy, &[selection, &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
            host.check_3_1(&name, "run");
            host.docker.exec(&[], &name, &["touch", "/die"]).ok();
            host.wait_for_restart(&name, 1);
            host.check_3_1(&name, "an error of its own");
            host.kill_from_outside(&name);
            host.wait_for_restart(&name, 2);
            host.check_3_1(&name, "SIGKILL");
            // A line for each time that it was made, with the same decision.
            let records = host.install.audit_records();
            let of_it: Vec<_> = records.iter().filter(|record| record["name"] == name.as_str()).collect();
            assert_eq!(of_it.len(), 3, "{records:?}");
            for record in of_it {
                let expected = json!([["1", "3"], ["3", "1"], "user", "3,1", "1,0"]);
                let keys = ["granted", "visible", "provenance"].map(|key| record[key].clone());
                let [granted, visible, provenance] = keys;
                let found = json!([granted, visible, provenance, record["before"]["cvd"], record["after"]["cvd"]]);
                assert_eq!(found, expected, "{record}");
            }
            // A user's own stop is no reason to start it again, and `docker start` is one.
            host.docker.docker(&["stop", &name]).ok();
            assert_eq!(host.docker.inspect(&name)["State"]["Running"], false);
            host.docker.docker(&["start", &name]).ok();
            host.check_3_1(&name, "stop and start");
            host.docker.docker(&["rm", "--force", &name]).ok();
        }
    }
}

/// What is refused is refused at once and stays so: no loop of restarts.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_a_refused_container_is_not_restarted_for_ever() {
    let host = host(&[]);
    let head = ["run", "--detach", "--network", "none", "--runtime", "cudaview", "--restart", "always"];
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=5"]].concat();
    let args = [&head[..], &["--name", "refused"], &flags, &[IMAGE, "true"]].concat();
    host.docker.docker(&args).failed_with(125);
    let ran = host.docker.docker(&["start", "refused"]).failed_with(1);
    assert!(ran.stderr.contains("names none of the granted GPUs"), "{ran}");
    sleep(Duration::from_millis(500));
    let container = host.docker.inspect("refused");
    assert_eq!((&container["RestartCount"], &container["State"]["Running"]), (&json!(0), &json!(false)));
    assert_eq!(host.install.audit_records().len(), 2, "one for run, one for start");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_containers_outlive_their_daemon() {
    let mut host = host(&[("live-restore", json!(true))]);
    let mut names = Vec::new();
    for (number, selection) in selections().into_iter().enumerate() {
        let name = format!("lives-{number}");
        host.up(&name, IMAGE, &[selection, &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
        names.push(name);
    }
    host.up_with_policy("dies", "always", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    let pids = |host: &Host| -> Vec<i64> {
        names.iter().map(|name| host.docker.inspect(name)["State"]["Pid"].as_i64().unwrap()).collect()
    };
    let before = pids(&host);
    let victim = host.docker.inspect("dies")["State"]["Pid"].as_i64().unwrap();
    host.docker.restart_alone(|| {
        let alive = |pid: &i64| std::fs::exists(format!("/proc/{pid}/root/bin")).unwrap();
        assert!(before.iter().all(alive), "they live on without a daemon");
        kill_process(Pid::from_raw(i32::try_from(victim).unwrap()).unwrap(), Signal::KILL).unwrap();
    });
    assert_eq!(pids(&host), before, "the same processes");
    for name in &names {
        host.check_3_1(name, "a new daemon");
    }
    // Ended while nobody looked, and started again by the new daemon.
    let is_new =
        |container: &serde_json::Value| container["State"]["Running"] == true && container["State"]["Pid"] != victim;
    host.wait("dies", "running again", is_new);
    host.check_3_1("dies", "a death without a daemon");
    for name in &names {
        host.docker.docker(&["restart", name]).ok();
        host.check_3_1(name, "restart under the new daemon");
    }
    // A second time, with what the second daemon made.
    host.docker.restart_alone(|| ());
    for name in &names {
        host.check_3_1(name, "a third daemon");
    }
}
