//! What `gpu-count --json` saw: the GPUs that a program in the container can use.

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::Ran;

/// The counting program's command line in a container.
pub(crate) const COUNT: [&str; 2] = ["gpu-count", "--json"];

/// The report of the counting program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// The CUDA driver API's error code; 0 is success.
    pub(crate) cuda_error: i64,
    /// The UUIDs that CUDA shows, `cuda:0` first.
    pub(crate) cuda: Vec<String>,
    /// NVML's error code; 0 is success.
    pub(crate) nvml_error: i64,
    /// The UUIDs that `nvidia-smi` would list.
    pub(crate) nvml: Vec<String>,
    /// The GPU nodes in `/dev`, by path, in numeric order.
    pub(crate) nodes: Vec<String>,
    /// The MIG capability nodes in `/dev/nvidia-caps`, by path, in numeric order.
    pub(crate) capabilities: Vec<String>,
    /// Those of `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`, `NVIDIA_VISIBLE_DEVICES` and `CUDAVIEW_HOST_GPUS` that are set.
    pub(crate) env: BTreeMap<String, String>,
}

impl Count {
    /// Reads the program's output; fails the test when it did not run.
    #[track_caller]
    pub(crate) fn of(ran: Ran) -> Count {
        let ran = ran.ok();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|err| panic!("not JSON ({err}): {ran}"));
        let (cuda_error, cuda) = side(&value["cuda"], &ran);
        let (nvml_error, nvml) = side(&value["nvml"], &ran);
        let env = value["env"].as_object().unwrap_or_else(|| panic!("no env: {ran}"));
        let env = env.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        let paths = |key: &str| -> Vec<String> {
            let nodes = value[key].as_array().unwrap_or_else(|| panic!("no {key}: {ran}"));
            nodes.iter().map(|node| node.as_str().unwrap().to_owned()).collect()
        };
        let (nodes, capabilities) = (paths("nodes"), paths("capabilityNodes"));
        Count { cuda_error, cuda, nvml_error, nvml, nodes, capabilities, env }
    }
}

/// What a container is to see.
pub(crate) struct Expected<'a> {
    /// Host GPUs in the order of CUDA's ordinals.
    pub(crate) view: &'a [usize],
    /// Host GPUs that have a node and that NVML lists.
    pub(crate) nodes: &'a [usize],
    /// The value of `CUDA_VISIBLE_DEVICES`.
    pub(crate) value: &'a str,
}

impl Expected<'_> {
    /// Fails the test unless this is what it saw on a host with these GPUs.
    #[track_caller]
    pub(crate) fn compare(&self, host: &[String], count: &Count, context: &str) {
        let uuids = |gpus: &[usize]| -> Vec<String> { gpus.iter().map(|gpu| host[*gpu].clone()).collect() };
        let nodes: Vec<String> = self.nodes.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
        assert_eq!(count.cuda, uuids(self.view), "{context}: {count:?}");
        assert_eq!(count.nodes, nodes, "{context}: {count:?}");
        assert_eq!(count.nvml, uuids(self.nodes), "{context}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], self.value, "{context}: {count:?}");
        if !self.view.is_empty() {
            let trace: Vec<String> = self.view.iter().map(ToString::to_string).collect();
            assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], trace.join(","), "{context}: {count:?}");
        }
    }
}

/// What came of making a GPU's node in a container and opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The device rules let the container open it; there is no driver behind the number (`ENXIO`), as there is no GPU.
    Openable,
    /// The device rules do not (`EPERM`).
    Blocked,
    /// The node could not even be made.
    NoNode,
}

impl Access {
    /// The command line that tries it.
    pub(crate) fn command(minor: u32) -> [String; 5] {
        Access::command_for(195, minor)
    }

    /// The same for any device.
    pub(crate) fn command_for(major: u32, minor: u32) -> [String; 5] {
        // A name of its own for each try: the node stays there.
        let name = format!("/tmp/nvidia{minor}-{:08x}", unused_number());
        ["gpu-count", "--try-mknod", &name, &major.to_string(), &minor.to_string()].map(str::to_owned)
    }

    /// Reads what the command wrote.
    #[track_caller]
    pub(crate) fn of(ran: Ran) -> Access {
        let ran = ran.ok();
        match ran.stdout.as_str() {
            "mknod: ok\nopen: ENXIO\n" => Access::Openable,
            "mknod: ok\nopen: EPERM\n" => Access::Blocked,
            text if text.starts_with("mknod: EPERM\n") => Access::NoNode,
            _ => panic!("neither ENXIO nor EPERM: {ran}"),
        }
    }
}

/// A number that was not used before in this process or, most likely, in another.
fn unused_number() -> u64 {
    std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0)
}

#[track_caller]
fn side(value: &Value, ran: &Ran) -> (i64, Vec<String>) {
    let error = value["error"].as_i64().unwrap_or_else(|| panic!("no error code: {ran}"));
    let devices = value["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let uuids = devices.iter().map(|device| device["uuid"].as_str().unwrap().to_owned()).collect();
    (error, uuids)
}
