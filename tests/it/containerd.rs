//! Real containerd, first without cudaview, then with it: by `ctr`, and by the calls that a kubelet makes.

mod cri;
mod ctr;
mod devices;
mod handler;
mod life;

use serde_json::Value;

use crate::world::containerd::{Containerd, Door, GPUS_1_3, Version};
use crate::world::count::{Count, Expected};
use crate::world::{A100X4, require, uuids};

/// The image that most tests run, without an opinion; and one whose author found `ENV CUDA_VISIBLE_DEVICES=0` a good idea.
const IMAGE: &str = "box";
const IMAGE_CVD_0: &str = "box-cvd-0";

/// A configuration in which `NVIDIA_VISIBLE_DEVICES` counts although nobody can tell who set it.
const UNKNOWN_IS_USER: &str = "[grant]\nunknown_request = 'user'\n";

/// A simulated GPU host with containerd.
struct Host {
    containerd: Containerd,
    uuids: Vec<String>,
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
        expected.compare(&self.uuids, count, context);
    }
}

/// The flags with one more entry in the environment.
fn with_env<'a>(flags: &[&'a str], entry: &'a str) -> Vec<&'a str> {
    [flags, &["--env", entry]].concat()
}
