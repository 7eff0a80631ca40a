//! Real containerd, first without cudaview, then with it: by `ctr`, and by the calls that a kubelet makes.

mod cri;
mod ctr;
mod devices;
mod handler;
mod life;

use serde_json::Value;

use crate::world::containerd::{Containerd, Door, Version};
use crate::world::count::Count;
use crate::world::{A100X4, require, uuids};

/// The image that most tests run, without an opinion; and one whose author found `ENV CUDA_VISIBLE_DEVICES=0` a good idea.
const IMAGE: &str = "box";
const IMAGE_CVD_0: &str = "box-cvd-0";

/// The flags of `ctr run` that name GPUs 1 and 3.
const GPUS_1_3: [&str; 8] = [
    "--device",
    "/dev/nvidia1",
    "--device",
    "/dev/nvidia3",
    "--device",
    "/dev/nvidiactl",
    "--device",
    "/dev/nvidia-uvm",
];

/// A configuration in which `NVIDIA_VISIBLE_DEVICES` counts although nobody can tell who set it.
const UNKNOWN_IS_USER: &str = "[grant]\nunknown_request = 'user'\n";

/// A simulated GPU host with containerd.
struct Host {
    containerd: Containerd,
    uuids: Vec<String>,
}

/// What a container is to see.
struct Expected<'a> {
    /// Host GPUs in the order of CUDA's ordinals.
    view: &'a [usize],
    /// Host GPUs that have a node and that NVML lists.
    nodes: &'a [usize],
    /// The value of `CUDA_VISIBLE_DEVICES`.
    value: &'a str,
}

impl Host {
    #[track_caller]
    fn new(low_level: &str, config: &str) -> Host {
        require(&["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun", "jq", "nsenter", "unshare"]);
        let containerd = Containerd::start(low_level, config);
        Host { containerd, uuids: uuids(A100X4) }
    }

    /// With the two images in the namespace of `ctr`.
    #[track_caller]
    fn for_ctr(low_level: &str, config: &str) -> Host {
        let host = Host::new(low_level, config);
        host.containerd.import("default", IMAGE, &[]);
        host.containerd.import("default", IMAGE_CVD_0, &["CUDA_VISIBLE_DEVICES=0"]);
        host
    }

    /// The UUIDs of these host GPUs.
    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }

    /// The newest audit record.
    #[track_caller]
    fn last_audit(&self) -> Value {
        self.containerd.install.audit_records().pop().expect("an audit record")
    }

    /// `ctr run` of the counting program by cudaview.
    #[track_caller]
    fn check(&self, flags: &[&str], image: &str, expected: &Expected<'_>) {
        let count = self.containerd.count(Door::Cudaview, flags, image);
        self.compare(&count, expected, &format!("{image} {flags:?}"));
    }

    #[track_caller]
    fn compare(&self, count: &Count, expected: &Expected<'_>, context: &str) {
        let nodes: Vec<String> = expected.nodes.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
        assert_eq!(count.cuda, self.uuids_of(expected.view), "{context}: {count:?}");
        assert_eq!(count.nodes, nodes, "{context}: {count:?}");
        assert_eq!(count.nvml, self.uuids_of(expected.nodes), "{context}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], expected.value, "{context}: {count:?}");
        if !expected.view.is_empty() {
            let trace: Vec<String> = expected.view.iter().map(ToString::to_string).collect();
            assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], trace.join(","), "{context}: {count:?}");
        }
    }
}

/// The flags with one more entry in the environment.
fn with_env<'a>(flags: &[&'a str], entry: &'a str) -> Vec<&'a str> {
    [flags, &["--env", entry]].concat()
}
