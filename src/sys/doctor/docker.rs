//! Docker: what its daemon says, and what its configuration says.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Root, driver, time};
use crate::doctor::{Docker, File, GpusFlag, Presence, Runtime, Trouble};
use crate::sys::containers::{Daemon, Places, daemon};
use crate::sys::runtime::DIRECTORIES;
use crate::sys::stand_in::{Found, Place};

/// What makes dockerd take `--gpus` beside NVIDIA's hook.
const CDI_HOOK: &str = "nvidia-cdi-hook";

/// Docker, and its daemon's process where that is known.
pub(super) struct Looked {
    pub(super) docker: Docker,
    pub(super) pid: Option<u32>,
}

pub(super) fn look(root: &Root) -> Looked {
    let (presence, socket, answer) = ask(root);
    let answer = answer.unwrap_or_default();
    let process = answer.pid.filter(|_| root.is_ours()).and_then(Arguments::of);
    let pid = process.as_ref().map(|process| process.pid);
    let info = &answer.info;
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    let options = info["SecurityOptions"].as_array().into_iter().flatten();
    let rootless = options.filter_map(Value::as_str).any(|option| option == "name=rootless");
    let path = process.as_ref().and_then(Arguments::config_file).unwrap_or_else(|| usual_file(root, rootless));
    let (file, in_file) = read(root, &path);
    let by_systemd = !rootless && root.at("/run/systemd/system").is_dir() && is_of_unit(pid);
    let sudo = if rootless { "" } else { "sudo " };
    let docker = Docker {
        presence,
        socket: root.shown(&socket),
        version: text("ServerVersion"),
        runtimes: runtimes(root, &info["Runtimes"]),
        default_runtime: text("DefaultRuntime"),
        rootless,
        live_restore: info["LiveRestoreEnabled"].as_bool().unwrap_or_default(),
        cgroup_driver: text("CgroupDriver"),
        file_is_denied: root.read(&path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
        file,
        in_file,
        reload: match pid {
            _ if by_systemd => "sudo systemctl reload docker".to_owned(),
            Some(pid) => format!("{sudo}kill -HUP {pid}"),
            None => format!("{sudo}kill -HUP $(pidof dockerd)"),
        },
        restart: match pid {
            _ if by_systemd => "sudo systemctl restart docker".to_owned(),
            Some(pid) => format!("{sudo}kill {pid}, and start dockerd again"),
            None => "stop dockerd, and start it again".to_owned(),
        },
        start: if by_systemd { "sudo systemctl start docker".to_owned() } else { "start dockerd".to_owned() },
    };
    Looked { docker, pid }
}

/// The first daemon that answers; else why none does.
fn ask(root: &Root) -> (Presence, PathBuf, Option<Daemon>) {
    let places = Places::of_environment();
    let sockets = if root.is_ours() { places.docker } else { vec![root.at("/run/docker.sock")] };
    let first = sockets.first().cloned().unwrap_or_else(|| PathBuf::from("/var/run/docker.sock"));
    if let Some(elsewhere) = places.docker_elsewhere.filter(|_| root.is_ours()) {
        return (Presence::Elsewhere(elsewhere), first, None);
    }
    let installed = root.program("dockerd").is_some();
    let mut presence = if installed { Presence::Silent("it does not run".to_owned()) } else { Presence::Absent };
    for socket in sockets {
        match daemon(&socket) {
            Ok(answer) => return (Presence::Answers, socket, Some(answer)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !places.docker_is_named => {}
            Err(error) => {
                presence = match error.kind() {
                    io::ErrorKind::PermissionDenied => Presence::Denied,
                    io::ErrorKind::NotFound => Presence::Silent("its socket is not there".to_owned()),
                    io::ErrorKind::ConnectionRefused => Presence::Silent("nobody listens at its socket".to_owned()),
                    _ => Presence::Silent(error.to_string()),
                };
            }
        }
    }
    (presence, first, None)
}

/// A daemon's process.
struct Arguments {
    pid: u32,
    words: Vec<String>,
}

impl Arguments {
    /// The process that listens; systemd may do it in a daemon's place.
    fn of(pid: u32) -> Option<Self> {
        let text = crate::sys::read_told(Path::new(&format!("/proc/{pid}/cmdline"))).ok()?;
        let words: Vec<String> =
            text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let name = Path::new(words.first()?).file_name()?;
        if name == "dockerd" {
            return Some(Self { pid, words });
        }
        let mut daemons = crate::sys::processes::called("dockerd").filter_map(|daemon| daemon.pid());
        // Of several nobody knows which one it is.
        let only = daemons.next().filter(|only| *only != pid)?;
        daemons.next().is_none().then(|| Self::of(only)).flatten()
    }

    fn config_file(&self) -> Option<PathBuf> {
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            if word == "--config-file" {
                return words.next().map(PathBuf::from);
            }
            if let Some(path) = word.strip_prefix("--config-file=") {
                return Some(PathBuf::from(path));
            }
        }
        None
    }
}

// dockerd(8)
fn usual_file(root: &Root, rootless: bool) -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    match own.filter(|_| rootless) {
        Some(folder) => folder.join("docker/daemon.json"),
        None => root.at("/etc/docker/daemon.json"),
    }
}

/// Whether it is what `systemctl` calls `docker`.
fn is_of_unit(pid: Option<u32>) -> bool {
    let Some(pid) = pid else { return true };
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.contains("/docker.service")
}

fn read(root: &Root, path: &Path) -> (File, Vec<Runtime>) {
    let shown = root.shown(path);
    let file = |exists, trouble| File { path: shown.clone(), exists, trouble };
    let Ok(text) = root.read(path) else { return (file(path.exists(), None), Vec::new()) };
    // dockerd takes an empty file for an empty object.
    if text.trim_ascii().is_empty() {
        return (file(true, None), Vec::new());
    }
    match serde_json::from_slice::<Value>(&text) {
        Ok(value) => (file(true, None), runtimes(root, &value["runtimes"])),
        Err(error) => {
            let fix = format!("correct {shown} (python3 -m json.tool {shown} says where)");
            let text = format!("{shown} is no JSON: {error}");
            (file(true, Some(Trouble { text, fix })), Vec::new())
        }
    }
}

/// The runtimes of `daemon.json` or of the daemon: a program, or since Docker 23 a shim.
fn runtimes(root: &Root, value: &Value) -> Vec<Runtime> {
    let all = value.as_object().into_iter().flatten();
    let one = |(name, runtime): (&String, &Value)| {
        let path = runtime["path"].as_str().filter(|path| !path.is_empty());
        let path = path.or_else(|| runtime["options"]["BinaryName"].as_str())?;
        Some(root.runtime(name, path))
    };
    all.filter_map(one).collect()
}

/// What makes Docker take `--gpus`, and whether its daemon was started before that was there.
pub(super) fn gpus_flag(root: &Root, daemon: Option<u32>) -> GpusFlag {
    // Whose a link is can be told where its folder is root's alone.
    if let Ok(place) = Place::look(&root.0)
        && let Found::Ours(target) = place.found()
    {
        let path = root.shown(&place.path);
        let leads_to = place.path.parent().unwrap_or(Path::new("/")).join(target);
        if driver::resolved(root, &root.shown(&leads_to)).is_none() {
            return GpusFlag::Broken(path);
        }
        let is_newer_than_daemon = daemon.and_then(|pid| time::is_newer(&place.path, pid));
        return GpusFlag::Ours { path, is_newer_than_daemon };
    }
    let hook = crate::sys::stand_in::NAME;
    let there = |name: &str| {
        let paths = DIRECTORIES.iter().map(|folder| format!("{folder}/{name}"));
        paths.into_iter().find(|path| driver::resolved(root, path).is_some())
    };
    // The hook serves every version of Docker.
    there(hook).or_else(|| there(CDI_HOOK)).map_or(GpusFlag::Nobody, GpusFlag::Other)
}
