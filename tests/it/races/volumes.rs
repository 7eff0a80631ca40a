//! T5 and T12: a volume on the way to a node, which a sibling changes, or whose mounts reach the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use serde_json::json;

use crate::hook_nodes::bundle::{Bundle, texts};
use crate::hook_nodes::with_user_namespace;
use crate::world::mounts::mounts_below;
use crate::world::{Stage, require};

/// Mounts a host folder over the container's `/dev/nvidia-caps`.
fn add_volume(bundle: &mut Bundle, source: &Path, propagation: &str) {
    let options = json!(["rbind", "rw", propagation]);
    bundle.push(
        "/mounts",
        json!({"destination": "/dev/nvidia-caps", "type": "bind", "source": source, "options": options}),
    );
}

/// T5: a second container of runc has the same volume, and exchanges a folder in it with a link out of the root.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_sibling_with_the_same_volume_gets_nothing_made() {
    require(&["runc"]);
    let mut sibling = Bundle::new();
    let volume = sibling.path("volume");
    fs::create_dir_all(volume.join("sub")).unwrap();
    std::os::unix::fs::symlink("/", volume.join("x")).unwrap();
    fs::copy(Stage::attacker("exchange"), sibling.path("rootfs/bin/exchange")).unwrap();
    add_volume(&mut sibling, &volume, "rprivate");
    sibling.config["process"]["args"] = json!(["exchange", "120000", "/dev/nvidia-caps/sub", "/dev/nvidia-caps/x"]);
    let pid = sibling.create();
    assert!(sibling.runc("start").arg(sibling.id()).status().unwrap().success());
    let begin = Instant::now();
    let mut refusals: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..20 {
        let mut bundle = Bundle::new();
        add_volume(&mut bundle, &volume, "rprivate");
        bundle.hook(&["--node=/dev/nvidia-caps/sub/nvidia-cap2=236:2"]);
        let message = bundle.refused();
        let why = if message.contains("EXDEV") {
            "another mount"
        } else {
            assert!(message.contains("stands in the way"), "{message}");
            "a link"
        };
        *refusals.entry(why).or_default() += 1;
        assert!(!Path::new("/nvidia-cap2").exists() && !bundle.path("rootfs/nvidia-cap2").exists());
    }
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the sibling has ended");
    sibling.delete();
    let left: Vec<PathBuf> = fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().path()).collect();
    eprintln!("T5: 20 starts refused, {refusals:?}, {:.1} s, {left:?} in the volume", begin.elapsed().as_secs_f64());
    assert_eq!(left.len(), 2, "{left:?}");
    let folder = if volume.join("sub").is_symlink() { volume.join("x") } else { volume.join("sub") };
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

/// A tmpfs that is shared, as every mount of a host with systemd is.
struct Shared {
    folder: tempfile::TempDir,
}

impl Shared {
    fn new() -> Shared {
        let folder = tempfile::Builder::new().prefix("shared").tempdir().unwrap();
        mount("none", folder.path(), "tmpfs", MountFlags::empty(), c"mode=755").unwrap();
        mount_change(folder.path(), MountPropagationFlags::SHARED).unwrap();
        Shared { folder }
    }

    /// Mounts on the host in the volume, beside the volume itself.
    fn leaked(&self) -> Vec<PathBuf> {
        let own = self.folder.path();
        mounts_below(own).into_iter().filter(|point| point != own).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for point in mounts_below(self.folder.path()) {
            let _gone = unmount(point, UnmountFlags::DETACH);
        }
    }
}

/// T12: in a user namespace the hook has to mount. Whatever the volume's propagation is, nothing reaches the host.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_hundred_starts_leave_no_mount_on_the_host() {
    require(&["runc"]);
    let begin = Instant::now();
    for (propagation, root, volume) in [
        ("rshared", None, true),
        ("rshared", Some("rshared"), true),
        ("rslave", Some("rslave"), true),
        ("rprivate", Some("shared"), true),
        ("rprivate", Some("shared"), false),
    ] {
        let shared = Shared::new();
        let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
        for _ in 0..20 {
            let mut bundle = Bundle::new();
            let dev_root = with_user_namespace(&mut bundle, 1);
            if volume {
                add_volume(&mut bundle, shared.folder.path(), propagation);
            }
            if let Some(root) = root {
                bundle.config["linux"]["rootfsPropagation"] = root.into();
            }
            bundle.hook(&["--node=/dev/nvidia-caps/nvidia-cap2=236:2", &dev_root]);
            let (out, err) = texts(&bundle.run(&["runc"]));
            let how = match () {
                () if out.ends_with("started\n") => "started",
                () if err.contains("EXDEV") => "refused, another mount",
                () if err.contains("shared with other mount namespaces") => "refused, /dev is shared",
                () => panic!("{out}\n{err}"),
            };
            *ended.entry(how).or_default() += 1;
            let left = [mounts_below(&bundle.path("")), shared.leaked()].concat();
            assert!(left.is_empty(), "left on the host: {left:?}");
            assert!(crate::world::stage::is_empty(shared.folder.path()), "made in the volume");
        }
        eprintln!("T12 volume {volume} {propagation}, root {root:?}: 20 starts, {ended:?}, 0 mounts on the host");
        assert_eq!(ended.contains_key("started"), !volume, "{ended:?}");
    }
    eprintln!("T12: 100 starts, {:.1} s", begin.elapsed().as_secs_f64());
}

/// That the test above would see one: a hook that mounts by path leaves it there.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_mount_by_path_would_be_seen() {
    require(&["runc"]);
    let shared = Shared::new();
    fs::write(shared.folder.path().join("node"), "").unwrap();
    let mut bundle = Bundle::new();
    add_volume(&mut bundle, shared.folder.path(), "rshared");
    bundle.config["linux"]["rootfsPropagation"] = "rshared".into();
    bundle.before("mount --bind /dev/null $R/dev/nvidia-caps/node");
    bundle.starts();
    assert_eq!(shared.leaked(), [shared.folder.path().join("node")]);
}
