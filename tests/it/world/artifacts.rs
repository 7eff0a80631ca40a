//! What the containers run: the test doubles of NVIDIA's libraries, and root file systems with them.
//!
//! Both are built once and kept below `target/tmp`, named by a digest of what they are made from.
//! Every test is a process of its own, so a lock on a file makes one of them build and the others wait.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use super::command::run;
use super::{inventory, repository};

/// A folder with the doubles: `libcuda.so.1`, `libnvidia-ml.so.1` and `gpu-count`.
#[track_caller]
pub(crate) fn doubles() -> PathBuf {
    build_once("doubles", digest_of(&[&repository().join("tests/doubles")]), |out| {
        run(Command::new(repository().join("tests/doubles/build")).arg(out)).ok();
    })
}

/// A folder with the programs of the stand-in for NVIDIA's toolkit.
#[track_caller]
pub(crate) fn toolkit() -> PathBuf {
    let source = repository().join("tests/toolkit");
    build_once("toolkit", digest_of(&[&source]), |out| {
        let script = r#"mkdir "$2" && cp "$1"/nvidia-* "$1/settings" "$1/toolkit.jq" "$2" &&
            gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$2/into-container" "$1/into-container.c""#;
        run(Command::new("sh").args(["-c", script, "sh"]).arg(&source).arg(out)).ok();
    })
}

/// A folder with the attack programs of `tests/attackers`, linked so that they run in any root file system.
#[track_caller]
pub(crate) fn attackers() -> PathBuf {
    let source = repository().join("tests/attackers");
    build_once("attackers", digest_of(&[&source]), |out| {
        let script = r#"mkdir "$2" && cd "$1" && compile="gcc -std=gnu11 -O2 -Wall -Wextra -Werror" &&
            for name in exchange naive-hook filter; do $compile -static -o "$2/$name" "$name.c" || exit; done &&
            $compile -shared -fPIC -o "$2/evil.so" evil.c"#;
        run(Command::new("sh").args(["-c", script, "sh"]).arg(&source).arg(out)).ok();
    })
}

/// A library that appends the name of each program that loads it to the file that `EVIL_MARKER` names.
const PRELOADED: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    char name[256];
    const char *marker = getenv("EVIL_MARKER");
    int fd = marker ? open(marker, O_WRONLY | O_APPEND) : -1;
    ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
    if (fd < 0) return;
    if (length < 0) length = 0;
    name[length] = '\n';
    if (write(fd, name, length + 1) < 0) abort();
    close(fd);
}
"#;

/// The file of a library for `LD_PRELOAD`, as an image may bring one along.
#[track_caller]
pub(crate) fn preloaded() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    PRELOADED.hash(&mut hasher);
    let folder = build_once("preloaded", hasher.finish(), |out| {
        std::fs::create_dir(out).unwrap();
        std::fs::write(out.join("evil.c"), PRELOADED).unwrap();
        run(Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(out.join("evil.so")).arg(out.join("evil.c"))).ok();
    });
    folder.join("evil.so")
}

/// A root file system with busybox, the doubles, and one of the inventory fixtures as the GPUs of its machine.
///
/// It is shared: mount it below something, or copy it.
#[track_caller]
pub(crate) fn rootfs(inventory_name: &str) -> PathBuf {
    let inventory = inventory(inventory_name);
    let doubles = doubles();
    let digest = digest_of(&[&repository().join("tests/doubles"), &inventory]);
    build_once("rootfs", digest, |out| {
        let script = repository().join("tests/doubles/rootfs");
        run(Command::new(script).args([out, &inventory, &doubles])).ok();
    })
}

/// The same root file system as a tar file, for `docker import`.
#[track_caller]
pub(crate) fn rootfs_tar(inventory_name: &str) -> PathBuf {
    let rootfs = rootfs(inventory_name);
    let digest = digest_of(&[&repository().join("tests/doubles"), &inventory(inventory_name)]);
    build_once("tar", digest, |out| {
        let mut tar = Command::new("tar");
        tar.args(["--owner=0", "--group=0", "--numeric-owner", "-cf"]).arg(out).arg("-C").arg(&rootfs).arg(".");
        run(&mut tar).ok();
    })
}

/// The finished thing of this name and digest, made by `build` when it is not there yet.
fn build_once(name: &str, digest: u64, build: impl FnOnce(&Path)) -> PathBuf {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("world");
    std::fs::create_dir_all(&cache).unwrap();
    let finished = cache.join(format!("{name}-{digest:016x}"));

    let lock = File::create(cache.join(format!("{name}.lock"))).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    if !finished.exists() {
        // Not a name that another run could be using: the lock is held. What lies there was left by a killed one.
        let unfinished = cache.join(format!("{name}.unfinished"));
        remove_any(&unfinished);
        build(&unfinished);
        std::fs::rename(&unfinished, &finished).unwrap();
    }
    finished
}

fn remove_any(path: &Path) {
    if path.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else if path.exists() {
        std::fs::remove_file(path).unwrap();
    }
}

/// A digest of the names and contents of files and of everything below folders.
fn digest_of(paths: &[&Path]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        hash_tree(path, &mut hasher);
    }
    hasher.finish()
}

fn hash_tree(path: &Path, hasher: &mut DefaultHasher) {
    path.file_name().hash(hasher);
    if path.is_dir() {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for entry in entries {
            hash_tree(&entry, hasher);
        }
    } else {
        std::fs::read(path).unwrap_or_else(|err| panic!("failed to read {}: {err}", path.display())).hash(hasher);
    }
}
