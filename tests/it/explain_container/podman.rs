//! podman's containers: root's, and those of an ordinary user who asks without root.

use std::process::Command;

use super::{answer, ask, by, held, hosts, json, looked_at, origin};
use crate::world::command::run;
use crate::world::podman::{IMAGE, Podman, Setup};
use crate::world::{A100X4, Install, require};

const CVD: &str = "CUDA_VISIBLE_DEVICES";
const GPUS_1_3: [&str; 4] = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];

const WRAPPER: Setup = Setup { runtime: "cudaview", ..Setup::PLAIN };

struct Host {
    podman: Podman,
    install: Install,
}

impl Host {
    #[track_caller]
    fn new(setup: Setup) -> Host {
        require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
        let install = Install::new(A100X4, "");
        let podman = Podman::start(&install, setup);
        podman.load("cvd-0", &["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CUDA_VISIBLE_DEVICES=0"]);
        Host { podman, install }
    }

    /// cudaview as podman's user, in podman's world.
    fn command(&self) -> Command {
        let mut command = self.podman.command(self.install.bin("cudaview"));
        command.env("CONTAINERD_ADDRESS", "/nobody/listens/here").env("DOCKER_HOST", "unix:///nobody/listens/here");
        command
    }
}

fn origins(setup: Setup) {
    let host = Host::new(setup);
    host.podman.up("trainer", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), IMAGE);
    host.podman.up("default", &GPUS_1_3, "cvd-0");
    host.podman.up("other", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), "cvd-0");
    let told = json(host.command(), "trainer", &[]);
    let container = &told["container"];
    assert_eq!((&container["engine"], &container["made"]), (&"podman".into(), &"cudaview".into()), "{told:#}");
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("user", Some("user")), vec![3, 1]), "{told:#}");
    let count = host.podman.exec_count(&[], "trainer");
    if setup.runtime == "cudaview" {
        let seen: Vec<&str> = told["visible"].as_array().unwrap().iter().map(|d| d["uuid"].as_str().unwrap()).collect();
        assert_eq!(count.cuda, seen);
    }
    // podman 4 takes an ordinary user's storage from elsewhere than the configuration that the harness gives it.
    let storage = host.podman.path().display().to_string();
    assert!(looked_at(&told, &storage) && looked_at(&told, "/userdata/config.json"), "{told:#}");
    assert!(looked_at(&told, "-images/"), "{told:#}");
    let runtime = container["runtime"].as_str().unwrap();
    assert_eq!(runtime.ends_with("cudaview-runtime"), setup.runtime == "cudaview", "{runtime}");
    let text = answer(host.command(), "trainer", &[]).stdout;
    assert!(
        text.starts_with("trainer sees 2 GPUs: cuda:0 is host GPU 3, cuda:1 is host GPU 1 (rewritten)\n"),
        "{text}"
    );
    assert!(text.contains("  CUDA_VISIBLE_DEVICES    user: \"3,1\" is not in the image\n"), "{text}");
    // As it was typed, not in the words of another engine.
    assert!(text.contains("  --device nvidia.com/gpu=1 --device nvidia.com/gpu=3\n"), "{text}");

    // The limit of the precreate hook, and that it is one.
    let limit = container["notes"].to_string();
    assert_eq!(limit.contains("podman exec is not reached"), setup.precreate, "{limit}");
    if setup.precreate {
        assert_eq!(count.env[CVD], "3,1", "{count:?}");
        assert!(limit.contains("it gets CUDA_VISIBLE_DEVICES=\\\"3,1\\\" as it was typed"), "{limit}");
    }

    let told = json(host.command(), "default", &[]);
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("image", Some("image")), vec![1, 3]), "{told:#}");
    let text = answer(host.command(), "other", &[]).stdout;
    assert!(text.contains("  CUDA_VISIBLE_DEVICES    user: \"3\" in place of the image's \"0\"\n"), "{text}");
    // podman's words, not Docker's.
    assert!(text.contains("--device nvidia.com/gpu=1 --device nvidia.com/gpu=3"), "{text}");
    assert!(text.contains("replaced by -e, as always in podman"), "{text}");
    assert!(!text.contains("Docker") && !text.contains("decided at create"), "{text}");
    let ran = ask(host.command(), "train", &[]).failed_with(1);
    assert!(ran.stderr.contains("hint: did you mean --container trainer?"), "{ran}");
    let ran = ask(host.command(), "nobody", &[]).failed_with(1);
    assert!(ran.stderr.contains("storage (no such container)"), "{ran}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_rootful() {
    origins(WRAPPER);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_rootless_by_its_owner() {
    origins(Setup { rootless: true, ..WRAPPER });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_rootful_precreate_and_its_limit() {
    origins(Setup { precreate: true, ..Setup::PLAIN });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_rootless_precreate_and_its_limit() {
    origins(Setup { runtime: "crun", precreate: true, rootless: true, ..Setup::PLAIN });
}

/// What arrives after the precreate hook is not what was decided.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_a_secret_after_precreate_is_told() {
    let host = Host::new(Setup { precreate: true, ..Setup::PLAIN });
    let file = host.podman.path().join("secret");
    std::fs::write(&file, "3").unwrap();
    host.podman.podman(&["secret", "create", "gpus", file.to_str().unwrap()]).ok();
    let secret = ["--secret", "gpus,type=env,target=CUDA_VISIBLE_DEVICES", "-e", "CUDA_VISIBLE_DEVICES=1"];
    host.podman.up("late", &[&GPUS_1_3[..], &secret].concat(), IMAGE);
    let told = json(host.command(), "late", &[]);
    let count = host.podman.exec_count(&[], "late");
    let now: Vec<&str> =
        told["container"]["visible"].as_array().unwrap().iter().map(|d| d["uuid"].as_str().unwrap()).collect();
    assert_eq!(told["container"]["made"], "changed-after-cudaview", "{told:#}");
    assert!(told["container"]["notes"].to_string().contains("changed after cudaview had decided"), "{told:#}");
    assert_eq!(count.cuda, now, "{told:#}");
}

/// Root is not led around in somebody else's storage.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_podman_a_users_storage_is_not_for_root() {
    let host = Host::new(Setup { rootless: true, ..WRAPPER });
    host.podman.up("mine", &GPUS_1_3, IMAGE);
    let mut command = Command::new(host.install.bin("cudaview"));
    command.env("CONTAINERS_STORAGE_CONF", host.podman.path().join("storage.conf"));
    command.env("CONTAINERD_ADDRESS", "/nobody/listens/here").env("DOCKER_HOST", "unix:///nobody/listens/here");
    // The audit trail of a rootless container is its owner's, who may not write this installation's.
    let ran = ask(command, "mine", &[]).failed_with(1);
    assert!(ran.stderr.contains("belongs to uid") && ran.stderr.contains("asked about by its"), "{ran}");
}

/// Names that no other test has, since root sees the rootless containers of all of them.
#[track_caller]
fn held_by(setup: Setup, how: &str) {
    let host = Host::new(setup);
    let [trainer, one] =
        ["trainer", "one"].map(|name| format!("ps-{name}-{}", if setup.rootless { "own" } else { "root" }));
    let gpus = || held(host.command(), &[&trainer, &one]);
    host.podman.up(&trainer, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat(), IMAGE);
    host.podman.up(&one, &["--device", "nvidia.com/gpu=2"], IMAGE);
    assert_eq!(gpus(), [vec![], vec![by(&trainer, 1)], vec![by(&one, 0)], vec![by(&trainer, 0)]]);
    let text = run(host.command().arg("ps")).ok().stdout;
    assert!(text.contains(how), "{text}");
    host.podman.podman(&["rm", "--force", "--time", "0", &trainer]).ok();
    assert_eq!(gpus(), [vec![], vec![], vec![by(&one, 0)], vec![]]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_podman() {
    held_by(WRAPPER, "  podman  ");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_podman_rootless_by_its_owner() {
    held_by(Setup { rootless: true, ..WRAPPER }, "  podman, rootless  ");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_podman_without_cudaview() {
    let host = Host::new(Setup::PLAIN);
    host.podman.up("ps-plain", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1"]].concat(), IMAGE);
    assert_eq!(
        held(host.command(), &["ps-plain"]),
        [vec![], vec![by("ps-plain", None)], vec![], vec![by("ps-plain", 0)]]
    );
}

/// By the monitor of the container, since root must not follow a user's storage around.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_podman_root_sees_a_users_container() {
    let host = Host::new(Setup { rootless: true, ..WRAPPER });
    let name = format!("own-{}", std::process::id());
    host.podman.up(&name, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE);
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount=/proc/{}/ns/mnt", host.podman.holder())).arg(host.install.bin("cudaview"));
    command.env("CONTAINERD_ADDRESS", "/nobody/listens/here").env("DOCKER_HOST", "unix:///nobody/listens/here");
    command.env("CONTAINERS_STORAGE_CONF", "/dev/null");
    assert_eq!(held(command, &[&name]), [vec![], vec![], vec![], vec![by(&name, 0)]]);
}
