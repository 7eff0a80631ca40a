//! An image for `explain`: a folder or a file that somebody saved, or one in an engine's store. What is here only reads.
//!
//! The wrapper and the hooks never come here, as they never come to [`super::containers`].

mod archive;
mod blobs;
mod containerd;
mod docker;
mod podman;

use std::path::Path;

pub use blobs::is_compressed;

use crate::finding::printable;
use crate::image::Image;
use crate::sys::containers::Places;

/// Ways to name a place, as skopeo(1) and podman(1) spell them; what is behind them is a folder, a file or a name.
const FILES: [&str; 4] = ["oci:", "oci-archive:", "docker-archive:", "dir:"];
const OF_DOCKER: &str = "docker-daemon:";
const OF_PODMAN: &str = "containers-storage:";

/// containerd's namespaces that people's images are in: nerdctl's and ctr's, and Kubernetes'.
const NAMESPACES: [&str; 2] = ["default", "k8s.io"];

/// An image.
#[derive(Debug)]
pub struct FoundImage {
    /// What it is: `a docker save archive`, `in Docker's store`.
    pub place: String,
    /// Its id or digest.
    pub id: Option<String>,
    /// What it has built in.
    pub image: Image,
    /// What else a reader should know.
    pub notes: Vec<String>,
}

/// Whose images are looked at, where a name is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store<'a> {
    /// Docker's.
    Docker,
    /// podman's.
    Podman,
    /// containerd's, in this namespace.
    Containerd(&'a str),
    /// Anybody's.
    Any,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A path that is there and holds nothing that can be read.
    #[error("failed to read the image {path:?}: {reason}")]
    Bad {
        /// The path.
        path: String,
        /// Why not.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// There is no such path and no such image.
    #[error("no image {name:?} was found{}", looked_at(.looked))]
    Missing {
        /// As it was named.
        name: String,
        /// Where it was looked for, and what came of it.
        looked: Vec<String>,
        /// What images there are called.
        names: Vec<String>,
        /// Somebody else may look there.
        denied: bool,
    },
}

fn looked_at(looked: &[String]) -> String {
    if looked.is_empty() {
        return ", and no engine in its usual place".to_owned();
    }
    format!("; looked at {}", looked.join(", "))
}

impl ImageError {
    fn bad(path: &Path, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Bad { path: path.display().to_string(), reason: reason.into(), hint: hint.into() }
    }
}

/// A search in engines' stores.
#[derive(Default)]
struct Search {
    found: Vec<FoundImage>,
    looked: Vec<String>,
    names: Vec<String>,
    denied: bool,
}

impl Search {
    fn look(&mut self, place: impl std::fmt::Display, outcome: impl std::fmt::Display) {
        self.looked.push(printable(&format!("{place} ({outcome})")));
    }

    /// A usual place that is not there is not worth a word.
    fn failed(&mut self, place: &Path, error: &std::io::Error, is_named: bool) {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound if !is_named => {}
            ErrorKind::NotFound => self.look(place.display(), "not there"),
            ErrorKind::PermissionDenied => {
                self.denied = true;
                self.look(place.display(), "not permitted");
            }
            ErrorKind::ConnectionRefused => self.look(place.display(), "nobody listens"),
            _ => self.look(place.display(), error),
        }
    }
}

/// Looks for an image by a path, or by its name or id in these stores.
pub fn find(text: &str, store: Store<'_>, places: &Places) -> Result<FoundImage, ImageError> {
    // Docker and containerd take no path: a file or a folder that is called like an image is not that image.
    if matches!(store, Store::Docker | Store::Containerd(_)) {
        return in_stores(text, store, places);
    }
    if let Some(name) = text.strip_prefix(OF_DOCKER) {
        return in_stores(name, Store::Docker, places);
    }
    if let Some(name) = text.strip_prefix(OF_PODMAN) {
        return in_stores(name, Store::Podman, places);
    }
    let transport = FILES.into_iter().find(|transport| text.starts_with(transport));
    let path = transport.map_or(text, |transport| &text[transport.len()..]);
    // Nor does podman, unless it is told so.
    let may_be_path = store == Store::Any || transport.is_some();
    if let Some((path, name)) = existing(path).filter(|_| may_be_path) {
        return archive::read(path, name);
    }
    if transport.is_some() || (may_be_path && is_path(path)) {
        let (looked, names) = (vec![format!("{path} (not there)")], Vec::new());
        return Err(ImageError::Missing { name: text.to_owned(), looked, names, denied: false });
    }
    in_stores(text, store, places)
}

/// A path that is there, and behind a colon the name of one of its images.
fn existing(text: &str) -> Option<(&Path, Option<&str>)> {
    // A folder beside us is an image's name more often than an image, unless it has what an image has.
    let is_there = |text: &str| {
        let path = Path::new(text);
        is_path(text) && path.exists()
            || path.is_file()
            || path.join("index.json").is_file()
            || path.join("manifest.json").is_file()
    };
    if is_there(text) {
        return Some((Path::new(text), None));
    }
    let mut colons = text.match_indices(':').map(|(at, _)| text.split_at(at));
    colons.find(|(path, _)| is_there(path)).map(|(path, name)| (Path::new(path), Some(&name[1..])))
}

/// Whether a text can be nothing but a path.
fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.'])
}

/// Whether a text can be the name, the id or the digest of an image. It goes into questions, so nothing else may.
pub fn is_reference(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b':' | b'@');
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    text.len() <= 512 && text.bytes().all(is_plain) && text.split('/').all(is_part)
}

fn in_stores(name: &str, store: Store<'_>, places: &Places) -> Result<FoundImage, ImageError> {
    let mut search = Search::default();
    if is_reference(name) {
        if matches!(store, Store::Docker | Store::Any) {
            docker::search(name, places, &mut search);
        }
        if matches!(store, Store::Podman | Store::Any) {
            podman::search(name, places, &mut search);
        }
        match store {
            Store::Containerd(namespace) => containerd::search(name, &[namespace], places, &mut search),
            // Its client is slow to start, so it is asked last.
            Store::Any if search.found.is_empty() => containerd::search(name, &NAMESPACES, places, &mut search),
            _ => {}
        }
    } else {
        search.look(name.escape_debug(), "no image can be called so");
    }
    let mut found = search.found.into_iter();
    let Some(mut first) = found.next() else {
        let Search { looked, names, denied, .. } = search;
        return Err(ImageError::Missing { name: name.to_owned(), looked, names, denied });
    };
    for other in found.filter(|other| other.image.env != first.image.env) {
        let way = if other.place.contains("podman") { OF_PODMAN } else { OF_DOCKER };
        first.notes.push(format!("there is another image of this name {}: --image {way}{name}", other.place));
    }
    Ok(first)
}

/// Whether an image of this name is meant by `wanted`, as engines complete names that were typed short.
// distribution/reference, ParseNormalizedNamed; containers/common libimage, local short names
fn is_called(name: &str, wanted: &str) -> bool {
    name == wanted || completed(name) == completed(wanted)
}

/// A name without what engines add to it, and with a tag.
fn completed(name: &str) -> String {
    let name = name.strip_prefix("localhost/").unwrap_or(name);
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests;
