//! The environment of an image in either of Docker's image stores.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{SIZE_LIMIT, image_config, is_digest, looked_at};
use crate::sys::errno::chain;
use crate::sys::trusted::{read, read_existing};

/// How `config.v2.json` names a container's image.
pub(super) struct Image<'a> {
    /// `Image`: the configuration's digest in the graphdriver store; a manifest's or an index' in containerd's.
    pub(super) id: &'a str,
    /// `Driver`: the storage driver or the snapshotter.
    pub(super) driver: Option<&'a str>,
    /// `ImageManifest`: the platform's manifest.
    pub(super) manifest: Option<&'a Manifest>,
    /// `ImagePlatform`.
    pub(super) platform: Option<&'a Platform>,
}

/// `ImageManifest`, as far as we need it.
#[derive(Deserialize)]
pub(super) struct Manifest {
    digest: String,
}

/// A platform as image indexes name it. No other members, since the engine would take `OS` for `os`.
// OCI image specification, image-index.md.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Platform {
    architecture: String,
    os: String,
    #[serde(rename = "variant", alias = "os.version", alias = "os.features", alias = "features")]
    _rest: Option<serde::de::IgnoredAny>,
}

/// An image index.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    #[serde(rename = "schemaVersion")]
    _schema_version: serde::de::IgnoredAny,
    #[serde(rename = "mediaType")]
    _media_type: Option<serde::de::IgnoredAny>,
    #[serde(rename = "annotations")]
    _annotations: Option<serde::de::IgnoredAny>,
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    digest: String,
    #[serde(rename = "mediaType")]
    _media_type: serde::de::IgnoredAny,
    #[serde(rename = "size")]
    _size: serde::de::IgnoredAny,
    #[serde(rename = "annotations")]
    _annotations: Option<serde::de::IgnoredAny>,
    platform: Option<Platform>,
}

/// The environment of an image of containerd's own, by the digest that its name stands for.
pub(super) fn env_of_containerds(digest: &str, bundle: &Path) -> Result<Vec<String>, String> {
    let image = Image { id: digest, driver: Some("content"), manifest: None, platform: None };
    image.env(bundle, Path::new("/var/lib"))
}

impl Image<'_> {
    /// The image's own environment; `bundle` and `data_root` lead to the stores.
    pub(super) fn env(&self, bundle: &Path, data_root: &Path) -> Result<Vec<String>, String> {
        let driver = self.driver.filter(|name| is_file_name(name));
        let (Some(digest), Some(driver)) = (digest_of(self.id), driver) else {
            return Err("the container's image id or storage driver is not of a known form".to_owned());
        };
        let of_driver = data_root.join("image").join(driver).join("imagedb/content/sha256");
        let path = if self.manifest.is_some() || !of_driver.is_dir() {
            let store = content_store(bundle, data_root);
            store.join(self.config_digest(&store, digest)?)
        } else {
            of_driver.join(digest)
        };
        let content = read_existing(&path, SIZE_LIMIT).map_err(|error| chain(&error))?;
        image_config::env(&content).map_err(|reason| looked_at(&path, &reason))
    }

    /// From the manifest, or an index and its manifest, to the configuration.
    fn config_digest(&self, store: &Path, id: &str) -> Result<String, String> {
        let mut digest = match self.manifest {
            Some(manifest) => known_digest(&manifest.digest)?.to_owned(),
            None => id.to_owned(),
        };
        for _ in ["index", "manifest"] {
            let path = store.join(&digest);
            let Some(content) = read(&path, SIZE_LIMIT).map_err(|error| chain(&error))? else {
                return Err(looked_at(&path, "the image's manifest is not there"));
            };
            if let Some(config) = image_config::config_digest(&content).map_err(|reason| looked_at(&path, &reason))? {
                return known_digest(&config).map(str::to_owned);
            }
            digest = self.of_platform(&content).map_err(|reason| looked_at(&path, &reason))?;
        }
        Err(looked_at(&store.join(digest), "it is no manifest of an image"))
    }

    /// The one manifest in an index that is for the container's platform. Where there are several, the engine's choice
    /// is not ours to repeat.
    fn of_platform(&self, index: &[u8]) -> Result<String, String> {
        let index: Index = serde_json::from_slice(index).map_err(|error| error.to_string())?;
        let platform = self.platform.cloned().unwrap_or_else(Platform::of_host);
        let fits = |found: &Platform| (&found.architecture, &found.os) == (&platform.architecture, &platform.os);
        let mut fitting = index.manifests.iter().filter(|entry| entry.platform.as_ref().is_some_and(fits));
        let (Some(entry), None) = (fitting.next(), fitting.next()) else {
            return Err("it has not exactly one manifest for the platform".to_owned());
        };
        known_digest(&entry.digest).map(str::to_owned)
    }
}

impl Platform {
    fn of_host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), os: "linux".to_owned(), _rest: None }
    }
}

/// containerd's content, which only root can write: `<bundle>/work` points to
/// `<its root>/io.containerd.runtime.v2.task/<namespace>/<id>`; dockerd's own containerd is in dockerd's data root.
fn content_store(bundle: &Path, data_root: &Path) -> PathBuf {
    let link = fs::read_link(bundle.join("work")).unwrap_or_default();
    let of_link = link.ancestors().nth(3).filter(|path| path.is_absolute()).map(Path::to_owned);
    let root = of_link.unwrap_or_else(|| data_root.join("containerd/daemon"));
    root.join("io.containerd.content.v1.content/blobs/sha256")
}

fn digest_of(text: &str) -> Option<&str> {
    text.strip_prefix("sha256:").filter(|hex| is_digest(hex))
}

fn known_digest(text: &str) -> Result<&str, String> {
    digest_of(text).ok_or_else(|| "a digest in the image is not of a known form".to_owned())
}

fn is_file_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

#[cfg(test)]
mod tests;
