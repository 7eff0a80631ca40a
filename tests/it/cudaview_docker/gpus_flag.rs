//! `--gpus` on a host without NVIDIA's toolkit: dockerd takes it for a program's name, which `cudaview install` makes.

use serde_json::{Value, json};

use super::{GPUS_1_3, Host, IMAGE_NVD_ALL, paths};
use crate::world::command::Ran;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, namespace, require, shims};

/// Where the name is looked for and made.
const STAND_IN: &str = "/usr/bin/nvidia-container-runtime-hook";

/// What dockerd says of `--gpus` where it found nothing that could give GPUs.
const NO_DRIVER: &str = "could not select device driver \"\" with capabilities: [[gpu]]";

#[track_caller]
fn host() -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "nsenter", "unshare"]);
    let install = Install::new(A100X4, "");
    let docker = Dockerd::start_without_hook(&namespace::own_programs(), &[("cudaview", &install.runtime())]);
    Host::of(docker, install)
}

impl Host {
    /// `cudaview` as it is installed, in the daemon's world.
    #[track_caller]
    fn cudaview(&self, args: &[&str]) -> Ran {
        self.docker.beside(self.install.bin("cudaview"), args)
    }

    #[track_caller]
    fn refuses_gpus(&self, runtime: &str) {
        let ran = self.docker.run(&[&["--runtime", runtime], &GPUS_1_3[..]].concat(), IMAGE, &["true"]);
        assert!(ran.code == 125 && ran.stderr.contains(NO_DRIVER), "{ran}");
    }

    #[track_caller]
    fn gives_gpus_1_and_3(&self) {
        for value in [None, Some("CUDA_VISIBLE_DEVICES=1,3")] {
            let more: Vec<&str> = value.iter().flat_map(|value| ["-e", value]).collect();
            let count = self.count(IMAGE, &[&GPUS_1_3[..], &more].concat());
            assert_eq!(count.cuda, self.uuids_of(&[1, 3]), "{count:?}");
            assert_eq!(count.nodes, paths(&[1, 3]), "{count:?}");
            assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "0,1", "{count:?}");
        }
    }

    /// What `cudaview doctor` finds about the flag: status, line, and what to type.
    #[track_caller]
    fn doctor(&self) -> [String; 3] {
        let (docker, program) = (format!("DOCKER_HOST={}", self.docker.address()), self.install.bin("cudaview"));
        let ran = self.docker.beside("env", &[&docker, program.to_str().unwrap(), "doctor", "--format", "json"]);
        let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
        let check = json["checks"].as_array().unwrap().iter().find(|check| check["name"] == "--gpus flag").unwrap();
        ["status", "line", "fix"].map(|key| check[key].as_str().unwrap_or_default().to_owned())
    }

    #[track_caller]
    fn exists(&self, path: &str) -> bool {
        self.docker.beside("test", &["-L", path]).code == 0 || self.docker.beside("test", &["-e", path]).code == 0
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_takes_gpus_without_nvidias_toolkit_once_it_was_restarted() {
    let mut host = host();
    host.refuses_gpus("runc");
    host.refuses_gpus("cudaview");
    let [status, line, fix] = host.doctor();
    assert_eq!((status.as_str(), line.starts_with("not accepted: nobody")), ("warning", true), "{line}");
    // What it says to type is what helps, below.
    let restart = format!("sudo kill {}, and start dockerd again (stops running containers)", host.docker.pid());
    assert_eq!(fix, format!("sudo cudaview install gpus-flag, then {restart}"));

    host.cudaview(&["install", "gpus-flag"]).ok();
    assert!(host.exists(STAND_IN));
    let [status, line, fix] = host.doctor();
    assert_eq!((status.as_str(), line.starts_with("not accepted yet: ")), ("error", true), "{line}");
    assert_eq!(fix, restart);
    // It was looked for when the daemon started; a reload is not enough either.
    host.refuses_gpus("cudaview");
    host.docker.beside("kill", &["-HUP", &host.docker.pid().to_string()]).ok();
    std::thread::sleep(std::time::Duration::from_secs(1));
    host.refuses_gpus("cudaview");

    host.docker.restart();
    let accepted = ["ok", "accepted, by cudaview's nvidia-container-runtime-hook", ""].map(str::to_owned);
    assert_eq!(host.doctor(), accepted);
    host.gives_gpus_1_and_3();
    host.up("one", IMAGE, &GPUS_1_3);
    assert_eq!(host.docker.exec_count(&[], "one").cuda, host.uuids_of(&[1, 3]));
    let spec = host.spec_of("one").to_string();
    assert!(!spec.contains("nvidia-container-runtime-hook"), "the entry is taken out: {spec}");
    let count = host.count(IMAGE, &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=-1"]);
    assert_eq!((count.cuda.len(), count.nodes), (0, paths(&[0, 1, 2, 3])));
    // Nobody asked for a GPU: nothing stands against the container, with our runtime or without.
    for runtime in ["cudaview", "runc"] {
        host.docker.run(&["--runtime", runtime, "--gpus", "0"], IMAGE, &["true"]).ok();
        host.docker.run(&["--runtime", runtime], IMAGE, &["true"]).ok();
    }
    // Up to Docker 26 `--gpus 0` does not outrank an image that asks for every GPU.
    host.docker.run(&["--runtime", "cudaview", "--gpus", "0"], IMAGE_NVD_ALL, &["true"]).ok();
    let ran = host.docker.run(&["--runtime", "runc", "--gpus", "0"], IMAGE_NVD_ALL, &["true"]);
    assert_eq!(ran.code, if host.docker.version() < 28 { 125 } else { 0 }, "{ran}");

    host.cudaview(&["uninstall", "gpus-flag"]).ok();
    assert!(!host.exists(STAND_IN));
    // A daemon that was started with it looks for it again with each container.
    let ran = host.docker.run(&[&["--runtime", "cudaview"], &GPUS_1_3[..]].concat(), IMAGE, &["true"]);
    let missing = "exec: \"nvidia-container-runtime-hook\": executable file not found in $PATH";
    assert!(ran.code == 127 && ran.stderr.contains(missing), "{ran}");
    host.docker.restart();
    host.refuses_gpus("cudaview");
    let ran = host.docker.docker(&["start", "one"]);
    assert!(ran.code == 1 && ran.stderr.contains(NO_DRIVER), "{ran}");
}

/// Under another runtime such a container would compute on the CPU, and nobody would know.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_gpus_under_plain_runc_fail_with_the_reason() {
    let mut host = host();
    host.cudaview(&["install", "gpus-flag"]).ok();
    host.docker.restart();
    for gpus in ["all", "1", "\"device=1,3\""] {
        let ran = host.docker.run(&["--runtime", "runc", "--gpus", gpus], IMAGE, &["echo", "started"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{ran}");
        let texts = [
            "cudaview: --gpus without cudaview's runtime: the container would have no GPU\n",
            "  hint: add --runtime cudaview, or make it Docker's default runtime\n",
        ];
        assert!(texts.iter().all(|text| ran.stderr.contains(text)), "{ran}");
    }
    // The image's word is not the request: Docker's comes after it.
    host.docker.build("box-void", &format!("FROM {IMAGE}\nENV NVIDIA_VISIBLE_DEVICES=void\n"));
    let ran = host.docker.run(&["--runtime", "runc", "--gpus", "all"], "box-void", &["true"]);
    assert!(ran.code == 125 && ran.stderr.contains("without cudaview's runtime"), "{ran}");
    host.gives_gpus_1_and_3();
}

/// Settings with which cudaview leaves the GPUs to others; and crun, which keeps a hook's words to itself.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_gpus_that_nobody_gives_are_an_error_everywhere() {
    require(&["dockerd", "docker", "containerd", "runc", "crun", "nsenter", "unshare"]);
    let install = Install::new(A100X4, "");
    let observing = Install::new(A100X4, "mode = \"observe\"\n");
    let leaving = Install::new(A100X4, "inject = \"nvidia\"\n");
    let crun = shims::crun(&install.prefix());
    let runtimes = [
        ("cudaview", install.runtime()),
        ("observing", observing.runtime()),
        ("leaving", leaving.runtime()),
        ("crun", crun),
    ];
    let runtimes = runtimes.each_ref().map(|(name, path)| (*name, path.as_path()));
    let docker = Dockerd::start_without_hook(&namespace::own_programs(), &runtimes);
    let mut host = Host::of(docker, install);
    host.cudaview(&["install", "gpus-flag"]).ok();
    host.docker.restart();
    let reason = "--gpus without cudaview's runtime: the container would have no GPU";
    for (runtime, text) in [
        ("observing", reason),
        ("leaving", reason),
        ("crun", "error executing hook `/usr/bin/nvidia-container-runtime-hook` (exit code: 3)"),
    ] {
        let ran = host.docker.run(&["--runtime", runtime, "--gpus", "all"], IMAGE, &["true"]);
        assert!(ran.code == 125 && ran.stderr.contains(text), "{ran}");
        host.docker.run(&["--runtime", runtime, "--gpus", "0"], IMAGE, &["true"]).ok();
    }
}

/// A part of NVIDIA's toolkit must not make us leave the GPUs to a hook that gives none.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_does_not_take_the_stand_in_for_nvidias_toolkit() {
    let mut host = host();
    host.cudaview(&["install", "gpus-flag"]).ok();
    host.docker.restart();
    host.docker.beside("ln", &["-s", "true", "/usr/bin/nvidia-container-cli"]).ok();
    host.gives_gpus_1_and_3();
    assert_eq!(host.last_audit()["source"], json!(["gpus"]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_leaves_the_name_to_nvidias_toolkit() {
    let mut host = host();
    let write = "echo '#!/bin/sh\nexit 9' >\"$0\" && chmod 755 \"$0\"";
    host.docker.beside("sh", &["-c", write, STAND_IN]).ok();
    let before = host.docker.beside("sh", &["-c", "ls -li \"$0\"; cat \"$0\"", STAND_IN]).ok().stdout;
    for command in ["install", "uninstall"] {
        let ran = host.cudaview(&[command, "gpus-flag"]).failed_with(3);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("is there, and is not"), "{ran}");
    }
    assert_eq!(host.docker.beside("sh", &["-c", "ls -li \"$0\"; cat \"$0\"", STAND_IN]).ok().stdout, before);
    // It is theirs that is run.
    host.docker.restart();
    let ran = host.docker.run(&["--runtime", "runc", "--gpus", "all"], IMAGE, &["true"]);
    assert!(ran.code == 125 && ran.stderr.contains("exit status 9"), "{ran}");
}
