//! Docker's files about a container: `config.v2.json` and `hostconfig.json`. The image's are in `docker_image.rs`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::docker_image::{Image, Manifest, Platform};
use super::{SIZE_LIMIT, is_digest as is_container_id, looked_at};
use crate::provenance::{DockerDeviceRequest, Engine, EngineFacts, Requests};
use crate::sys::errno::chain;
use crate::sys::trusted::read_existing;

/// Folder of containerd's runtime v2 under which each namespace has its bundles.
// containerd core/runtime/v2, plugin id.
pub(super) const TASK_FOLDER: &str = "io.containerd.runtime.v2.task";

/// Where dockerd keeps its data unless told otherwise.
pub(super) const DEFAULT_DATA_ROOT: &str = "/var/lib/docker";

/// The files that dockerd makes for each container and mounts into it.
const MANAGED_FILES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];

/// What Docker's files say about the container `id`; `None` when nothing shows that it is Docker's.
///
/// Where it is Docker's and the files cannot be read, the device requests are unknown, with the reason.
pub fn facts(bundle: &Path, spec: &Value, id: &str, argv_root: Option<&Path>) -> Option<EngineFacts> {
    let managed_files_root = data_roots_of_mounts(spec);
    let namespace = namespace_of(bundle, argv_root);
    let is_dockers = !managed_files_root.is_empty() || namespace.is_some();
    if !is_container_id(id) || (!is_dockers && super::is_podman(spec)) {
        return None;
    }
    let mut candidates = managed_files_root;
    candidates.extend(data_roots_of_rootfs(spec));
    candidates.extend(data_roots_of_work_link(bundle, namespace));
    candidates.push(PathBuf::from(DEFAULT_DATA_ROOT));
    let mut notes = Vec::new();
    for (index, data_root) in candidates.iter().enumerate() {
        if candidates[..index].contains(data_root) {
            continue;
        }
        match read_container(data_root, id) {
            Ok(container) => return Some(facts_of(bundle, data_root, id, container, notes)),
            Err(reason) => notes.push(reason),
        }
    }
    is_dockers.then(|| EngineFacts {
        device_requests: Requests::Unknown(notes.join("; ")),
        notes,
        ..EngineFacts::nothing_known(Engine::Docker)
    })
}

/// `config.v2.json`, as far as we need it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    #[serde(rename = "ID")]
    id: String,
    name: Option<String>,
    image: Option<String>,
    /// Present when the image is in containerd's image store.
    image_manifest: Option<Manifest>,
    image_platform: Option<Platform>,
    driver: Option<String>,
    config: Option<ContainerConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfig {
    env: Option<Vec<String>>,
    image: Option<String>,
}

/// `hostconfig.json`, as far as we need it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    device_requests: Option<Vec<StoredRequest>>,
    #[serde(default)]
    privileged: bool,
    runtime: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredRequest {
    driver: Option<String>,
    #[serde(default)]
    count: i64,
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<Vec<String>>,
    capabilities: Option<Vec<Vec<String>>>,
}

impl From<StoredRequest> for DockerDeviceRequest {
    fn from(stored: StoredRequest) -> Self {
        Self {
            driver: stored.driver.unwrap_or_default(),
            count: stored.count,
            device_ids: stored.device_ids.unwrap_or_default(),
            capabilities: stored.capabilities.unwrap_or_default(),
        }
    }
}

/// The device requests in a host configuration, which Docker's API shows as the file has it.
pub(in crate::sys) fn requests_of(host_config: &Value) -> Result<Vec<DockerDeviceRequest>, serde_json::Error> {
    let stored = Option::<Vec<StoredRequest>>::deserialize(&host_config["DeviceRequests"])?;
    Ok(stored.into_iter().flatten().map(DockerDeviceRequest::from).collect())
}

fn read_container(data_root: &Path, id: &str) -> Result<Container, String> {
    let path = data_root.join("containers").join(id).join("config.v2.json");
    let content = read_existing(&path, SIZE_LIMIT).map_err(|error| chain(&error))?;
    let container: Container = parse(&path, &content)?;
    if container.id == id { Ok(container) } else { Err(looked_at(&path, "it is of another container")) }
}

fn facts_of(bundle: &Path, data_root: &Path, id: &str, container: Container, mut notes: Vec<String>) -> EngineFacts {
    let host_config = read_host_config(data_root, id);
    let (image_env, config) = (image_env(bundle, data_root, &container), container.config);
    let image_env = image_env.map_err(|reason| notes.push(reason)).ok();
    let (config_env, image) = config.map_or((None, None), |config| (config.env, config.image));
    let base = EngineFacts {
        container_name: container.name.map(|name| name.strip_prefix('/').unwrap_or(&name).to_owned()),
        image,
        config_env: Some(config_env.unwrap_or_default()),
        image_env,
        data_root: Some(data_root.to_owned()),
        notes,
        ..EngineFacts::nothing_known(Engine::Docker)
    };
    match host_config {
        Ok(host_config) => EngineFacts {
            device_requests: Requests::Known(
                host_config.device_requests.into_iter().flatten().map(DockerDeviceRequest::from).collect(),
            ),
            privileged: Some(host_config.privileged),
            runtime: host_config.runtime.filter(|name| !name.is_empty()),
            ..base
        },
        Err(reason) => EngineFacts { device_requests: Requests::Unknown(reason), ..base },
    }
}

fn read_host_config(data_root: &Path, id: &str) -> Result<HostConfig, String> {
    let path = data_root.join("containers").join(id).join("hostconfig.json");
    let content = read_existing(&path, SIZE_LIMIT).map_err(|error| chain(&error))?;
    parse(&path, &content)
}

/// The image's own environment.
fn image_env(bundle: &Path, data_root: &Path, container: &Container) -> Result<Vec<String>, String> {
    let Some(image) = container.image.as_deref() else { return Err("the container has no image".to_owned()) };
    // The legacy builder names an image so, and a step's environment holds ARG values, for which an image can ask
    // by ONBUILD. Nobody typed those for a container.
    if container.config.as_ref().is_some_and(|config| config.image.as_deref() == Some(image)) {
        return Err("the image was named by its whole id, as a step of docker build does".to_owned());
    }
    let image = Image {
        id: image,
        driver: container.driver.as_deref(),
        manifest: container.image_manifest.as_ref(),
        platform: container.image_platform.as_ref(),
    };
    image.env(bundle, data_root)
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path, content: &[u8]) -> Result<T, String> {
    serde_json::from_slice(content).map_err(|error| looked_at(path, &error.to_string()))
}

/// X of each `X/containers/<64 hex>/hosts` and the like that is mounted at the file's place under `/etc`.
///
/// Under `--network container:` the id is the other container's.
/// A user may put something else in one of these places, so all are looked at.
fn data_roots_of_mounts(spec: &Value) -> Vec<PathBuf> {
    let mounts = spec["mounts"].as_array().into_iter().flatten();
    mounts
        .filter_map(|mount| {
            let source = Path::new(mount["source"].as_str()?);
            let destination = Path::new(mount["destination"].as_str()?);
            let file = source.file_name().and_then(OsStr::to_str).filter(|file| MANAGED_FILES.contains(file))?;
            let folder = source.parent()?;
            let containers = folder.parent()?;
            let is_managed = destination == Path::new("/etc").join(file)
                && folder.file_name().and_then(OsStr::to_str).is_some_and(is_container_id)
                && containers.file_name() == Some(OsStr::new("containers"));
            is_managed.then(|| containers.parent().map(Path::to_owned)).flatten()
        })
        .collect()
}

/// `X/overlay2/<id>/merged`, `X/vfs/dir/<id>`, `X/rootfs/<snapshotter>/<id>`; devicemapper has one level more.
fn data_roots_of_rootfs(spec: &Value) -> Vec<PathBuf> {
    let root = spec["root"]["path"].as_str().map(Path::new).filter(|path| path.is_absolute());
    root.into_iter().flat_map(|path| path.ancestors().skip(3).take(2)).map(Path::to_owned).collect()
}

/// `<bundle>/work` points to `X/containerd/daemon/io.containerd.runtime.v2.task/<namespace>/<id>` where dockerd
/// runs its own containerd. With userns-remap the data is in a folder below, and the namespace has its name.
fn data_roots_of_work_link(bundle: &Path, namespace: Option<&str>) -> Vec<PathBuf> {
    let link = fs::read_link(bundle.join("work")).unwrap_or_default();
    let managed = link.ancestors().nth(3).filter(|path| path.ends_with("containerd/daemon"));
    let remapped = namespace.and_then(|name| name.strip_prefix("moby-"));
    let data_root = managed.and_then(|path| path.ancestors().nth(2));
    data_root
        .into_iter()
        .flat_map(|path| [remapped.map(|name| path.join(name)), Some(path.to_owned())])
        .flatten()
        .collect()
}

/// dockerd's containerd namespace for containers: `moby`, with userns-remap `moby-<uid>.<gid>`.
/// Its plugins are in another one, `plugins.moby`, and are no containers of a user.
fn namespace_of<'a>(bundle: &'a Path, argv_root: Option<&'a Path>) -> Option<&'a str> {
    let of_bundle = bundle.parent().filter(|path| path.parent().is_some_and(|path| path.ends_with(TASK_FOLDER)));
    let of_root = argv_root.filter(|path| {
        let parent = path.parent().and_then(Path::file_name).and_then(OsStr::to_str);
        parent.is_some_and(|name| name.starts_with("runtime-"))
    });
    let names = [of_bundle, of_root].into_iter().flatten().filter_map(|path| path.file_name()?.to_str());
    names.into_iter().find(|name| *name == "moby" || name.starts_with("moby-"))
}

#[cfg(test)]
mod tests;
