//! Which runtime a Docker daemon uses by default: what it was started with, and its configuration file.
//!
//! This looks through all processes, so it is asked for only where an answer depends on it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::SIZE_LIMIT;
use super::docker::DEFAULT_DATA_ROOT;
use crate::provenance::{Engine, EngineFacts};
use crate::sys::processes;
use crate::sys::trusted::read_existing;

// moby cmd/dockerd and daemon/config: the defaults of --config-file and --default-runtime.
const DEFAULT_CONFIG_FILE: &str = "/etc/docker/daemon.json";
const DEFAULT_RUNTIME: &str = "runc";

/// Whether the runtime that Docker stored for the container is its daemon's default; `None` when it is not known.
///
/// A configuration file that was edited and not loaded yet is taken at its word.
pub fn runtime_is_default(facts: &EngineFacts) -> Option<bool> {
    let data_root = facts.data_root.as_deref().filter(|_| facts.engine == Engine::Docker)?;
    facts.privileged?; // Without `hostconfig.json` the name is not known; an empty one there means the default.
    let Some(runtime) = &facts.runtime else { return Some(true) };
    default_runtime(data_root).map(|default| default == *runtime)
}

/// The default runtime of the daemon that keeps its data there.
fn default_runtime(data_root: &Path) -> Option<String> {
    let running = running_daemons().find(|daemon| daemon.owns(data_root));
    let daemon = running.or_else(|| Some(Daemon::of_command_line(&[])).filter(|daemon| daemon.owns(data_root)))?;
    Some(daemon.default_runtime)
}

/// What a daemon goes by.
#[derive(Debug, PartialEq, Eq)]
struct Daemon {
    data_root: PathBuf,
    default_runtime: String,
}

/// The configuration file, as far as we need it; `graph` is the old name of `data-root`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct DaemonFile {
    data_root: Option<PathBuf>,
    graph: Option<PathBuf>,
    default_runtime: Option<String>,
}

impl Daemon {
    fn of_command_line(arguments: &[OsString]) -> Self {
        let path = flag(arguments, &["--config-file"]).unwrap_or_else(|| DEFAULT_CONFIG_FILE.into());
        let content = read_existing(Path::new(&path), SIZE_LIMIT).unwrap_or_default();
        Self::new(arguments, serde_json::from_slice(&content).unwrap_or_default())
    }

    /// A setting is in the file or on the command line: dockerd does not start with both.
    fn new(arguments: &[OsString], file: DaemonFile) -> Self {
        let data_root = flag(arguments, &["--data-root", "--graph", "-g"]).map(PathBuf::from);
        let default_runtime = flag(arguments, &["--default-runtime"]).map(|name| name.to_string_lossy().into_owned());
        Self {
            data_root: data_root.or(file.data_root).or(file.graph).unwrap_or_else(|| DEFAULT_DATA_ROOT.into()),
            default_runtime: default_runtime.or(file.default_runtime).unwrap_or_else(|| DEFAULT_RUNTIME.to_owned()),
        }
    }

    /// With userns-remap the containers are in a folder `<uid>.<gid>` of the daemon's data root.
    fn owns(&self, data_root: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (own, wanted) = (real(&self.data_root), real(data_root));
        wanted == own || wanted.parent() == Some(&own)
    }
}

fn running_daemons() -> impl Iterator<Item = Daemon> {
    processes::called("dockerd").map(|process| Daemon::of_command_line(process.arguments()))
}

/// The value of a flag, `--flag value` or `--flag=value`; the last one counts.
fn flag(arguments: &[OsString], names: &[&str]) -> Option<OsString> {
    let value_at = |(index, word): (usize, &OsString)| {
        names.iter().find_map(|name| match word.as_bytes().strip_prefix(name.as_bytes())? {
            [] => arguments.get(index + 1).cloned(),
            [b'=', value @ ..] => Some(OsStr::from_bytes(value).to_owned()),
            _ => None,
        })
    };
    arguments.iter().enumerate().rev().find_map(value_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], file: &str, data_root: &str, default_runtime: &str) {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let daemon = Daemon::new(&arguments, serde_json::from_str(file).unwrap());
        assert_eq!(daemon, Daemon { data_root: data_root.into(), default_runtime: default_runtime.to_owned() });
    }

    #[test]
    fn a_daemon_goes_by_its_command_line_its_file_and_its_defaults() {
        check(&[], "{}", "/var/lib/docker", "runc");
        check(&["--data-root", "/d", "--default-runtime=gpu"], "{}", "/d", "gpu");
        check(&["-g=/d", "-D", ""], r#"{"default-runtime":"gpu","runtimes":{"gpu":{"path":"/x"}}}"#, "/d", "gpu");
        check(&["--data-rooter", "/e", "--default-runtime"], r#"{"graph":"/d"}"#, "/d", "runc");
        check(&["-H", "fd://"], r#"{"data-root":"/d","default-runtime":"gpu"}"#, "/d", "gpu");
    }

    #[test]
    fn a_daemon_owns_its_data_root_and_the_remapped_one_below() {
        let daemon = Daemon { data_root: "/nowhere/docker".into(), default_runtime: String::new() };
        assert!(daemon.owns(Path::new("/nowhere/docker")));
        assert!(daemon.owns(Path::new("/nowhere/docker/100000.100000")));
        assert!(!daemon.owns(Path::new("/nowhere")));
    }

    #[test]
    fn without_the_engines_files_nothing_is_known() {
        assert_eq!(runtime_is_default(&EngineFacts::nothing_known(Engine::Unknown)), None);
        let docker = EngineFacts::nothing_known(Engine::Docker);
        assert_eq!(runtime_is_default(&docker), None);
        let unnamed = EngineFacts { data_root: Some("/nowhere".into()), ..docker };
        assert_eq!(runtime_is_default(&unnamed), None);
        let unnamed = EngineFacts { privileged: Some(false), ..unnamed };
        assert_eq!(runtime_is_default(&unnamed), Some(true));
        let of_no_daemon = EngineFacts { runtime: Some("gpu".to_owned()), ..unnamed };
        assert_eq!(runtime_is_default(&of_no_daemon), None);
    }
}
