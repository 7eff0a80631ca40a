//! Reading a file that decides something: it must be root's, and nobody else's to write.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::sys::errno::Cause;

/// No file of an engine that we read comes near this size.
const SIZE_LIMIT: u64 = 16 << 20;

/// Owner that a user namespace shows for ids that are not mapped in it, host root among them.
// Default of /proc/sys/kernel/overflowuid.
const OVERFLOW_UID: u32 = 65534;

/// Why a file was not read; the path is named by the caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("failed to open it")]
    Open(#[source] io::Error),
    #[error("failed to read it")]
    Read(#[source] io::Error),
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it belongs to user {0}, not to root")]
    Owner(u32),
    #[error("others may write to it (mode {0:03o})")]
    Writable(u32),
    #[error("it is larger than {} MiB", SIZE_LIMIT >> 20)]
    TooLarge,
}

impl ReadError {
    /// The whole story in one line, for a note; system errors by their symbols, since it may reach Docker.
    pub(super) fn full_text(&self) -> String {
        match self {
            Self::Open(cause) | Self::Read(cause) => match cause.raw_os_error() {
                Some(errno) => format!("{self}: {}", Cause(rustix::io::Errno::from_raw_os_error(errno))),
                None => format!("{self}: {cause}"),
            },
            _ => self.to_string(),
        }
    }
}

/// The content of a regular file, not reached by a final symlink, that belongs to root and is writable by root only.
pub(super) fn read_trusted(path: &Path) -> Result<Vec<u8>, ReadError> {
    // Without O_NONBLOCK the open of a FIFO would wait for a writer.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(ReadError::Open)?;
    let metadata = file.metadata().map_err(ReadError::Read)?;
    check_owner_and_mode(&metadata)?;
    read_at_most(&file, metadata.len())
}

fn check_owner_and_mode(metadata: &Metadata) -> Result<(), ReadError> {
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if !is_root_here(metadata.uid()) {
        return Err(ReadError::Owner(metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(ReadError::Writable(metadata.mode() & 0o777));
    }
    Ok(())
}

fn read_at_most(file: &File, expected: u64) -> Result<Vec<u8>, ReadError> {
    if expected > SIZE_LIMIT {
        return Err(ReadError::TooLarge);
    }
    let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
    file.take(SIZE_LIMIT + 1).read_to_end(&mut content).map_err(ReadError::Read)?;
    if content.len() as u64 > SIZE_LIMIT { Err(ReadError::TooLarge) } else { Ok(content) }
}

fn is_root_here(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || (uid == OVERFLOW_UID && in_user_namespace())
}

/// Outside of user namespaces the map is the identity over all ids.
fn in_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_an_owned_regular_file_that_others_cannot_write_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o644);
        assert_eq!(read_trusted(&path).unwrap(), b"x");
        for mode in [0o664, 0o646] {
            set_mode(mode);
            assert!(matches!(read_trusted(&path), Err(ReadError::Writable(_))), "{mode:o}");
        }
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(read_trusted(&link), Err(ReadError::Open(_))));
        assert!(matches!(read_trusted(folder.path()), Err(ReadError::NotRegular)));
        assert!(matches!(read_trusted(&folder.path().join("none")), Err(ReadError::Open(_))));
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(read_trusted(&fifo), Err(ReadError::NotRegular)));
        File::create(folder.path().join("large")).unwrap().set_len(SIZE_LIMIT + 1).unwrap();
        let large = read_trusted(&folder.path().join("large"));
        assert!(matches!(large, Err(ReadError::TooLarge)));
    }
}
