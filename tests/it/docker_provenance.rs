//! Who set a variable, asked of a real Docker daemon's files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cudaview::provenance::{DockerDeviceRequest, Engine, EngineFacts, Provenance, Requests, config_value, of_variable};
use cudaview::sys::provenance::{docker_daemon, facts};
use serde_json::{Value, json};
use tempfile::TempDir;

const CVD: &str = "CUDA_VISIBLE_DEVICES";
const NVD: &str = "NVIDIA_VISIBLE_DEVICES";
const PATH: &str = "PATH=/bin";

/// A private daemon: its own data, socket and configuration. Its runtime `saver` keeps each container's spec.
struct Docker {
    folder: TempDir,
    daemon: Child,
}

/// A container as the runtime got it.
struct Created {
    id: String,
    bundle: PathBuf,
    spec: Value,
}

impl Docker {
    fn start(settings: &Value) -> Self {
        let folder = tempfile::Builder::new().prefix("cv").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["bin", "specs", "rootfs/bin", "rootfs/etc", "home"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::copy("/bin/busybox", at("rootfs/bin/busybox")).expect("busybox-static is installed");
        std::os::unix::fs::symlink("busybox", at("rootfs/bin/sh")).unwrap();
        let specs = at("specs");
        let specs = specs.to_str().unwrap();
        write_program(
            &at("bin/saver"),
            &format!(
                "previous=\nfor word; do\n  if [ \"$previous\" = --bundle ]; then\n    id=${{word##*/}}\n    \
                 cp \"$word/config.json\" \"{specs}/$id.json\"\n    echo \"$word\" > \"{specs}/$id.bundle\"\n  fi\n  \
                 previous=$word\ndone\nexec runc \"$@\"\n"
            ),
        );
        // What dockerd needs on its PATH to accept `--gpus`.
        write_program(&at("bin/nvidia-container-runtime-hook"), "cat > /dev/null\n");
        let mut configuration = json!({
            "data-root": at("data"), "exec-root": at("exec"), "pidfile": at("pid"),
            "hosts": [format!("unix://{}", at("sock").display())],
            "bridge": "none", "iptables": false, "runtimes": {"saver": {"path": at("bin/saver")}},
        });
        configuration.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        fs::write(at("daemon.json"), configuration.to_string()).unwrap();
        let log = File::create(at("log")).unwrap();
        let daemon = Command::new("dockerd")
            .args(["--config-file".as_ref(), at("daemon.json").as_os_str()])
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", at("bin").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("docker.io is installed");
        let docker = Self { folder, daemon };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !docker.command(&["version"]).output().unwrap().status.success() {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(docker.at("log")).unwrap());
            sleep(Duration::from_millis(100));
        }
        docker
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("-H").arg(format!("unix://{}", self.at("sock").display())).args(arguments);
        command.env("DOCKER_CONFIG", self.at("home")).env("DOCKER_BUILDKIT", "0").env_remove(CVD).stdin(Stdio::null());
        command
    }

    fn docker(&self, arguments: &[&str]) -> String {
        run(&mut self.command(arguments))
    }

    /// An image with this configuration, byte for byte.
    fn load(&self, name: &str, config: &str) {
        let image = self.at(&format!("image-{name}"));
        fs::create_dir(&image).unwrap();
        run(Command::new("tar").arg("-cf").arg(image.join("layer.tar")).arg("-C").arg(self.at("rootfs")).arg("."));
        let digest = run(Command::new("sha256sum").arg(image.join("layer.tar")));
        let digest = digest.split(' ').next().unwrap();
        let rest = format!(r#""rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}},"architecture":"amd64""#);
        fs::write(image.join("config.json"), format!(r#"{{"os":"linux",{rest},"config":{config}}}"#)).unwrap();
        let manifest = json!([{"Config": "config.json", "RepoTags": [format!("{name}:1")], "Layers": ["layer.tar"]}]);
        fs::write(image.join("manifest.json"), manifest.to_string()).unwrap();
        let archive = self.at(&format!("{name}.tar"));
        let mut pack = Command::new("tar");
        pack.arg("-cf").arg(&archive).arg("-C").arg(&image).args(["manifest.json", "config.json", "layer.tar"]);
        run(&mut pack);
        self.docker(&["load", "-i", archive.to_str().unwrap()]);
    }

    /// Runs a container of the image and returns what the runtime got.
    fn run(&self, arguments: &[&str], image: &str) -> Created {
        let id_file = self.at("cid");
        let _ = fs::remove_file(&id_file);
        let head = ["run", "--runtime", "saver", "--cidfile", id_file.to_str().unwrap()];
        let network: &[&str] = if arguments.contains(&"--network") { &[] } else { &["--network", "none"] };
        let output =
            self.command(&[&head, network, arguments, &[image, "/bin/busybox", "true"]].concat()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        // A test machine may lack the capabilities for `--privileged`; the runtime got its spec all the same.
        assert!(output.status.success() || error.contains("unable to apply caps"), "{arguments:?} {image}: {error}");
        self.created(&fs::read_to_string(&id_file).unwrap())
    }

    fn created(&self, id: &str) -> Created {
        let read = |suffix: &str| fs::read_to_string(self.at("specs").join(format!("{id}.{suffix}"))).unwrap();
        let (spec, bundle) = (serde_json::from_str(&read("json")).unwrap(), PathBuf::from(read("bundle").trim()));
        Created { id: id.to_owned(), bundle, spec }
    }

    /// Ids of all containers that the runtime got so far.
    fn saved_specs(&self) -> Vec<String> {
        let names =
            fs::read_dir(self.at("specs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let ids = self.command(&["ps", "-q"]).output().map(|output| output.stdout).unwrap_or_default();
        for id in String::from_utf8_lossy(&ids).lines() {
            let _ = self.command(&["kill", id]).output();
        }
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
        for line in fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines().rev() {
            let target = Path::new(line.split(' ').nth(1).unwrap_or_default());
            if target.starts_with(self.folder.path()) {
                let _ = Command::new("umount").arg(target).status();
            }
        }
        let _ = Command::new("rm").args(["-rf", "--one-file-system"]).arg(self.folder.path()).status();
    }
}

impl Created {
    fn facts(&self) -> EngineFacts {
        facts(&self.bundle, &self.spec, &self.id, None)
    }

    /// The last entry of the spec for this key.
    fn value(&self, key: &str) -> Option<&str> {
        let env = self.spec["process"]["env"].as_array().unwrap();
        env.iter().rev().find_map(|entry| entry.as_str()?.strip_prefix(key)?.strip_prefix('='))
    }

    fn provenance(&self, key: &str) -> Provenance {
        of_variable(&self.facts(), key, self.value(key))
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn env_config(entries: &[&str]) -> String {
    json!({"Env": entries}).to_string()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn who_set_a_variable() {
    let docker = Docker::start(&json!({}));
    let images: [(&str, &[&str]); 7] = [
        ("plain", &[PATH]),
        ("bare", &[]),
        ("default", &[PATH, "CUDA_VISIBLE_DEVICES=0", "LAST=1"]),
        ("only", &["CUDA_VISIBLE_DEVICES=0"]),
        ("empty", &[PATH, "CUDA_VISIBLE_DEVICES="]),
        ("repeats", &["CUDA_VISIBLE_DEVICES=all", PATH, "CUDA_VISIBLE_DEVICES=all"]),
        ("differs", &["CUDA_VISIBLE_DEVICES=0", PATH, "CUDA_VISIBLE_DEVICES=1"]),
    ];
    for (name, entries) in images {
        docker.load(name, &env_config(entries));
    }
    let rows: [(&str, &[&str], Option<&str>, Provenance); 21] = [
        ("plain", &[], None, Provenance::Unset),
        ("bare", &[], None, Provenance::Unset),
        ("plain", &["-e", "CUDA_VISIBLE_DEVICES=1"], Some("1"), Provenance::User),
        ("plain", &["-e", "CUDA_VISIBLE_DEVICES="], Some(""), Provenance::User),
        ("bare", &["-e", "CUDA_VISIBLE_DEVICES=1"], Some("1"), Provenance::User),
        ("default", &[], Some("0"), Provenance::Image),
        ("default", &["-e", "A=1", "-e", "B=2"], Some("0"), Provenance::Image),
        ("default", &["-e", "PATH=/sbin"], Some("0"), Provenance::Image),
        ("default", &["-e", "CUDA_VISIBLE_DEVICES=1"], Some("1"), Provenance::User),
        ("default", &["-e", "CUDA_VISIBLE_DEVICES=0"], Some("0"), Provenance::User),
        ("default", &["-e", "CUDA_VISIBLE_DEVICES=0", "-e", "A=1", "-e", "B=2"], Some("0"), Provenance::User),
        ("default", &["-e", "CUDA_VISIBLE_DEVICES"], None, Provenance::Unset),
        ("only", &[], Some("0"), Provenance::Image),
        ("only", &["-e", "A=1"], Some("0"), Provenance::Image),
        ("only", &["-e", "CUDA_VISIBLE_DEVICES=1"], Some("1"), Provenance::User),
        ("only", &["-e", "CUDA_VISIBLE_DEVICES=0"], Some("0"), Provenance::Image),
        ("empty", &[], Some(""), Provenance::Image),
        ("repeats", &[], Some("all"), Provenance::Image),
        ("repeats", &["-e", "X=1"], Some("all"), Provenance::Image),
        ("differs", &[], Some("1"), Provenance::Image),
        ("differs", &["-e", "X=1"], Some("0"), Provenance::Image),
    ];
    let mut report = String::new();
    for (image, arguments, value, expect) in rows {
        let container = docker.run(arguments, &format!("{image}:1"));
        let (found, facts) = (container.provenance(CVD), container.facts());
        writeln!(report, "{image:8} {arguments:?} {:?}: {found:?}  {:?}", container.value(CVD), facts.config_env)
            .unwrap();
        assert_eq!((container.value(CVD), found), (value, expect), "{report}{facts:?}");
        assert_eq!((facts.engine, facts.image.as_deref()), (Engine::Docker, Some(format!("{image}:1").as_str())));
        assert_eq!(facts.notes, [""; 0]);
    }
    println!("{report}");
}

/// Docker takes `env` for `Env`; a reader that does not would see entries that no image has.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_whose_configuration_has_two_readings_does_not_pass_for_a_user() {
    let docker = Docker::start(&json!({}));
    docker.load("twice", r#"{"Env":["PATH=/bin"],"env":["NVIDIA_VISIBLE_DEVICES=all","PATH=/bin"]}"#);
    docker.load("lower", r#"{"env":["NVIDIA_VISIBLE_DEVICES=all","PATH=/bin"]}"#);
    docker.load("other", r#"{"Env":["PATH=/bin"]},"Config":{"Env":["NVIDIA_VISIBLE_DEVICES=all","PATH=/bin"]}"#);
    for image in ["twice:1", "lower:1", "other:1"] {
        let container = docker.run(&[], image);
        assert_eq!(container.value(NVD), Some("all"), "{image}: Docker reads it so");
        assert_eq!(container.provenance(NVD), Provenance::Unknown, "{image}");
        let facts = container.facts();
        let naive = EngineFacts { image_env: Some(vec![PATH.to_owned()]), ..facts.clone() };
        assert_eq!(of_variable(&naive, NVD, Some("all")), Provenance::User, "what the first list alone would show");
        let notes = facts.notes;
        assert!(notes.iter().any(|note| note.contains("another spelling")), "{notes:?}");
    }
}

/// An image asks the builder for a variable by `ONBUILD ARG`; nobody typed it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_does_not_pass_for_a_user_in_a_build_step() {
    let docker = Docker::start(&json!({"default-runtime": "saver"}));
    docker.load("base", r#"{"Env":["NVIDIA_VISIBLE_DEVICES=all"],"OnBuild":["ARG CUDA_VISIBLE_DEVICES=0"]}"#);
    docker.load("bare", r#"{"OnBuild":["ARG NVIDIA_VISIBLE_DEVICES=all"]}"#);
    for (image, key) in [("base:1", CVD), ("base:1", NVD), ("bare:1", NVD)] {
        let before = docker.saved_specs();
        let context = docker.at(&format!("context-{}-{key}", image.replace(':', "-")));
        fs::create_dir(&context).unwrap();
        // The container is gone once the step is done, so it is looked at while the step waits.
        fs::write(context.join("Dockerfile"), format!("FROM {image}\nRUN /bin/busybox sleep 600 # {key}\n")).unwrap();
        let mut build = docker.command(&["build", "--network", "none", context.to_str().unwrap()]);
        let mut build = build.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let id = loop {
            let ids = docker.docker(&["ps", "-q", "--no-trunc"]);
            if let Some(id) = ids.lines().find(|id| !before.iter().any(|old| old == id)) {
                break id.to_owned();
            }
            assert!(Instant::now() < deadline, "the build step did not start");
            sleep(Duration::from_millis(100));
        };
        let container = docker.created(&id);
        let facts = container.facts();
        println!("{image} {key}={:?} {:?} {:?}", container.value(key), facts.image, facts.config_env);
        assert!(container.value(key).is_some(), "the step has the variable");
        assert_eq!(container.provenance(key), Provenance::Unknown, "{facts:?}");
        docker.docker(&["kill", &id]);
        build.wait().unwrap();
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn what_was_asked_for_and_where_the_files_are() {
    let docker = Docker::start(&json!({}));
    docker.load("cuda", &env_config(&[PATH, "NVIDIA_VISIBLE_DEVICES=all"]));
    let requests = |arguments: &[&str]| {
        let container = docker.run(arguments, "cuda:1");
        let Requests::Known(requests) = container.facts().device_requests else { panic!("{:?}", container.facts()) };
        (container, requests)
    };
    let request = |count, ids: &[&str]| DockerDeviceRequest {
        driver: String::new(),
        count,
        device_ids: ids.iter().map(|&id| id.to_owned()).collect(),
        capabilities: vec![vec!["gpu".to_owned()]],
    };

    let (container, none) = requests(&["--name", "none"]);
    assert_eq!(none, []);
    let facts = container.facts();
    assert_eq!((facts.container_name.as_deref(), facts.privileged), (Some("none"), Some(false)));
    assert_eq!(facts.data_root.as_deref(), Some(docker.at("data").as_path()));

    let (container, two) = requests(&["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3"]);
    assert_eq!(two, [request(0, &["1", "3"])]);
    assert_eq!(container.provenance(CVD), Provenance::User);
    // dockerd appends its own entry; the stored one is the image's.
    assert_eq!((container.value(NVD), container.provenance(NVD)), (Some("1,3"), Provenance::Unknown));
    let facts = container.facts();
    assert_eq!(config_value(&facts, NVD), Some("all"));
    assert_eq!(of_variable(&facts, NVD, config_value(&facts, NVD)), Provenance::Image);

    assert_eq!(requests(&["--gpus", "all"]).1, [request(-1, &[])]);
    assert_eq!(requests(&["--gpus", "2"]).1, [request(2, &[])]);
    assert_eq!(requests(&["--privileged"]).0.facts().privileged, Some(true));

    // Which files are mounted, and that the data root is found by each sign alone.
    let id = docker.docker(&[
        "run",
        "-d",
        "--network",
        "none",
        "--runtime",
        "saver",
        "cuda:1",
        "/bin/busybox",
        "sleep",
        "600",
    ]);
    let mut live = docker.created(&id);
    let mounted: Vec<&str> =
        live.spec["mounts"].as_array().unwrap().iter().filter_map(|m| m["destination"].as_str()).collect();
    println!("--network none mounts {mounted:?}");
    assert!(["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"].iter().all(|file| mounted.contains(file)));
    let whole = live.facts();
    let other = docker.run(&["--network", &format!("container:{id}")], "cuda:1");
    assert_eq!(other.facts().data_root, whole.data_root);
    let root = live.spec["root"].take();
    assert_eq!(live.facts(), whole, "by the mounts");
    live.spec["mounts"].take();
    assert_eq!(live.facts(), whole, "by the link in the bundle");
    live.spec["root"] = root;
    live.bundle = PathBuf::from("/nowhere");
    assert_eq!(live.facts(), whole, "by the root file system");
    let runs = 200;
    let start = Instant::now();
    for _ in 0..runs {
        assert_eq!(live.facts().engine, Engine::Docker);
    }
    println!("facts: {:?} each", start.elapsed() / runs);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn the_default_runtime_is_the_daemons() {
    for (default, expect) in [("runc", false), ("saver", true)] {
        let docker = Docker::start(&json!({"default-runtime": default}));
        docker.load("plain", &env_config(&[PATH]));
        let facts = docker.run(&[], "plain:1").facts();
        assert_eq!((facts.runtime.as_deref(), facts.runtime_is_default), (Some("saver"), None));
        let start = Instant::now();
        assert_eq!(docker_daemon::runtime_is_default(&facts), Some(expect));
        println!("default {default}: {:?}", start.elapsed());
    }
}
