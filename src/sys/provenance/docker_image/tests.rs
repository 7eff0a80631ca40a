use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const INDEX: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const MANIFEST: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const CONFIG: &str = "3333333333333333333333333333333333333333333333333333333333333333";
const OTHER: &str = "4444444444444444444444444444444444444444444444444444444444444444";

/// A data root with one image in containerd's store, made by hand after the layout of Docker 26 and 28.
struct Store {
    root: TempDir,
    /// `<containerd's root>/io.containerd.content.v1.content/blobs/sha256`.
    blobs: PathBuf,
}

impl Store {
    fn new() -> Self {
        Self::at("containerd/daemon")
    }

    fn at(containerd: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let blobs = root.path().join(containerd).join("io.containerd.content.v1.content/blobs/sha256");
        let store = Self { root, blobs };
        store.write(INDEX, &index(&[(MANIFEST, "mips", "linux"), (OTHER, "mips", "windows")]));
        store.write(MANIFEST, &json!({"schemaVersion": 2, "config": {"digest": format!("sha256:{CONFIG}")}}));
        store.write(CONFIG, &json!({"config": {"Env": ["PATH=/bin", "N=0"]}}));
        store
    }

    fn write(&self, digest: &str, content: &Value) {
        fs::create_dir_all(&self.blobs).unwrap();
        let path = self.blobs.join(digest);
        fs::write(&path, content.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    }

    fn env(&self, id: &str, manifest: Option<&str>, platform: Option<(&str, &str)>) -> Result<Vec<String>, String> {
        let manifest = manifest.map(|digest| Manifest { digest: format!("sha256:{digest}") });
        let platform = platform.map(|(architecture, os)| Platform {
            architecture: architecture.to_owned(),
            os: os.to_owned(),
            _rest: None,
        });
        let image = Image {
            id: &format!("sha256:{id}"),
            driver: Some("overlayfs"),
            manifest: manifest.as_ref(),
            platform: platform.as_ref(),
        };
        image.env(&self.root.path().join("bundle"), self.root.path())
    }
}

fn index(manifests: &[(&str, &str, &str)]) -> Value {
    let entry = |(digest, architecture, os): &(&str, &str, &str)| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 7, "digest": format!("sha256:{digest}"),
            "platform": {"architecture": architecture, "os": os, "variant": "v1"},
        })
    };
    let manifests: Vec<Value> = manifests.iter().map(entry).collect();
    json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests})
}

const MIPS: Option<(&str, &str)> = Some(("mips", "linux"));

#[test]
fn the_configuration_is_found_from_a_manifest_or_an_index() {
    let expect = Ok(vec!["PATH=/bin".to_owned(), "N=0".to_owned()]);
    let store = Store::new();
    assert_eq!(store.env(MANIFEST, Some(MANIFEST), None), expect);
    assert_eq!(store.env(INDEX, Some(MANIFEST), None), expect, "the manifest decides, not the index");
    assert_eq!(store.env(MANIFEST, None, None), expect);
    assert_eq!(store.env(INDEX, None, MIPS), expect);
    let host = Platform::of_host();
    store.write(INDEX, &index(&[(OTHER, "mips", "linux"), (MANIFEST, &host.architecture, "linux")]));
    assert_eq!(store.env(INDEX, None, None), expect, "without a platform it is the host's");
}

#[test]
fn a_containerd_of_its_own_is_found_by_the_bundles_link() {
    let store = Store::at("elsewhere");
    assert!(store.env(MANIFEST, None, None).is_err());
    fs::create_dir(store.root.path().join("bundle")).unwrap();
    let work = store.root.path().join("elsewhere/io.containerd.runtime.v2.task/moby/x");
    symlink(work, store.root.path().join("bundle/work")).unwrap();
    assert!(store.env(MANIFEST, None, None).is_ok());
}

#[test]
fn what_is_not_exact_is_not_known() {
    let check = |spoil: &dyn Fn(&Store), note: &str| {
        let store = Store::new();
        spoil(&store);
        let error = store.env(INDEX, None, MIPS).unwrap_err();
        assert!(error.contains(note), "{note}: {error}");
    };
    let rewrite = |digest: &'static str, content: Value| {
        move |store: &Store| {
            fs::remove_file(store.blobs.join(digest)).unwrap();
            store.write(digest, &content);
        }
    };
    let two = index(&[(MANIFEST, "mips", "linux"), (OTHER, "mips", "linux")]);
    check(&rewrite(INDEX, two), "not exactly one");
    check(&rewrite(INDEX, index(&[])), "not exactly one");
    check(&rewrite(INDEX, index(&[(INDEX, "mips", "linux")])), "no manifest of an image");
    check(&rewrite(INDEX, index(&[("../x", "mips", "linux")])), "known form");
    let mut spelled = index(&[(MANIFEST, "mips", "linux")]);
    spelled["manifests"][0]["platform"]["OS"] = json!("linux");
    check(&rewrite(INDEX, spelled), "unknown field");
    let mut spelled = index(&[(MANIFEST, "mips", "linux")]);
    spelled["Manifests"] = json!([]);
    check(&rewrite(INDEX, spelled), "unknown field");
    let digest = format!("sha256:{CONFIG}");
    check(&rewrite(MANIFEST, json!({"config": {"digest": digest, "Digest": digest}})), "another spelling");
    check(&rewrite(MANIFEST, json!({"config": {"digest": "sha256:../x"}})), "known form");
    check(&rewrite(CONFIG, json!({"config": {"Env": ["N=0"], "ENV": ["N=1"]}})), "another spelling");
    check(&|store| fs::remove_file(store.blobs.join(CONFIG)).unwrap(), "failed to read");
    check(&|store| fs::remove_file(store.blobs.join(MANIFEST)).unwrap(), "manifest is not there");
    let writable = |store: &Store| {
        fs::set_permissions(store.blobs.join(CONFIG), fs::Permissions::from_mode(0o666)).unwrap();
    };
    check(&writable, "can be written");
}
