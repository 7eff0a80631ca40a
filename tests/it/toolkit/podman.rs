//! podman with one of the widely copied files that add NVIDIA's hook to every container, and with NVIDIA's runtime.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{BUILT_IN, Toolkit, in_mode, paths};
use crate::world::command::run;
use crate::world::count::Count;
use crate::world::podman::{IMAGE, Setup};
use crate::world::{A100X4, Install, Podman, require, uuids};

const NVD_ALL: &str = "box-nvd-all";

/// The programs that the two files name. They are otherwise the same, and NVIDIA's package has both names.
const PROGRAMS: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

const WRAPPER: Setup = Setup { runtime: "cudaview", ..Setup::PLAIN };
const PRECREATE: Setup = Setup { precreate: true, ..Setup::PLAIN };
/// An image's annotation that NVIDIA's runtime would take for CDI devices.
const ANNOTATION: &str = "cdi.k8s.io/x=nvidia.com/gpu=all";

struct Host {
    podman: Podman,
    toolkit: Toolkit,
    uuids: Vec<String>,
    /// Goes away with the host, and not before.
    _install: Install,
}

impl Host {
    #[track_caller]
    fn new(setup: Setup) -> Host {
        require(&["podman", "conmon", "runc", "nsenter", "unshare", "jq"]);
        let toolkit = Toolkit::new(A100X4, BUILT_IN);
        let install = Install::new(A100X4, "");
        let podman = Podman::start(&install, setup);
        let sbin = toolkit.cli().parent().unwrap().to_owned();
        run(podman.command("mount").arg("--bind").arg(sbin).arg("/usr/local/sbin")).ok();
        podman.import(NVD_ALL, &["ENV NVIDIA_VISIBLE_DEVICES=all"]);
        Host { podman, toolkit, uuids: uuids(A100X4), _install: install }
    }

    /// Installs the file that adds the hook, under this name.
    fn add_hook(&self, program: &str) {
        let path = self.toolkit.hook().with_file_name(program);
        if !path.exists() {
            symlink(self.toolkit.hook(), &path).unwrap();
        }
        let file = json!({
            "version": "1.0.0",
            "hook": {"path": path, "args": [program, "prestart"],
                     "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
            "when": {"always": true, "commands": [".*"]},
            "stages": ["prestart"],
        });
        fs::write(self.podman.path().join("hooks.d/oci-nvidia-hook.json"), file.to_string()).unwrap();
    }

    #[track_caller]
    fn count(&self, flags: &[&str], image: &str) -> (Count, Vec<Value>) {
        (self.podman.count(flags, image), self.toolkit.take_record())
    }

    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_podman_with_nvidias_hook_gives_an_image_what_it_asks_for() {
    let host = Host::new(Setup::PLAIN);
    for program in PROGRAMS {
        host.add_hook(program);
        let (seen, record) = host.count(&[], NVD_ALL);
        assert_eq!((seen.nodes, &record[0]["asked"]), (paths(&[0, 1, 2, 3]), &json!(["all"])), "{program}");
        let (seen, _) = host.count(&["-e", "NVIDIA_VISIBLE_DEVICES=1,3", "-e", "CUDA_VISIBLE_DEVICES=1,3"], IMAGE);
        assert_eq!(seen.cuda, host.uuids_of(&[3]), "{program}: one GPU of two");
    }
}

/// Through the wrapper and through the precreate hook.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_with_nvidias_hook_gives_what_was_reconciled() {
    for setup in [WRAPPER, PRECREATE] {
        let host = Host::new(setup);
        for program in PROGRAMS {
            host.add_hook(program);
            let context = format!("{program} {}", setup.runtime);
            let (seen, record) = host.count(&[], NVD_ALL);
            assert!(seen.nodes.is_empty(), "{context}: {seen:?}");
            assert_eq!((&record[0]["asked"], &record[0]["entries"]), (&Value::Null, &json!(["void"])), "{context}");

            let flags = ["-e", "NVIDIA_VISIBLE_DEVICES=3,1,1", "-e", "CUDA_VISIBLE_DEVICES=3,1"];
            let (seen, record) = host.count(&flags, NVD_ALL);
            assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3, 1]), paths(&[1, 3])), "{context}");
            assert_eq!(record[0]["asked"], json!(host.uuids_of(&[1, 3])), "{context} {record:?}");
            assert_eq!(record[0]["entries"], json!([host.uuids_of(&[1, 3]).join(",")]), "{context} {record:?}");
            assert_eq!(record[0]["nodes"], json!([]), "{context} {record:?}");

            // podman's CDI has done it, and the hook is told so.
            let flags =
                ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3", "-e", "CUDA_VISIBLE_DEVICES=3"];
            let (seen, record) = host.count(&flags, NVD_ALL);
            assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3]), paths(&[3])), "{context}");
            assert_eq!(record[0]["asked"], Value::Null, "{context} {record:?}");
        }
        // Without its tool it is taken out.
        fs::remove_file(host.toolkit.cli()).unwrap();
        let (seen, record) = host.count(&["-e", "NVIDIA_VISIBLE_DEVICES=1,3"], NVD_ALL);
        assert_eq!((seen.cuda, record), (host.uuids_of(&[1, 3]), vec![]), "{}", setup.runtime);
    }
}

/// The precreate hook does not know which runtime podman will call; where NVIDIA's is installed it may be that one.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_with_nvidias_runtime_behind_the_precreate_hook() {
    let host = Host::new(PRECREATE);
    let runtime = host.toolkit.runtime();
    let count =
        |flags: &[&str], image: &str| (host.podman.count_through(&runtime, flags, image), host.toolkit.take_record());
    // Nobody can know of a runtime that is not where the system's programs are.
    let (seen, record) = count(&[], NVD_ALL);
    assert_eq!((seen.nodes.len(), &record[0]["asked"]), (4, &json!(["all"])), "{record:?}");
    assert_eq!(count(&["--annotation", ANNOTATION], IMAGE).0.nodes.len(), 4);

    symlink(&runtime, host.toolkit.cli().with_file_name("nvidia-container-runtime")).unwrap();
    for mode in ["auto", "cdi", "legacy"] {
        host.toolkit.configure(in_mode(mode));
        for flags in [&[][..], &["--annotation", ANNOTATION], &["-e", "CUDA_VERSION=10.2"]] {
            let (seen, record) = count(flags, NVD_ALL);
            assert!(seen.nodes.is_empty(), "{mode} {flags:?}: {seen:?}");
            assert_eq!(record[0]["asked"], Value::Null, "{mode} {flags:?}: {record:?}");
        }
        let (seen, _) = count(&["-e", "CUDA_VERSION=10.2"], IMAGE);
        assert!(seen.nodes.is_empty(), "{mode}: {seen:?}");
        let flags = ["--device", "nvidia.com/gpu=1", "--annotation", ANNOTATION, "-e", "CUDA_VISIBLE_DEVICES=1"];
        let (seen, _) = count(&flags, NVD_ALL);
        assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[1]), paths(&[1])), "{mode}");
        let (seen, _) = count(&["-e", "NVIDIA_VISIBLE_DEVICES=3,1", "-e", "CUDA_VISIBLE_DEVICES=3,1"], NVD_ALL);
        assert_eq!((seen.cuda, seen.nodes), (host.uuids_of(&[3, 1]), paths(&[1, 3])), "{mode}");
    }
}
