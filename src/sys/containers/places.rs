//! Where engines are, as their own clients find them: from the environment of whoever asks, and by default.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where to look for containers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Places {
    /// Docker's sockets.
    pub docker: Vec<PathBuf>,
    /// Somebody named the one to ask.
    pub docker_is_named: bool,
    /// A `DOCKER_HOST` that is no socket.
    pub docker_elsewhere: Option<String>,
    /// containers/storage, podman's.
    pub storage: Vec<PathBuf>,
    /// Somebody named its configuration.
    pub storage_is_named: bool,
    /// containerd's sockets.
    pub containerd: Vec<PathBuf>,
    /// Somebody named the one to ask.
    pub containerd_is_named: bool,
}

/// `storage.conf`, as far as we need it.
#[derive(Default, Deserialize)]
struct StorageFile {
    #[serde(default)]
    storage: Storage,
}

#[derive(Default, Deserialize)]
struct Storage {
    graphroot: Option<String>,
    rootless_storage_path: Option<String>,
}

impl Places {
    /// As the environment has it.
    pub fn of_environment() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::new(is_root, &variable)
    }

    fn new(is_root: bool, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let runtime_folder = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut out = Self::default();
        if let Some(host) = variable("DOCKER_HOST") {
            match host.strip_prefix("unix://") {
                Some(path) => out.docker.push(PathBuf::from(path)),
                None => out.docker_elsewhere = Some(host),
            }
        } else {
            out.docker.push(PathBuf::from("/var/run/docker.sock"));
            // The daemon of whoever asks, without root.
            out.docker.extend(runtime_folder.filter(|_| !is_root).map(|folder| folder.join("docker.sock")));
        }
        out.docker_is_named = variable("DOCKER_HOST").is_some();
        out.storage_is_named = variable("CONTAINERS_STORAGE_CONF").is_some();
        out.storage = storage(is_root, variable);
        out.containerd_is_named = variable("CONTAINERD_ADDRESS").is_some();
        out.containerd = match variable("CONTAINERD_ADDRESS") {
            Some(address) => vec![PathBuf::from(address.strip_prefix("unix://").unwrap_or(&address))],
            None => vec!["/run/containerd/containerd.sock".into(), "/run/k3s/containerd/containerd.sock".into()],
        };
        out
    }
}

/// Where podman's storage may be: what its configuration says, then the default. Versions differ in whether an ordinary
/// user's `graphroot` counts, so all of them are looked at.
// containers-storage.conf(5)
fn storage(is_root: bool, variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    let folder = |name: &str, below: &str| variable(name).map_or_else(|| home.join(below), PathBuf::from);
    let uid = rustix::process::geteuid().as_raw().to_string();
    let user = variable("USER").unwrap_or_default();
    let expand = |text: String| {
        PathBuf::from(text.replace("$HOME", &home.to_string_lossy()).replace("$UID", &uid).replace("$USER", &user))
    };
    let named = variable("CONTAINERS_STORAGE_CONF").map(PathBuf::from);
    let own = folder("XDG_CONFIG_HOME", ".config").join("containers/storage.conf");
    let system = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"].map(PathBuf::from);
    let system = system.into_iter().find(|path| path.exists());
    let mut out: Vec<PathBuf> = Vec::new();
    for file in named.iter().chain((!is_root && own.is_absolute()).then_some(&own)).map(|path| of_file(path)) {
        out.extend(file.graphroot.map(PathBuf::from));
        out.extend(file.rootless_storage_path.filter(|_| !is_root).map(expand));
    }
    let system = system.map(|path| of_file(&path)).unwrap_or_default();
    if is_root {
        out.push(system.graphroot.unwrap_or_else(|| "/var/lib/containers/storage".to_owned()).into());
        // Whoever names a configuration as root means that storage and no other.
        out.truncate(1);
    } else {
        out.extend(system.rootless_storage_path.map(expand));
        out.push(folder("XDG_DATA_HOME", ".local/share").join("containers/storage"));
    }
    let mut known = BTreeSet::new();
    // Without a HOME some are relative, and nobody means the folder that he happens to be in.
    out.retain(|path| path.is_absolute() && known.insert(path.clone()));
    out
}

/// A `storage.conf`; an empty one where it cannot be read.
fn of_file(path: &Path) -> Storage {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    toml::from_str(&text).map(|file: StorageFile| file.storage).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(is_root: bool, variables: &[(&str, &str)]) -> Places {
        Places::new(is_root, &|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_says_where() {
        let user = places(false, &[("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/h")]);
        assert_eq!(user.docker, [Path::new("/var/run/docker.sock"), Path::new("/run/user/7/docker.sock")]);
        let root = places(true, &[("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(root.docker, [Path::new("/var/run/docker.sock")]);
        let named = places(false, &[("DOCKER_HOST", "unix:///x/d.sock"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(named.docker, [Path::new("/x/d.sock")]);
        let remote = places(false, &[("DOCKER_HOST", "tcp://h:1"), ("CONTAINERD_ADDRESS", "/c.sock")]);
        assert_eq!((remote.docker.len(), remote.docker_elsewhere.as_deref()), (0, Some("tcp://h:1")));
        assert_eq!(remote.containerd, [Path::new("/c.sock")]);
    }

    #[test]
    fn storage_is_where_the_configuration_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("storage.conf");
        std::fs::write(&file, "[storage]\ndriver = \"vfs\"\ngraphroot = \"/x/storage\"\n").expect("written");
        let named = ("CONTAINERS_STORAGE_CONF", file.to_str().expect("UTF-8"));
        assert_eq!(places(true, &[named]).storage, [Path::new("/x/storage")]);
        let of_user = |named, home| places(false, &[named, ("HOME", "/h"), home]).storage;
        assert_eq!(
            of_user(named, ("", "")),
            [Path::new("/x/storage"), Path::new("/h/.local/share/containers/storage")]
        );
        let configuration = folder.path().join("containers");
        std::fs::create_dir(&configuration).expect("a folder");
        std::fs::rename(&file, configuration.join("storage.conf")).expect("moved");
        let home = ("XDG_CONFIG_HOME", folder.path().to_str().expect("UTF-8"));
        let data = ("XDG_DATA_HOME", "/d");
        assert_eq!(of_user(home, data), [Path::new("/x/storage"), Path::new("/d/containers/storage")]);
        assert!(places(false, &[("HOME", "")]).storage.iter().all(|path| path.is_absolute()));
    }
}
