//! A file that an engine handed us: read whole, replaced atomically, never truncated in place.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use super::temporary::Temporary;

/// The most that is read; engines write some ten kilobytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// A file, and what was in it.
#[derive(Debug)]
pub struct Document {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
    stat: Stat,
    /// The content.
    pub bytes: Vec<u8>,
}

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A system call failed.
    #[error("failed to {operation} {path:?}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Not a regular file.
    #[error("{0:?} is not a regular file")]
    NotRegular(PathBuf),
    /// Owned by somebody whom this process has no reason to trust.
    #[error("{path:?} belongs to uid {uid}, which is neither root nor the caller")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Larger than any engine writes.
    #[error("{path:?} is larger than 16 MiB ({size} bytes)")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// Somebody else replaced it meanwhile.
    #[error("{0:?} was changed by another program at the same time")]
    Changed(PathBuf),
}

fn failed<E: Into<std::io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> DocumentError {
    let path = path.to_owned();
    move |source| DocumentError::System { operation, path, source: source.into() }
}

impl Document {
    /// Reads a file, following no link in its last component.
    ///
    /// # Errors
    /// [`DocumentError`] where it is absent, not regular, somebody else's, or too large.
    pub fn read(path: &Path) -> Result<Self, DocumentError> {
        let own = rustix::process::geteuid().as_raw();
        Self::read_of(path, own, LIMIT)
    }

    /// The same, where it may be this user's, and no larger than so many bytes.
    ///
    /// # Errors
    /// [`DocumentError`]
    pub fn read_of(path: &Path, owner: u32, limit: u64) -> Result<Self, DocumentError> {
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            _ => return Err(DocumentError::NotRegular(path.to_owned())),
        };
        let directory_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(parent, directory_flags, Mode::empty()).map_err(failed("open the directory", parent))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(failed("open", path))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("examine", path))?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(DocumentError::NotRegular(path.to_owned()));
        }
        let uid = stat.st_uid;
        if uid != 0 && uid != owner {
            return Err(DocumentError::Owner { path: path.to_owned(), uid });
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > limit {
            return Err(DocumentError::TooLarge { path: path.to_owned(), size });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        std::fs::File::from(fd).take(limit + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
        Ok(Self { directory, name: name.to_owned(), path: path.to_owned(), stat, bytes })
    }

    /// Where it is, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts new content in place of the old: a temporary file beside it, then a rename.
    ///
    /// It is not synced to disk: a bundle does not outlive a crash of the host, engines make it anew.
    ///
    /// # Errors
    /// [`DocumentError`]; the file is then as it was, and the temporary file is gone.
    pub fn replace(&self, content: &[u8]) -> Result<(), DocumentError> {
        self.replace_expecting(&self.stat, content, false)
    }

    /// The same for a file that is to outlive a crash of the host.
    ///
    /// # Errors
    /// As [`Document::replace`].
    pub fn replace_for_good(&self, content: &[u8]) -> Result<(), DocumentError> {
        self.replace_expecting(&self.stat, content, true)
    }

    /// Its owner, its group and its permissions.
    pub fn owner(&self) -> (u32, u32, u32) {
        (self.stat.st_uid, self.stat.st_gid, self.stat.st_mode & 0o7777)
    }

    /// Puts back the content that was read, whatever is there now: the new one could not be used.
    ///
    /// # Errors
    /// As [`Document::replace`].
    pub fn restore(&self) -> Result<(), DocumentError> {
        self.replace_expecting(&self.current()?, &self.bytes, false)
    }

    fn current(&self) -> Result<Stat, DocumentError> {
        rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("examine", &self.path))
    }

    fn replace_expecting(&self, expected: &Stat, content: &[u8], for_good: bool) -> Result<(), DocumentError> {
        let mut temporary =
            Temporary::create(&self.directory, &self.name).map_err(failed("write beside", &self.path))?;
        let stat = &self.stat;
        let owner = (Some(rustix::fs::Uid::from_raw(stat.st_uid)), Some(rustix::fs::Gid::from_raw(stat.st_gid)));
        temporary
            .file
            .write_all(content)
            .and_then(|()| Ok(rustix::fs::fchown(&temporary.file, owner.0, owner.1)?))
            .and_then(|()| Ok(rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(stat.st_mode & 0o7777))?))
            .and_then(|()| if for_good { temporary.file.sync_all() } else { Ok(()) })
            .map_err(failed("write beside", &self.path))?;
        let now = self.current()?;
        if (now.st_ino, now.st_dev) != (expected.st_ino, expected.st_dev) {
            return Err(DocumentError::Changed(self.path.clone()));
        }
        temporary.rename_to(&self.name).map_err(failed("replace", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.json");
        std::fs::write(&path, content).expect("a file");
        (directory, path)
    }

    #[test]
    fn replacing_keeps_mode_and_leaves_nothing_behind() {
        let (directory, path) = file("old");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("mode");
        let document = Document::read(&path).expect("read");
        assert_eq!(document.bytes, b"old");
        document.replace(b"new").expect("replace");
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
        assert_eq!(std::fs::metadata(&path).expect("stat").mode() & 0o7777, 0o640);
        document.restore().expect("restore");
        assert_eq!(std::fs::read(&path).expect("read"), b"old");
        assert_eq!(std::fs::read_dir(directory.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_second_editor_is_noticed() {
        let (directory, path) = file("old");
        let first = Document::read(&path).expect("read");
        Document::read(&path).expect("read").replace(b"other").expect("replace");
        assert!(matches!(first.replace(b"mine"), Err(DocumentError::Changed(_))));
        assert_eq!(std::fs::read(&path).expect("read"), b"other");
        assert_eq!(std::fs::read_dir(directory.path()).expect("list").count(), 1);
    }

    #[test]
    fn links_pipes_and_giants_are_refused() {
        let (directory, path) = file("x");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("link");
        assert!(matches!(Document::read(&link), Err(DocumentError::System { operation: "open", .. })));
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("fifo");
        assert!(matches!(Document::read(&fifo), Err(DocumentError::NotRegular(_))));
        assert!(matches!(Document::read(directory.path()), Err(DocumentError::NotRegular(_))));
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(LIMIT + 1)).expect("grow");
        assert!(matches!(Document::read(&path), Err(DocumentError::TooLarge { .. })));
    }
}
