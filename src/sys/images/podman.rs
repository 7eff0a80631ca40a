//! podman's images, in the storage of whoever asks.

use super::{FoundImage, Search, is_called};
use crate::image::{Image, steps};
use crate::sys::containers::Places;
use crate::sys::errno::chain;
use crate::sys::provenance::{self, podman};
use crate::sys::trusted;

/// The largest configuration that is read.
const SIZE_LIMIT: u64 = 16 << 20;

/// The least beginning of an id that is taken for one.
const SHORTEST_ID: usize = 4;

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    for root in &places.storage {
        // Root must not be led around in a folder that somebody else can rebuild meanwhile.
        match trusted::folder(root) {
            Ok(()) => {}
            Err(trusted::Untrusted::Read { source, .. }) => {
                search.failed(root, &source, places.storage_is_named);
                continue;
            }
            Err(error) => {
                search.look(root.display(), error);
                continue;
            }
        }
        let listed = match podman::images(root) {
            Ok(listed) => listed,
            Err(reason) => {
                search.look(root.display(), reason);
                continue;
            }
        };
        let Some(image) = choose(name, &listed) else {
            search.names.extend(listed.iter().flat_map(|one| one.names.iter().map(|name| short(name))));
            search.look(root.display(), "no such image");
            continue;
        };
        match read(image) {
            Ok(found) => search.found.push(found),
            Err(reason) => search.look(root.display(), reason),
        }
    }
}

/// By its name, as podman completes it; else by the end of a longer name, or the beginning of its id, where that is one.
fn choose<'a>(name: &str, listed: &'a [podman::ListedImage]) -> Option<&'a podman::ListedImage> {
    let has = |test: &dyn Fn(&str) -> bool, one: &podman::ListedImage| one.names.iter().any(|own| test(own));
    if let Some(found) = listed.iter().find(|one| has(&|own| is_called(own, name), one)) {
        return Some(found);
    }
    let ending = format!("/{}", super::completed(name));
    let id = name.strip_prefix("sha256:").unwrap_or(name);
    let only = |test: &dyn Fn(&podman::ListedImage) -> bool| {
        let mut fitting = listed.iter().filter(|one| test(one));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    only(&|one| has(&|own| own.ends_with(&ending), one))
        .or_else(|| only(&|one| id.len() >= SHORTEST_ID && one.id.starts_with(id)))
}

fn read(image: &podman::ListedImage) -> Result<FoundImage, String> {
    let content = trusted::read_existing(&image.config, SIZE_LIMIT).map_err(|error| chain(&error))?;
    let env = provenance::image_env(&content)?;
    Ok(FoundImage {
        place: "in podman's storage".to_owned(),
        id: Some(format!("sha256:{}", image.id)),
        image: Image { env, steps: Some(steps(&content)) },
        notes: Vec::new(),
    })
}

/// A name as one would type it.
fn short(name: &str) -> String {
    let name = name.strip_prefix("localhost/").unwrap_or(name);
    name.strip_suffix(":latest").unwrap_or(name).to_owned()
}
