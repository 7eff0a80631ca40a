use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const CONFIG: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const OTHER: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const MANIFEST: &str = "3333333333333333333333333333333333333333333333333333333333333333";
const INDEX: &str = "4444444444444444444444444444444444444444444444444444444444444444";

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn config(value: &str) -> Value {
    let created_by = format!("ENV CUDA_VISIBLE_DEVICES={value}");
    json!({"config": {"Env": [format!("CUDA_VISIBLE_DEVICES={value}")]}, "history": [{"created_by": created_by}]})
}

fn manifest(config: &str) -> Value {
    json!({"schemaVersion": 2, "config": {"digest": format!("sha256:{config}"), "size": 1}, "layers": []})
}

fn entry(digest: &str, name: &str, architecture: &str) -> Value {
    let mut entry = json!({"digest": format!("sha256:{digest}"), "size": 1});
    if !name.is_empty() {
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    }
    if !architecture.is_empty() {
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
    }
    entry
}

fn layout() -> Vec<(String, Value)> {
    vec![
        ("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"})),
        ("index.json".to_owned(), json!({"schemaVersion": 2, "manifests": [entry(MANIFEST, "localhost/a:1", "")]})),
        (blob(MANIFEST), manifest(CONFIG)),
        (blob(CONFIG), config("0")),
    ]
}

/// The same files as a folder, and as a tar file.
fn written(files: &[(String, Value)]) -> (TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (inside, tar) = (folder.path().join("image"), folder.path().join("image.tar"));
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let content = content.to_string();
        let path = inside.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, &content).expect("written");
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).expect("appended");
    }
    fs::write(&tar, builder.into_inner().expect("a tar file")).expect("written");
    (folder, [inside, tar])
}

/// What is found under a path, with no engine to ask.
fn value(text: &str) -> Result<String, String> {
    let found = find(text, Store::Any, &Places::default()).map_err(|error| format!("{error}"))?;
    assert!(matches!(found.image.set_by("CUDA_VISIBLE_DEVICES"), Some(crate::image::SetBy::Step { .. })), "{found:?}");
    Ok(found.image.value("CUDA_VISIBLE_DEVICES").unwrap_or_default().to_owned())
}

#[track_caller]
fn check(files: &[(String, Value)], name: &str, expect: Result<&str, &str>) {
    let (_folder, paths) = written(files);
    for path in paths {
        let path = format!("{}{name}", path.display());
        match (value(&path), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{path}"),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (found, _) => panic!("{found:?} where {expect:?} was expected of {path}"),
        }
    }
}

#[test]
fn an_oci_layout() {
    check(&layout(), "", Ok("0"));
    check(&layout(), ":a:1", Ok("0"));
    check(&layout(), ":localhost/a:1", Ok("0"));
    check(&layout(), ":b", Err("no image in it is called \"b\"; there is localhost/a:1"));
    let (_folder, [folder, tar]) = written(&layout());
    assert_eq!(value(&format!("oci:{}", folder.display())).as_deref(), Ok("0"));
    assert_eq!(value(&format!("oci-archive:{}:a:1", tar.display())).as_deref(), Ok("0"));
    assert!(value("oci:/no/such").is_err_and(|error| error.contains("/no/such (not there)")));
}

#[test]
fn an_index_has_an_image_for_this_machine() {
    let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let with = |entries: &[Value]| {
        let mut files = layout();
        files[1].1 = json!({"manifests": [entry(INDEX, "a", "")]});
        files.push((blob(INDEX), json!({"manifests": entries})));
        files
    };
    let mut attestation = entry(OTHER, "", "unknown");
    attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    check(&with(&[entry(OTHER, "", "s390x"), entry(MANIFEST, "", here), attestation.clone()]), "", Ok("0"));
    check(&with(&[entry(MANIFEST, "", "s390x"), attestation]), "", Ok("0"));
    check(&with(&[entry(MANIFEST, "", here), entry(OTHER, "", here)]), "", Err("2 of its images are for linux/"));
    check(&with(&[entry(OTHER, "", "ppc64le"), entry(MANIFEST, "", "s390x")]), "", Err("none of its 2 images"));
    check(&with(&[]), "", Err("none of its 0 images"));
    check(&with(&[entry(INDEX, "", here)]), "", Err("its indexes lead to no image"));
}

#[test]
fn a_docker_save_archive() {
    let two = |second: Value| {
        vec![
            ("manifest.json".to_owned(), json!([{"Config": "c.json", "RepoTags": ["a:1"], "Layers": []}, second])),
            ("c.json".to_owned(), config("0")),
            (blob(CONFIG), config("1")),
        ]
    };
    let files = two(json!({"Config": blob(CONFIG), "RepoTags": ["r.example/x/b:latest"]}));
    check(&files, ":a:1", Ok("0"));
    check(&files, ":r.example/x/b", Ok("1"));
    check(&files, "", Err("there are 2 images in it: a:1, r.example/x/b:latest"));
    check(&two(json!({"Config": "../../c.json", "RepoTags": null})), ":a:1", Ok("0"));
    let only = |config: &str| vec![("manifest.json".to_owned(), json!([{"Config": config}])), files[1].clone()];
    check(&only("c.json"), "", Ok("0"));
    check(&only("d.json"), "", Err("there is no \"d.json\" in it"));
    let (_folder, [folder, _]) = written(&only("../c.json"));
    fs::write(folder.join("../c.json"), config("0").to_string()).expect("written");
    let error = value(&folder.display().to_string()).expect_err("it would lead out of the folder");
    assert!(error.contains("\"../c.json\" is no name of a file in it"), "{error}");
}

#[test]
fn a_link_leads_nowhere() {
    let (_folder, [folder, _]) = written(&layout());
    let path = folder.join(blob(CONFIG));
    fs::rename(&path, folder.join("elsewhere")).expect("moved");
    std::os::unix::fs::symlink("../../elsewhere", &path).expect("a link");
    assert!(value(&folder.display().to_string()).is_err());
}

#[test]
fn what_is_no_image_is_said_so() {
    check(&[("x".to_owned(), json!(1))], "", Err("failed to read the image"));
    let (folder, _) = written(&layout());
    let file = |name: &str, content: &[u8]| {
        fs::write(folder.path().join(name), content).expect("written");
        value(&folder.path().join(name).display().to_string()).expect_err("no image")
    };
    assert!(file("x.tar.gz", &[0x1f, 0x8b, 8, 0, 0, 0]).contains("it is compressed"));
    assert!(file("text", &[b'x'; 2000]).contains("it is no tar file"));
    assert!(file("empty", b"").contains("there is no index.json and no manifest.json in it"));
    assert!(value("/dev/zero").expect_err("no file").contains("it is no regular file"));
    assert!(value("a b").expect_err("no name").contains("no image can be called so"));
    assert_eq!(value("trainer"), Err("no image \"trainer\" was found, and no engine in its usual place".to_owned()));
}

/// A name that is there twice means one thing to one reader and another to the next.
#[test]
fn an_archive_with_two_files_of_one_name() {
    let (folder, [_, tar]) = written(&layout());
    let mut twice = layout();
    twice.extend(layout().pop());
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in &twice {
        let content = content.to_string();
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).expect("appended");
    }
    fs::write(&tar, builder.into_inner().expect("a tar file")).expect("written");
    let error = value(&tar.display().to_string()).expect_err("which of the two?");
    assert!(error.contains("is in it twice"), "{error}");
    drop(folder);
}

/// What one reader takes for a file and another for something else: Docker unpacks, and the last entry of a name stays.
#[test]
fn an_archive_that_readers_take_differently() {
    use tar::EntryType;
    let check = |name: &str, kind: EntryType, expect: &str| {
        let (folder, [_, tar]) = written(&layout());
        let mut builder = tar::Builder::new(Vec::new());
        let add = |builder: &mut tar::Builder<Vec<u8>>, name: &str, kind, content: &str| {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_link_name("elsewhere").expect("a name");
            }
            header.set_cksum();
            builder.append(&header, content.as_bytes()).expect("appended");
        };
        for (name, content) in layout() {
            add(&mut builder, &name, tar::EntryType::Regular, &content.to_string());
        }
        add(&mut builder, name, kind, "");
        fs::write(&tar, builder.into_inner().expect("a tar file")).expect("written");
        let error = value(&tar.display().to_string()).expect_err(name);
        assert!(error.contains(expect), "{name}: {error}");
        drop(folder);
    };
    for name in ["index.json", "./index.json", "/index.json", "x/../index.json", "../index.json", "index.json/"] {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Fifo, EntryType::Regular] {
            check(name, kind, "\"index.json\" is in it twice");
        }
    }
    check("manifest.json", EntryType::Symlink, "\"manifest.json\" is no regular file in it");
    check("blobs", EntryType::Symlink, "\"blobs\" is no folder in it");
    check("/blobs/sha256", EntryType::Symlink, "\"blobs/sha256\" is no folder in it");
}

/// GNU tar and Go put holes into it, which are not in the file.
#[test]
fn an_archive_with_a_sparse_file() {
    let (_folder, [_, tar]) = written(&layout());
    let whole = fs::read(&tar).expect("read");
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("GNU.sparse.realsize", b"9".as_slice())]).expect("appended");
    let mut bytes = builder.into_inner().expect("a tar file");
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(whole);
    fs::write(&tar, bytes).expect("written");
    let error = value(&tar.display().to_string());
    // The first entry is `oci-layout`, which nobody reads.
    assert_eq!(error, Ok("0".to_owned()));
    let mut files = layout();
    files.swap(0, 1);
    let (_folder, [_, tar]) = written(&files);
    let whole = fs::read(&tar).expect("read");
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("GNU.sparse.realsize", b"9".as_slice())]).expect("appended");
    let mut bytes = builder.into_inner().expect("a tar file");
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(whole);
    fs::write(&tar, bytes).expect("written");
    let error = value(&tar.display().to_string()).expect_err("holes");
    assert!(error.contains("\"index.json\" is a sparse file in it"), "{error}");
}

/// Docker and containerd know no paths, podman only those that are said to be some.
#[test]
fn a_file_that_is_called_like_an_image_is_not_that_image() {
    let (_folder, [folder, tar]) = written(&layout());
    let found = |text: &str, store| find(text, store, &Places::default()).map_err(|error| error.to_string());
    for path in [folder.display().to_string(), tar.display().to_string()] {
        assert!(found(&path, Store::Any).is_ok());
        for store in [Store::Docker, Store::Podman, Store::Containerd("default")] {
            assert!(found(&path, store).expect_err("no path").starts_with("no image \""));
        }
    }
    let named = format!("oci:{}", folder.display());
    assert!(found(&named, Store::Podman).is_ok());
    assert!(found(&named, Store::Docker).is_err());
}

/// Whatever is in it, there is an answer, and soon.
#[test]
fn a_damaged_archive_is_no_disaster() {
    let (folder, [_, tar]) = written(&layout());
    let whole = fs::read(&tar).expect("read");
    let path = folder.path().join("damaged.tar");
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or_default() % below
    };
    for round in 0..600 {
        let mut damaged = whole.clone();
        if round % 3 == 0 {
            damaged.truncate(next(whole.len()));
        } else {
            for _ in 0..=next(4) {
                let at = next(damaged.len());
                damaged[at] = u8::try_from(next(256)).unwrap_or_default();
            }
        }
        fs::write(&path, damaged).expect("written");
        drop(find(&path.display().to_string(), Store::Any, &Places::default()));
    }
}

/// Long names stand in entries of their own, which readers take into memory.
#[test]
fn an_archive_of_endless_headers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("endless.tar");
    for kind in [tar::EntryType::GNULongName, tar::EntryType::XHeader] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(8 << 30);
        header.set_cksum();
        fs::write(&path, header.as_bytes()).expect("written");
        let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
        file.set_len((8 << 30) + 2048).expect("a hole");
        assert!(value(&path.display().to_string()).expect_err("too long").contains("its headers do not end"));
    }
}

#[test]
fn names_are_completed_as_engines_do() {
    for (name, wanted, expect) in [
        ("localhost/a:latest", "a", true),
        ("docker.io/library/a:latest", "a", true),
        ("docker.io/x/a:1", "x/a:1", true),
        ("a:latest", "a:1", false),
        ("r.example:5000/a:latest", "r.example:5000/a", true),
        ("r.example/a:latest", "a", false),
    ] {
        assert_eq!(is_called(name, wanted), expect, "{name} {wanted}");
    }
    for good in ["a", "a:1", "r.example:5000/x/a:1", "sha256:00", "a@sha256:00"] {
        assert!(is_reference(good), "{good}");
    }
    for bad in ["", "/a", "a//b", "../a", "a/../b", "a?x=1", "a b", "a%2f", "é"] {
        assert!(!is_reference(bad), "{bad:?}");
    }
}
