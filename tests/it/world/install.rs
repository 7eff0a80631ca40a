//! cudaview as it would be installed, in a folder of the test's own, on a simulated GPU host.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, StatVfsMountFlags, chmod, makedev, mknodat, statvfs};
use tempfile::TempDir;

use super::command::write_program;
use super::inventory;

/// A prefix with the programs and their configuration, and a folder with a GPU host's device nodes.
pub(crate) struct Install {
    folder: TempDir,
}

impl Install {
    /// Installs the programs that cargo built, for a host that has the GPUs of an inventory fixture.
    ///
    /// `config` is the text of `config.toml`; the keys that the simulation needs (`inventory`, `dev_root`,
    /// `low_level_runtime`, `audit`) are put before it where it does not have them.
    pub(crate) fn new(inventory_name: &str, config: &str) -> Install {
        let install = Install { folder: tempfile::Builder::new().prefix("install").tempdir().unwrap() };
        // Runtimes enter user namespaces: what they are to run has to be reachable for others.
        fs::set_permissions(install.folder.path(), Permissions::from_mode(0o755)).unwrap();
        for (name, built) in [
            ("cudaview", env!("CARGO_BIN_EXE_cudaview")),
            ("cudaview-runtime", env!("CARGO_BIN_EXE_cudaview-runtime")),
            ("cudaview-hook", env!("CARGO_BIN_EXE_cudaview-hook")),
            ("cudaview-nvml", env!("CARGO_BIN_EXE_cudaview-nvml")),
        ] {
            fs::create_dir_all(install.prefix().join("bin")).unwrap();
            write_program(&install.bin(name), &fs::read(built).unwrap());
        }
        put(&install.inventory(), &fs::read(inventory(inventory_name)).unwrap(), 0o644);
        make_nodes(&install.dev_root().join("dev"), inventory_name);
        install.configure(&install.complete(config));
        install
    }

    /// Replaces `config.toml` by exactly this text.
    pub(crate) fn configure(&self, text: &str) {
        put(&self.config(), text.as_bytes(), 0o644);
    }

    /// The folder that stands for `/usr`'s parent: `bin/` and `etc/cudaview/` lie in it.
    pub(crate) fn prefix(&self) -> PathBuf {
        self.folder.path().join("prefix")
    }

    /// An installed program.
    pub(crate) fn bin(&self, name: &str) -> PathBuf {
        self.prefix().join("bin").join(name)
    }

    /// The OCI runtime wrapper.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.bin("cudaview-runtime")
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.prefix().join("etc/cudaview/config.toml")
    }

    /// The inventory file that the configuration names.
    pub(crate) fn inventory(&self) -> PathBuf {
        self.folder.path().join("inventory.json")
    }

    /// The folder that stands for the host's `/`: it has `dev/nvidia0` and so on.
    pub(crate) fn dev_root(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    /// The simulated host's node of a GPU.
    pub(crate) fn node(&self, minor: u32) -> PathBuf {
        self.dev_root().join(format!("dev/nvidia{minor}"))
    }

    /// The flags with which `docker run` puts these GPUs, and the control nodes, into a container.
    pub(crate) fn docker_devices(&self, minors: &[u32]) -> Vec<String> {
        let host = self.dev_root().join("dev");
        let gpus = minors.iter().map(|minor| format!("nvidia{minor}"));
        let names = gpus.chain(["nvidiactl".to_owned(), "nvidia-uvm".to_owned()]);
        names.map(|name| format!("--device={}:/dev/{name}", host.join(&name).display())).collect()
    }

    /// The file that the configuration names for audit records.
    pub(crate) fn audit(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// The audit records so far.
    pub(crate) fn audit_records(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.audit()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn complete(&self, config: &str) -> String {
        let keys = [
            ("inventory", literal(&self.inventory())),
            ("dev_root", literal(&self.dev_root())),
            ("low_level_runtime", "[\"runc\"]".to_owned()),
            ("audit", literal(&self.audit())),
        ];
        let has = |key: &str| {
            config.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')))
        };
        let mut text = String::new();
        for (key, value) in keys.iter().filter(|(key, _)| !has(key)) {
            writeln!(text, "{key} = {value}").unwrap();
        }
        text.push_str(config);
        text
    }
}

/// A path as a literal string of TOML; the test's own folders have no quotes in their names.
fn literal(path: &Path) -> String {
    format!("'{}'", path.display())
}

/// The nodes that NVIDIA's driver makes: `nvidiaN` for each GPU, the capability nodes of its MIG devices, the control node,
/// and the one for unified memory.
fn make_nodes(folder: &Path, inventory_name: &str) {
    let text = fs::read_to_string(inventory(inventory_name)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let minors =
        value["gpus"].as_array().unwrap().iter().map(|gpu| u32::try_from(gpu["minor"].as_u64().unwrap()).unwrap());

    fs::create_dir_all(folder).unwrap();
    let flags = statvfs(folder).unwrap().f_flag;
    assert!(
        !flags.contains(StatVfsMountFlags::NODEV),
        "{} cannot hold device nodes (nodev): run through sudo tests/run",
        folder.display()
    );
    fs::create_dir_all(folder.join("dri")).unwrap();
    for minor in minors {
        // 226 is the direct rendering manager's (Documentation/admin-guide/devices.txt).
        make_node(&folder.join(format!("dri/card{minor}")), 226, minor);
        make_node(&folder.join(format!("dri/renderD{}", 128 + minor)), 226, 128 + minor);
        // 195 is NVIDIA's registered major number (Documentation/admin-guide/devices.txt).
        make_node(&folder.join(format!("nvidia{minor}")), 195, minor);
    }
    for node in capability_nodes(&value) {
        let number = |key: &str| u32::try_from(node["number"][key].as_u64().unwrap()).unwrap();
        let path = folder.join(node["path"].as_str().unwrap().strip_prefix("/dev/").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make_node(&path, number("major"), number("minor"));
    }
    make_node(&folder.join("nvidiactl"), 195, 255);
    // The driver takes a free major number for this one; 510 is what it often gets.
    make_node(&folder.join("nvidia-uvm"), 510, 0);
}

/// The capability nodes of an inventory's MIG devices, each once.
fn capability_nodes(inventory: &serde_json::Value) -> Vec<serde_json::Value> {
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let migs = list(&inventory["gpus"]).into_iter().flat_map(|gpu| list(&gpu["mig"]));
    let mut nodes: Vec<serde_json::Value> = Vec::new();
    for node in migs.flat_map(|mig| list(&mig["capabilityNodes"])) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

fn make_node(path: &Path, major: u32, minor: u32) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))
        .unwrap_or_else(|err| panic!("failed to make {}: {err}", path.display()));
    // The umask took its share.
    chmod(path, Mode::from_raw_mode(0o666)).unwrap();
}

/// Writes a file with the folders above it. Its owner is root, like everything that a test makes.
fn put(path: &Path, content: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}
