//! The hands: everything that touches the system.

pub mod audit;
pub mod bundle;
pub mod cdi;
pub mod cgroup;
pub mod child;
pub mod configuration;
pub mod containers;
pub mod doctor;
pub mod driver;
pub mod errno;
pub mod host;
pub mod hygiene;
pub mod images;
pub mod install;
pub mod inventory;
pub mod mountinfo;
pub mod nvml;
pub mod openable;
pub mod processes;
pub mod provenance;
mod raw;
pub mod report;
pub mod rootfs;
pub mod runtime;
pub mod runtime_state;
pub mod stand_in;
pub mod state;
mod temporary;
pub mod toolkit;
pub mod trusted;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// No file of `/proc` that is read here is longer; a host with thousands of mounts stays well below.
const READ_LIMIT: usize = 16 << 20;

/// Reads a regular file that somebody else may have put there: waits for nobody, and takes no more than so many bytes.
///
/// # Errors
/// The cause; what is no regular file, or larger, is an error too.
pub fn read_plain(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {} MiB", limit >> 20)));
    }
    Ok(bytes)
}

/// The same for a text of a system's, such as its configuration.
fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_plain(path, READ_LIMIT as u64)?).map_err(io::Error::other)
}

/// Reads what a process was told, from `/proc`: no more than the beginning, since any process can have it be endless.
// prctl(2), PR_SET_MM_MAP; execve(2), at most 6 MiB of arguments and environment
fn read_told(path: &Path) -> io::Result<Vec<u8>> {
    const LIMIT: u64 = 6 << 20;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a small file of the host to its end.
fn read_all(dir: impl AsFd, path: &Path) -> Result<Vec<u8>, Errno> {
    read_to_end(openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads an open file to its end.
fn read_to_end(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut chunk = vec![0; 1 << 14];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        if text.len() > READ_LIMIT {
            return Err(Errno::FBIG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_not_read_to_its_end() {
        // As what a process was told can be, of whoever made it a mapping of terabytes.
        assert_eq!(read_told(Path::new("/dev/zero")).map(|bytes| bytes.len()).ok(), Some(6 << 20));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        for (path, expect) in [(path.as_path(), "no regular file"), (Path::new("/dev/zero"), "no regular file")] {
            assert!(read_plain(path, 4).expect_err("refused").to_string().contains(expect));
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "12345").expect("written");
        assert!(read_plain(&path, 4).expect_err("too long").to_string().contains("larger"));
        assert_eq!(read_plain(&path, 5).ok().as_deref(), Some(b"12345".as_slice()));
        assert!(read_text(Path::new("/proc/self/stat")).is_ok_and(|text| !text.is_empty()));
    }
}
