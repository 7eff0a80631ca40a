//! Docker's images, those that no Dockerfile gives among them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::artifacts::rootfs_tar;
use super::command::run;
use super::dockerd::Dockerd;

impl Dockerd {
    /// Makes an image of the simulated host's root file system; each change is a Dockerfile line, `ENV K=V` for example.
    #[track_caller]
    pub(crate) fn import(&self, inventory_name: &str, name: &str, changes: &[&str]) {
        let mut command = self.command();
        command.arg("import");
        for change in changes {
            command.args(["--change", change]);
        }
        run(command.arg(rootfs_tar(inventory_name)).arg(name)).ok();
    }

    /// Builds an image from a Dockerfile (the legacy builder); `FROM` an imported image is how it works offline.
    #[track_caller]
    pub(crate) fn build(&self, name: &str, dockerfile: &str) {
        let context = tempfile::Builder::new().prefix("context").tempdir_in(self.path()).unwrap();
        fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
        let mut command = self.command();
        run(command.args(["build", "--quiet", "--network", "none", "--tag", name]).arg(context.path())).ok();
    }

    /// Loads an image of the simulated host's root file system whose environment is exactly this list.
    #[track_caller]
    pub(crate) fn load(&self, inventory_name: &str, name: &str, env: &[&str]) {
        let folder = tempfile::Builder::new().prefix("image").tempdir_in(self.path()).unwrap();
        let image = archive(folder.path(), inventory_name, name, env);
        run(self.command().args(["load", "--quiet", "--input"]).arg(&image)).ok();
    }
}

/// Writes an image of the simulated host's root file system in the format of `docker save`. Its environment is exactly
/// this list, repeated keys and entries without `=` included.
#[track_caller]
pub(crate) fn archive(folder: &Path, inventory_name: &str, name: &str, env: &[&str]) -> PathBuf {
    archive_of(folder, inventory_name, name, &json!({"Env": env}))
}

/// The same with all of `config`, the command to run among it.
#[track_caller]
pub(crate) fn archive_of(folder: &Path, inventory_name: &str, name: &str, config: &Value) -> PathBuf {
    let layer = rootfs_tar(inventory_name);
    let digest = run(Command::new("sha256sum").arg(&layer)).ok().stdout;
    let digest = digest.split_whitespace().next().unwrap();

    let file = |name: &str| folder.join(name);
    fs::copy(&layer, file("layer.tar")).unwrap();
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "created": "2024-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [format!("{name}:latest")], "Layers": ["layer.tar"]}]);
    fs::write(file("config.json"), config.to_string()).unwrap();
    fs::write(file("manifest.json"), manifest.to_string()).unwrap();

    let image = file("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(&image).arg("-C").arg(folder).args(["manifest.json", "config.json", "layer.tar"]);
    run(&mut tar).ok();
    image
}
