//! A saved image: an OCI layout, as a folder or a tar file, or what docker save and podman save write.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::blobs::{Blobs, Unreadable};
use super::{FoundImage, ImageError, is_called, is_reference};
use crate::finding::printable;
use crate::image::{Image, steps};
use crate::sys::provenance::{self, is_digest};

/// Indexes that lead to one another.
const DEPTH: usize = 4;

/// An image of a docker save archive.
// moby image/tarexport, manifestItem
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

/// Reads the image, or of several the one that is called so.
pub(super) fn read(path: &Path, wanted: Option<&str>) -> Result<FoundImage, ImageError> {
    let bad = |error: Unreadable| ImageError::bad(path, error.reason, error.hint);
    let blobs = Blobs::open(path).map_err(bad)?;
    found(&blobs, path, wanted).map_err(bad)
}

fn found(blobs: &Blobs, path: &Path, wanted: Option<&str>) -> Result<FoundImage, Unreadable> {
    let in_file = |name: &str| blobs.read(name).map_err(Unreadable::new);
    let (kind, (config, notes)) = if let Some(manifest) = in_file("manifest.json")? {
        ("a docker save archive", (of_docker(&manifest, path, wanted)?, Vec::new()))
    } else if let Some(index) = in_file("index.json")? {
        ("an OCI layout", of_layout(blobs, &index, path, wanted)?)
    } else {
        let hint = "an OCI layout (podman save --format oci-dir, oci-archive) or what docker save writes";
        let reason = "there is no index.json and no manifest.json in it".to_owned();
        return Err(Unreadable { reason, hint: hint.to_owned() });
    };
    let content = in_file(&config)?.ok_or_else(|| Unreadable::new(format!("there is no {config:?} in it")))?;
    let env = provenance::image_env(&content).map_err(|reason| Unreadable::new(format!("{config:?}: {reason}")))?;
    let hex = config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
    Ok(FoundImage {
        place: kind.to_owned(),
        id: is_digest(hex).then(|| format!("sha256:{hex}")),
        image: Image { env, steps: Some(steps(&content)) },
        notes,
    })
}

/// The file with the image's configuration.
fn of_docker(manifest: &[u8], path: &Path, wanted: Option<&str>) -> Result<String, Unreadable> {
    let listed: Vec<Saved> =
        serde_json::from_slice(manifest).map_err(|error| Unreadable::new(format!("manifest.json: {error}")))?;
    let names = |saved: &Saved| saved.repo_tags.clone().unwrap_or_default();
    choose(&listed, names, path, wanted).map(|saved| saved.config.clone())
}

/// The one that is meant.
fn choose<'a, T>(
    all: &'a [T],
    names: impl Fn(&T) -> Vec<String>,
    path: &Path,
    wanted: Option<&str>,
) -> Result<&'a T, Unreadable> {
    let called = |one: &&T| wanted.is_none_or(|wanted| names(one).iter().any(|name| is_called(name, wanted)));
    let fitting: Vec<&T> = all.iter().filter(called).collect();
    let known: Vec<String> = all.iter().flat_map(&names).take(8).map(|name| printable(&name)).collect();
    let with_name =
        known.first().filter(|name| is_reference(name)).map(|name| format!("--image {}:{name}", path.display()));
    match (fitting.as_slice(), wanted) {
        ([only], _) => Ok(only),
        ([], Some(wanted)) => {
            let reason = format!("no image in it is called {wanted:?}; there is {}", known.join(", "));
            Err(Unreadable { reason, hint: with_name.unwrap_or_default() })
        }
        ([], None) => Err(Unreadable::new("there is no image in it")),
        (several, _) => {
            let reason = format!("there are {} images in it: {}", several.len(), known.join(", "));
            Err(Unreadable { reason, hint: with_name.unwrap_or_default() })
        }
    }
}

/// The file with the configuration of the image, and what was chosen among.
fn of_layout(
    blobs: &Blobs,
    index: &[u8],
    path: &Path,
    wanted: Option<&str>,
) -> Result<(String, Vec<String>), Unreadable> {
    let entry = first_entry(&parse("index.json", index)?, path, wanted)?;
    config_in(blobs, entry["digest"].as_str().unwrap_or_default())
}

/// The file with the configuration that a manifest or an index leads to, and what was chosen among.
pub(super) fn config_in(blobs: &Blobs, digest: &str) -> Result<(String, Vec<String>), Unreadable> {
    let mut notes = Vec::new();
    let mut entry = serde_json::json!({"digest": digest});
    for _ in 0..DEPTH {
        let name = blob(&entry)?;
        let content = blobs.read(&name).map_err(Unreadable::new)?;
        let content = content.ok_or_else(|| Unreadable::new(format!("there is no {name:?} in it")))?;
        let failed = |reason: String| Unreadable::new(format!("{name}: {reason}"));
        if let Some(digest) = provenance::config_digest(&content).map_err(failed)? {
            return Ok((blob_of(&digest)?, notes));
        }
        entry = of_platform(&manifests(&parse(&name, &content)?), &mut notes)?;
    }
    Err(Unreadable::new("its indexes lead to no image"))
}

fn parse(name: &str, content: &[u8]) -> Result<Value, Unreadable> {
    serde_json::from_slice(content).map_err(|error| Unreadable::new(format!("{name}: {error}")))
}

/// The entries of an index, without what is said of other entries.
fn manifests(index: &Value) -> Vec<Value> {
    let entries = index["manifests"].as_array().into_iter().flatten();
    // BuildKit's attestations.
    entries.filter(|entry| entry["annotations"].get("vnd.docker.reference.type").is_none()).cloned().collect()
}

fn first_entry(index: &Value, path: &Path, wanted: Option<&str>) -> Result<Value, Unreadable> {
    let entries = manifests(index);
    let is_unnamed = entries.iter().all(|entry| names(entry).is_empty());
    if wanted.is_none() && is_unnamed && entries.len() > 1 {
        return of_platform(&entries, &mut Vec::new());
    }
    // containerd names an image twice; a manifest under two names is one image.
    let mut distinct: Vec<(Value, Vec<String>)> = Vec::new();
    for entry in entries {
        let own = names(&entry);
        match distinct.iter_mut().find(|(known, _)| known["digest"] == entry["digest"]) {
            Some((_, names)) => names.extend(own),
            None => distinct.push((entry, own)),
        }
    }
    choose(&distinct, |(_, names)| names.clone(), path, wanted).map(|(entry, _)| entry.clone())
}

/// What an entry of an index is called.
fn names(entry: &Value) -> Vec<String> {
    let keys = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
    keys.into_iter().filter_map(|key| entry["annotations"][key].as_str()).map(str::to_owned).collect()
}

/// The one for this machine; where there is but one, that one.
fn of_platform(entries: &[Value], notes: &mut Vec<String>) -> Result<Value, Unreadable> {
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = |entry: &Value| {
        let text = |key: &str| entry["platform"][key].as_str().unwrap_or("unknown").to_owned();
        (text("os"), text("architecture"))
    };
    let fitting: Vec<&Value> =
        entries.iter().filter(|entry| platform(entry) == ("linux".to_owned(), here.to_owned())).collect();
    match (fitting.as_slice(), entries) {
        ([only], _) => Ok((*only).clone()),
        ([], [only]) => {
            let (os, architecture) = platform(only);
            notes.push(format!("it is for {os:?}/{architecture:?}"));
            Ok(only.clone())
        }
        ([], _) => Err(Unreadable::new(format!("none of its {} images is for linux/{here}", entries.len()))),
        (several, _) => Err(Unreadable::new(format!("{} of its images are for linux/{here}", several.len()))),
    }
}

fn blob(entry: &Value) -> Result<String, Unreadable> {
    blob_of(entry["digest"].as_str().unwrap_or_default())
}

/// The file with this digest.
fn blob_of(digest: &str) -> Result<String, Unreadable> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_digest(hex));
    let hex = hex.ok_or_else(|| Unreadable::new(format!("the digest {digest:?} in it is not of a known form")))?;
    Ok(format!("blobs/sha256/{hex}"))
}
