//! The rows of a kubelet, by the channels through which a device plugin's answer comes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::containerd::{UNKNOWN, UNKNOWN_IS_USER, by_shell, runtime, start, version};
use super::{Asked, Engine, NAMES_NONE, NO_SUCH_GPU, PLAIN, Refusal, Row, Scenario, WITH_DEFAULT, check, lacking};
use crate::world::command::Ran;
use crate::world::containerd::{Containerd, Version};
use crate::world::count::{COUNT, Count};
use crate::world::cri::messages::ContainerConfig;
use crate::world::cri::{Channel, Pod, container};

struct Cri<'a> {
    containerd: &'a Containerd,
    low_level: &'static str,
    channel: Channel,
    /// Pods of containerd's default runtime handler, and of the shipped one.
    plain: Pod<'a>,
    pod: Pod<'a>,
    /// Containers that run, and what they were made from.
    running: RefCell<BTreeMap<String, (String, ContainerConfig)>>,
}

impl<'a> Cri<'a> {
    #[track_caller]
    fn new(containerd: &'a Containerd, low_level: &'static str, channel: Channel) -> Cri<'a> {
        containerd.import_for_sandboxes();
        containerd.import_for_pods(PLAIN, &[]);
        containerd.import_for_pods(WITH_DEFAULT, &["CUDA_VISIBLE_DEVICES=0"]);
        let (plain, pod) = (containerd.pod(""), containerd.pod("cudaview"));
        Cri { containerd, low_level, channel, plain, pod, running: RefCell::default() }
    }

    fn container(&self, asked: &Asked<'_>) -> ContainerConfig {
        let value = asked.value.map(|value| format!("CUDA_VISIBLE_DEVICES={value}"));
        let env: Vec<&str> = value.iter().map(String::as_str).collect();
        container(asked.image, &[1, 3], self.channel, &env)
    }

    /// Whether the device plugin names GPUs to the runtime, instead of handing their nodes to containerd.
    fn names_gpus(&self) -> bool {
        matches!(self.channel, Channel::Mounts | Channel::Variable)
    }
}

impl Engine for Cri<'_> {
    fn row(&self) -> Row {
        Row {
            engine: "CRI",
            version: version(self.containerd),
            selection: match self.channel {
                Channel::Devices => "device plugin: nodes",
                Channel::CdiDevices => "device plugin: CDI",
                Channel::CdiAnnotations => "device plugin: CDI, by annotations",
                Channel::Mounts => "device plugin: mounts of `/dev/null`",
                Channel::Variable => "device plugin: `NVIDIA_VISIBLE_DEVICES`, `unknown_request = \"user\"`",
            },
            door: "wrapper",
            runtime: runtime(self.low_level),
        }
    }

    fn plain(&self, asked: &Asked<'_>, args: &[&str]) -> Option<Ran> {
        // NVIDIA's runtime, which acts on the other two, is not here.
        (!self.names_gpus()).then(|| self.plain.run(&self.container(asked), args))
    }

    fn run(&self, asked: &Asked<'_>, args: &[&str]) -> Ran {
        self.pod.run(&self.container(asked), args)
    }

    fn up(&self, name: &str, asked: &Asked<'_>) {
        let config = self.container(asked);
        self.running.borrow_mut().insert(name.to_owned(), (self.pod.up(&config), config));
    }

    fn exec(&self, name: &str, value: Option<&str>, args: &[&str]) -> Ran {
        let args = by_shell(value, args);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.pod.exec(&self.running.borrow()[name].0, &args)
    }

    /// A kubelet makes another container of the same name in the same pod.
    fn restart(&self, name: &str) {
        let (id, config) = self.running.borrow()[name].clone();
        self.pod.stop(&id);
        self.running.borrow_mut().insert(name.to_owned(), (self.pod.up(&config), config));
        self.pod.remove(&id);
    }

    fn refused(&self) -> Refusal {
        if self.names_gpus() {
            let ran = self.pod.run(&container(PLAIN, &[7], self.channel, &[]), &["true"]);
            return Refusal { ran, code: 1, text: NO_SUCH_GPU };
        }
        Refusal { ran: self.run(&Asked { image: PLAIN, value: Some("2") }, &["true"]), code: 1, text: NAMES_NONE }
    }

    fn image_default(&self) -> &'static [usize] {
        &[1]
    }

    fn limit(&self, scenario: Scenario) -> Option<&'static str> {
        match scenario {
            Scenario::ExecOverride => Some("`kubectl exec` sets no variables; what a shell inside sets goes to CUDA"),
            Scenario::Refused => (!self.names_gpus()).then_some(UNKNOWN),
            _ => None,
        }
    }
}

#[track_caller]
fn row(low_level: &'static str, channel: Channel) {
    let config = if channel == Channel::Variable { UNKNOWN_IS_USER } else { "" };
    let containerd = start(low_level, config);
    let engine = Cri::new(&containerd, low_level, channel);
    let is_cdi = matches!(channel, Channel::CdiDevices | Channel::CdiAnnotations);
    if is_cdi && containerd.version() < Version(1, 7) {
        // It starts the container all the same.
        let count = Count::of(engine.run(&Asked { image: PLAIN, value: None }, &COUNT));
        assert!(count.nodes.is_empty(), "{count:?}");
        lacking(&engine.row(), "containerd has it from version 1.7 on");
        return;
    }
    check(&engine);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_nodes() {
    row("runc", Channel::Devices);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_nodes_on_crun() {
    row("crun", Channel::Devices);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_cdi() {
    row("runc", Channel::CdiDevices);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_cdi_on_crun() {
    row("crun", Channel::CdiDevices);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_cdi_annotations() {
    row("runc", Channel::CdiAnnotations);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_mounts() {
    row("runc", Channel::Mounts);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_variable() {
    row("runc", Channel::Variable);
}
