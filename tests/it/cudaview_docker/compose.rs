//! `docker compose`: a file instead of a command line.
//!
//! Debian's releases after 12 have it beside their Docker. On 12 there is none for its Docker 20.10, so there the same
//! requests are typed by hand, as `docker run` and so on, and the same is expected of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Host, paths};
use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::dockerd::IMAGE;
use crate::world::{Access, find_program};

/// A service of the file: its name, the runtime, and the value of `CUDA_VISIBLE_DEVICES`.
struct Service {
    name: &'static str,
    runtime: &'static str,
    value: &'static str,
}

/// A project with one service.
struct Project<'a> {
    host: &'a Host,
    service: Service,
    /// Where there is compose.
    file: Option<PathBuf>,
}

impl<'a> Project<'a> {
    #[track_caller]
    fn new(host: &'a Host, service: Service) -> Project<'a> {
        // The suites of `tests/engines` have compose among their packages; the machine's own engines come without.
        let has_compose = std::env::var_os("CUDAVIEW_TEST_SUITE").is_some();
        assert_eq!(has_compose, host.docker.version() > 20, "Docker 20.10 is the one without");
        let file = has_compose.then(|| host.docker.path().join(format!("{}.yaml", service.name)));
        if let Some(file) = &file {
            fs::write(file, text(host, &service)).unwrap();
        }
        Project { host, service, file }
    }

    fn container(&self) -> String {
        format!("{0}-{0}-1", self.service.name)
    }

    /// `docker-compose` with these arguments, or what stands for it where there is none.
    #[track_caller]
    fn compose(&self, compose: &[&str], by_hand: &[&str]) -> Ran {
        let Some(file) = &self.file else { return self.host.docker.docker(by_hand) };
        let mut command = Command::new(find_program("docker-compose"));
        command.env("DOCKER_HOST", format!("unix://{}", self.host.docker.path().join("docker.sock").display()));
        command.env("DOCKER_CONFIG", self.host.docker.path().join("client"));
        command.arg("--file").arg(file).args(["--project-name", self.service.name]).args(compose);
        run(&mut command)
    }

    #[track_caller]
    fn up(&self) -> Ran {
        let Service { runtime, value, .. } = &self.service;
        let (name, value) = (self.container(), format!("CUDA_VISIBLE_DEVICES={value}"));
        let flags = ["run", "--detach", "--network", "none", "--stop-timeout", "0", "--name", &name];
        let choice = ["--runtime", runtime, "--gpus", "\"device=1,3\"", "-e", &value];
        let devices = self.devices();
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        self.compose(&["up", "--detach"], &[&flags[..], &choice, &devices, &[IMAGE, "sleep", "1000"]].concat())
    }

    /// The nodes that NVIDIA's toolkit would add, where cudaview does not.
    fn devices(&self) -> Vec<String> {
        if self.service.runtime == "runc" { self.host.install.docker_devices(&[1, 3]) } else { Vec::new() }
    }

    #[track_caller]
    fn exec(&self, flags: &[&str], args: &[&str]) -> Ran {
        let compose = [&["exec", "--no-TTY"], flags, &[self.service.name], args].concat();
        self.compose(&compose, &[&["exec"], flags, &[self.container().as_str()], args].concat())
    }

    #[track_caller]
    fn exec_count(&self, flags: &[&str]) -> Count {
        Count::of(self.exec(flags, &COUNT))
    }

    #[track_caller]
    fn down(&self) {
        self.compose(&["down", "--timeout", "0"], &["rm", "--force", &self.container()]).ok();
        assert_eq!(self.host.containers(), [""; 0]);
    }
}

fn text(host: &Host, service: &Service) -> String {
    let Service { name, runtime, value } = service;
    let devices: String = if *runtime == "runc" {
        let flags = host.install.docker_devices(&[1, 3]);
        let lines = flags.iter().map(|flag| format!("      - {}\n", flag.trim_start_matches("--device=")));
        format!("    devices:\n{}", lines.collect::<String>())
    } else {
        String::new()
    };
    format!(
        r#"services:
  {name}:
    image: {IMAGE}
    runtime: {runtime}
    network_mode: none
    command: ["sleep", "1000"]
    stop_grace_period: 0s
    environment:
      CUDA_VISIBLE_DEVICES: "{value}"
{devices}    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: ["1", "3"]
              capabilities: [gpu]
"#
    )
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_compose_shows_the_bug() {
    let host = Host::new("");
    let project = Project::new(&host, Service { name: "plain", runtime: "runc", value: "1,3" });
    project.up().ok();
    let count = project.exec_count(&[]);
    assert_eq!((count.cuda, count.nvml), (host.uuids_of(&[3]), host.uuids_of(&[1, 3])), "one of two, and no error");
    let count = project.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=3"]);
    assert_eq!(count.cuda, host.uuids_of(&[]));
    project.down();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_compose_up_exec_restart_down() {
    let host = Host::new("");
    let project = Project::new(&host, Service { name: "trainer", runtime: "cudaview", value: "3,1" });
    project.up().ok();
    let exec = |after: &str, flags: &[&str], view: &[usize], value: &str| {
        let count = project.exec_count(flags);
        assert_eq!((count.cuda, count.nodes), (host.uuids_of(view), paths(&[1, 3])), "{after} {flags:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{after} {flags:?}");
    };
    for after in ["up", "restart", "stop and start", "up again"] {
        let name = project.container();
        match after {
            "restart" => drop(project.compose(&["restart", "--timeout", "0"], &["restart", &name]).ok()),
            "stop and start" => {
                project.compose(&["stop", "--timeout", "0"], &["stop", &name]).ok();
                project.compose(&["start"], &["start", &name]).ok();
            }
            "up again" => {
                project.down();
                project.up().ok();
            }
            _ => (),
        }
        exec(after, &[], &[3, 1], "1,0");
        exec(after, &["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "1");
        exec(after, &["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "1");
        assert_eq!(host.docker.try_mknod(&project.container(), 0), Access::Blocked, "{after}");
    }
    let record = host.last_audit();
    assert_eq!((&record["source"][0], &record["provenance"]), (&"gpus".into(), &"user".into()), "{record}");
    let ran = project.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], &["true"]);
    assert!(ran.code != 0, "{ran}");
    let text = "CUDA_VISIBLE_DEVICES=\"2\" names none of this container's GPUs";
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains(text), "{ran}");
    project.down();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_compose_narrows_and_shows_why_it_refuses() {
    let host = Host::new("");
    let project = Project::new(&host, Service { name: "narrow", runtime: "cudaview", value: "3" });
    project.up().ok();
    let count = project.exec_count(&[]);
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[3]), paths(&[3])));
    assert_eq!(host.docker.try_mknod(&project.container(), 1), Access::Blocked);
    project.down();

    let project = Project::new(&host, Service { name: "wrong", runtime: "cudaview", value: "5" });
    let ran = project.up();
    assert!(ran.code != 0, "{ran}");
    let text = "cudaview: refused, CUDA_VISIBLE_DEVICES=\"5\" names none of the granted GPUs";
    assert!(ran.stderr.contains(text), "{ran}");
    project.down();
}
