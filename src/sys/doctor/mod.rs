//! What `cudaview doctor` looks at. All of it is read; nothing is started, made or changed.
//!
//! Engines are asked over their sockets: no door comes here (`tests/it/invariants.rs`).

mod cdi;
mod container;
mod containerd;
mod docker;
mod driver;
mod host;
mod podman;
mod time;

use std::path::{Path, PathBuf};

pub use container::{InsideError, inside};

use crate::config::Config;
use crate::doctor::{Facts, File, NodeState, Runtime, Trouble};
use crate::inventory::Inventory;
use crate::sys::configuration;
use crate::sys::inventory::{LoadError, Places, load_from};
use crate::sys::runtime::DIRECTORIES;

/// A system: this one, or another's below a folder.
#[derive(Debug)]
struct Root(PathBuf);

impl Root {
    /// Whether it is the system that this program runs on.
    fn is_ours(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where an absolute path of that system is found.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A path that was found, as that system calls it.
    fn shown(&self, path: &Path) -> String {
        Path::new("/").join(path.strip_prefix(&self.0).unwrap_or(path)).display().to_string()
    }

    /// A text in which paths were found, as that system says it.
    fn text(&self, text: &str) -> String {
        if self.is_ours() { text.to_owned() } else { text.replace(&*self.0.to_string_lossy(), "") }
    }

    /// A file at a path that was found, with its links followed in that system.
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        const LIMIT: u64 = 16 << 20;
        if self.is_ours() {
            return crate::sys::read_plain(path, LIMIT);
        }
        let none = || std::io::Error::from(std::io::ErrorKind::NotFound);
        crate::sys::read_plain(&driver::resolved(self, &self.shown(path)).ok_or_else(none)?, LIMIT)
    }

    fn text_of(&self, path: &Path) -> std::io::Result<String> {
        String::from_utf8(self.read(path)?).map_err(std::io::Error::other)
    }

    /// A program in the folders that runtimes are looked up in.
    fn program(&self, name: &str) -> Option<String> {
        let paths = DIRECTORIES.iter().map(|folder| Path::new(folder).join(name));
        paths.map(|path| path.display().to_string()).find(|path| self.problem(path).is_none())
    }

    /// Why a program cannot be started; what is no absolute path is not looked for.
    fn problem(&self, program: &str) -> Option<String> {
        if !program.starts_with('/') {
            return None;
        }
        match driver::resolved(self, program).and_then(|path| std::fs::metadata(path).ok()) {
            None => Some("is not there".to_owned()),
            Some(metadata) if !host::is_program(&metadata) => Some("is no program".to_owned()),
            Some(_) => None,
        }
    }

    fn runtime(&self, name: &str, path: &str) -> Runtime {
        Runtime { name: name.to_owned(), path: path.to_owned(), problem: self.problem(path) }
    }

    fn trouble(&self, error: &(dyn std::error::Error + 'static), fix: &str) -> Trouble {
        Trouble { text: self.text(&crate::sys::errno::chain(error)), fix: self.text(fix) }
    }
}

/// Everything about the system at `root`.
pub fn facts(root: &Path) -> Facts {
    // Without a slash at its end, so that it can be taken off the paths that were found.
    let root = &Root(root.components().collect());
    let (policy, config) = configuration(root);
    let inventory = inventory(root, &config);
    let nodes = driver::nodes(root, &config, inventory.as_ref().ok());
    let docker = docker::look(root);
    let driver = driver::look(root, &config);
    let gpus_flag = docker::gpus_flag(root, docker.pid);
    Facts {
        driver,
        nodes,
        low_level_runtime: host::low_level_runtime(root, &config),
        programs: host::programs(root),
        toolkit: host::toolkit(root),
        cdi: cdi::look(root, &config, inventory.as_ref().ok()),
        inventory,
        policy,
        config,
        docker: docker.docker,
        gpus_flag,
        podman: podman::look(root),
        containerd: containerd::look(root),
        systemd: root.at("/run/systemd/system").is_dir(),
        cgroup_version: host::cgroup_version(root),
        selinux: host::selinux(root),
        processes: host::processes(root),
    }
}

/// The configuration's file, and what it says; what is built in where it cannot be used.
fn configuration(root: &Root) -> (File, Config) {
    let path = if root.is_ours() { configuration::path() } else { root.at(configuration::PATH) };
    let loaded = configuration::load_at(&path);
    let file = |trouble| File { path: root.shown(&path), exists: path.exists(), trouble };
    match loaded {
        Ok(config) => (file(None), config.unwrap_or_else(Config::built_in)),
        Err(error) => (file(Some(root.trouble(&error, &error.hint()))), Config::built_in()),
    }
}

/// The GPUs, from what can be read. NVML is not asked: to start it makes nodes, and can load modules.
fn inventory(root: &Root, config: &Config) -> Result<Inventory, Trouble> {
    let config = Config { inventory: config.inventory.clone().map(|file| in_root(root, &file)), ..config.clone() };
    let dev_root = in_root(root, &config.dev_root);
    let places = Places {
        proc: root.at("/proc"),
        root: root.0.clone(),
        cache: root.at("/run/cudaview/inventory.json"),
        keeps: false,
        // An empty path does not start.
        helper: PathBuf::new(),
        ..Places::usual(&Config { dev_root, ..config.clone() })
    };
    load_from(&config, None, &places).map_err(|error| match &error {
        LoadError::Helper { why, .. } => Trouble {
            text: root.text(&format!("only NVML knows the GPUs: {why}")),
            fix: "sudo cudaview inventory --refresh asks it, and keeps the answer".to_owned(),
        },
        _ => root.trouble(&error, &error.hint()),
    })
}

fn in_root(root: &Root, path: &str) -> String {
    root.at(path).display().to_string()
}

/// What is at a node's path.
fn node_state(path: &Path) -> NodeState {
    use std::os::unix::fs::MetadataExt;
    let mode = || std::fs::metadata(path).map(|metadata| metadata.mode() & 0o7777).unwrap_or_default();
    crate::sys::host::device_number(path).map_or(NodeState::Missing, |number| NodeState::There(number, mode()))
}
