//! Docker's containers, on both image stores.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use serde_json::{Value, json};

use super::{Asker, GROUP, answer, ask, by, held, hosts, json, looked_at, origin};
use crate::world::command::{Ran, run};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, cdi, require};

const CVD: &str = "CUDA_VISIBLE_DEVICES";
const NVD: &str = "NVIDIA_VISIBLE_DEVICES";
const GPUS_1_3: [&str; 2] = ["--gpus", "\"device=1,3\""];
const CDI_1_3: [&str; 4] = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];

struct Host {
    docker: Dockerd,
    install: Install,
}

impl Host {
    /// `store` is a setting of the daemon's. Docker before version 25 has one store only, which both tests use there.
    #[track_caller]
    fn new(store: &Value, config: &str) -> Host {
        require(&["dockerd", "docker", "containerd", "runc", "jq", "setpriv"]);
        let install = Install::new(A100X4, config);
        let specs = install.prefix().join("cdi");
        cdi::write_spec(&specs, &install, A100X4);
        let mut settings = store.clone();
        if Dockerd::program_version() < 25 {
            settings = json!({"storage-driver": "overlay2"});
        } else {
            settings["cdi-spec-dirs"] = json!([specs]);
            settings["features"]["cdi"] = json!(true);
        }
        let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, &settings);
        docker.import(A100X4, IMAGE, &[]);
        docker.import(A100X4, "nvd-all", &["ENV NVIDIA_VISIBLE_DEVICES=all", "ENV OTHER=1"]);
        docker.build("cvd-0", &format!("FROM {IMAGE}\nENV {CVD}=0\n"));
        // As a package would leave it: the group of the socket may talk to the daemon.
        fs::set_permissions(docker.path(), Permissions::from_mode(0o711)).unwrap();
        chown(docker.path().join("docker.sock"), Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(docker.path().join("docker.sock"), Permissions::from_mode(0o660)).unwrap();
        Host { docker, install }
    }

    fn command(&self, asker: Asker) -> std::process::Command {
        let mut command = asker.command(&self.install.bin("cudaview"));
        command.env("DOCKER_HOST", format!("unix://{}", self.docker.path().join("docker.sock").display()));
        command.env("CONTAINERD_ADDRESS", "/nobody/listens/here");
        command
    }

    #[track_caller]
    fn json(&self, asker: Asker, container: &str) -> Value {
        json(self.command(asker), container, &[])
    }

    #[track_caller]
    fn text(&self, asker: Asker, container: &str) -> String {
        answer(self.command(asker), container, &[]).stdout
    }

    #[track_caller]
    fn refuses(&self, asker: Asker, container: &str, code: i32) -> Ran {
        let ran = ask(self.command(asker), container, &[]).failed_with(code);
        assert_eq!(ran.stdout, "", "{ran}");
        ran
    }

    fn up(&self, name: &str, image: &str, flags: &[&str]) {
        self.docker.up(name, &[&["--runtime", "cudaview"], flags].concat(), image);
    }

    fn has_cdi(&self) -> bool {
        self.docker.version() >= 25
    }
}

fn graphdriver() -> Value {
    json!({"storage-driver": "overlay2"})
}

fn containerd_store() -> Value {
    json!({"features": {"containerd-snapshotter": true}})
}

/// What a member of the group is told, from the socket alone, and what root finds in the bundle.
fn origins(store: &Value) {
    let host = Host::new(store, "");
    host.up("trainer", "nvd-all", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    for asker in [Asker::Root, Asker::Member] {
        let told = host.json(asker, "trainer");
        let container = &told["container"];
        assert_eq!((&container["engine"], &container["name"]), (&json!("docker"), &json!("trainer")), "{told:#}");
        assert_eq!((&container["made"], &container["state"]), (&json!("cudaview"), &json!("running")), "{told:#}");
        assert_eq!((&container["runtime"], &container["image"]), (&json!("cudaview"), &json!("nvd-all")), "{told:#}");
        let at_create = (asker == Asker::Root).then_some("user");
        assert_eq!(origin(&told, CVD), ("user", at_create), "{told:#}");
        assert_eq!(origin(&told, NVD), ("image", None), "{told:#}");
        assert_eq!((hosts(&told["visible"]), told["verdict"].as_str()), (vec![1, 3], Some("rewritten")), "{told:#}");
        assert!(looked_at(&told, "docker.sock: containers/") && looked_at(&told, "docker.sock: images/"), "{told:#}");
        assert_eq!(looked_at(&told, "/config.json"), asker == Asker::Root, "{told:#}");
        let notes = container["notes"].to_string();
        assert_eq!(notes.contains("which only root may read"), asker == Asker::Member, "{notes}");
        let text = host.text(asker, "trainer");
        assert!(
            text.starts_with("trainer sees 2 GPUs: cuda:0 is host GPU 1, cuda:1 is host GPU 3 (rewritten)\n"),
            "{text}"
        );
        for part in [
            "  image NVIDIA_VISIBLE_DEVICES=\"all\"  outranked by --gpus\n",
            "  CUDA_VISIBLE_DEVICES    user: \"1,3\" is not in the image\n",
            "  NVIDIA_VISIBLE_DEVICES  image: \"all\" is in the image\n",
            "Without cudaview\n  1 GPU: cuda:0 is host GPU 3, and there is no cuda:1\n",
            "note: docker inspect goes on showing \"1,3\"",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    host.up("default", "cvd-0", &["--gpus", "all"]);
    host.up("both", "cvd-0", &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2"]);
    let id = host.docker.inspect("cvd-0")["Id"].as_str().unwrap().to_owned();
    host.up("by-id", &id, &["--gpus", "all"]);
    for asker in [Asker::Root, Asker::Member] {
        assert_eq!(origin(&host.json(asker, "default"), CVD).0, "image");
        let text = host.text(asker, "default");
        let step = "The image cvd-0, in Docker's store\n  CUDA_VISIBLE_DEVICES    \"0\" set by step 2 of 2, on layer 1 of 1\n                          \"ENV CUDA_VISIBLE_DEVICES=0\"\n";
        assert!(text.contains(step), "{text}");
        let both = host.text(asker, "both");
        assert!(both.contains("  CUDA_VISIBLE_DEVICES    user: \"2\" in place of the image's \"0\"\n"), "{both}");
        // Docker's builder names an image so, for a step whose variables nobody typed.
        let told = host.json(asker, "by-id");
        assert_eq!(origin(&told, CVD).0, "unknown", "{told:#}");
        assert!(host.text(asker, "by-id").contains("as a step of docker build does"));
    }
}

/// The plan from Docker's answer is the plan that was carried out, whatever was asked for.
fn the_same(store: &Value) {
    let host = Host::new(store, "");
    let devices = host.install.docker_devices(&[1, 3]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let wide = ["--gpus", "device=1", "--device-cgroup-rule", "c 195:* rmw"];
    let mut asked: Vec<Vec<&str>> = vec![
        vec!["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2,0"],
        vec!["--gpus", "2"],
        vec!["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=-1"],
        vec!["--gpus", "\"device=2,3\"", "-e", "CUDA_VISIBLE_DEVICES=1", "-e", "CUDA_DEVICE_ORDER=FASTEST_FIRST"],
        vec!["-e", "NVIDIA_VISIBLE_DEVICES=2,3", "-e", "CUDA_VISIBLE_DEVICES=3"],
        vec!["-e", "CUDA_VISIBLE_DEVICES=3"],
        [&devices[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat(),
        wide.to_vec(),
    ];
    if host.has_cdi() {
        asked.push([&CDI_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat());
        asked.push(CDI_1_3.to_vec());
    }
    for (number, flags) in asked.iter().enumerate() {
        let name = format!("c{number}");
        host.up(&name, IMAGE, flags);
        let (root, member) = (host.json(Asker::Root, &name), host.json(Asker::Member, &name));
        for key in ["verdict", "granted", "visible", "env", "deviceNodes", "provenance", "findings", "withoutCudaview"]
        {
            assert_eq!(root[key], member[key], "{key} of {flags:?}\n{root:#}\n{member:#}");
        }
        let notes = root["container"]["notes"].to_string();
        assert!(!notes.contains("otherwise now"), "{flags:?}: {notes}");
        assert!(!notes.contains("no record") && looked_at(&root, "/config.json"), "{flags:?}: {notes}");
        // And it is what a program in it sees.
        let count = host.docker.exec_count(&[], &name);
        let seen: Vec<&str> = root["visible"].as_array().unwrap().iter().map(|d| d["uuid"].as_str().unwrap()).collect();
        assert_eq!(count.cuda, seen, "{flags:?}");
        host.docker.docker(&["rm", "--force", &name]).ok();
    }
}

fn without_cudaview(store: &Value) {
    let host = Host::new(store, "");
    let devices = host.install.docker_devices(&[1, 3]);
    let mut flags: Vec<&str> = devices.iter().map(String::as_str).collect();
    flags.extend(["-e", "CUDA_VISIBLE_DEVICES=1,3"]);
    host.docker.up("plain", &flags, IMAGE);
    let count = host.docker.exec_count(&[], "plain");
    for asker in [Asker::Root, Asker::Member] {
        let told = host.json(asker, "plain");
        let now = &told["container"]["visible"];
        assert_eq!(told["container"]["made"], "without-cudaview", "{told:#}");
        assert_eq!((hosts(now), hosts(&told["visible"])), (vec![3], vec![1, 3]), "{told:#}");
        assert_eq!(count.cuda, [now[0]["uuid"].as_str().unwrap()], "{told:#}");
        let text = host.text(asker, "plain");
        assert!(text.starts_with("plain sees 1 GPU: cuda:0 is host GPU 3 (made without cudaview)\n"), "{text}");
        assert!(text.contains("With cudaview\n  2 GPUs: cuda:0 is host GPU 1,"), "{text}");
    }
}

/// One that is not running has no bundle; one that was refused never had.
fn not_running(store: &Value) {
    let host = Host::new(store, "");
    host.up("done", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    host.docker.docker(&["stop", "done"]).ok();
    let create = ["run", "--network", "none", "--name", "bad", "--runtime", "cudaview", "--gpus", "1"];
    host.docker.docker(&[&create[..], &["-e", "CUDA_VISIBLE_DEVICES=1", IMAGE, "true"]].concat()).failed_with(125);
    host.docker.docker(&[&create[..4], &["never", "--runtime", "cudaview", "--gpus", "1", IMAGE, "nosuch"]].concat());
    for asker in [Asker::Root, Asker::Member] {
        let text = host.text(asker, "never");
        assert!(text.starts_with("never would see 1 GPU: cuda:0 is host GPU 0 "), "{text}");
        assert!(text.contains("note: its program never ran: "), "{text}");
        let told = host.json(asker, "done");
        assert_eq!(told["container"]["state"], "exited", "{told:#}");
        assert_eq!((hosts(&told["visible"]), origin(&told, CVD).0), (vec![1, 3], "user"), "{told:#}");
        let text = host.text(asker, "bad");
        let first = "bad was refused: CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("  CUDA_VISIBLE_DEVICES    user: \"1\" is not in the image\n"), "{text}");
    }
}

/// Each of them on each store.
macro_rules! on_both_stores {
    ($($scenario:ident: $graphdriver:ident, $containerd:ident;)*) => {$(
        #[test]
        #[ignore = "needs root and engines: sudo tests/run"]
        fn $graphdriver() {
            $scenario(&graphdriver());
        }

        #[test]
        #[ignore = "needs root and engines: sudo tests/run"]
        fn $containerd() {
            $scenario(&containerd_store());
        }
    )*};
}

on_both_stores! {
    origins: explain_docker_origins, explain_docker_origins_on_containerds_store;
    the_same: explain_docker_tells_a_member_what_was_done, explain_docker_tells_a_member_what_was_done_on_containerds_store;
    without_cudaview: explain_docker_without_cudaview, explain_docker_without_cudaview_on_containerds_store;
    not_running: explain_docker_not_running, explain_docker_not_running_on_containerds_store;
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_docker_names_ids_and_nobody() {
    let host = Host::new(&graphdriver(), "");
    host.up("trainer", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    let id = host.docker.inspect("trainer")["Id"].as_str().unwrap().to_owned();
    for name in [id.as_str(), &id[..12], &id[..4]] {
        assert_eq!(host.json(Asker::Member, name)["container"]["id"], id.as_str(), "{name}");
    }
    let told = json(host.command(Asker::Member), "trainer", &["--exec-env", "CUDA_VISIBLE_DEVICES=3"]);
    assert_eq!(hosts(&told["exec"]["visible"]), [3], "{told:#}");

    let ran = host.refuses(Asker::Member, "nobody", 1);
    assert!(ran.stderr.starts_with("cudaview: no container \"nobody\" was found; looked at"), "{ran}");
    assert!(ran.stderr.contains("docker.sock (no such") && ran.stderr.contains("\nhint: "), "{ran}");
    let ran = host.refuses(Asker::Stranger, "trainer", 1);
    assert!(ran.stderr.contains("docker.sock (not permitted)"), "{ran}");
    assert!(ran.stderr.contains("hint: sudo cudaview explain --container trainer"), "{ran}");
    let ran = host.refuses(Asker::Member, "../images/x", 2);
    assert!(ran.stderr.starts_with("cudaview: no container can be called \"../images/x\""), "{ran}");
    // Two that begin alike, as Docker sees it.
    let mut ids = vec![id.clone()];
    let begun = loop {
        host.docker.docker(&["create", "--network", "none", IMAGE, "sleep", "1000"]).ok();
        let all = host.docker.docker(&["ps", "--all", "--quiet", "--no-trunc"]).ok().stdout;
        ids = all.lines().map(str::to_owned).chain(ids).collect();
        ids.sort();
        ids.dedup();
        let twice = ids.windows(2).find(|pair| pair[0][..1] == pair[1][..1]);
        if let Some(pair) = twice {
            break pair[0][..1].to_owned();
        }
    };
    // Only one of them runs, and so has a bundle in containerd's state: that does not make it the one that was meant.
    let mut alike = ids.iter().filter(|id| id.starts_with(&begun));
    host.docker.docker(&["start", alike.next().unwrap()]).ok();
    for asker in [Asker::Root, Asker::Member] {
        let mut command = host.command(asker);
        command.env_remove("CONTAINERD_ADDRESS");
        let ran = ask(command, &begun, &[]).failed_with(2);
        assert_eq!(ran.stdout, "", "{ran}");
        for one in ids.iter().filter(|id| id.starts_with(&begun)) {
            assert!(ran.stderr.contains(&format!("Docker {}", &one[..12])), "{one} in {ran}");
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_docker_one_that_is_gone_is_in_the_audit_trail() {
    let host = Host::new(&graphdriver(), "");
    host.docker.count(
        &["--runtime", "cudaview", "--name", "short", "--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3"],
        IMAGE,
    );
    let ran = ask(host.command(Asker::Root), "short", &[]).ok();
    assert!(
        ran.stdout
            .starts_with("short was set up to see 2 GPUs: cuda:0 was host GPU 1, cuda:1 was host GPU 3 (rewritten)\n")
    );
    for part in
        ["From the audit trail\n", "  CUDA_VISIBLE_DEVICES    \"1,3\" -> \"0,1\"\n", "info: host-index-override\n"]
    {
        assert!(ran.stdout.contains(part), "{part:?} in {ran}");
    }
    assert!(ran.stderr.starts_with("note: ") && ran.stderr.contains("audit trail"), "{ran}");
    // The trail is its operator's business.
    let ran = host.refuses(Asker::Member, "short", 1);
    assert!(ran.stderr.contains("audit.jsonl"), "{ran}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_docker_observed() {
    let host = Host::new(&graphdriver(), "mode = \"observe\"\n");
    host.up("obs", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    for asker in [Asker::Root, Asker::Member] {
        let text = host.text(asker, "obs");
        assert!(text.lines().next().unwrap().ends_with("(observed by cudaview, not changed)"), "{text}");
        assert_eq!(host.json(asker, "obs")["container"]["made"], "observed");
    }
}

/// A configuration that has changed since does not change what was done.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_docker_what_was_done_outlives_the_configuration() {
    let host = Host::new(&graphdriver(), "");
    host.up("trainer", "cvd-0", &["--gpus", "all"]);
    let file = host.install.config();
    let text = fs::read_to_string(&file).unwrap();
    host.install.configure(&format!("{text}\n[reconcile]\nimage_default = \"narrow\"\n"));
    let root = host.json(Asker::Root, "trainer");
    assert_eq!(hosts(&root["visible"]), [0, 1, 2, 3], "{root:#}");
    assert!(root["container"]["notes"].to_string().contains("it would be decided otherwise now"), "{root:#}");
    // Its bundle goes with it; the audit trail stays, and is root's.
    host.docker.docker(&["stop", "trainer"]).ok();
    let text = host.text(Asker::Root, "trainer");
    assert!(text.starts_with("trainer saw 4 GPUs: cuda:0 to cuda:3 are host GPUs 0 to 3 (rewritten)\n"), "{text}");
    assert!(text.contains("note: shown is what was done, by the audit record of "), "{text}");
    let text = host.text(Asker::Member, "trainer");
    assert!(text.starts_with("trainer would see 1 GPU: cuda:0 is host GPU 0 "), "{text}");
    assert!(text.contains("\nnote: no record says what was done: "), "{text}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_docker() {
    const NAMES: [&str; 4] = ["ps-trainer", "ps-hidden", "ps-none", "ps-plain"];
    let host = Host::new(&graphdriver(), "");
    host.up("ps-trainer", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    host.up("ps-hidden", IMAGE, &["--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=-1"]);
    host.up("ps-none", IMAGE, &[]);
    let devices = host.install.docker_devices(&[2]);
    host.docker.up("ps-plain", &devices.iter().map(String::as_str).collect::<Vec<_>>(), IMAGE);
    for asker in [Asker::Root, Asker::Member] {
        let mut gpus = held(host.command(asker), &NAMES);
        for holders in &mut gpus {
            holders.sort();
        }
        let expected = [
            vec![],
            vec![by("ps-hidden", None), by("ps-trainer", 1)],
            vec![by("ps-plain", 0)],
            vec![by("ps-trainer", 0)],
        ];
        assert_eq!(gpus, expected, "{asker:?}");
    }
    let text = run(host.command(Asker::Member).arg("ps").env_remove("COLUMNS")).ok().stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("\nGPU 1 is shared: "), "{text}");
    // What cannot be looked at is not called idle.
    let text = run(host.command(Asker::Stranger).arg("ps").env("COLUMNS", "1000")).ok().stdout;
    assert!(text.contains("\n0    -\n1    -\n2    -\n3    -\n"), "{text}");
    assert!(text.contains("docker.sock (not permitted)"), "{text}");

    host.docker.docker(&["rm", "--force", "ps-trainer", "ps-hidden", "ps-plain"]).ok();
    assert_eq!(held(host.command(Asker::Root), &NAMES), [[], [], [], []] as [[_; 0]; 4]);
}
