//! The wrapper in a folder of the test's own, with a stand-in for the low-level runtime. Needs neither root nor engines.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::command::{Ran, run, write_program};
use crate::world::{A100X4, inventory};

/// An installation, a bundle, and a stand-in for the low-level runtime.
pub(crate) struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    /// With this `config.toml`; the keys that the simulation needs stand before it.
    pub(crate) fn new(config: &str) -> Sandbox {
        let folder = tempfile::Builder::new().prefix("sandbox").tempdir().unwrap();
        let sandbox = Sandbox { folder };
        for name in ["prefix/bin", "prefix/etc/cudaview", "host/dev", "bundle", "log"] {
            fs::create_dir_all(sandbox.path(name)).unwrap();
        }
        for (name, built) in [
            ("cudaview-runtime", env!("CARGO_BIN_EXE_cudaview-runtime")),
            ("cudaview-hook", env!("CARGO_BIN_EXE_cudaview-hook")),
        ] {
            write_program(&sandbox.path("prefix/bin").join(name), &fs::read(built).unwrap());
        }
        fs::copy(inventory(A100X4), sandbox.path("inventory.json")).unwrap();
        sandbox.write_runtime("#!/bin/sh\necho \"$*\" >>\"$0.started\"\n");
        let keys = [
            ("inventory", format!("'{}'", sandbox.path("inventory.json").display())),
            ("dev_root", format!("'{}'", sandbox.path("host").display())),
            ("low_level_runtime", format!("['{}']", sandbox.low_level().display())),
            ("audit", format!("'{}'", sandbox.path("audit.jsonl").display())),
        ];
        let given = |key: &str| config.lines().any(|line| line.starts_with(key));
        let keys = keys.iter().filter(|(key, _)| !given(key)).map(|(key, value)| format!("{key} = {value}\n"));
        sandbox.write("prefix/etc/cudaview/config.toml", &(keys.collect::<String>() + config));
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o644)).unwrap();
    }

    /// The wrapper.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.path("prefix/bin/cudaview-runtime")
    }

    /// The stand-in for the low-level runtime.
    pub(crate) fn low_level(&self) -> PathBuf {
        self.path("low-level")
    }

    /// Another stand-in.
    pub(crate) fn write_runtime(&self, program: impl AsRef<[u8]>) {
        write_program(&self.low_level(), program.as_ref());
    }

    /// The command lines with which the low-level runtime was started.
    pub(crate) fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("low-level.started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The wrapper with an engine's global options; the subcommand is to follow.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.runtime());
        command.arg("--root").arg(self.path("state")).arg("--log").arg(self.path("log/log.json"));
        command.args(["--log-format", "json"]);
        command
    }

    /// `create` of the bundle.
    #[track_caller]
    pub(crate) fn create(&self) -> Ran {
        run(self.command().args(["create", "--bundle"]).arg(self.path("bundle")).arg("c1"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log/log.json")).unwrap_or_default()
    }

    pub(crate) fn write_spec(&self, spec: &Value) {
        self.write("bundle/config.json", spec.to_string());
    }

    pub(crate) fn spec(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("bundle/config.json")).unwrap()).unwrap()
    }
}

/// A container to which an engine gave GPUs 1 and 3, with these variables.
pub(crate) fn gpu_spec(env: &[&str]) -> Value {
    let mut spec = crate::world::spec::template(&["true"], env, "/sandbox");
    crate::world::spec::grant_nodes(&mut spec, &[1, 3]);
    spec
}

/// The same without GPUs.
pub(crate) fn plain_spec() -> Value {
    let mut spec = gpu_spec(&[]);
    spec["linux"]["devices"] = json!([]);
    spec["linux"]["resources"]["devices"] = json!([]);
    spec
}

/// What must not change when a file is left alone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Untouched {
    bytes: Vec<u8>,
    inode: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    /// The names beside it.
    names: Vec<String>,
}

impl Untouched {
    /// The file's inode and times, without what lies beside it.
    pub(crate) fn stamp(&self) -> (u64, (i64, i64), (i64, i64)) {
        (self.inode, self.mtime, self.ctime)
    }

    pub(crate) fn of(file: &Path) -> Untouched {
        let metadata = fs::symlink_metadata(file).unwrap();
        let entries = fs::read_dir(file.parent().unwrap()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        Untouched {
            bytes: if metadata.is_file() { fs::read(file).unwrap() } else { Vec::new() },
            inode: metadata.ino(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
            names,
        }
    }
}
