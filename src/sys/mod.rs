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

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// No file of `/proc` that is read here is longer; a host with thousands of mounts stays well below.
const READ_LIMIT: usize = 16 << 20;

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
