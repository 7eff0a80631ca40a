//! A stand-in for NVIDIA's toolkit, which writes down what it was asked for, and really injects: see `tests/toolkit`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::artifacts::toolkit;
use super::command::write_program;
use super::{Dockerd, find_program, inventory};

/// The toolkit of a host, installed in a folder of the test's own.
pub(crate) struct Toolkit {
    folder: TempDir,
}

/// What stands in its `config.toml`, as far as GPUs are concerned.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// `auto`, `jit-cdi`, `cdi` or `legacy`.
    pub(crate) mode: &'a str,
    /// `swarm-resource`.
    pub(crate) swarm: &'a [&'a str],
    /// `accept-nvidia-visible-devices-as-volume-mounts`.
    pub(crate) mounts: bool,
    /// `accept-nvidia-visible-devices-envvar-when-unprivileged`.
    pub(crate) unprivileged: bool,
    /// `annotation-prefixes`.
    pub(crate) prefixes: &'a [&'a str],
}

impl Settings<'static> {
    /// As the toolkit comes.
    pub(crate) const BUILT_IN: Settings<'static> =
        Settings { mode: "auto", swarm: &[], mounts: false, unprivileged: true, prefixes: &["cdi.k8s.io/"] };
}

impl Toolkit {
    /// Installs the toolkit of a host with the GPUs of an inventory fixture.
    #[track_caller]
    pub(crate) fn new(inventory_name: &str, settings: Settings<'_>) -> Toolkit {
        let toolkit_folder = tempfile::Builder::new().prefix("toolkit").tempdir().unwrap();
        fs::set_permissions(toolkit_folder.path(), Permissions::from_mode(0o755)).unwrap();
        let out = Toolkit { folder: toolkit_folder };
        for name in ["bin", "sbin"] {
            fs::create_dir(out.path().join(name)).unwrap();
        }
        for file in fs::read_dir(toolkit()).unwrap() {
            let file = file.unwrap();
            write_program(&out.bin(file.file_name().to_str().unwrap()), &fs::read(file.path()).unwrap());
        }
        let paths = format!(
            "inventory='{}'\nrecord='{}'\njq='{}'\nrunc='{}'\n",
            inventory(inventory_name).display(),
            out.record_file().display(),
            find_program("jq").display(),
            find_program("runc").display(),
        );
        fs::write(out.bin("paths"), paths).unwrap();
        // Where cudaview looks for it, and where a PATH leads to. It is there unless it is removed.
        std::os::unix::fs::symlink(out.bin("nvidia-container-cli"), out.cli()).unwrap();
        out.configure(settings);
        out
    }

    /// Replaces the configuration.
    pub(crate) fn configure(&self, settings: Settings<'_>) {
        let Settings { mode, swarm, mounts, unprivileged, prefixes } = settings;
        let own = json!({"mode": mode, "swarm": swarm, "mounts": mounts, "unprivileged": unprivileged,
                         "prefixes": prefixes});
        fs::write(self.bin("toolkit.json"), own.to_string()).unwrap();
        let text = format!(
            "swarm-resource = \"{}\"\naccept-nvidia-visible-devices-as-volume-mounts = {mounts}\n\
             accept-nvidia-visible-devices-envvar-when-unprivileged = {unprivileged}\n\
             [nvidia-container-runtime]\nmode = \"{mode}\"\n\
             [nvidia-container-runtime.modes.cdi]\nannotation-prefixes = {prefixes:?}\n",
            swarm.join(",")
        );
        fs::write(self.config(), text).unwrap();
    }

    /// `nvidia-container-runtime`.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.bin("nvidia-container-runtime")
    }

    /// `nvidia-container-runtime-hook`.
    pub(crate) fn hook(&self) -> PathBuf {
        self.bin("nvidia-container-runtime-hook")
    }

    /// `nvidia-container-cli`, in what is `/usr/local/sbin` on the toolkit's host.
    pub(crate) fn cli(&self) -> PathBuf {
        self.path().join("sbin/nvidia-container-cli")
    }

    /// A program as it runs on the toolkit's host: with its tool in a system directory, and its configuration.
    #[track_caller]
    pub(crate) fn host(&self, program: &Path) -> PathBuf {
        let folder = self.path().join("host");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(program.file_name().unwrap());
        let script = format!(
            "#!/bin/sh\nexport NVIDIA_CTK_CONFIG_FILE_PATH='{config}'\nexec unshare --mount --propagation slave sh -c \
             'mount --bind \"$1\" /usr/local/sbin; shift; exec \"$@\"' sh '{sbin}' '{program}' \"$@\"\n",
            config = self.config().display(),
            sbin = self.path().join("sbin").display(),
            program = program.display(),
        );
        write_program(&path, script.as_bytes());
        path
    }

    /// Makes the toolkit's hook the one that a daemon puts into specifications for `--gpus`.
    #[track_caller]
    pub(crate) fn hook_of(&self, docker: &Dockerd) {
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", self.hook().display());
        write_program(&docker.path().join("path/nvidia-container-runtime-hook"), script.as_bytes());
    }

    /// What the programs wrote down since this was last asked.
    #[track_caller]
    pub(crate) fn take_record(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.record_file()).unwrap_or_default();
        let _nothing_yet = fs::remove_file(self.record_file());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.path().join("bin").join(name)
    }

    fn config(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    fn record_file(&self) -> PathBuf {
        self.path().join("record.jsonl")
    }
}
