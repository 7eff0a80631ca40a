//! `cudaview install docker` and `uninstall docker` beside a daemon that runs.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{GPUS_1_3, Host, IMAGE_CVD_0, IMAGE_NVD_ALL};
use crate::world::command::{LIMIT, Ran};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, require};

/// `/etc/docker` is the daemon's folder, and the rest of `/etc` can be written without the machine's own being changed.
const WORLD: &str = r#"
mkdir -p "$0/etc" "$0/etc.work"
mount -t overlay -o "lowerdir=/etc,upperdir=$0/etc,workdir=$0/etc.work" none /etc
mkdir -p /etc/docker
mount --bind "$0" /etc/docker
"#;

#[track_caller]
fn host() -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "nsenter", "unshare", "jq"]);
    let install = Install::new(A100X4, "");
    let docker =
        Dockerd::start_in(Some(WORLD), &[], None, &json!({"storage-driver": "overlay2", "live-restore": true}));
    Host::of(docker, install)
}

impl Host {
    #[track_caller]
    fn installer(&self, args: &[&str]) -> Ran {
        let (docker, program) = (format!("DOCKER_HOST={}", self.docker.address()), self.install.bin("cudaview"));
        self.docker.beside("env", &[&[docker.as_str(), program.to_str().unwrap()], args].concat())
    }

    /// `systemctl reload docker`, until the daemon knows so many runtimes by our name.
    #[track_caller]
    fn reload_until(&self, known: bool) {
        self.docker.beside("kill", &["-HUP", &self.docker.pid().to_string()]).ok();
        let end = Instant::now() + LIMIT;
        loop {
            let info = self.docker.docker(&["info", "--format", "{{json .Runtimes}}"]).ok().stdout;
            if info.contains("\"cudaview\"") == known {
                return;
            }
            assert!(Instant::now() < end, "{info}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_is_told_by_install_and_forgets_by_uninstall() {
    let host = host();
    let file = host.docker.config_file();
    let before = fs::read(&file).unwrap();
    let flags = [&["--runtime", "cudaview"], &GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat();
    // The fault: nobody knows that runtime, and without it the program sees one GPU of the two, under a wrong number.
    let ran = host.docker.run(&flags, IMAGE, &["true"]);
    assert!(ran.code == 125 && ran.stderr.contains("cudaview"), "{ran}");

    let ran = host.installer(&["install", "docker", "--dry-run"]).ok();
    assert!(ran.stdout.contains("  + \"runtimes\": {\"cudaview\": {\"path\": \""), "{ran}");
    assert_eq!(fs::read(&file).unwrap(), before);
    host.installer(&["install", "docker"]).ok();
    let ran = host.installer(&["install", "docker"]).ok();
    assert!(ran.stdout.contains("nothing to do: it says so already"), "{ran}");
    host.reload_until(true);
    let count = host.docker.count(&flags, IMAGE);
    assert_eq!(count.cuda, host.uuids_of(&[1, 3]), "{count:?}");

    host.up("trainer", IMAGE, &GPUS_1_3);
    let ran = host.installer(&["uninstall", "docker"]).failed_with(3);
    assert!(ran.stderr.contains("a container depends on cudaview's runtime: trainer"), "{ran}");
    let ran = host.installer(&["uninstall", "docker", "--check"]).failed_with(1);
    assert!(ran.stdout.starts_with("docker\ttrainer\t"), "{ran}");
    // A container that does not run depends on it as well.
    host.docker.docker(&["kill", "trainer"]).ok();
    host.installer(&["uninstall", "docker"]).failed_with(3);
    host.docker.docker(&["start", "trainer"]).ok();

    // The default changes for new containers; those that are there go on.
    host.installer(&["install", "docker", "--default-runtime"]).ok();
    host.reload_until(true);
    let count = host.docker.count(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat(), IMAGE);
    assert_eq!(count.cuda, host.uuids_of(&[1, 3]), "{count:?}");
    let count = host.docker.exec_count(&[], "trainer");
    assert_eq!(count.cuda, host.uuids_of(&[1, 3]), "{count:?}");

    host.docker.docker(&["rm", "--force", "trainer"]).ok();
    assert_eq!(host.installer(&["uninstall", "docker", "--check"]).ok().stdout.lines().count(), 1);
    host.installer(&["uninstall", "docker"]).ok();
    assert_eq!(fs::read(&file).unwrap(), before);
    host.reload_until(false);
    assert!(!file.with_file_name("daemon.json.cudaview-backup").exists());
    host.docker.run(&[], IMAGE, &["true"]).ok();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_dry_run_says_what_changes_for_whom() {
    let host = host();
    let create = |name: &str, image: &str, flags: &[&str]| {
        host.docker.docker(&[&["create", "--name", name], flags, &[image, "true"]].concat()).ok();
    };
    create("web", IMAGE, &[]);
    create("trainer", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    create(
        "eval",
        IMAGE,
        &["--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000"],
    );
    create("old", IMAGE_CVD_0, &["--gpus", "all"]);
    create("tts", IMAGE_NVD_ALL, &[]);
    for (flags, tts) in [
        (&["install", "docker", "--dry-run"][..], true),
        (&["install", "docker", "--dry-run", "--default-runtime"], false),
    ] {
        let ran = host.installer(flags).ok();
        let said = ran
            .stdout
            .split_once("\nIf the 5 containers")
            .unwrap_or_else(|| panic!("{ran}"))
            .1
            .replace("\n      ", " ");
        assert!(said.contains("CUDA_VISIBLE_DEVICES is renumbered: "), "{ran}");
        assert!(said.contains("trainer \"1,3\" -> 0,1"), "{ran}");
        assert!(said.contains("refused: ") && said.contains("eval ("), "{ran}");
        assert_eq!(said.contains("tts ("), tts, "{ran}");
        assert!(said.contains("nothing was changed (--dry-run)"), "{ran}");
    }
    // What it says to type.
    host.installer(&["explain", "--container", "trainer"]).ok();
    host.installer(&["install", "docker"]).ok();
}
