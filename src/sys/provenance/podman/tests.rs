use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::provenance::{Provenance, of_variable};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const IMAGE: &str = "1c758022f71940c94192fb09dff8da3823ac200ce67fd8e389dbe171b5058f4c";
const LAYER: &str = "8d2520d596ceb47302c3a2ab58dec5805a1adef2ae5c0d257e33565671322fa3";

/// The name that podman 4.3.1 gave to the configuration of that image.
const BIG_DATA: &str =
    "=c2hhMjU2OjFjNzU4MDIyZjcxOTQwYzk0MTkyZmIwOWRmZjhkYTM4MjNhYzIwMGNlNjdmZDhlMzg5ZGJlMTcxYjUwNThmNGM=";

/// A graph root with one container, after the layout of podman 4.3 and 5.8.
struct GraphRoot(TempDir);

impl GraphRoot {
    fn new(list: &str, driver: &str) -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        root.write(&format!("{driver}-containers/{list}"), &json!([container(IMAGE)]));
        root.write(&format!("{driver}-images/{IMAGE}/{BIG_DATA}"), &json!({"config": {"Env": ["PATH=/bin", "N=0"]}}));
        root
    }

    fn write(&self, path: &str, content: &Value) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn facts(&self, driver: &str) -> EngineFacts {
        let bundle = self.0.path().join(format!("{driver}-containers/{ID}/userdata"));
        facts(&bundle, &json!({"root": {"path": "/elsewhere"}}), ID)
    }

    /// As at the precreate stage of podman 4.3, in whose configuration only the root file system says where things are.
    fn facts_of_rootfs(&self, rootfs: &str) -> EngineFacts {
        self.facts_of_id(rootfs, ID)
    }

    fn facts_of_id(&self, rootfs: &str, id: &str) -> EngineFacts {
        facts(Path::new("/root"), &json!({"root": {"path": self.0.path().join(rootfs)}}), id)
    }
}

fn container(image: &str) -> Value {
    json!({
        "id": ID, "names": ["train"], "image": image, "layer": LAYER, "flags": {"Volatile": true},
        "metadata": format!("{{\"image-name\":\"localhost/box:latest\",\"image-id\":\"{image}\",\"name\":\"train\"}}"),
    })
}

#[track_caller]
fn check(facts: &EngineFacts, value: &str, expect: Provenance) {
    assert_eq!(of_variable(facts, "N", Some(value)), expect, "{facts:?}");
}

#[test]
fn the_files_are_read() {
    for list in LISTS {
        for driver in ["overlay", "vfs"] {
            let root = GraphRoot::new(list, driver);
            let facts = root.facts(driver);
            assert_eq!((facts.engine, facts.notes.as_slice()), (Engine::Podman, [].as_slice()));
            assert_eq!(
                (facts.container_name.as_deref(), facts.image.as_deref()),
                (Some("train"), Some("localhost/box:latest"))
            );
            assert_eq!(facts.data_root.as_deref(), Some(root.0.path()));
            check(&facts, "0", Provenance::Image);
            check(&facts, "1", Provenance::User);
        }
    }
}

#[test]
fn without_a_bundle_the_root_file_system_leads_there() {
    let overlay = GraphRoot::new(LISTS[0], "overlay");
    check(&overlay.facts_of_rootfs(&format!("overlay/{LAYER}/merged")), "1", Provenance::User);
    check(&overlay.facts_of_rootfs(&format!("overlay/{LAYER}/merged")), "0", Provenance::Image);
    check(&overlay.facts_of_rootfs(&format!("overlay/{IMAGE}/merged")), "1", Provenance::Unknown);
    check(&overlay.facts_of_rootfs(&format!("overlay/{LAYER}/rootfs")), "1", Provenance::Unknown);
    check(&overlay.facts_of_id(&format!("overlay/{LAYER}/merged"), ""), "1", Provenance::User);
    check(&overlay.facts_of_id(&format!("overlay/{LAYER}/merged"), IMAGE), "1", Provenance::Unknown);
    let vfs = GraphRoot::new(LISTS[0], "vfs");
    check(&vfs.facts_of_rootfs(&format!("vfs/dir/{LAYER}")), "1", Provenance::User);
    check(&vfs.facts_of_rootfs("vfs"), "1", Provenance::Unknown);
}

#[test]
fn a_container_without_an_image_has_only_its_users_variables() {
    let root = GraphRoot::new(LISTS[0], "overlay");
    root.write("overlay-containers/containers.json", &json!([container("")]));
    check(&root.facts("overlay"), "0", Provenance::User);
}

#[test]
fn what_cannot_be_read_is_not_known_and_the_notes_say_so() {
    let check = |spoil: &dyn Fn(&GraphRoot), note: &str| {
        let root = GraphRoot::new(LISTS[0], "overlay");
        spoil(&root);
        let facts = root.facts("overlay");
        check(&facts, "1", Provenance::Unknown);
        assert!(facts.notes.iter().any(|text| text.contains(note)), "{note}: {:?}", facts.notes);
    };
    let list = "overlay-containers/containers.json";
    let image = format!("overlay-images/{IMAGE}/{BIG_DATA}");
    check(&|root| root.write(list, &json!([])), "in none of its lists");
    check(&|root| root.write(list, &json!({})), "looked at");
    check(&|root| root.write(list, &json!([container("../../x")])), "not of a known form");
    check(&|root| fs::remove_file(root.0.path().join(&image)).unwrap(), "failed to read");
    check(&|root| root.write(&image, &json!({"config": {"env": ["N=1"]}})), "another spelling");
    let writable = |root: &GraphRoot| {
        fs::set_permissions(root.0.path().join(&image), fs::Permissions::from_mode(0o666)).unwrap();
    };
    check(&writable, "can be written");
}

#[test]
fn other_bundles_are_not_podmans() {
    let nothing = |bundle: &str, id: &str| assert!(store_of_bundle(Path::new(bundle), id).is_none(), "{bundle}");
    nothing(&format!("/g/overlay-containers/{ID}"), ID);
    nothing(&format!("/g/overlay-containers/{ID}/userdata"), IMAGE);
    nothing(&format!("/g/containers/{ID}/userdata"), ID);
    nothing("/g/overlay-containers/x/userdata", "x");
    nothing("/", ID);
}

#[test]
fn base64_has_padding() {
    // RFC 4648, section 10.
    for (text, expect) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
    {
        assert_eq!(base64(text.as_bytes()), expect);
    }
}
