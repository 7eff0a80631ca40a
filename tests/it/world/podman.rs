//! podman with storage, configuration, `/dev` and CDI specifications of the test's own.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::artifacts::rootfs_tar;
use super::bundle::RUNC_LOST_A_RACE;
use super::command::{Ran, run};
use super::count::{Access, COUNT, Count};
use super::image::archive;
use super::{Install, cdi, cgroup, find_program, mounts, repository};

/// The image that most tests run, without any `ENV`.
pub(crate) const IMAGE: &str = "box";

/// The uid of the ordinary user, who exists in the test's own `/etc/passwd` only.
const USER: u32 = 61234;

/// The first of the ids that are mapped for that user.
const SUBORDINATE: u32 = 100 << 16;

/// What a test wants of its podman.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    /// The default runtime: `cudaview` is the one that the shipped containers.conf describes.
    pub(crate) runtime: &'static str,
    /// With the shipped precreate hook.
    pub(crate) precreate: bool,
    /// With the shipped createRuntime hook, and these arguments more.
    pub(crate) create_runtime: Option<&'static [&'static str]>,
    /// As an ordinary user.
    pub(crate) rootless: bool,
}

impl Setup {
    /// podman and runc without cudaview.
    pub(crate) const PLAIN: Setup = Setup { runtime: "runc", precreate: false, create_runtime: None, rootless: false };
}

/// A mount namespace for podman and its containers.
///
/// In it the machine's cgroup2 mount is hidden (old versions of crun stop at the sight of both), `/dev` has the
/// simulated GPUs' nodes, and `/run/cdi` a specification for them. `/tmp` and `/var/tmp` are its own.
pub(crate) struct Podman {
    /// Always there until it is dropped.
    folder: Option<TempDir>,
    /// Holds the namespace.
    holder: Child,
    setup: Setup,
    program: PathBuf,
    /// The inventory fixture of the host.
    inventory: String,
}

/// Runs in the new namespace. Arguments: the test's folder, a folder with GPU nodes.
const WORLD: &str = r#"
set -eu
dev=$1/dev
mkdir "$dev"
mount -t tmpfs -o mode=755,nosuid dev "$dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd /dev/stdin /dev/stdout /dev/stderr "$dev"
[ ! -e /dev/fuse ] || cp -a /dev/fuse "$dev"
cp -a "$2"/. "$dev"
ln -s pts/ptmx "$dev/ptmx"
mkdir "$dev/pts" "$dev/shm" "$dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev shm "$dev/shm"
mount -t mqueue mqueue "$dev/mqueue"
mount --move "$dev" /dev
for folder in /tmp /var/tmp; do mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$folder"; done
mkdir -p /run/cdi
mount --bind "$1/cdi" /run/cdi
for file in passwd group subuid subgid; do mount --bind "$1/etc/$file" "/etc/$file"; done
[ ! -d /sys/fs/cgroup/unified ] || mount -t tmpfs none /sys/fs/cgroup/unified
echo ready
exec sleep infinity
"#;

impl Podman {
    /// podman on the simulated host of an installation.
    #[track_caller]
    pub(crate) fn start(install: &Install, setup: Setup) -> Podman {
        Podman::start_on(install, setup, super::A100X4)
    }

    /// The same on a host with the GPUs of another inventory fixture, which the installation was made for.
    #[track_caller]
    pub(crate) fn start_on(install: &Install, setup: Setup, inventory: &str) -> Podman {
        let folder = tempfile::Builder::new().prefix("p").rand_bytes(4).tempdir().unwrap();
        let path = folder.path();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        for name in ["cdi", "etc", "hooks", "hooks.d", "none", "home", "run", "storage", "libpod"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        if setup.rootless {
            for name in ["home", "run", "storage", "libpod"] {
                chown(path.join(name), Some(USER), Some(USER)).unwrap();
            }
        }
        write_configuration(path, install, setup);
        cdi::write_spec(&path.join("cdi"), install, inventory);
        write_users(&path.join("etc"));

        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sh", "-c", WORLD, "sh"]);
        holder.arg(path).arg(install.dev_root().join("dev"));
        let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        holder.stdout.take().unwrap().read_exact(&mut ready).expect("the namespace is set up");

        let program = find_program("podman");
        let podman = Podman { folder: Some(folder), holder, setup, program, inventory: inventory.to_owned() };
        podman.import(IMAGE, &[]);
        podman
    }

    /// The folder with everything that podman writes.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// The major and the minor number of podman's version.
    #[track_caller]
    pub(crate) fn version(&self) -> (u32, u32) {
        let ran = run(Command::new(&self.program).arg("--version")).ok();
        let mut numbers = ran.stdout.split([' ', '.']).filter_map(|part| part.parse().ok());
        numbers.next().zip(numbers.next()).unwrap_or_else(|| panic!("no version: {ran}"))
    }

    /// The process that holds podman's mount namespace.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// A program in podman's namespace, as podman's user.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        if self.setup.rootless {
            let user = USER.to_string();
            command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg(program).env_remove("DBUS_SESSION_BUS_ADDRESS").env("HOME", self.path().join("home"));
        command.env("XDG_RUNTIME_DIR", self.path().join("run")).env("TMPDIR", self.path().join("home"));
        command.env("CONTAINERS_CONF", self.path().join("containers.conf"));
        command.env("CONTAINERS_STORAGE_CONF", self.path().join("storage.conf"));
        command
    }

    /// Runs a podman command to its end, again where runc lost its race with itself.
    #[track_caller]
    pub(crate) fn podman(&self, args: &[&str]) -> Ran {
        for _ in 0..5 {
            let ran = run(self.command(&self.program).args(args));
            if !ran.stderr.contains(RUNC_LOST_A_RACE) {
                return ran;
            }
            // What `podman run` without --rm made and could not start would be in the way of its name.
            run(self.command(&self.program).args(["container", "prune", "--force", "--filter", "status=created"])).ok();
        }
        panic!("runc could not copy itself five times in a row");
    }

    /// `podman run --rm`.
    #[track_caller]
    pub(crate) fn run(&self, flags: &[&str], image: &str, args: &[&str]) -> Ran {
        self.podman(&[&["run", "--rm"], self.cgroup_flags(), flags, &[image], args].concat())
    }

    /// The same through a low-level runtime itself, and without any hook.
    #[track_caller]
    pub(crate) fn plainly(&self, runtime: &str, flags: &[&str], image: &str, args: &[&str]) -> Ran {
        let none = self.path().join("none");
        let first = ["--runtime", runtime, "--hooks-dir", none.to_str().unwrap(), "run", "--rm"];
        self.podman(&[&first, self.cgroup_flags(), flags, &[image], args].concat())
    }

    /// `podman run --rm` of the counting program through a low-level runtime of one's own, and what it saw.
    #[track_caller]
    pub(crate) fn count_through(&self, runtime: &Path, flags: &[&str], image: &str) -> Count {
        let first = ["--runtime", runtime.to_str().unwrap(), "run", "--rm"];
        Count::of(self.podman(&[&first, self.cgroup_flags(), flags, &[image], &COUNT].concat()))
    }

    /// The counting program with `podman run --rm` and these flags, and what it saw.
    #[track_caller]
    pub(crate) fn count(&self, flags: &[&str], image: &str) -> Count {
        Count::of(self.run(flags, image, &COUNT))
    }

    /// `podman run --detach` of a container that sleeps until it is killed.
    #[track_caller]
    pub(crate) fn up(&self, name: &str, flags: &[&str], image: &str) {
        let first = ["run", "--detach", "--stop-timeout", "0", "--name", name];
        self.podman(&[&first, self.cgroup_flags(), flags, &[image, "sleep", "1000"]].concat()).ok();
    }

    /// `podman exec`.
    #[track_caller]
    pub(crate) fn exec(&self, flags: &[&str], container: &str, args: &[&str]) -> Ran {
        self.podman(&[&["exec"], flags, &[container], args].concat())
    }

    /// The counting program through `podman exec` with these flags.
    #[track_caller]
    pub(crate) fn exec_count(&self, flags: &[&str], container: &str) -> Count {
        Count::of(self.exec(flags, container, &COUNT))
    }

    /// Makes a GPU's node in a running container and opens it.
    #[track_caller]
    pub(crate) fn try_mknod(&self, container: &str, minor: u32) -> Access {
        let command = Access::command(minor);
        Access::of(self.exec(&[], container, &command.each_ref().map(String::as_str)))
    }

    /// Makes an image of the simulated host's root file system; each change is a Dockerfile line.
    #[track_caller]
    pub(crate) fn import(&self, name: &str, changes: &[&str]) {
        let mut command = self.command(&self.program);
        command.args(["import", "--quiet"]);
        for change in changes {
            command.args(["--change", change]);
        }
        run(command.arg(self.readable(&rootfs_tar(&self.inventory), "rootfs.tar")).arg(name)).ok();
    }

    /// Loads an image whose environment is exactly this list.
    #[track_caller]
    pub(crate) fn load(&self, name: &str, env: &[&str]) {
        let folder = tempfile::Builder::new().prefix("image").tempdir_in(self.path()).unwrap();
        let image = self.readable(&archive(folder.path(), &self.inventory, name, env), "image.tar");
        run(self.command(&self.program).args(["load", "--quiet", "--input"]).arg(image)).ok();
    }

    /// Builds an image from a Dockerfile, with these flags.
    #[track_caller]
    pub(crate) fn build(&self, name: &str, dockerfile: &str, flags: &[&str]) {
        let folder = tempfile::Builder::new().prefix("context").tempdir_in(self.path()).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("Dockerfile"), dockerfile).unwrap();
        let mut command = self.command(&self.program);
        command.args(["build", "--quiet", "--pull=never", "--network", "none", "--tag", name]).args(flags);
        run(command.arg(folder.path())).ok();
    }

    /// Makes an image of another one, with these annotations in its manifest.
    #[track_caller]
    pub(crate) fn annotate(&self, image: &str, name: &str, annotations: &[&str]) {
        let folder = tempfile::Builder::new().prefix("context").tempdir_in(self.path()).unwrap();
        fs::write(folder.path().join("Containerfile"), format!("FROM {image}\n")).unwrap();
        let mut command = self.command(&self.program);
        command.args(["build", "--quiet", "--tag", name]);
        for annotation in annotations {
            command.args(["--annotation", annotation]);
        }
        run(command.arg(folder.path())).ok();
    }

    /// `podman inspect` of one thing.
    #[track_caller]
    pub(crate) fn inspect(&self, name: &str) -> Value {
        let ran = self.podman(&["inspect", name]).ok();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        value[0].clone()
    }

    /// Names and states of the containers that podman knows.
    #[track_caller]
    pub(crate) fn containers(&self) -> Vec<String> {
        let ran = self.podman(&["ps", "--all", "--format", "{{.Names}} {{.State}}"]).ok();
        ran.stdout.lines().map(str::to_owned).collect()
    }

    /// The configuration from which the low-level runtime made a container.
    #[track_caller]
    pub(crate) fn spec_of(&self, container: &str) -> Value {
        let path = self.inspect(container)["OCIConfigPath"].as_str().unwrap().to_owned();
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Files of the ordinary user's, and of the ids that are mapped for the user, in the places that anybody may write to;
    /// a test's own folder is not such a place.
    #[track_caller]
    pub(crate) fn strays(&self) -> Vec<String> {
        let own = self.path().parent().unwrap().join("p*");
        let mut find = Command::new("nsenter");
        find.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        find.args(["find", "/run", "/tmp", "/var/tmp", "-path"]).arg(own).args(["-prune", "-o", "("]);
        find.args(["-uid", &USER.to_string(), "-o", "-uid", &format!("+{}", SUBORDINATE - 1), ")", "-print"]);
        run(&mut find).ok().stdout.lines().map(str::to_owned).collect()
    }

    fn cgroup_flags(&self) -> &'static [&'static str] {
        // Leaked once a process: every test is one.
        static FLAGS: std::sync::OnceLock<[&'static str; 2]> = std::sync::OnceLock::new();
        let flags = FLAGS.get_or_init(|| ["--cgroup-parent", String::leak(cgroup())]);
        if self.setup.rootless { &[] } else { flags }
    }

    /// A copy that podman's user can read.
    fn readable(&self, file: &Path, name: &str) -> PathBuf {
        let copy = self.path().join(name);
        fs::copy(file, &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
        copy
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut remove = self.command(&self.program);
        let removed = remove.args(["rm", "--all", "--force", "--time", "0"]).stdin(Stdio::null()).output();
        if let Ok(output) = removed
            && !output.status.success()
        {
            eprintln!("podman rm: {}", String::from_utf8_lossy(&output.stderr));
        }
        // A rootless podman keeps a process that holds its user namespace.
        for file in ["run/libpod/tmp/pause.pid", "libpod/pause.pid"] {
            let pid = fs::read_to_string(self.path().join(file)).ok().and_then(|text| text.trim().parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _sent = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _sent = self.holder.kill();
        let _status = self.holder.wait();
        // Processes of containers that were just killed may hold the namespace for a moment more.
        sleep(Duration::from_millis(20));
        if let Some(folder) = self.folder.take() {
            mounts::remove(folder);
        }
    }
}

/// The shipped files, with the paths of this installation, and what this machine and the test need beside.
fn write_configuration(path: &Path, install: &Install, setup: Setup) {
    let shipped = |name: &str| fs::read_to_string(repository().join("hooks").join(name)).unwrap();
    let replaced = |text: &str, from: &str, to: &Path| {
        assert!(text.contains(from), "{from} in {text}");
        text.replace(from, to.to_str().unwrap())
    };
    let mut engine = format!(
        "[engine]\nruntime = \"{}\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\ntmp_dir = \"{}\"\n",
        setup.runtime,
        path.join("libpod").display()
    );
    // Hooks of the machine's own must not decide how a test ends.
    let own = path.join("hooks.d");
    if setup.precreate {
        let conf = replaced(&shipped("podman/precreate.conf"), "/usr/share/cudaview/precreate", &path.join("hooks"));
        let conf = replaced(&conf, "/usr/share/containers/oci/hooks.d", &own);
        engine.push_str(conf.lines().find(|line| line.starts_with("hooks_dir")).unwrap());
        engine.push('\n');
    } else {
        writeln!(engine, "hooks_dir = [\"{}\"]", own.display()).unwrap();
    }
    let conf = replaced(&shipped("podman/containers.conf"), "/usr/bin/cudaview-runtime", &install.runtime());
    let conf = replaced(&conf, "[engine]\n", Path::new(&engine));
    // The default asks for more open files than a virtual machine may allow, and for a controller that a private
    // cgroup2 view may not have.
    let containers = "[containers]\ndefault_ulimits = []\npids_limit = 0\nnetns = \"none\"\n";
    fs::write(path.join("containers.conf"), format!("{containers}{conf}")).unwrap();
    let hook = |name: &str| replaced(&shipped(name), "/usr/bin/cudaview-hook", &install.bin("cudaview-hook"));
    fs::write(path.join("hooks/50-cudaview.json"), hook("precreate/50-cudaview.json")).unwrap();
    if let Some(more) = setup.create_runtime {
        let mut file: Value = serde_json::from_str(&hook("createRuntime/50-cudaview.json")).unwrap();
        file["hook"]["args"].as_array_mut().unwrap().extend(more.iter().map(|arg| (*arg).into()));
        fs::write(own.join("50-cudaview.json"), file.to_string()).unwrap();
    }
    let storage = format!(
        "[storage]\ndriver = \"{}\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        if setup.rootless { "vfs" } else { "overlay" },
        path.join("storage").display(),
        path.join("run/containers").display(),
    );
    fs::write(path.join("storage.conf"), storage).unwrap();
}

/// The machine's users and one more.
fn write_users(folder: &Path) {
    let with = |name: &str, line: &str| {
        let text = fs::read_to_string(Path::new("/etc").join(name)).unwrap();
        fs::write(folder.join(name), format!("{}\n{line}\n", text.trim_end())).unwrap();
    };
    with("passwd", &format!("cudaview-test:x:{USER}:{USER}::/nonexistent:/bin/sh"));
    with("group", &format!("cudaview-test:x:{USER}:"));
    with("subuid", &format!("cudaview-test:{SUBORDINATE}:65536"));
    with("subgid", &format!("cudaview-test:{SUBORDINATE}:65536"));
}
