//! containerd's images, through its own client: it alone reads its database while it runs.

use std::path::Path;

use super::archive::config_in;
use super::blobs::Blobs;
use super::{FoundImage, Search, is_called};
use crate::image::{Image, steps};
use crate::sys::containers::Places;
use crate::sys::containers::containerd::client;
use crate::sys::provenance::{self, is_digest};

pub(super) fn search(name: &str, namespaces: &[&str], places: &Places, search: &mut Search) {
    for socket in &places.containerd {
        if !socket.exists() {
            search.failed(socket, &std::io::ErrorKind::NotFound.into(), places.containerd_is_named);
            continue;
        }
        for namespace in namespaces {
            let place = format!("{}, namespace {namespace}", socket.display());
            match in_namespace(name, socket, namespace, search) {
                Ok(Some(found)) => search.found.push(found),
                Ok(None) => search.look(place, "no such image"),
                Err(reason) => {
                    search.denied |= reason.contains("permission denied");
                    search.look(place, reason);
                }
            }
        }
    }
}

fn in_namespace(name: &str, socket: &Path, namespace: &str, search: &mut Search) -> Result<Option<FoundImage>, String> {
    let table = client(socket, namespace, &["images", "list"])?;
    // REF TYPE DIGEST …
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let named = |row: &&Vec<&str>| row.first().is_some_and(|known| is_called(known, name));
    let Some(row) = rows.iter().find(named) else {
        search.names.extend(rows.iter().filter_map(|row| row.first()).map(|name| (*name).to_owned()));
        return Ok(None);
    };
    let is_one = |word: &&&str| word.strip_prefix("sha256:").is_some_and(is_digest);
    let digest = row.iter().find(is_one).ok_or("ctr images list shows no digest of it")?;
    let socket = socket.to_owned();
    let (of_blob, namespace) = (socket, namespace.to_owned());
    let blobs = Blobs::Asked(Box::new(move |hex| {
        let digest = format!("sha256:{hex}");
        client(&of_blob, &namespace, &["content", "get", &digest]).map(String::into_bytes)
    }));
    let (config, notes) = config_in(&blobs, digest).map_err(|error| error.reason)?;
    let content = blobs.read(&config)?.ok_or("its configuration is not there")?;
    let env = provenance::image_env(&content)?;
    Ok(Some(FoundImage {
        place: "in containerd's store".to_owned(),
        id: Some((*digest).to_owned()),
        image: Image { env, steps: Some(steps(&content)) },
        notes,
    }))
}
