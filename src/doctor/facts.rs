//! What was found out about a host. Nothing here says what is right.

use crate::config::Config;
use crate::device::DeviceNumber;
use crate::inventory::Inventory;

/// Everything that the checks look at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// NVIDIA's driver.
    pub driver: Driver,
    /// The nodes that GPUs and CUDA need.
    pub nodes: Vec<Node>,
    /// The GPUs; else why they are not known.
    pub inventory: Result<Inventory, Trouble>,
    /// The configuration's file, if there is one, and what is wrong with it.
    pub policy: File,
    /// The configuration; the built-in one where the file cannot be used.
    pub config: Config,
    /// The low-level runtime that the wrapper would start; else why there is none.
    pub low_level_runtime: Result<String, String>,
    /// cudaview's own programs.
    pub programs: Vec<Program>,
    /// NVIDIA's container toolkit.
    pub toolkit: Toolkit,
    /// CDI specifications.
    pub cdi: Cdi,
    /// Docker.
    pub docker: Docker,
    /// What makes Docker take `--gpus`.
    pub gpus_flag: GpusFlag,
    /// podman.
    pub podman: Podman,
    /// containerd's own configuration.
    pub containerd: Containerd,
    /// systemd runs the host.
    pub systemd: bool,
    /// The version of the control groups.
    pub cgroup_version: u8,
    /// Security-Enhanced Linux.
    pub selinux: SeLinux,
    /// Who has a GPU's node open; `None` where nobody may know.
    pub processes: Option<Vec<Process>>,
}

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub text: String,
    /// What to do.
    pub fix: String,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is, or would be.
    pub path: String,
    /// Whether it is there.
    pub exists: bool,
    /// Why it cannot be used.
    pub trouble: Option<Trouble>,
}

/// NVIDIA's driver.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Driver {
    /// Its modules that are loaded.
    pub modules: Vec<String>,
    /// The version of the loaded module.
    pub version: Option<String>,
    /// The versions of the libraries, by their files' names.
    pub libraries: Vec<String>,
    /// NVIDIA's GPUs on the PCI bus, where that is known.
    pub gpus_on_bus: Option<usize>,
    /// The kernel's own driver for NVIDIA's GPUs is loaded.
    pub nouveau: bool,
    /// The GPUs are Windows' (WSL2).
    pub wsl2: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// The module that it waits for.
    pub module: &'static str,
    /// What is there.
    pub state: NodeState,
    /// The number that it should have, where that is known.
    pub expected: Option<DeviceNumber>,
}

/// What is at a node's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Nothing, or no device.
    Missing,
    /// A character device, with its permissions.
    There(DeviceNumber, u32),
}

/// A program of cudaview's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it should be.
    pub path: String,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// NVIDIA's container toolkit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Toolkit {
    /// Those of its programs that are installed, by their paths.
    pub programs: Vec<String>,
    /// Its configuration says that its hook sets no device rules.
    pub no_cgroups: bool,
    /// Where its configuration is.
    pub file: String,
}

/// CDI specifications.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cdi {
    /// The folders, in the order of the configuration.
    pub folders: Vec<String>,
    /// What the files have for `nvidia.com/gpu`.
    pub files: Vec<CdiFile>,
    /// Why they cannot be used.
    pub trouble: Option<Trouble>,
}

/// A CDI specification for `nvidia.com/gpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiFile {
    /// The file.
    pub path: String,
    /// The names of its devices.
    pub devices: Vec<String>,
    /// Paths of the host that it names and that are not there.
    pub missing: Vec<String>,
}

/// Whether an engine is there and answers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Presence {
    /// It is not installed.
    #[default]
    Absent,
    /// It is installed, and does not answer.
    Silent(String),
    /// It is there, and whoever asks may not.
    Denied,
    /// The environment names another host's.
    Elsewhere(String),
    /// It answers.
    Answers,
}

/// A low-level runtime that an engine knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its name there.
    pub name: String,
    /// Its program.
    pub path: String,
    /// Why the program cannot be started.
    pub problem: Option<String>,
}

impl Runtime {
    /// Whether it is our wrapper.
    pub fn is_ours(&self) -> bool {
        self.path.rsplit('/').next() == Some("cudaview-runtime")
    }
}

/// Docker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Docker {
    /// Whether it is there.
    pub presence: Presence,
    /// Its socket.
    pub socket: String,
    /// The daemon's version.
    pub version: String,
    /// The runtimes that the daemon knows.
    pub runtimes: Vec<Runtime>,
    /// The name of its default runtime.
    pub default_runtime: String,
    /// It is an ordinary user's.
    pub rootless: bool,
    /// Containers outlive the daemon.
    pub live_restore: bool,
    /// `systemd` or `cgroupfs`.
    pub cgroup_driver: String,
    /// Its configuration.
    pub file: File,
    /// Whoever asks may not read it.
    pub file_is_denied: bool,
    /// The runtimes in the configuration.
    pub in_file: Vec<Runtime>,
    /// What makes it read the configuration again.
    pub reload: String,
    /// What stops and starts it.
    pub restart: String,
    /// What starts it.
    pub start: String,
}

/// What makes Docker take `--gpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpusFlag {
    /// Nothing does.
    Nobody,
    /// cudaview's link. `None`: nobody knows whether the daemon has started since.
    Ours {
        /// The link.
        path: String,
        /// The daemon was started before it was made.
        is_newer_than_daemon: Option<bool>,
    },
    /// A link of cudaview's that leads nowhere.
    Broken(String),
    /// Somebody else's program.
    Other(String),
}

/// podman.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Podman {
    /// It is installed.
    pub installed: bool,
    /// Its configuration's files that are there.
    pub files: Vec<String>,
    /// The first that cannot be read.
    pub trouble: Option<Trouble>,
    /// The runtimes that they name, with the first program that is there.
    pub runtimes: Vec<Runtime>,
    /// The default runtime, by name or path.
    pub default_runtime: Option<String>,
    /// Hook files that name our hook.
    pub hooks: Vec<HookFile>,
}

/// A hook file that names our hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFile {
    /// The file.
    pub path: String,
    /// Its stages.
    pub stages: Vec<String>,
    /// Its program.
    pub program: String,
    /// The program is not there.
    pub is_missing: bool,
    /// buildah and CRI-O read this folder too.
    pub in_shared_folder: bool,
}

/// containerd's own configuration.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Containerd {
    /// It is installed.
    pub installed: bool,
    /// Its configuration's files that are there.
    pub files: Vec<String>,
    /// The first that cannot be read.
    pub trouble: Option<Trouble>,
    /// Handlers for which it starts our wrapper.
    pub handlers: Vec<Runtime>,
    /// A file has changed since it was started; `None` where nobody knows.
    pub is_changed: Option<bool>,
}

/// Security-Enhanced Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeLinux {
    /// It is not there.
    Absent,
    /// It writes down what it would forbid.
    Permissive,
    /// It forbids. Whether its policy lets containers use devices, where that is known.
    Enforcing(Option<bool>),
}

/// A process that has a GPU's node open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// It is in a container.
    pub in_container: bool,
}
