//! A containerd of the test's own, with `ctr` as its client; `cri.rs` speaks to it as a kubelet would.

mod setup;

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::bundle::RUNC_LOST_A_RACE;
use super::command::{LIMIT, Ran, run, write_program};
use super::count::{Access, COUNT, Count};
use super::image::archive_of;
use super::{A100X4, Install, cdi, cgroup, find_program, mounts};
use setup::{LOW_LEVEL, WORLD, configuration};
pub(crate) use setup::{plugin, shipped};

/// The flags of `ctr run` that name GPUs 1 and 3.
pub(crate) const GPUS_1_3: [&str; 8] = [
    "--device",
    "/dev/nvidia1",
    "--device",
    "/dev/nvidia3",
    "--device",
    "/dev/nvidiactl",
    "--device",
    "/dev/nvidia-uvm",
];

/// The namespace in which the CRI plugin keeps its containers.
pub(crate) const KUBERNETES: &str = "k8s.io";

/// What a pod's sandbox runs.
const PAUSE: &str = "pause";

/// containerd on the simulated host of an installation, with the shipped runtime handler.
///
/// It runs in a mount namespace of its own: the machine's cgroup2 mount is hidden there (old versions of crun stop at
/// the sight of both), `/dev` has the simulated GPUs' nodes, `/run/cdi` a specification for them, and what containerd
/// and low-level runtimes keep at fixed places under `/run` is the test's own.
pub(crate) struct Containerd {
    /// Always there until it is dropped.
    folder: Option<TempDir>,
    /// Holds the namespace.
    daemon: Child,
    /// cudaview as it is installed there.
    pub(crate) install: Install,
    version: Version,
}

/// The parts of containerd's version by which it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

/// Whether a container goes by cudaview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Plain,
    Cudaview,
}

impl Containerd {
    /// Starts containerd over runc or crun; `config` is the text of cudaview's configuration file.
    #[track_caller]
    pub(crate) fn start(low_level: &str, config: &str) -> Containerd {
        // Sockets below it have room for 107 bytes.
        let folder = tempfile::Builder::new().prefix("c").rand_bytes(4).tempdir().unwrap();
        let path = folder.path();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        for name in ["cdi", "low-level.seen"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        let wrapped = path.join("low-level");
        let runtime = find_program(low_level);
        write_program(&wrapped, LOW_LEVEL.replace("RUNTIME", runtime.to_str().unwrap()).as_bytes());
        let install = Install::new(A100X4, &format!("low_level_runtime = [\"{}\"]\n{config}", wrapped.display()));
        cdi::write_spec(&path.join("cdi"), &install, A100X4);
        let version = Containerd::program_version();
        fs::write(path.join("config.toml"), configuration(path, &install, version)).unwrap();

        let log = File::create(path.join("containerd.log")).unwrap();
        let mut daemon = Command::new("unshare");
        daemon.args(["--mount", "--propagation", "private", "sh", "-c", WORLD, "sh"]);
        daemon.arg(path).arg(install.dev_root().join("dev")).arg(find_program("containerd"));
        let daemon = daemon.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut containerd = Containerd { folder: Some(folder), daemon, install, version };
        containerd.wait_until_it_answers();
        containerd
    }

    /// The version of the installed containerd.
    #[track_caller]
    pub(crate) fn program_version() -> Version {
        // `containerd github.com/containerd/containerd/v2 2.1.9+unknown …`
        let ran = run(Command::new(find_program("containerd")).arg("--version")).ok();
        let mut numbers = ran.stdout.split_whitespace().nth(2).unwrap_or_default().split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Version(major, minor),
            _ => panic!("no version: {ran}"),
        }
    }

    /// The version of this one.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The folder with everything that containerd writes.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("c.sock")
    }

    /// The low-level runtime, which is also the plain one.
    pub(crate) fn low_level(&self) -> PathBuf {
        self.path().join("low-level")
    }

    /// The bundle of a container of `ctr`.
    pub(crate) fn bundle(&self, id: &str) -> PathBuf {
        self.path().join("state/io.containerd.runtime.v2.task/default").join(id)
    }

    /// The configuration from which the low-level runtime was to make a container.
    #[track_caller]
    pub(crate) fn seen(&self, id: &str) -> Value {
        let file = self.path().join("low-level.seen").join(format!("{id}.json"));
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// The configuration that containerd keeps, which is the one that it wrote for the runtime.
    #[track_caller]
    pub(crate) fn kept(&self, namespace: &str, id: &str) -> Value {
        let info = self.ctr(&["--namespace", namespace, "container", "info", id]).ok();
        let info: Value = serde_json::from_str(&info.stdout).unwrap();
        info["Spec"].clone()
    }

    /// A program in containerd's namespace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.daemon.id())).arg(program);
        command
    }

    /// Runs a command of `ctr` to its end.
    #[track_caller]
    pub(crate) fn ctr(&self, args: &[&str]) -> Ran {
        run(self.command(find_program("ctr")).arg("--address").arg(self.socket()).args(args))
    }

    /// Everything that containerd logged.
    pub(crate) fn logs(&self) -> String {
        fs::read_to_string(self.path().join("containerd.log")).unwrap_or_default()
    }

    /// Makes an image of the simulated host's root file system with these entries in its environment.
    #[track_caller]
    pub(crate) fn import(&self, namespace: &str, name: &str, env: &[&str]) {
        let env = [&["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], env].concat();
        self.import_with(namespace, name, &json!({"Env": env}));
    }

    /// The image of a pod's sandbox, and its name.
    #[track_caller]
    pub(crate) fn import_pause(&self) -> &'static str {
        self.import_with(KUBERNETES, PAUSE, &json!({"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000"]}));
        PAUSE
    }

    #[track_caller]
    fn import_with(&self, namespace: &str, name: &str, config: &Value) {
        let folder = tempfile::Builder::new().prefix("image").tempdir_in(self.path()).unwrap();
        let image = archive_of(folder.path(), A100X4, name, config);
        self.ctr(&["--namespace", namespace, "image", "import", image.to_str().unwrap()]).ok();
    }

    /// `ctr run` of a new container with these flags.
    #[track_caller]
    pub(crate) fn run(&self, door: Door, flags: &[&str], image: &str, args: &[&str]) -> Ran {
        let log = self.log();
        let first = ["--rm", "--log-uri", &log.uri];
        let ran = self.retried(|id| self.run_flags(door, &first, flags, id), image, args, None);
        log.output(ran)
    }

    /// The counting program with `ctr run` and these flags, and what it saw.
    #[track_caller]
    pub(crate) fn count(&self, door: Door, flags: &[&str], image: &str) -> Count {
        Count::of(self.run(door, flags, image, &COUNT))
    }

    /// `ctr run --detach` of a container that sleeps until it is killed.
    #[track_caller]
    pub(crate) fn up(&self, door: Door, id: &str, flags: &[&str], image: &str) {
        let sleep = ["sleep", "1000"];
        self.retried(|id| self.run_flags(door, &["--detach"], flags, id), image, &sleep, Some(id)).ok();
        await_program(|args| self.exec(id, args));
    }

    /// `ctr task exec`.
    #[track_caller]
    pub(crate) fn exec(&self, id: &str, args: &[&str]) -> Ran {
        let (exec_id, log) = (unused_name("e"), self.log());
        log.output(self.ctr(&[&["task", "exec", "--exec-id", &exec_id, "--log-uri", &log.uri, id], args].concat()))
    }

    /// The counting program through `ctr task exec`.
    #[track_caller]
    pub(crate) fn exec_count(&self, id: &str) -> Count {
        Count::of(self.exec(id, &COUNT))
    }

    /// Makes a GPU's node in a running container and opens it.
    #[track_caller]
    pub(crate) fn try_mknod(&self, id: &str, minor: u32) -> Access {
        let command = Access::command(minor);
        Access::of(self.exec(id, &command.each_ref().map(String::as_str)))
    }

    /// Ends a container's task and starts another, which is what `ctr` has for a restart.
    #[track_caller]
    pub(crate) fn restart(&self, id: &str) {
        self.ctr(&["task", "kill", "--signal", "KILL", id]).ok();
        let end = Instant::now() + LIMIT;
        while !self.ctr(&["task", "list"]).ok().stdout.lines().any(|line| is_stopped(line, id)) {
            assert!(Instant::now() < end, "{id} does not end\n{}", self.logs());
            sleep(Duration::from_millis(20));
        }
        // It ends with the exit code of what was killed.
        self.ctr(&["task", "delete", id]);
        for _ in 0..5 {
            let ran = self.ctr(&["task", "start", "--detach", id]);
            if !lost_a_race(&ran.stderr) {
                ran.ok();
                return await_program(|args| self.exec(id, args));
            }
        }
        panic!("runc could not copy itself five times in a row");
    }

    /// Containers and tasks that are there, in the namespaces of `ctr` and of Kubernetes.
    #[track_caller]
    pub(crate) fn things(&self) -> Vec<String> {
        let mut all = Vec::new();
        for namespace in ["default", KUBERNETES] {
            for what in ["container", "task"] {
                let listed = self.ctr(&["--namespace", namespace, what, "list", "--quiet"]).ok().stdout;
                all.extend(listed.lines().map(|id| format!("{namespace} {what} {id}")));
            }
        }
        all
    }

    /// Waits until the last of containerd's shims, each of which holds a container or a pod, has ended.
    #[track_caller]
    pub(crate) fn await_no_shim(&self) {
        let end = Instant::now() + LIMIT;
        let socket = self.socket();
        let is_ours = |process: &Path| {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = command.split(|byte| *byte == 0);
            words.next().is_some_and(|program| program.ends_with(b"containerd-shim-runc-v2"))
                && words.any(|word| word == socket.as_os_str().as_bytes())
        };
        while fs::read_dir("/proc").unwrap().any(|entry| is_ours(&entry.unwrap().path())) {
            assert!(Instant::now() < end, "a shim is left\n{}", self.logs());
            sleep(Duration::from_millis(20));
        }
    }

    /// Where a program is to write.
    ///
    /// Not to `ctr`, which loses all output of one short program in hundreds on a busy machine, with plain runc too: it
    /// closes its end when it hears of the program's. The shim writes a file to its end.
    fn log(&self) -> Log {
        let file = self.path().join(unused_name("log-"));
        Log { uri: format!("file://{}", file.display()), file }
    }

    fn run_flags(&self, door: Door, first: &[&str], flags: &[&str], id: &str) -> Vec<String> {
        let binary = match door {
            Door::Plain => self.low_level(),
            Door::Cudaview => self.install.runtime(),
        };
        // Not just the id: whoever ends a container ends all that is in its cgroup.
        let own = self.path().file_name().unwrap().to_str().unwrap();
        let group = format!("{}/{own}-{id}", cgroup());
        let mut all: Vec<&str> = [&["run"], first].concat();
        all.extend(["--cgroup", &group, "--runc-binary", binary.to_str().unwrap()]);
        all.into_iter().chain(flags.iter().copied()).map(str::to_owned).collect()
    }

    /// Runs a new container, again where runc lost its race with itself.
    #[track_caller]
    fn retried(&self, flags: impl Fn(&str) -> Vec<String>, image: &str, args: &[&str], id: Option<&str>) -> Ran {
        let image = reference(image);
        for _ in 0..5 {
            let id = id.map_or_else(|| unused_name("c"), str::to_owned);
            let flags = flags(&id);
            let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
            all.extend([image.as_str(), id.as_str()]);
            all.extend(args);
            let ran = self.ctr(&all);
            if !lost_a_race(&ran.stderr) {
                return ran;
            }
            self.ctr(&["container", "delete", &id]);
        }
        panic!("runc could not copy itself five times in a row");
    }

    #[track_caller]
    fn wait_until_it_answers(&mut self) {
        let end = Instant::now() + LIMIT;
        // Before that there is no namespace to enter.
        while !self.socket().exists() {
            let ended = self.daemon.try_wait().unwrap();
            assert!(ended.is_none(), "containerd ended ({ended:?}):\n{}", self.logs());
            assert!(Instant::now() < end, "containerd makes no socket:\n{}", self.logs());
            sleep(Duration::from_millis(10));
        }
        let ran = self.ctr(&["version"]);
        assert!(ran.code == 0, "{ran}\n--- containerd\n{}", self.logs());
    }

    /// Ends every container; the shims end with their tasks.
    fn remove_all(&self) {
        for namespace in ["default", KUBERNETES] {
            let ctr = |args: &[&str]| {
                let mut command = self.command(find_program("ctr"));
                command.arg("--address").arg(self.socket()).args(["--namespace", namespace]).args(args);
                let output = command.stdin(Stdio::null()).output();
                output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
            };
            for id in ctr(&["task", "list", "--quiet"]).lines() {
                ctr(&["task", "delete", "--force", id]);
            }
        }
    }
}

/// A file that a shim writes.
struct Log {
    uri: String,
    file: PathBuf,
}

impl Log {
    /// What came of a command of `ctr`, with the program's output. There is none where the program did not start.
    fn output(&self, mut ran: Ran) -> Ran {
        ran.stdout.push_str(&fs::read_to_string(&self.file).unwrap_or_default());
        ran
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.remove_all();
        }
        if std::thread::panicking() {
            eprintln!("--- containerd\n{}", self.logs());
        }
        let pid = i32::try_from(self.daemon.id()).ok().and_then(Pid::from_raw);
        let _sent = pid.map(|pid| kill_process(pid, Signal::TERM));
        let end = Instant::now() + Duration::from_secs(10);
        while self.daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > end {
                let _sent = self.daemon.kill();
            }
            sleep(Duration::from_millis(10));
        }
        if let Some(folder) = self.folder.take() {
            mounts::remove(folder);
        }
    }
}

/// Waits until a container's first process has become its program: a moment after it is said to run it can still be the
/// low-level runtime's, which nobody may look into. The argument runs another process in the container.
#[track_caller]
pub(crate) fn await_program(exec: impl Fn(&[&str]) -> Ran) {
    let end = Instant::now() + LIMIT;
    loop {
        let ran = exec(&["cat", "/proc/1/environ"]);
        let (code, said) = (ran.code, format!("{}{}", ran.stdout, ran.stderr));
        if code == 0 || !said.contains("Permission denied") {
            ran.ok();
            return;
        }
        assert!(Instant::now() < end, "{ran}");
    }
}

/// Whether runc lost its race with itself.
pub(crate) fn lost_a_race(text: &str) -> bool {
    text.contains(RUNC_LOST_A_RACE)
}

/// The name under which an image that was imported as `box` is known.
pub(crate) fn reference(image: &str) -> String {
    format!("docker.io/library/{image}:latest")
}

/// A line of `ctr task list`: `TASK PID STATUS`.
fn is_stopped(line: &str, id: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some(id) && words.nth(1) == Some("STOPPED")
}

/// A name that was not used before.
pub(crate) fn unused_name(prefix: &str) -> String {
    let number = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0);
    format!("{prefix}{:08x}", number & 0xffff_ffff)
}
