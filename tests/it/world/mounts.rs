//! Mounts below a test's own folder, which must be gone before the folder is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

/// The mount points at and below a folder, the innermost first.
pub(crate) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap();
    let mut found: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(folder))
        .collect();
    found.reverse();
    found
}

/// Unmounts everything below a test's folder and removes it; a folder with a mount left in it stays.
///
/// Removing a tree through a bind mount would empty what is mounted there.
pub(crate) fn remove(folder: TempDir) {
    for point in mounts_below(folder.path()) {
        if let Err(err) = unmount(&point, UnmountFlags::DETACH) {
            eprintln!("failed to unmount {}: {err}", point.display());
        }
    }
    if mounts_below(folder.path()).is_empty() {
        if let Err(err) = folder.close() {
            eprintln!("failed to remove a test's folder: {err}");
        }
    } else {
        eprintln!("left behind, since it has mounts: {}", folder.keep().display());
    }
}

/// `proc(5)`: space, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if let (b'\\', [a, b, c, tail @ ..]) = (first, tail) {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}
