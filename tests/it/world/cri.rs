//! A kubelet's calls to containerd: a pod on the machine's network, and containers in it.

pub(crate) mod grpc;
pub(crate) mod messages;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use messages::{
    CONTAINER, CdiDevice, ContainerConfig, ContainerMetadata, ContainerStatus, ContainerStatusResponse,
    CreateContainerRequest, Device, EXITED, ExecSyncRequest, ExecSyncResponse, Id, ImageSpec, ImageStatusRequest,
    ImageStatusResponse, KeyValue, LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Metadata, Mount, NODE, NamespaceOption, Nothing, POD, PodSandboxConfig,
    RunPodSandboxRequest, StopContainerRequest,
};

use super::cgroup;
use super::command::{LIMIT, Ran};
use super::containerd::{Containerd, KUBERNETES, await_program, lost_a_race, reference, unused_name};
use super::count::{Access, COUNT, Count};

/// A pod whose sandbox runs.
pub(crate) struct Pod<'a> {
    containerd: &'a Containerd,
    /// The sandbox's id.
    pub(crate) id: String,
    config: PodSandboxConfig,
    /// Container names were used this often; a name and an attempt name one container.
    attempts: Cell<u32>,
}

/// How a kubelet passes on what a device plugin answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Device nodes in `devices`, and the variable.
    Devices,
    /// Names in `CDI_devices`.
    CdiDevices,
    /// Names in an annotation, from before there was that field.
    CdiAnnotations,
    /// Mounts of `/dev/null`, named after the devices.
    Mounts,
    /// The variable alone.
    Variable,
}

impl Containerd {
    /// Makes an image for pods, and waits until containerd's CRI plugin knows it.
    #[track_caller]
    pub(crate) fn import_for_pods(&self, name: &str, env: &[&str]) {
        self.import(KUBERNETES, name, env);
        self.await_image(name);
    }

    /// The image that sandboxes run.
    #[track_caller]
    pub(crate) fn import_for_sandboxes(&self) {
        let name = self.import_pause();
        self.await_image(name);
    }

    /// It hears of images by events.
    #[track_caller]
    fn await_image(&self, name: &str) {
        let end = Instant::now() + LIMIT;
        let request = ImageStatusRequest { image: Some(ImageSpec { image: reference(name) }) };
        loop {
            let answer = grpc::call(&self.socket(), "/runtime.v1.ImageService/ImageStatus", &request);
            match answer {
                Ok(ImageStatusResponse { image: Some(_) }) => return,
                other => assert!(Instant::now() < end, "no image {name}: {other:?}\n{}", self.logs()),
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Runs a pod's sandbox with a runtime handler; the empty one is containerd's default.
    #[track_caller]
    pub(crate) fn pod(&self, handler: &str) -> Pod<'_> {
        let security = LinuxSandboxSecurityContext { namespace_options: Some(namespaces()) };
        let logs = self.path().join(unused_name("pod-logs-"));
        fs::create_dir(&logs).unwrap();
        for attempt in 0..5 {
            let config = PodSandboxConfig {
                metadata: Some(Metadata {
                    name: unused_name("pod-"),
                    uid: unused_name("uid-"),
                    namespace: "default".to_owned(),
                    attempt,
                }),
                log_directory: logs.to_str().unwrap().to_owned(),
                linux: Some(LinuxPodSandboxConfig {
                    cgroup_parent: cgroup(),
                    security_context: Some(security.clone()),
                }),
                ..PodSandboxConfig::default()
            };
            let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
            match grpc::call(&self.socket(), &service("RunPodSandbox"), &request) {
                Ok(Id { id }) => return Pod { containerd: self, id, config, attempts: Cell::new(0) },
                Err(error) if lost_a_race(&error) => {}
                Err(error) => panic!("no sandbox: {error}\n{}", self.logs()),
            }
        }
        panic!("runc could not copy itself five times in a row");
    }
}

impl Pod<'_> {
    /// Creates a container and starts it. `Err` is what the kubelet would show in an event of the pod.
    #[track_caller]
    pub(crate) fn start(&self, config: &ContainerConfig, command: &[&str]) -> Result<String, String> {
        for _ in 0..5 {
            let id = self.create(config, command)?;
            let started: Result<Nothing, String> = self.call("StartContainer", &Id { id: id.clone() });
            match started {
                Ok(_) => return Ok(id),
                Err(error) => {
                    self.remove(&id);
                    if !lost_a_race(&error) {
                        return Err(error);
                    }
                }
            }
        }
        panic!("runc could not copy itself five times in a row");
    }

    #[track_caller]
    fn create(&self, config: &ContainerConfig, command: &[&str]) -> Result<String, String> {
        let attempt = self.attempts.replace(self.attempts.get() + 1);
        let mut config = config.clone();
        config.metadata = Some(ContainerMetadata { name: "main".to_owned(), attempt });
        config.command = command.iter().map(|word| (*word).to_owned()).collect();
        config.log_path = format!("{attempt}.log");
        let request = CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let created: Id = self.call("CreateContainer", &request)?;
        Ok(created.id)
    }

    /// A container that sleeps until it is killed.
    #[track_caller]
    pub(crate) fn up(&self, config: &ContainerConfig) -> String {
        let id = self.start(config, &["sleep", "1000"]).unwrap();
        await_program(|args| self.exec(&id, args));
        id
    }

    /// Runs a program in a new container and removes it. A failure to start is an exit code of 1 with the message.
    #[track_caller]
    pub(crate) fn run(&self, config: &ContainerConfig, command: &[&str]) -> Ran {
        let id = match self.start(config, command) {
            Ok(id) => id,
            Err(error) => return Ran::new(&format!("{command:?}"), 1, &error),
        };
        let status = self.await_end(&id);
        let output = self.log(self.attempts.get() - 1);
        self.remove(&id);
        Ran::new(&format!("{command:?}"), status.exit_code, &output)
    }

    /// What the counting program sees in a new container.
    #[track_caller]
    pub(crate) fn count(&self, config: &ContainerConfig) -> Count {
        Count::of(self.run(config, &COUNT))
    }

    /// `ExecSync`, which is what an exec probe is.
    #[track_caller]
    pub(crate) fn exec(&self, id: &str, command: &[&str]) -> Ran {
        let cmd = command.iter().map(|word| (*word).to_owned()).collect();
        let request = ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: 30 };
        match self.call::<ExecSyncResponse>("ExecSync", &request) {
            Ok(answer) => {
                let text = [answer.stdout, answer.stderr].concat();
                Ran::new(&format!("{command:?}"), answer.exit_code, &String::from_utf8_lossy(&text))
            }
            Err(error) => Ran::new(&format!("{command:?}"), 1, &error),
        }
    }

    /// What the counting program sees in a running container.
    #[track_caller]
    pub(crate) fn exec_count(&self, id: &str) -> Count {
        Count::of(self.exec(id, &COUNT))
    }

    /// Makes a GPU's node in a running container and opens it.
    #[track_caller]
    pub(crate) fn try_mknod(&self, id: &str, minor: u32) -> Access {
        let command = Access::command(minor);
        Access::of(self.exec(id, &command.each_ref().map(String::as_str)))
    }

    /// Ends a container at once.
    #[track_caller]
    pub(crate) fn stop(&self, id: &str) {
        let request = StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
        let _nothing: Nothing = self.call("StopContainer", &request).unwrap();
    }

    /// Removes a container.
    #[track_caller]
    pub(crate) fn remove(&self, id: &str) {
        let _nothing: Nothing = self.call("RemoveContainer", &Id { id: id.to_owned() }).unwrap();
    }

    /// Ends and removes the pod with its containers.
    #[track_caller]
    pub(crate) fn end(self) {
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            let _nothing: Nothing = self.call(method, &Id { id: self.id.clone() }).unwrap();
        }
    }

    /// What containerd says of a container.
    #[track_caller]
    pub(crate) fn status(&self, id: &str) -> ContainerStatus {
        let answer: ContainerStatusResponse = self.call("ContainerStatus", &Id { id: id.to_owned() }).unwrap();
        answer.status.unwrap()
    }

    #[track_caller]
    fn await_end(&self, id: &str) -> ContainerStatus {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.status(id);
            if status.state == EXITED {
                return status;
            }
            assert!(Instant::now() < end, "{id} does not end: {status:?}\n{}", self.containerd.logs());
            sleep(Duration::from_millis(10));
        }
    }

    /// What an attempt wrote. A line of the file is `TIME STREAM TAG TEXT`; the tag is `P` where the line goes on.
    #[track_caller]
    fn log(&self, attempt: u32) -> String {
        let file = PathBuf::from(&self.config.log_directory).join(format!("{attempt}.log"));
        let mut text = String::new();
        for line in fs::read_to_string(file).unwrap().lines() {
            let mut words = line.splitn(4, ' ').skip(2);
            let (tag, part) = (words.next().unwrap(), words.next().unwrap_or_default());
            text.push_str(part);
            text.push_str(if tag == "P" { "" } else { "\n" });
        }
        text
    }

    #[track_caller]
    fn call<Answer: prost::Message + Default>(
        &self,
        method: &str,
        request: &impl prost::Message,
    ) -> Result<Answer, String> {
        grpc::call(&self.containerd.socket(), &service(method), request)
    }
}

/// A container as a kubelet would ask for it: GPUs 1 and 3, or those that are named, through a channel, and
/// variables out of the pod's specification.
pub(crate) fn container(image: &str, gpus: &[u32], channel: Channel, env: &[&str]) -> ContainerConfig {
    let mut config = ContainerConfig {
        image: Some(ImageSpec { image: reference(image) }),
        envs: env.iter().map(|entry| key_value(entry)).collect(),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext { namespace_options: Some(namespaces()) }),
        }),
        ..ContainerConfig::default()
    };
    let names: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    let cdi = || names.iter().map(|name| format!("nvidia.com/gpu={name}"));
    let variable = key_value(&format!("NVIDIA_VISIBLE_DEVICES={}", names.join(",")));
    match channel {
        Channel::Devices => {
            let nodes = names.iter().map(|name| format!("/dev/nvidia{name}"));
            let nodes = nodes.chain(["/dev/nvidiactl".to_owned(), "/dev/nvidia-uvm".to_owned()]);
            config.devices = nodes.map(device).collect();
            config.envs.push(variable);
        }
        Channel::CdiDevices => config.cdi_devices = cdi().map(|name| CdiDevice { name }).collect(),
        Channel::CdiAnnotations => {
            let value = cdi().collect::<Vec<_>>().join(",");
            config.annotations.insert("cdi.k8s.io/nvidia-device-plugin".to_owned(), value);
        }
        Channel::Mounts => {
            config.mounts = names.iter().map(|name| null_mount(name)).collect();
            config.envs.push(key_value("NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices"));
        }
        Channel::Variable => config.envs.push(variable),
    }
    config
}

fn service(method: &str) -> String {
    format!("/runtime.v1.RuntimeService/{method}")
}

/// On the machine's network no plugin is needed to make another; processes are the container's own, as a kubelet has it.
fn namespaces() -> NamespaceOption {
    NamespaceOption { network: NODE, pid: CONTAINER, ipc: POD }
}

fn key_value(entry: &str) -> KeyValue {
    let (key, value) = entry.split_once('=').unwrap();
    KeyValue { key: key.to_owned(), value: value.to_owned() }
}

fn device(path: String) -> Device {
    Device { container_path: path.clone(), host_path: path, permissions: "rw".to_owned() }
}

fn null_mount(name: &str) -> Mount {
    let container_path = format!("/var/run/nvidia-container-devices/{name}");
    Mount { container_path, host_path: "/dev/null".to_owned(), readonly: false }
}
