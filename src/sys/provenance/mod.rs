//! What engines' own files say about a container, read from disk only.
//!
//! An engine is never called back for the container that it is creating: it holds that container's lock.

pub mod docker;
pub mod docker_daemon;
mod docker_image;
mod image_config;
pub(in crate::sys) mod podman;

use std::path::Path;

pub(in crate::sys) use image_config::{config_digest, env as image_env};
use serde_json::Value;

use crate::provenance::{Engine, EngineFacts};

/// No file of an engine that we read comes near this size, in bytes.
const SIZE_LIMIT: u64 = 16 << 20;

/// What can be learnt about the container `id` from its bundle, its spec and the engine's files.
///
/// `argv_root` is the runtime's `--root`, which names the engine's namespace.
/// Never fails: what cannot be read is not known, and the notes say so.
pub fn facts(bundle: &Path, spec: &Value, id: &str, argv_root: Option<&Path>) -> EngineFacts {
    docker::facts(bundle, spec, id, argv_root).unwrap_or_else(|| other_engine(bundle, spec, id))
}

/// Podman and containerd, known by what they leave in the spec; containerd has no files that can be read.
fn other_engine(bundle: &Path, spec: &Value, id: &str) -> EngineFacts {
    let under_containerd = bundle.components().any(|part| part.as_os_str() == docker::TASK_FOLDER);
    // Up to podman 4 an image's annotations are the container's, and podman's own gives way to them.
    if !under_containerd && (is_podman(spec) || podman::has(bundle, spec, id)) {
        return podman::facts(bundle, spec, id);
    }
    let engine = if under_containerd || has_containerd_annotation(spec) { Engine::Containerd } else { Engine::Unknown };
    EngineFacts::nothing_known(engine)
}

/// Whether a configuration says that podman made it.
fn is_podman(spec: &Value) -> bool {
    spec["annotations"]["io.container.manager"] == "libpod"
}

fn has_containerd_annotation(spec: &Value) -> bool {
    // containerd's CRI plugin, and nerdctl's labels.
    let known = |key: &String| key.starts_with("io.kubernetes.cri.") || key.starts_with("nerdctl/");
    spec["annotations"].as_object().is_some_and(|annotations| annotations.keys().any(known))
}

/// The environment of an image of containerd's, from its content on disk, which only root can read.
pub(in crate::sys) fn containerd_image_env(digest: &str, bundle: &Path) -> Result<Vec<String>, String> {
    docker_image::env_of_containerds(digest, bundle)
}

fn looked_at(path: &Path, reason: &str) -> String {
    format!("looked at {:?}: {reason}", path.to_string_lossy())
}

/// A container id, an image id or a digest without its algorithm: 64 hexadecimal digits.
pub(in crate::sys) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_engines_are_told_by_what_they_leave_in_the_spec() {
        let check = |bundle: &str, spec: Value, expect: Engine| {
            let found = facts(Path::new(bundle), &spec, "c1", None);
            assert_eq!((found.engine, found.image_env), (expect, None), "{spec}");
        };
        check("/b", json!({}), Engine::Unknown);
        check("/b", json!({"annotations": {"a": "b"}}), Engine::Unknown);
        check("/b", json!({"annotations": {"io.container.manager": "libpod"}}), Engine::Podman);
        check("/b", json!({"annotations": {"io.kubernetes.cri.container-type": "container"}}), Engine::Containerd);
        check("/b", json!({"annotations": {"nerdctl/name": "x"}}), Engine::Containerd);
        let task = "/run/containerd/io.containerd.runtime.v2.task/default/c1";
        check(task, json!({}), Engine::Containerd);
        check(task, json!({"annotations": {"io.container.manager": "libpod"}}), Engine::Containerd);
    }
}
