//! Files that decide something: they must belong to root (or to us), and nobody else may write them.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::shell;

/// The uid that stands for users who are not mapped into a user namespace.
// Documentation/admin-guide/sysctl/fs.rst, overflowuid.
const OVERFLOW_UID: u32 = 65534;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// It cannot be opened or read.
    #[error("failed to read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is a link, a folder, a device.
    #[error("{0:?} is not a regular file")]
    NotRegular(PathBuf),
    /// It is a link, or a file.
    #[error("{0:?} is not a folder")]
    NotFolder(PathBuf),
    /// Its owner could be anybody.
    #[error("{path:?} belongs to uid {uid}, not to root")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can write it.
    #[error("{0:?} can be written by its group or by others")]
    Writable(PathBuf),
    /// It is too large to be what it should be.
    #[error("{path:?} is larger than {limit} bytes")]
    Size {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
}

impl Untrusted {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Owner { path, .. } => format!("sudo chown root {}", shell::quote_path(path)),
            Self::Writable(path) => format!("sudo chmod go-w {}", shell::quote_path(path)),
            Self::Read { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                format!("ask as root, or let everybody read it: sudo chmod a+r {}", shell::quote_path(path))
            }
            Self::Read { path, .. } | Self::NotRegular(path) | Self::NotFolder(path) | Self::Size { path, .. } => {
                format!("ls -l {}", shell::quote_path(path))
            }
        }
    }
}

/// Reads a file that decides; `None` where there is none.
///
/// # Errors
/// [`Untrusted`] where there is one that must not be used.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Untrusted> {
    let Some((file, length)) = open(path)? else { return Ok(None) };
    let failed = |source| Untrusted::Read { path: path.to_owned(), source };
    // Room for all of it and one byte more: a few reads in place of a dozen.
    let mut text = Vec::with_capacity(usize::try_from(length.min(limit)).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut text).map_err(failed)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > limit) {
        return Err(Untrusted::Size { path: path.to_owned(), limit });
    }
    Ok(Some(text))
}

/// Reads the end of such a file, as much as the limit allows, and says where that begins.
///
/// # Errors
/// [`Untrusted`] where there is one that must not be used.
pub fn read_end(path: &Path, limit: u64) -> Result<Option<(Vec<u8>, u64)>, Untrusted> {
    let Some((mut file, length)) = open(path)? else { return Ok(None) };
    let failed = |source| Untrusted::Read { path: path.to_owned(), source };
    let start = length.saturating_sub(limit);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut text = Vec::new();
    // What is appended meanwhile is for the next time.
    file.take(limit).read_to_end(&mut text).map_err(failed)?;
    Ok(Some((text, start)))
}

/// The file and its length.
fn open(path: &Path) -> Result<Option<(File, u64)>, Untrusted> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(Untrusted::NotRegular(path.to_owned())),
        Err(error) => return Err(Untrusted::Read { path: path.to_owned(), source: error.into() }),
    };
    let failed = |source| Untrusted::Read { path: path.to_owned(), source };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Untrusted::NotRegular(path.to_owned()));
    }
    owned(path, metadata.uid(), metadata.mode())?;
    Ok(Some((file, metadata.len())))
}

/// Whether a folder is one that only root or whoever asks can change.
///
/// # Errors
/// [`Untrusted`] where it is not, or is not there.
pub fn folder(path: &Path) -> Result<(), Untrusted> {
    let metadata = std::fs::symlink_metadata(path);
    let metadata = metadata.map_err(|source| Untrusted::Read { path: path.to_owned(), source })?;
    if !metadata.is_dir() {
        return Err(Untrusted::NotFolder(path.to_owned()));
    }
    owned(path, metadata.uid(), metadata.mode())
}

/// Whether a program is one that only root or whoever asks can change.
///
/// # Errors
/// [`Untrusted`] where it is not.
pub fn program(path: &Path, metadata: &Metadata) -> Result<(), Untrusted> {
    if !metadata.is_file() {
        return Err(Untrusted::NotRegular(path.to_owned()));
    }
    owned(path, metadata.uid(), metadata.mode())
}

/// Whether only root or whoever asks can change what has this owner and these permissions.
///
/// # Errors
/// [`Untrusted`] where others can.
pub fn owned(path: &Path, uid: u32, mode: u32) -> Result<(), Untrusted> {
    if !is_trusted_owner(uid) {
        return Err(Untrusted::Owner { path: path.to_owned(), uid });
    }
    if mode & 0o022 != 0 {
        return Err(Untrusted::Writable(path.to_owned()));
    }
    Ok(())
}

/// Root, or we, or who stands for root where it is not mapped.
pub fn is_trusted_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || (uid == OVERFLOW_UID && in_user_namespace())
}

/// As [`read`], for a file that has to be there.
///
/// # Errors
/// [`Untrusted`] where there is none too.
pub fn read_existing(path: &Path, limit: u64) -> Result<Vec<u8>, Untrusted> {
    let missing = || Untrusted::Read { path: path.to_owned(), source: rustix::io::Errno::NOENT.into() };
    read(path, limit)?.ok_or_else(missing)
}

/// Whether user ids are mapped, so that the host's root may appear as the overflow uid, and no device cgroup can be set.
pub fn in_user_namespace() -> bool {
    let identity = ["0", "0", "4294967295"];
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.split_whitespace().eq(identity))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn whoever_may_not_read_is_told_who_may() {
        let hint = |error: rustix::io::Errno| Untrusted::Read { path: "/x".into(), source: error.into() }.hint();
        assert_eq!(hint(rustix::io::Errno::ACCESS), "ask as root, or let everybody read it: sudo chmod a+r /x");
        assert_eq!(hint(rustix::io::Errno::IO), "ls -l /x");
    }

    #[test]
    fn only_plain_files_that_others_cannot_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        let check = |path: &Path| read(path, 4);
        assert!(matches!(check(&file), Ok(None)));
        std::fs::write(&file, "text").expect("written");
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("mode");
        mode(0o644);
        assert_eq!(check(&file).expect("trusted").as_deref(), Some(b"text".as_slice()));
        mode(0o664);
        assert!(matches!(check(&file), Err(Untrusted::Writable(_))));
        mode(0o644);
        let link = folder.path().join("link");
        symlink(&file, &link).expect("a link");
        assert!(matches!(check(&link), Err(Untrusted::NotRegular(_))));
        assert!(matches!(check(folder.path()), Err(Untrusted::NotRegular(_))));
        std::fs::write(&file, "longer").expect("written");
        assert!(matches!(check(&file), Err(Untrusted::Size { .. })));
        // Without O_NONBLOCK the open of a FIFO would wait for a writer.
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
        assert!(matches!(check(&fifo), Err(Untrusted::NotRegular(_))));
        assert!(matches!(read_existing(&folder.path().join("none"), 4), Err(Untrusted::Read { .. })));
    }
}
