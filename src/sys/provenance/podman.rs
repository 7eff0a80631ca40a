//! Podman's files about a container, in containers/storage: `containers.json`, and the configuration of its image.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::image_config;
use super::{SIZE_LIMIT, is_digest, looked_at};
use crate::provenance::{Engine, EngineFacts};
use crate::sys::errno::chain;
use crate::sys::trusted;

/// The lists of containers; those of `--rm` are in the second one in newer versions.
// containers/storage containers.go
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// What podman's files say about the container `id`; the caller knows that it is podman's.
pub(super) fn facts(bundle: &Path, spec: &Value, id: &str) -> EngineFacts {
    let mut out = EngineFacts::nothing_known(Engine::Podman);
    let found = store_of_bundle(bundle, id).map(|store| (store, None));
    let Some((store, layer)) = found.or_else(|| store_of_rootfs(spec)) else {
        out.notes.push("podman's storage was not found from the bundle or the root file system".to_owned());
        return out;
    };
    out.data_root = Some(store.root.clone());
    match store.container(id, layer.as_deref()) {
        Ok(container) => {
            out.container_name = container.names.iter().flatten().next().cloned();
            out.image = container.image_name();
            match store.image_env(&container) {
                Ok(env) => out.image_env = Some(env),
                Err(reason) => out.notes.push(reason),
            }
        }
        Err(reason) => out.notes.push(reason),
    }
    out
}

/// Whether podman's files know the container `id`, whatever its configuration says.
pub(super) fn has(bundle: &Path, spec: &Value, id: &str) -> bool {
    let found = store_of_bundle(bundle, id).map(|store| (store, None)).or_else(|| store_of_rootfs(spec));
    found.is_some_and(|(store, layer)| store.container(id, layer.as_deref()).is_ok())
}

/// A container as a list of podman's has it.
pub(in crate::sys) struct Listed {
    pub(in crate::sys) id: String,
    pub(in crate::sys) names: Vec<String>,
    /// Its bundle, from the container's start on.
    pub(in crate::sys) bundle: PathBuf,
    /// The id of its image, and the file with the image's configuration; none of `--rootfs`.
    pub(in crate::sys) image: Option<(String, PathBuf)>,
    /// The list.
    pub(in crate::sys) list: PathBuf,
}

/// Every container in a storage, whatever the driver.
pub(in crate::sys) fn list(root: &Path) -> Result<Vec<Listed>, String> {
    let mut out = Vec::new();
    for (store, folder) in stores(root, "-containers")? {
        for list in LISTS.map(|list| folder.join(list)) {
            let entries: Vec<Container> = Store::entries(&list)?;
            out.extend(entries.into_iter().filter(|found| is_digest(&found.id)).map(|found| Listed {
                bundle: folder.join(&found.id).join("userdata"),
                image: is_digest(&found.image).then(|| (found.image.clone(), store.image_config(&found.image))),
                names: found.names.unwrap_or_default(),
                id: found.id,
                list: list.clone(),
            }));
        }
    }
    Ok(out)
}

/// An image as podman's list has it.
pub(in crate::sys) struct ListedImage {
    pub(in crate::sys) id: String,
    pub(in crate::sys) names: Vec<String>,
    /// The file with its configuration.
    pub(in crate::sys) config: PathBuf,
}

/// Every image in a storage, whatever the driver.
// containers/storage images.go
pub(in crate::sys) fn images(root: &Path) -> Result<Vec<ListedImage>, String> {
    let mut out = Vec::new();
    for (store, folder) in stores(root, "-images")? {
        let entries: Vec<ImageEntry> = Store::entries(&folder.join("images.json"))?;
        out.extend(entries.into_iter().filter(|found| is_digest(&found.id)).map(|found| ListedImage {
            config: store.image_config(&found.id),
            names: found.names.unwrap_or_default(),
            id: found.id,
        }));
    }
    Ok(out)
}

/// The folders of each driver in a storage whose name ends so.
fn stores(root: &Path, ending: &str) -> Result<Vec<(Store, PathBuf)>, String> {
    let failed = |error: std::io::Error| looked_at(root, &error.to_string());
    let mut out = Vec::new();
    for entry in std::fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let driver = name.to_str().and_then(|name| name.strip_suffix(ending));
        // A link would lead out of the storage.
        let Some(driver) = driver.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) else { continue };
        out.push((Store { root: root.to_owned(), driver: driver.to_owned() }, entry.path()));
    }
    Ok(out)
}

/// containers/storage of one driver.
struct Store {
    root: PathBuf,
    driver: String,
}

/// One entry of `containers.json`.
#[derive(Deserialize)]
struct Container {
    id: String,
    names: Option<Vec<String>>,
    /// Empty for `--rootfs`.
    #[serde(default)]
    image: String,
    #[serde(default)]
    layer: String,
    #[serde(default)]
    metadata: String,
}

/// One entry of `images.json`.
#[derive(Deserialize)]
struct ImageEntry {
    id: String,
    names: Option<Vec<String>>,
}

/// What podman writes into an entry's `metadata`.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "image-name")]
    image_name: Option<String>,
}

/// The bundle is `<root>/<driver>-containers/<id>/userdata`.
fn store_of_bundle(bundle: &Path, id: &str) -> Option<Store> {
    let folder = bundle.parent().filter(|_| bundle.file_name() == Some(OsStr::new("userdata")))?;
    let containers = folder.parent().filter(|_| folder.file_name() == Some(OsStr::new(id)) && is_digest(id))?;
    let driver = containers.file_name()?.to_str()?.strip_suffix("-containers")?;
    Some(Store { root: containers.parent()?.to_owned(), driver: driver.to_owned() })
}

/// `<root>/<driver>/<layer>/merged`, or `<root>/vfs/dir/<layer>`: the precreate stage of podman 4 names no bundle.
/// The list says which container has this layer, for a user may name any folder with `--rootfs`.
fn store_of_rootfs(spec: &Value) -> Option<(Store, Option<String>)> {
    let path = spec["root"]["path"].as_str().map(Path::new).filter(|path| path.is_absolute())?;
    let layer = if path.ends_with("merged") { path.parent()? } else { path };
    let driver = path.ancestors().nth(2)?.file_name()?.to_str()?.to_owned();
    let root = path.ancestors().nth(3)?.to_owned();
    Some((Store { root, driver }, Some(layer.file_name()?.to_str()?.to_owned())))
}

impl Store {
    fn container(&self, id: &str, layer: Option<&str>) -> Result<Container, String> {
        let folder = self.root.join(format!("{}-containers", self.driver));
        for list in LISTS {
            let path = folder.join(list);
            let is_it = |entry: &Container| layer.map_or(entry.id == id, |layer| entry.layer == layer);
            if let Some(entry) = Self::entries(&path)?.into_iter().find(is_it) {
                // A rootless podman without cgroups says no id before there is a bundle; the layer is the container's own.
                return if entry.id == id || !is_digest(id) {
                    Ok(entry)
                } else {
                    Err(looked_at(&path, "the root file system is another container's"))
                };
            }
        }
        Err(looked_at(&folder, "the container is in none of its lists"))
    }

    /// What stands in a list; nothing where it is not there.
    fn entries<T: for<'a> Deserialize<'a>>(list: &Path) -> Result<Vec<T>, String> {
        let Some(content) = trusted::read(list, SIZE_LIMIT).map_err(|error| chain(&error))? else {
            return Ok(Vec::new());
        };
        serde_json::from_slice(&content).map_err(|error| looked_at(list, &error.to_string()))
    }

    /// The file with an image's configuration.
    // containers/storage store.go, makeBigDataBaseName.
    fn image_config(&self, image: &str) -> PathBuf {
        let name = format!("={}", base64(format!("sha256:{image}").as_bytes()));
        self.root.join(format!("{}-images", self.driver)).join(image).join(name)
    }

    /// The image's own environment; none of `--rootfs`.
    fn image_env(&self, container: &Container) -> Result<Vec<String>, String> {
        let image = container.image.as_str();
        if image.is_empty() {
            return Ok(Vec::new());
        }
        if !is_digest(image) {
            return Err("the container's image id is not of a known form".to_owned());
        }
        let path = self.image_config(image);
        // An image in another store (additionalimagestores, imagestore) is not looked for.
        let content = trusted::read_existing(&path, SIZE_LIMIT).map_err(|error| chain(&error))?;
        image_config::env(&content).map_err(|reason| looked_at(&path, &reason))
    }
}

impl Container {
    fn image_name(&self) -> Option<String> {
        let metadata: Metadata = serde_json::from_str(&self.metadata).ok()?;
        metadata.image_name.filter(|name| !name.is_empty())
    }
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0_usize, |word, index| word << 8 | chunk.get(index).copied().map_or(0, usize::from));
        for place in 0..4 {
            let digit = DIGITS.get(word >> (18 - 6 * place) & 63).copied().unwrap_or(b'=');
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
