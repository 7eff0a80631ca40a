//! Real Docker with cudaview's wrapper as a runtime: what a program in the container then sees.
//!
//! `plain_docker` shows the same containers without cudaview.

mod audit;
mod cdi;
mod compose;
mod crun;
mod exec;
mod gpus_flag;
mod hints;
mod hostile;
mod image_request;
mod install;
mod leaks;
mod life;
mod lint;
mod lock;
mod native_cdi;
mod privileged;
mod refused;
mod restarts;
mod table;
mod userns;

use std::fs;

use serde_json::Value;

use crate::world::count::Count;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, require, uuids};

/// An image whose author found `ENV CUDA_VISIBLE_DEVICES=0` a good idea.
const IMAGE_CVD_0: &str = "box-cvd-0";
/// What every CUDA base image says.
const IMAGE_NVD_ALL: &str = "box-nvd-all";

/// The flag that names GPUs 1 and 3.
const GPUS_1_3: [&str; 2] = ["--gpus", "\"device=1,3\""];

/// A simulated GPU host with a Docker daemon that knows the runtime `cudaview`.
struct Host {
    docker: Dockerd,
    install: Install,
    uuids: Vec<String>,
}

impl Host {
    /// The default runtime is runc.
    #[track_caller]
    fn new(config: &str) -> Host {
        Host::with_default(config, None)
    }

    #[track_caller]
    fn with_default(config: &str, default_runtime: Option<&str>) -> Host {
        require(&["dockerd", "docker", "containerd", "runc", "jq"]);
        let install = Install::new(A100X4, config);
        let docker = Dockerd::start(&[("cudaview", &install.runtime())], default_runtime);
        Host::of(docker, install)
    }

    #[track_caller]
    fn of(docker: Dockerd, install: Install) -> Host {
        docker.import(A100X4, IMAGE, &[]);
        docker.import(A100X4, IMAGE_NVD_ALL, &["ENV NVIDIA_VISIBLE_DEVICES=all"]);
        docker.build(IMAGE_CVD_0, &format!("FROM {IMAGE}\nENV CUDA_VISIBLE_DEVICES=0\n"));
        Host { docker, install, uuids: uuids(A100X4) }
    }

    /// The counting program under the runtime `cudaview`.
    #[track_caller]
    fn count(&self, image: &str, flags: &[&str]) -> Count {
        self.docker.count(&[&["--runtime", "cudaview"], flags].concat(), image)
    }

    /// A sleeping container under the runtime `cudaview`.
    #[track_caller]
    fn up(&self, name: &str, image: &str, flags: &[&str]) {
        self.docker.up(name, &[&["--runtime", "cudaview"], flags].concat(), image);
    }

    /// The UUIDs of these host GPUs.
    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }

    /// The configuration with which the low-level runtime made a running container.
    #[track_caller]
    fn spec_of(&self, container: &str) -> Value {
        let id = self.docker.inspect(container)["Id"].as_str().unwrap().to_owned();
        let bundles = self.docker.path().join("exec/containerd/daemon/io.containerd.runtime.v2.task/moby");
        serde_json::from_slice(&fs::read(bundles.join(id).join("config.json")).unwrap()).unwrap()
    }

    /// The newest audit record.
    #[track_caller]
    fn last_audit(&self) -> Value {
        self.install.audit_records().pop().expect("an audit record")
    }

    /// Containers that Docker knows, running or not.
    fn containers(&self) -> Vec<String> {
        let ran = self.docker.docker(&["ps", "--all", "--format", "{{.Names}} {{.Status}}"]).ok();
        ran.stdout.lines().map(str::to_owned).collect()
    }
}

/// The entries of a variable in a configuration's environment.
fn entries<'a>(spec: &'a Value, name: &str) -> Vec<&'a str> {
    let env = spec["process"]["env"].as_array().unwrap();
    let is_name = |entry: &&str| entry.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
    env.iter().filter_map(Value::as_str).filter(is_name).collect()
}

/// GPU nodes by minor, as paths.
fn paths(minors: &[usize]) -> Vec<String> {
    minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect()
}
