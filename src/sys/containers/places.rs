//! Where engines are, as their own clients find them: from the environment of whoever asks, and by default.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where to look for containers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Places {
    /// Docker's sockets.
    pub docker: Vec<PathBuf>,
    /// A `DOCKER_HOST` that is no socket.
    pub docker_elsewhere: Option<String>,
    /// containers/storage, podman's.
    pub storage: Vec<PathBuf>,
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
        out.storage.push(storage(is_root, variable));
        out.containerd_is_named = variable("CONTAINERD_ADDRESS").is_some();
        out.containerd = match variable("CONTAINERD_ADDRESS") {
            Some(address) => vec![PathBuf::from(address.strip_prefix("unix://").unwrap_or(&address))],
            None => vec!["/run/containerd/containerd.sock".into(), "/run/k3s/containerd/containerd.sock".into()],
        };
        out
    }
}

/// podman's storage: what its configuration says, else the default.
// containers-storage.conf(5)
fn storage(is_root: bool, variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    let read = |path: &Path| std::fs::read_to_string(path).ok().and_then(|text| toml::from_str(&text).ok());
    let of_file = |path: &Path| -> Storage { read(path).map(|file: StorageFile| file.storage).unwrap_or_default() };
    if let Some(file) = variable("CONTAINERS_STORAGE_CONF") {
        if let Some(root) = of_file(Path::new(&file)).graphroot {
            return PathBuf::from(root);
        }
    } else if !is_root {
        let configuration = variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        if let Some(root) = of_file(&configuration.join("containers/storage.conf")).graphroot {
            return PathBuf::from(root);
        }
    }
    let systems = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
    let system = systems.iter().map(Path::new).find(|path| path.exists()).map(of_file).unwrap_or_default();
    if is_root {
        return system.graphroot.map_or_else(|| PathBuf::from("/var/lib/containers/storage"), PathBuf::from);
    }
    let data = variable("XDG_DATA_HOME").map_or_else(|| home.join(".local/share"), PathBuf::from);
    let uid = rustix::process::geteuid().as_raw().to_string();
    let user = variable("USER").unwrap_or_default();
    let expand =
        |text: String| text.replace("$HOME", &home.to_string_lossy()).replace("$UID", &uid).replace("$USER", &user);
    let of_system = system.rootless_storage_path.map(expand).map(PathBuf::from);
    of_system.unwrap_or_else(|| data.join("containers/storage"))
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
        for is_root in [true, false] {
            assert_eq!(places(is_root, &[named]).storage, [Path::new("/x/storage")]);
        }
        let configuration = folder.path().join("containers");
        std::fs::create_dir(&configuration).expect("a folder");
        std::fs::rename(&file, configuration.join("storage.conf")).expect("moved");
        let home = ("XDG_CONFIG_HOME", folder.path().to_str().expect("UTF-8"));
        assert_eq!(places(false, &[home]).storage, [Path::new("/x/storage")]);
    }
}
