//! Real podman, first without cudaview, then with it through each of its doors.

mod alone;
mod devices;
mod doors;
mod generated;
mod leaks;
mod life;
mod names;
mod provenance;
mod refused;
mod rootless;

use crate::world::count::{Count, Expected};
use crate::world::podman::{IMAGE, Setup};
use crate::world::{A100X4, Install, Podman, require, uuids};

/// The flags that name GPUs 1 and 3.
const GPUS_1_3: [&str; 4] = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];

const PLAIN: Setup = Setup::PLAIN;
const WRAPPER: Setup = Setup { runtime: "cudaview", ..PLAIN };
const PRECREATE: Setup = Setup { precreate: true, ..PLAIN };
const BOTH: Setup = Setup { precreate: true, ..WRAPPER };
/// The createRuntime hook of podman's own folder of hooks, with a grant in its arguments.
const ALONE: Setup = Setup { create_runtime: Some(&["--gpus", "\"device=1,3\""]), ..PLAIN };

/// A simulated GPU host with podman.
struct Host {
    podman: Podman,
    install: Install,
    uuids: Vec<String>,
}

impl Host {
    #[track_caller]
    fn new(setup: Setup, config: &str) -> Host {
        require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
        let install = Install::new(A100X4, config);
        let podman = Podman::start(&install, setup);
        Host { podman, install, uuids: uuids(A100X4) }
    }

    /// The UUIDs of these host GPUs.
    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }

    /// The newest audit record.
    #[track_caller]
    fn last_audit(&self) -> serde_json::Value {
        self.install.audit_records().pop().expect("an audit record")
    }

    /// `podman run` of the counting program.
    #[track_caller]
    fn check(&self, flags: &[&str], image: &str, expected: &Expected<'_>) {
        let count = self.podman.count(flags, image);
        self.compare(&count, expected, &format!("{image} {flags:?}"));
    }

    #[track_caller]
    fn compare(&self, count: &Count, expected: &Expected<'_>, context: &str) {
        expected.compare(&self.uuids, count, context);
    }
}

/// The bug, before anything is done about it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_without_cudaview_counts_two_ways() {
    let host = Host::new(PLAIN, "");
    host.podman.import("cvd-0", &["ENV CUDA_VISIBLE_DEVICES=0"]);
    let check = |flags: &[&str], image: &str, view: &[usize]| {
        let count = host.podman.count(&[&GPUS_1_3, flags].concat(), image);
        assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{count:?}");
        assert_eq!(count.cuda, host.uuids_of(view), "{flags:?} {image}: {count:?}");
    };
    check(&[], IMAGE, &[1, 3]);
    check(&["-e", "CUDA_VISIBLE_DEVICES=1,3"], IMAGE, &[3]);
    check(&["-e", "CUDA_VISIBLE_DEVICES=3"], IMAGE, &[]);
    check(&[], "cvd-0", &[1]);
}
