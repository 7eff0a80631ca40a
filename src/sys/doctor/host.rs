//! cudaview's programs, and what the host does with containers.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Root;
use crate::config::Config;
use crate::doctor::{Process, Program, SeLinux, Toolkit};
use crate::sys::{errno, runtime, trusted};

/// What is installed in one folder.
const PROGRAMS: [&str; 3] = ["cudaview-runtime", "cudaview-hook", "cudaview-nvml"];

/// NVIDIA's, as far as they have a part in containers.
const TOOLS: [&str; 4] = ["nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-cli"];

/// NVIDIA's configuration.
// NVIDIA Container Toolkit, api/config/v1.
const TOOLKIT: &str = "/etc/nvidia-container-runtime/config.toml";

/// Whether it can be started.
pub(super) fn is_program(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.mode() & 0o111 != 0
}

/// The low-level runtime that the wrapper would start.
pub(super) fn low_level_runtime(root: &Root, config: &Config) -> Result<String, String> {
    if root.is_ours() {
        let found = runtime::find(&config.low_level_runtime);
        return found.map(|path| path.display().to_string()).map_err(|error| errno::chain(&error));
    }
    let is_there = |name: &String| {
        if name.starts_with('/') { root.problem(name).is_none().then(|| name.clone()) } else { root.program(name) }
    };
    let missing = || format!("no low-level runtime found: looked for {}", config.low_level_runtime.join(", "));
    config.low_level_runtime.iter().find_map(is_there).ok_or_else(missing)
}

/// cudaview's programs: beside this one, or where another system has them.
pub(super) fn programs(root: &Root) -> Vec<Program> {
    let own = fs::read_link("/proc/self/exe").ok().filter(|_| root.is_ours());
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let usual = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let has_any = |folder: &&PathBuf| PROGRAMS.iter().any(|name| root.at(folder.join(name)).exists());
    let folder = own.or_else(|| usual.iter().find(has_any).cloned()).unwrap_or_else(|| PathBuf::from("/usr/bin"));
    let program = |name: &&str| {
        let path = folder.join(name);
        let shown = path.display().to_string();
        let untrusted = || {
            let found = root.at(&path);
            let checked = trusted::program(&found, &fs::metadata(&found).ok()?);
            checked.err().map(|_| "can be changed by others than root".to_owned())
        };
        Program { problem: root.problem(&shown).or_else(untrusted), path: shown }
    };
    PROGRAMS.iter().map(program).collect()
}

/// NVIDIA's container toolkit, which can be there in parts.
pub(super) fn toolkit(root: &Root) -> Toolkit {
    let text = root.text_of(&root.at(TOOLKIT)).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let setting = table.get("nvidia-container-cli").and_then(|section| section.get("no-cgroups"));
    Toolkit {
        programs: TOOLS.iter().filter_map(|name| root.program(name)).collect(),
        no_cgroups: setting.and_then(toml::Value::as_bool).unwrap_or_default(),
        file: TOOLKIT.to_owned(),
    }
}

/// 1, 2, or 0 where none is mounted.
pub(super) fn cgroup_version(root: &Root) -> u8 {
    let folder = root.at("/sys/fs/cgroup");
    match (folder.join("cgroup.controllers").exists(), folder.join("devices").is_dir()) {
        (true, _) => 2,
        (false, true) => 1,
        (false, false) => 0,
    }
}

// selinuxfs, and container-selinux's container.te.
pub(super) fn selinux(root: &Root) -> SeLinux {
    let read = |name: &str| root.text_of(&root.at(Path::new("/sys/fs/selinux").join(name)));
    match read("enforce").as_deref().map(str::trim) {
        Err(_) => SeLinux::Absent,
        Ok("1") => SeLinux::Enforcing(read("booleans/container_use_devices").ok().map(|text| text.starts_with('1'))),
        Ok(_) => SeLinux::Permissive,
    }
}

/// Who has a GPU's node open. Only root sees that of others.
pub(super) fn processes(root: &Root) -> Option<Vec<Process>> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mut found: Vec<Process> = Vec::new();
    for entry in fs::read_dir(root.at("/proc")).ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let folder = entry.path();
        let mut files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        if !files.any(|file| fs::read_link(file.path()).is_ok_and(|target| is_gpu_node(&target))) {
            continue;
        }
        let status = root.text_of(&folder.join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let in_container = field("NSpid:").split_whitespace().count() > 1;
        found.push(Process { pid, name: field("Name:").trim().to_owned(), in_container });
    }
    found.sort_by_key(|process| process.pid);
    Some(found)
}

fn is_gpu_node(path: &Path) -> bool {
    let number = path.to_str().and_then(|path| path.strip_prefix("/dev/nvidia")).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}
