//! A Docker daemon of the test's own.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::bundle::RUNC_LOST_A_RACE;
use super::command::{LIMIT, Ran, run, run_limited, write_program};
use super::count::{Access, COUNT, Count};
use super::{cgroup, find_program, mounts};

/// The image that most tests run: the root file system of the simulated host, without any `ENV`.
pub(crate) const IMAGE: &str = "box";

/// A running daemon. Its containers and everything else of it goes away with it.
pub(crate) struct Dockerd {
    /// Always there until it is dropped.
    folder: Option<TempDir>,
    daemon: Option<Child>,
    client: PathBuf,
    program: PathBuf,
    version: u32,
    /// What is run in a mount namespace of the daemon's own before it starts; its `$0` is the daemon's folder.
    world: Option<String>,
}

impl Dockerd {
    /// Starts a daemon that knows these runtimes beside its own `runc`.
    ///
    /// `--gpus` works: the daemon's `PATH` has a stand-in for NVIDIA's hook, see [`Dockerd::hook_record`].
    #[track_caller]
    pub(crate) fn start(runtimes: &[(&str, &Path)], default_runtime: Option<&str>) -> Dockerd {
        Dockerd::start_with(runtimes, default_runtime, &json!({"storage-driver": "overlay2"}))
    }

    /// The same with further keys of `daemon.json`, the choice of the image store among them.
    #[track_caller]
    pub(crate) fn start_with(runtimes: &[(&str, &Path)], default_runtime: Option<&str>, settings: &Value) -> Dockerd {
        Dockerd::start_in(None, runtimes, default_runtime, settings)
    }

    /// The same for a daemon in a mount namespace of its own, which a shell script sets up.
    #[track_caller]
    pub(crate) fn start_in(
        world: Option<&str>,
        runtimes: &[(&str, &Path)],
        default_runtime: Option<&str>,
        settings: &Value,
    ) -> Dockerd {
        let mut docker = Dockerd::prepare(world, runtimes, default_runtime, settings);
        docker.write_hook_stand_in();
        docker.boot();
        docker
    }

    /// A daemon in a mount namespace of its own, and without the stand-in: it takes `--gpus` for what it finds there.
    #[track_caller]
    pub(crate) fn start_without_hook(world: &str, runtimes: &[(&str, &Path)]) -> Dockerd {
        let mut docker = Dockerd::prepare(Some(world), runtimes, None, &json!({"storage-driver": "overlay2"}));
        docker.boot();
        docker
    }

    #[track_caller]
    fn prepare(
        world: Option<&str>,
        runtimes: &[(&str, &Path)],
        default_runtime: Option<&str>,
        settings: &Value,
    ) -> Dockerd {
        let folder = tempfile::Builder::new().prefix("d").rand_bytes(4).tempdir().unwrap();
        // Where user namespaces are used, others than root have to come by.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        let docker = Dockerd {
            folder: Some(folder),
            daemon: None,
            client: find_program("docker"),
            program: find_program("dockerd"),
            version: Dockerd::program_version(),
            world: world.map(str::to_owned),
        };
        docker.write_config(runtimes, default_runtime, settings);
        docker
    }

    /// The major version of the installed daemon: 20, 26 or 28, as the tests are run on three sets of engines.
    #[track_caller]
    pub(crate) fn program_version() -> u32 {
        let ran = run(Command::new(find_program("dockerd")).arg("--version")).ok();
        // `Docker version 28.5.2+dfsg3, build 89c5e8f`
        let number = ran.stdout.split_whitespace().nth(2).and_then(|version| version.split('.').next());
        number.and_then(|major| major.parse().ok()).unwrap_or_else(|| panic!("no version: {ran}"))
    }

    /// The daemon's major version.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Fails the test unless a command of this daemon's shows a low-level runtime's message as Docker would, to its end.
    ///
    /// `docker exec` writes it to standard output. After it comes an error code of containerd's, which Docker 28 leaves
    /// out where it says nothing, and after that, under `docker run`, a full stop, which 28 leaves out too.
    #[track_caller]
    pub(crate) fn shows(&self, ran: &Ran, message: &str) {
        let text = format!("{}{}", ran.stdout, ran.stderr).replace('\r', "");
        let ends: &[&str] = if self.version < 28 { &[": unknown\n", ": unknown.\n"] } else { &["\n"] };
        assert!(ends.iter().any(|end| text.contains(&format!("{message}{end}"))), "{ran}\n--- expected\n{message}");
    }

    /// The daemon's folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// Where the daemon keeps images and containers.
    pub(crate) fn data_root(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Docker's command line, connected to this daemon; the command is to follow.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.client);
        command.env("DOCKER_CONFIG", self.path().join("client")).env("DOCKER_BUILDKIT", "0");
        command.arg("--host").arg(self.address());
        command
    }

    /// Runs a docker command to its end.
    #[track_caller]
    pub(crate) fn docker(&self, args: &[&str]) -> Ran {
        self.docker_limited(args, LIMIT)
    }

    /// Runs a docker command to its end, or to this limit.
    #[track_caller]
    pub(crate) fn docker_limited(&self, args: &[&str], limit: Duration) -> Ran {
        run_limited(self.command().args(args), Stdio::null(), limit)
    }

    /// Runs the counting program with `docker run --rm` and these flags, and says what it saw.
    #[track_caller]
    pub(crate) fn count(&self, flags: &[&str], image: &str) -> Count {
        Count::of(self.run(flags, image, &COUNT))
    }

    /// The counting program through `docker exec` with these flags.
    #[track_caller]
    pub(crate) fn exec_count(&self, flags: &[&str], container: &str) -> Count {
        Count::of(self.exec(flags, container, &COUNT))
    }

    /// What the counting program, as the container's health check, saw the last time it ran.
    #[track_caller]
    pub(crate) fn health_count(&self, container: &str) -> Count {
        let end = Instant::now() + LIMIT;
        loop {
            let state = self.inspect(container)["State"]["Health"].clone();
            if let Some(last) = state["Log"].as_array().and_then(|log| log.last()) {
                let code = last["ExitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-1);
                return Count::of(Ran::new("health check", code, last["Output"].as_str().unwrap_or_default()));
            }
            assert!(Instant::now() < end, "no health check has run: {state}\n{}", self.logs());
            sleep(Duration::from_millis(50));
        }
    }

    /// `docker run --rm --network none`.
    ///
    /// Docker 26.1 and 28.5 lose all output of a short container now and then, and say that all is well; only the daemon's
    /// log has `copy stream failed`. On a busy machine 28.5 lost that of 46 in 1,600 with plain runc, and of 45 in 1,600
    /// with cudaview. What wrote nothing is run again there, unless it is `true`.
    #[track_caller]
    pub(crate) fn run(&self, flags: &[&str], image: &str, args: &[&str]) -> Ran {
        let run = || {
            self.retried(|command| {
                command.args(["run", "--rm", "--network", "none"]).args(flags).arg(image).args(args);
            })
        };
        let mut ran = run();
        let lost = |ran: &Ran| self.version >= 26 && ran.code == 0 && ran.stdout.is_empty() && args != ["true"];
        for _ in 0..3 {
            if lost(&ran) {
                ran = run();
            }
        }
        ran
    }

    /// `docker run --detach` of a container that sleeps until it is killed; it is not removed when it ends.
    #[track_caller]
    pub(crate) fn up(&self, name: &str, flags: &[&str], image: &str) {
        self.retried(|command| {
            command.args(["run", "--detach", "--network", "none", "--stop-timeout", "0", "--name", name]);
            command.args(flags).arg(image).args(["sleep", "1000"]);
        })
        .ok();
    }

    /// `docker exec`.
    #[track_caller]
    pub(crate) fn exec(&self, flags: &[&str], container: &str, args: &[&str]) -> Ran {
        self.retried(|command| {
            command.arg("exec").args(flags).arg(container).args(args);
        })
    }

    /// Makes a GPU's node in a running container and opens it.
    #[track_caller]
    pub(crate) fn try_mknod(&self, container: &str, minor: u32) -> Access {
        let command = Access::command(minor);
        Access::of(self.exec(&[], container, &command.each_ref().map(String::as_str)))
    }

    /// `docker inspect` of one thing.
    #[track_caller]
    pub(crate) fn inspect(&self, name: &str) -> Value {
        let ran = self.docker(&["inspect", name]).ok();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        value[0].clone()
    }

    /// What the stand-in for NVIDIA's hook saw: for each container the entries of `NVIDIA_VISIBLE_DEVICES` in the
    /// `config.json` from which it was made, as `{"id", "args", "entries"}`.
    pub(crate) fn hook_record(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.hook_record_file()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Stops the daemon and its containers, and starts it again on the same data.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.boot();
    }

    /// Stops the daemon alone, does something while it is away, and starts it again. Its containers live on where
    /// `live-restore` is set.
    #[track_caller]
    pub(crate) fn restart_alone(&mut self, meanwhile: impl FnOnce()) {
        self.end();
        meanwhile();
        self.boot();
    }

    /// The running daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// Runs a program in the daemon's mount namespace.
    #[track_caller]
    pub(crate) fn beside(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Ran {
        run(Command::new("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.pid()))
            .arg(program.as_ref())
            .args(args))
    }

    /// Everything that the daemon logged.
    pub(crate) fn logs(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Runs a docker command, again where runc lost its race with itself.
    #[track_caller]
    fn retried(&self, arguments: impl Fn(&mut Command)) -> Ran {
        for _ in 0..5 {
            let mut command = self.command();
            arguments(&mut command);
            let ran = run(&mut command);
            if !ran.stderr.contains(RUNC_LOST_A_RACE) {
                return ran;
            }
            // What `docker run` without --rm made and could not start would be in the way of its name.
            let created = self.docker(&["ps", "--all", "--quiet", "--filter", "status=created"]).ok().stdout;
            for container in created.split_whitespace() {
                self.docker(&["rm", container]).ok();
            }
        }
        panic!("the runtime lost a race with itself five times in a row");
    }

    /// Where it listens, as `DOCKER_HOST` has it.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.path().join("docker.sock")
    }

    fn log_file(&self) -> PathBuf {
        self.path().join("dockerd.log")
    }

    /// Its `daemon.json`.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.path().join("daemon.json")
    }

    fn hook_record_file(&self) -> PathBuf {
        self.path().join("hook.jsonl")
    }

    fn write_config(&self, runtimes: &[(&str, &Path)], default_runtime: Option<&str>, settings: &Value) {
        let runtimes: serde_json::Map<String, Value> =
            runtimes.iter().map(|(name, path)| ((*name).to_owned(), json!({"path": path}))).collect();
        let mut config = json!({
            "runtimes": runtimes,
            "default-runtime": default_runtime.unwrap_or("runc"),
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "cgroup-parent": cgroup(),
        });
        config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        fs::write(self.config_file(), config.to_string()).unwrap();
    }

    /// A program called like NVIDIA's hook on the daemon's `PATH` is what makes the daemon accept `--gpus`.
    fn write_hook_stand_in(&self) {
        let folder = self.path().join("path");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("nvidia-container-runtime-hook");
        let script = format!(
            r#"#!/bin/sh
# Writes down what NVIDIA's hook would act on, and changes nothing.
state=$({cat}) || exit 1
bundle=$(printf %s "$state" | {jq} -r .bundle) || exit 1
{jq} -c --argjson state "$state" --arg arguments "$*" \
    '{{id: $state.id, args: $arguments,
      entries: [.process.env[] | select(startswith("NVIDIA_VISIBLE_DEVICES="))]}}' \
    "$bundle/config.json" >>'{record}'
"#,
            cat = find_program("cat").display(),
            jq = find_program("jq").display(),
            record = self.hook_record_file().display(),
        );
        write_program(&file, script.as_bytes());
    }

    #[track_caller]
    fn boot(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let mut command = match &self.world {
            None => Command::new(&self.program),
            Some(script) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "slave", "sh", "-euc"]);
                command.arg(format!("{script}\nexec \"$@\"")).arg(self.path()).arg(&self.program);
                command
            }
        };
        // Where shims put their files, so that what they leave there is seen to be this daemon's.
        command.env("TMPDIR", self.path().join("tmp"));
        command.env("PATH", format!("{}:{system}", self.path().join("path").display()));
        command.arg("--config-file").arg(self.config_file()).arg("--host").arg(self.address());
        command.arg("--data-root").arg(self.data_root()).arg("--exec-root").arg(self.path().join("exec"));
        command.arg("--pidfile").arg(self.path().join("docker.pid"));
        command.args(["--bridge=none", "--iptables=false", "--ip-forward=false", "--userland-proxy=false"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        self.wait_until_it_answers();
    }

    #[track_caller]
    fn wait_until_it_answers(&mut self) {
        let end = Instant::now() + LIMIT;
        // The socket takes connections before the daemon answers, so a request waits for as long as is needed.
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "dockerd ended ({ended:?}):\n{}", self.logs());
            assert!(Instant::now() < end, "dockerd does not answer:\n{}", self.logs());
            sleep(Duration::from_millis(10));
        }
        let ran = self.docker(&["version"]);
        assert!(ran.code == 0, "{ran}\n--- dockerd\n{}", self.logs());
    }

    /// Ends the containers, which may take ten seconds to end by themselves, and then the daemon.
    fn stop(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        if let Ok(listed) = self.command().args(["ps", "--quiet"]).stdin(Stdio::null()).output() {
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let containers: Vec<&str> = listed.split_whitespace().collect();
            if !containers.is_empty() {
                let _output = self.command().arg("kill").args(containers).stdin(Stdio::null()).output();
            }
        }
        self.end();
    }

    /// Ends the daemon by its process id.
    fn end(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let Some(pid) = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw) else { return };
        let _sent = kill_process(pid, Signal::TERM);
        let end = Instant::now() + Duration::from_secs(15);
        while daemon.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > end {
                eprintln!("dockerd does not end; killing it");
                let _sent = daemon.kill();
                let _status = daemon.wait();
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- dockerd\n{}", self.logs());
        }
        if let Some(folder) = self.folder.take() {
            mounts::remove(folder);
        }
    }
}
