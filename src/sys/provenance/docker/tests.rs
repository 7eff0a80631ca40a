use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::provenance::{Provenance, of_variable};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const IMAGE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A data root with one container, made by hand after the layout of Docker 20.10, 26 and 28.
struct DataRoot(TempDir);

impl DataRoot {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        root.write_container("config.v2.json", &container());
        root.write_container(
            "hostconfig.json",
            &json!({"Runtime": "gpu", "Privileged": false, "DeviceRequests": null}),
        );
        root.write_image(&json!({"config": {"Env": ["PATH=/bin", "N=0"]}}));
        root
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn write_container(&self, file: &str, content: &Value) {
        self.write(&format!("containers/{ID}/{file}"), &content.to_string());
    }

    fn write_image(&self, content: &Value) {
        self.write(&format!("image/overlay2/imagedb/content/sha256/{IMAGE}"), &content.to_string());
    }

    fn hosts_mount(&self, id: &str) -> Value {
        let source = self.path().join("containers").join(id).join("hosts");
        json!({"destination": "/etc/hosts", "type": "bind", "source": source})
    }

    fn spec(&self) -> Value {
        json!({"mounts": [{"destination": "/proc", "source": "proc"}, self.hosts_mount(ID)]})
    }

    fn facts(&self) -> EngineFacts {
        facts(Path::new("/nowhere"), &self.spec(), ID, None).unwrap()
    }
}

fn container() -> Value {
    json!({
        "StreamConfig": {}, "ID": ID, "Name": "/train", "Driver": "overlay2", "Image": format!("sha256:{IMAGE}"),
        "ImageManifest": null, "Config": {"Image": "cuda:12", "Env": ["N=1", "PATH=/bin"], "Tty": false},
    })
}

#[test]
fn the_files_are_read() {
    let root = DataRoot::new();
    let request = json!([
        {"Driver": "", "Count": 0, "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]], "Options": {}},
        {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=0"], "Capabilities": null},
        {"Driver": "", "Count": -1, "DeviceIDs": null, "Capabilities": [["gpu", "utility"]]},
    ]);
    root.write_container("hostconfig.json", &json!({"DeviceRequests": request, "Privileged": true, "Runtime": "runc"}));
    let facts = root.facts();
    assert_eq!((facts.engine, facts.container_name.as_deref()), (Engine::Docker, Some("train")));
    assert_eq!((facts.image.as_deref(), facts.runtime.as_deref()), (Some("cuda:12"), Some("runc")));
    assert_eq!((facts.privileged, facts.data_root.as_deref()), (Some(true), Some(root.path())));
    assert_eq!(facts.notes, [""; 0]);
    let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let request = |driver: &str, count, ids: &[&str], capabilities: &[&[&str]]| DockerDeviceRequest {
        driver: driver.to_owned(),
        count,
        device_ids: strings(ids),
        capabilities: capabilities.iter().map(|set| strings(set)).collect(),
    };
    let expect = vec![
        request("", 0, &["1", "3"], &[&["gpu"]]),
        request("cdi", 0, &["nvidia.com/gpu=0"], &[]),
        request("", -1, &[], &[&["gpu", "utility"]]),
    ];
    assert_eq!(facts.device_requests, Requests::Known(expect));
    assert_eq!(of_variable(&facts, "N", Some("1")), Provenance::User);
}

#[test]
fn the_data_root_is_found_by_each_of_its_signs() {
    let root = DataRoot::new();
    let at = |path: &str| json!({"root": {"path": root.path().join(path)}});
    let bundles = tempfile::tempdir().unwrap();
    let bundle = bundles.path().join(TASK_FOLDER).join("moby").join(ID);
    fs::create_dir_all(&bundle).unwrap();
    symlink(root.path().join("containerd/daemon").join(TASK_FOLDER).join("moby").join(ID), bundle.join("work"))
        .unwrap();
    let nowhere = Path::new("/nowhere");
    for (bundle, spec) in [
        (nowhere, json!({"mounts": [root.hosts_mount(ID)]})),
        (nowhere, json!({"mounts": [root.hosts_mount(IMAGE)]})),
        (nowhere, at("overlay2/l0/merged")),
        (nowhere, at(&format!("vfs/dir/{ID}"))),
        (nowhere, at(&format!("rootfs/overlayfs/{ID}"))),
        (nowhere, at("devicemapper/mnt/l0/rootfs")),
        (bundle.as_path(), json!({})),
    ] {
        let facts = facts(bundle, &spec, ID, None);
        assert_eq!(facts.and_then(|facts| facts.data_root).as_deref(), Some(root.path()), "{spec}");
    }
}

#[test]
fn a_remapped_daemon_is_found_by_its_work_link() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    fs::create_dir(&bundle).unwrap();
    symlink(format!("/d/containerd/daemon/{TASK_FOLDER}/moby-7.8/{ID}"), bundle.join("work")).unwrap();
    let candidates = data_roots_of_work_link(&bundle, Some("moby-7.8"));
    assert_eq!(candidates, [PathBuf::from("/d/7.8"), PathBuf::from("/d")]);
}

#[test]
fn what_is_not_dockers_is_left_to_others() {
    let nowhere = Path::new("/nowhere");
    assert_eq!(facts(nowhere, &json!({}), ID, None), None);
    assert_eq!(facts(nowhere, &json!({}), "c1", None), None);
    assert_eq!(facts(nowhere, &json!({"mounts": 7, "root": []}), ID, None), None);
    let root = DataRoot::new();
    let elsewhere = json!({"mounts": [{"destination": "/x", "source": root.hosts_mount(ID)["source"]}]});
    assert_eq!(facts(nowhere, &elsewhere, ID, None), None);
    let plugin = PathBuf::from(format!("/run/{TASK_FOLDER}/plugins.moby/{ID}"));
    assert_eq!(facts(&plugin, &json!({}), ID, Some(Path::new("/run/docker/runtime-runc/plugins.moby"))), None);
}

#[test]
fn a_dockers_container_whose_files_cannot_be_read_has_unknown_requests() {
    let check = |bundle: &str, spec: &Value, argv_root: Option<&Path>, reason: &str| {
        let facts = facts(Path::new(bundle), spec, ID, argv_root).unwrap();
        let Requests::Unknown(text) = &facts.device_requests else { panic!("{facts:?}") };
        assert!(text.contains(reason), "{text}");
        assert_eq!((facts.engine, facts.privileged, facts.runtime), (Engine::Docker, None, None));
    };
    let of_task = format!("/run/{TASK_FOLDER}/moby/{ID}");
    check(&of_task, &json!({}), None, "/var/lib/docker/containers");
    check("/b", &json!({}), Some(Path::new("/run/docker/runtime-runc/moby-1.2")), "/var/lib/docker/containers");
    let root = DataRoot::new();
    let mut other = container();
    other["ID"] = json!(IMAGE);
    root.write_container("config.v2.json", &other);
    check("/b", &root.spec(), None, "of another container");
    root.write(&format!("containers/{ID}/config.v2.json"), "{");
    check("/b", &root.spec(), None, "EOF while parsing");
    let root = DataRoot::new();
    root.write(&format!("containers/{ID}/hostconfig.json"), "[]x");
    check("/b", &json!({"mounts": [root.hosts_mount(ID)], "hooks": {}}), None, "hostconfig.json");
}

#[test]
fn without_the_images_configuration_a_value_is_of_unknown_origin() {
    let check = |root: &DataRoot, note: &str| {
        let facts = root.facts();
        assert_eq!(facts.image_env, None);
        assert!(facts.notes.iter().any(|text| text.contains(note)), "{:?}", facts.notes);
        assert_eq!(of_variable(&facts, "N", Some("1")), Provenance::Unknown);
        assert_eq!(facts.device_requests, Requests::Known(Vec::new()));
    };
    let with = |member: &str, value: Value| {
        let root = DataRoot::new();
        let mut container = container();
        container[member] = value;
        root.write_container("config.v2.json", &container);
        root
    };
    check(&with("ImageManifest", json!({"digest": "sha256:0"})), "known form");
    check(&with("ImageManifest", json!({"digest": format!("sha256:{IMAGE}")})), "manifest is not there");
    check(&with("Image", json!(format!("sha256:{ID}"))), "ENOENT");
    check(&with("Image", json!("sha256:../../x")), "known form");
    check(&with("Image", Value::Null), "no image");
    check(&with("Driver", json!("../overlay2")), "known form");
    let by_id = json!({"Image": format!("sha256:{IMAGE}"), "Env": ["N=1", "PATH=/bin"]});
    check(&with("Config", by_id), "whole id");
    let two_readings = DataRoot::new();
    two_readings.write_image(&json!({"config": {"Env": ["PATH=/bin"], "env": ["N=1", "PATH=/bin"]}}));
    check(&two_readings, "another spelling");
}
