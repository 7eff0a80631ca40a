//! Docker's images, by its API.

use serde_json::Value;

use super::{FoundImage, Search};
use crate::image::{Image, steps_of_docker};
use crate::sys::containers::Places;
use crate::sys::containers::docker::{ask, message, strings};

pub(super) fn search(name: &str, places: &Places, search: &mut Search) {
    if let Some(host) = &places.docker_elsewhere {
        search.look(format!("DOCKER_HOST={host:?}"), "only a unix socket is asked");
    }
    for socket in &places.docker {
        match ask(socket, &format!("/images/{name}/json")) {
            Ok((200, inspected)) => {
                let id = inspected["Id"].as_str().unwrap_or_default().to_owned();
                let layers = inspected.pointer("/RootFS/Layers").and_then(Value::as_array).map(Vec::len);
                let steps = match ask(socket, &format!("/images/{name}/history")) {
                    Ok((200, history)) if history.is_array() => Some(steps_of_docker(&history, layers)),
                    _ => None,
                };
                let env = strings(inspected.pointer("/Config/Env"));
                search.found.push(FoundImage {
                    place: "in Docker's store".to_owned(),
                    id: Some(id).filter(|id| !id.is_empty()),
                    image: Image { env, steps },
                    notes: Vec::new(),
                });
            }
            Ok((404, _)) => {
                search.names.extend(names(socket));
                search.look(socket.display(), "no such image");
            }
            Ok((_, answer)) => search.look(socket.display(), format!("{:?}", message(&answer))),
            Err(error) => search.failed(socket, &error, places.docker_is_named),
        }
    }
}

/// What the daemon's images are called.
fn names(socket: &std::path::Path) -> Vec<String> {
    let Ok((200, Value::Array(all))) = ask(socket, "/images/json") else { return Vec::new() };
    let names = all.iter().flat_map(|image| strings(image.get("RepoTags")));
    names.map(|name| name.strip_suffix(":latest").map(str::to_owned).unwrap_or(name)).collect()
}
