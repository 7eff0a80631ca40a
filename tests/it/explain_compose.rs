//! `cudaview explain --compose` against what Docker's own Compose makes of the same files.
//!
//! Debian's releases after 12 have Compose beside their Docker. On 12 the same requests are typed by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, find_program, require};

/// A service: its members, and what they come to: the flag of its GPUs, and the variable as Docker is told.
struct Service {
    name: &'static str,
    image: &'static str,
    members: &'static str,
    gpus: &'static str,
    value: Option<&'static str>,
}

/// With `SHELL_LIST=3,1` in the shell, `FILE_ONE=3` in `.env`, and these files beside it.
const FILES: [(&str, &str); 4] = [
    (".env", "FILE_ONE=3 # a comment\nSHELL_LIST=2\n"),
    ("a.env", "# GPUs\nCUDA_VISIBLE_DEVICES=0\nOTHER='a b'\n"),
    ("b.env", "export CUDA_VISIBLE_DEVICES=\"${FILE_ONE}\" # of .env\n"),
    ("c.env", "CUDA_VISIBLE_DEVICES\n"),
];

const SERVICES: [Service; 14] = [
    Service {
        name: "map",
        image: IMAGE,
        members: "environment: {CUDA_VISIBLE_DEVICES: '3,1'}",
        gpus: "\"device=1,3\"",
        value: Some("3,1"),
    },
    Service {
        name: "number",
        image: IMAGE,
        members: "environment: {CUDA_VISIBLE_DEVICES: 1}",
        gpus: "all",
        value: Some("1"),
    },
    Service {
        name: "list",
        image: IMAGE,
        members: "environment: ['CUDA_VISIBLE_DEVICES=2,0']",
        gpus: "all",
        value: Some("2,0"),
    },
    Service { name: "file", image: IMAGE, members: "env_file: a.env", gpus: "\"device=2,3\"", value: Some("0") },
    Service { name: "files", image: IMAGE, members: "env_file: [a.env, b.env]", gpus: "all", value: Some("3") },
    Service {
        name: "bare-in-file",
        image: "cvd-0",
        members: "env_file: [a.env, c.env]",
        gpus: "all",
        value: Some("0"),
    },
    Service {
        name: "over-file",
        image: IMAGE,
        members: "env_file: a.env\n    environment: {CUDA_VISIBLE_DEVICES: 2}",
        gpus: "all",
        value: Some("2"),
    },
    Service {
        name: "shell",
        image: IMAGE,
        members: "environment: ['CUDA_VISIBLE_DEVICES=${SHELL_LIST}']",
        gpus: "all",
        value: Some("3,1"),
    },
    Service {
        name: "default",
        image: IMAGE,
        members: "environment: ['CUDA_VISIBLE_DEVICES=${NOBODY:-1,2}']",
        gpus: "all",
        value: Some("1,2"),
    },
    Service {
        name: "dot-env",
        image: IMAGE,
        members: "environment: {CUDA_VISIBLE_DEVICES: \"$FILE_ONE\"}",
        gpus: "all",
        value: Some("3"),
    },
    Service { name: "image", image: "cvd-0", members: "stop_grace_period: 1s", gpus: "all", value: None },
    Service {
        name: "over-image",
        image: "cvd-0",
        members: "environment: {CUDA_VISIBLE_DEVICES: 3}",
        gpus: "all",
        value: Some("3"),
    },
    Service {
        name: "count",
        image: IMAGE,
        members: "environment: {CUDA_VISIBLE_DEVICES: '1,0'}",
        gpus: "2",
        value: Some("1,0"),
    },
    Service {
        name: "nobody",
        image: "cvd-0",
        members: "environment: [CUDA_VISIBLE_DEVICES]",
        gpus: "\"device=1,2\"",
        value: Some(""),
    },
];

impl Service {
    /// The device request, as the file has it.
    fn device(&self) -> String {
        match self.gpus {
            "all" => String::new(),
            "2" => "count: 2, ".to_owned(),
            list => {
                let ids = list.trim_matches('"').trim_start_matches("device=");
                let ids: Vec<String> = ids.split(',').map(|id| format!("'{id}'")).collect();
                format!("device_ids: [{}], ", ids.join(", "))
            }
        }
    }

    fn text(&self) -> String {
        format!(
            "  {}:\n    image: {}\n    runtime: cudaview\n    network_mode: none\n    command: [sleep, '1000']\n    {}\n    \
             deploy: {{resources: {{reservations: {{devices: [{{{}capabilities: [gpu]}}]}}}}}}\n",
            self.name,
            self.image,
            self.members,
            self.device()
        )
    }
}

struct Host {
    docker: Dockerd,
    install: Install,
    folder: PathBuf,
}

impl Host {
    #[track_caller]
    fn new() -> Host {
        require(&["dockerd", "docker", "containerd", "runc"]);
        let install = Install::new(A100X4, "");
        let docker = Dockerd::start(&[("cudaview", &install.runtime())], None);
        docker.import(A100X4, IMAGE, &[]);
        docker.import(A100X4, "cvd-0", &["ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin", "ENV CUDA_VISIBLE_DEVICES=0"]);
        let folder = docker.path().join("project");
        fs::create_dir(&folder).unwrap();
        for (name, text) in FILES {
            fs::write(folder.join(name), text).unwrap();
        }
        let text: String = SERVICES.iter().map(Service::text).collect();
        fs::write(folder.join("compose.yaml"), format!("services:\n{text}")).unwrap();
        Host { docker, install, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("compose.yaml")
    }

    /// A program in the shell of whoever asks.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", format!("unix://{}", self.docker.path().join("docker.sock").display()));
        command.env("DOCKER_CONFIG", self.docker.path().join("client")).env("SHELL_LIST", "3,1");
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("NOBODY").env("COLUMNS", "1000");
        command
    }

    #[track_caller]
    fn explain(&self, arguments: &[&str]) -> Ran {
        let mut command = self.command(&self.install.bin("cudaview"));
        run(command.args(["explain", "--compose"]).arg(self.file()).args(arguments))
    }

    /// Where there is Compose. The suites of `tests/engines` have it; the machine's own engines come without.
    fn compose(&self) -> Option<Command> {
        let has_compose = std::env::var_os("CUDAVIEW_TEST_SUITE").is_some();
        assert_eq!(has_compose, self.docker.version() > 20, "Docker 20.10 is the one without");
        has_compose.then(|| {
            let mut command = self.command(&find_program("docker-compose"));
            command.arg("--file").arg(self.file()).args(["--project-name", "p"]);
            command
        })
    }

    /// The container of a service, running.
    #[track_caller]
    fn up(&self, service: &Service) -> String {
        if let Some(mut compose) = self.compose() {
            run(compose.args(["up", "--detach", service.name])).ok();
            return format!("p-{}-1", service.name);
        }
        let value = service.value.map(|value| match value {
            "" => "CUDA_VISIBLE_DEVICES".to_owned(),
            value => format!("CUDA_VISIBLE_DEVICES={value}"),
        });
        let mut flags = vec!["--runtime", "cudaview", "--gpus", service.gpus];
        flags.extend(value.iter().flat_map(|value| ["-e", value.as_str()]));
        // A bare name takes the shell's value, of which there is none.
        self.docker.up(service.name, &flags, service.image);
        service.name.to_owned()
    }
}

/// What is said of each service is what its container was told, and what a program in it sees.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_compose_is_what_docker_compose_makes_of_the_file() {
    let host = Host::new();
    let told = host.explain(&["--format", "json"]).ok();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let answers = told["services"].as_array().unwrap();
    assert_eq!(answers.len(), SERVICES.len(), "{told:#}");
    for (service, answer) in SERVICES.iter().zip(answers) {
        assert_eq!(answer["service"], service.name, "{answer:#}");
        let container = host.up(service);
        let count = Count::of(host.docker.exec(&[], &container, &COUNT));
        let seen: Vec<&str> =
            answer["visible"].as_array().unwrap().iter().map(|device| device["uuid"].as_str().unwrap()).collect();
        assert_eq!(count.cuda, seen, "{}: {answer:#}", service.name);
        let inspected = host.docker.inspect(&container);
        let env: Vec<&str> =
            inspected["Config"]["Env"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        let whose = match service.value {
            None => "image",
            Some("") => "unset",
            Some(value) => {
                let entry = format!("CUDA_VISIBLE_DEVICES={value}");
                assert!(env.contains(&entry.as_str()), "{}: {env:?}", service.name);
                let text = host.explain(&["--service", service.name]).ok().stdout;
                let way = if service.members.contains("environment") { "environment" } else { "env_file" };
                assert!(text.contains(&format!("  {way} CUDA_VISIBLE_DEVICES={value:?}  ")), "{text}");
                "user"
            }
        };
        assert_eq!(answer["provenance"]["CUDA_VISIBLE_DEVICES"], whose, "{}: {answer:#}", service.name);
        if service.image == "cvd-0" {
            assert_eq!(answer["image"]["env"][0]["value"], "0", "{answer:#}");
        }
        host.docker.docker(&["rm", "--force", &container]).ok();
    }
}

/// What Compose stops at, as far as we say so.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_compose_refuses_what_docker_compose_refuses() {
    let host = Host::new();
    let devices = |device: &str| format!("deploy: {{resources: {{reservations: {{devices: [{device}]}}}}}}");
    for (members, text) in [
        (devices("{capabilities: [gpu], count: 1, device_ids: ['1']}"), "attributes are exclusive"),
        (devices("{capabilities: [gpu], device_ids: [1]}"), "device_ids"),
        (devices("{count: 1}"), "capabilities"),
        ("environment: ['CUDA_VISIBLE_DEVICES=${NOBODY:?say which}']".to_owned(), "say which"),
        ("environment: ['CUDA_VISIBLE_DEVICES=${']".to_owned(), "invalid interpolation format"),
        ("env_file: nowhere.env".to_owned(), "nowhere.env"),
    ] {
        fs::write(host.file(), format!("services:\n  s:\n    image: {IMAGE}\n    {members}\n")).unwrap();
        let ran = host.explain(&[]).failed_with(4);
        assert!(ran.stderr.contains(text), "{members}: {ran}");
        if let Some(mut compose) = host.compose() {
            let ran = run(compose.args(["config", "--quiet"]));
            assert!(ran.code != 0 && ran.stderr.contains(text), "{members}: {ran}");
        }
    }
    fs::write(host.file(), format!("services:\n  trainer:\n    image: {IMAGE}\n")).unwrap();
    let ran = host.explain(&["--service", "tainer"]).failed_with(2);
    assert!(ran.stderr.contains("hint: did you mean --service trainer?"), "{ran}");
}
