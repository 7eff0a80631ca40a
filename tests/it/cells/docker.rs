//! Docker's rows.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Asked, Engine, NAMES_NONE, PLAIN, Refusal, Row, WITH_DEFAULT, check, lacking, short_version};
use crate::world::command::{Ran, run};
use crate::world::{A100X4, Dockerd, Install, cdi, find_program, require, shims};

/// How GPUs 1 and 3 are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selection {
    Gpus,
    Cdi,
    CdiOnContainerdsStore,
    Device,
    Variable,
}

struct Docker {
    daemon: Dockerd,
    install: Install,
    selection: Selection,
    /// `runc` or `crun`.
    low_level: &'static str,
}

impl Docker {
    #[track_caller]
    fn new(selection: Selection, low_level: &'static str) -> Docker {
        require(&["dockerd", "docker", "containerd", "runc", "crun", "jq"]);
        let install = Install::new(A100X4, "");
        let mut runtimes = vec![("cudaview", install.runtime())];
        if low_level == "crun" {
            let crun = shims::crun(&install.prefix());
            let config = fs::read_to_string(install.config()).unwrap();
            install.configure(&config.replace("\"runc\"", &format!("'{}'", crun.display())));
            runtimes.push(("crun", crun));
        }
        let runtimes: Vec<(&str, &Path)> = runtimes.iter().map(|(name, path)| (*name, path.as_path())).collect();
        let mut settings = match selection {
            Selection::CdiOnContainerdsStore => json!({"features": {"cdi": true, "containerd-snapshotter": true}}),
            Selection::Cdi => json!({"storage-driver": "overlay2", "features": {"cdi": true}}),
            _ => json!({"storage-driver": "overlay2"}),
        };
        if Dockerd::program_version() < 25 {
            settings = json!({"storage-driver": "overlay2"});
        } else if settings["features"]["cdi"] == Value::Bool(true) {
            let specs = install.prefix().join("cdi");
            cdi::write_spec(&specs, &install, A100X4);
            settings["cdi-spec-dirs"] = json!([specs]);
        }
        let docker = Dockerd::start_with(&runtimes, None, &settings);
        docker.import(A100X4, PLAIN, &[]);
        docker.build(WITH_DEFAULT, &format!("FROM {PLAIN}\nENV CUDA_VISIBLE_DEVICES=0\n"));
        Docker { daemon: docker, install, selection, low_level }
    }

    fn flags(&self, asked: &Asked<'_>) -> Vec<String> {
        let mut flags: Vec<String> = match self.selection {
            Selection::Gpus => ["--gpus", "\"device=1,3\""].map(str::to_owned).to_vec(),
            Selection::Cdi | Selection::CdiOnContainerdsStore => {
                ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"].map(str::to_owned).to_vec()
            }
            Selection::Device => self.install.docker_devices(&[1, 3]),
            Selection::Variable => ["-e", "NVIDIA_VISIBLE_DEVICES=1,3"].map(str::to_owned).to_vec(),
        };
        if let Some(value) = asked.value {
            flags.extend(["-e".to_owned(), format!("CUDA_VISIBLE_DEVICES={value}")]);
        }
        flags
    }

    #[track_caller]
    fn run_with(&self, runtime: &str, asked: &Asked<'_>, args: &[&str]) -> Ran {
        let flags = self.flags(asked);
        let mut all = vec!["--runtime", runtime];
        all.extend(flags.iter().map(String::as_str));
        self.daemon.run(&all, asked.image, args)
    }
}

impl Engine for Docker {
    fn row(&self) -> Row {
        let version = |program: &str| short_version(&run(Command::new(find_program(program)).arg("--version")).stdout);
        Row {
            engine: "Docker",
            version: version("dockerd"),
            selection: match self.selection {
                Selection::Gpus => "`--gpus`",
                Selection::Cdi => "CDI",
                Selection::CdiOnContainerdsStore => "CDI, containerd's image store",
                Selection::Device => "`--device /dev/nvidiaN`",
                Selection::Variable => "`NVIDIA_VISIBLE_DEVICES`",
            },
            door: "wrapper",
            runtime: format!("{} {}", self.low_level, version(self.low_level)),
        }
    }

    fn plain(&self, asked: &Asked<'_>, args: &[&str]) -> Option<Ran> {
        // NVIDIA's hook and runtime, which act on the other two, are not here.
        let engine_makes_nodes = !matches!(self.selection, Selection::Gpus | Selection::Variable);
        engine_makes_nodes.then(|| self.run_with(self.low_level, asked, args))
    }

    fn run(&self, asked: &Asked<'_>, args: &[&str]) -> Ran {
        self.run_with("cudaview", asked, args)
    }

    fn up(&self, name: &str, asked: &Asked<'_>) {
        let flags = self.flags(asked);
        let mut all = vec!["--runtime", "cudaview"];
        all.extend(flags.iter().map(String::as_str));
        self.daemon.up(name, &all, asked.image);
    }

    fn exec(&self, name: &str, value: Option<&str>, args: &[&str]) -> Ran {
        let value = value.map(|value| format!("CUDA_VISIBLE_DEVICES={value}"));
        let flags: Vec<&str> = value.iter().flat_map(|value| ["-e", value]).collect();
        self.daemon.exec(&flags, name, args)
    }

    fn restart(&self, name: &str) {
        self.daemon.docker(&["restart", "--time", "0", name]).ok();
    }

    fn refused(&self) -> Refusal {
        let asked = Asked { image: PLAIN, value: Some("2") };
        Refusal { ran: self.run(&asked, &["true"]), code: 125, text: NAMES_NONE }
    }
}

#[track_caller]
fn by_cdi(selection: Selection, low_level: &'static str) {
    let engine = Docker::new(selection, low_level);
    if Dockerd::program_version() < 25 {
        // It says so itself.
        let ran = engine.run(&Asked { image: PLAIN, value: None }, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("nvidia.com/gpu=1"), "{ran}");
        lacking(&engine.row(), "Docker has CDI from version 25 on");
        return;
    }
    check(&engine);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_gpus_on_runc() {
    check(&Docker::new(Selection::Gpus, "runc"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_gpus_on_crun() {
    check(&Docker::new(Selection::Gpus, "crun"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_device_on_runc() {
    check(&Docker::new(Selection::Device, "runc"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_variable_on_runc() {
    check(&Docker::new(Selection::Variable, "runc"));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_cdi_on_runc() {
    by_cdi(Selection::Cdi, "runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_cdi_on_crun() {
    by_cdi(Selection::Cdi, "crun");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_cdi_on_containerds_store() {
    by_cdi(Selection::CdiOnContainerdsStore, "runc");
}
