//! The files that `cudaview install` changes: read, replaced atomically, with the text of before beside them.

pub mod dependents;
pub mod engines;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, OFlags, Uid};

use super::bundle::{Document, DocumentError};
use super::temporary::Temporary;
use super::trusted::{self, Untrusted};
use crate::shell;

/// What a copy of the file of before is called, behind the file's own name.
pub const BACKUP: &str = ".cudaview-backup";

/// The program that engines are to run.
const PROGRAM: &str = "cudaview-runtime";

/// Where it is looked for in a root that is not ours.
const PROGRAM_FOLDERS: [&str; 2] = ["usr/bin", "usr/local/bin"];

/// Why nothing was installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file is a link.
    #[error("{path:?} is a link to {target:?}")]
    Link {
        /// The file.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// The file cannot be read or replaced.
    #[error(transparent)]
    File(#[from] DocumentError),
    /// It is no text.
    #[error("{0:?} is not UTF-8")]
    NoText(PathBuf),
    /// Others could change what is to be relied upon.
    #[error("failed to rely on {0}")]
    Untrusted(&'static str, #[source] Untrusted),
    /// The engine would be told of nothing.
    #[error("cudaview-runtime is not installed: {0:?} is missing")]
    NoProgram(PathBuf),
    /// A system call failed.
    #[error("failed to {operation} {path:?}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl InstallError {
    /// What to do about it; may be empty.
    pub fn hint(&self) -> String {
        let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        match self {
            Self::Link { .. } => "a link is not followed here: what made it, makes that file too".to_owned(),
            Self::Untrusted(_, untrusted) => untrusted.hint(),
            Self::NoProgram(_) => "install cudaview's programs first, in one folder".to_owned(),
            Self::File(DocumentError::System { source, .. }) | Self::System { source, .. } if denied(source) => {
                "only root may do this: run it with sudo".to_owned()
            }
            Self::NoText(path) => format!("ls -l {}", shell::quote_path(path)),
            Self::File(_) | Self::System { .. } => String::new(),
        }
    }
}

fn failed<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::System { operation, path, source: source.into() }
}

/// A file of an engine's configuration, there or not.
#[derive(Debug)]
pub struct Place {
    /// Where it is.
    pub path: PathBuf,
    document: Option<Document>,
    /// What is in it, where it is there.
    pub text: Option<String>,
}

impl Place {
    /// Looks at a file. No folder on the way below `root` may be one that others can change.
    ///
    /// # Errors
    /// [`InstallError`] where it is a link, no text, or not to be relied upon.
    pub fn look(root: &Path, path: PathBuf) -> Result<Self, InstallError> {
        let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
        for folder in folders.filter(|folder| std::fs::symlink_metadata(folder).is_ok()) {
            trusted::folder(folder).map_err(|error| InstallError::Untrusted("the folder of the file", error))?;
        }
        Self::look_anywhere(path)
    }

    /// The same for a file of whoever asks, in folders that are theirs.
    ///
    /// # Errors
    /// [`InstallError`]
    pub fn look_anywhere(path: PathBuf) -> Result<Self, InstallError> {
        if let Ok(target) = std::fs::read_link(&path) {
            return Err(InstallError::Link { path, target });
        }
        let document = match Document::read(&path) {
            Ok(document) => Some(document),
            Err(DocumentError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let bytes = document.as_ref().map(|document| document.bytes.clone());
        let text = bytes.map(String::from_utf8).transpose().map_err(|_| InstallError::NoText(path.clone()))?;
        Ok(Self { path, document, text })
    }

    /// Where the text of before is kept.
    pub fn backup_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(BACKUP);
        PathBuf::from(name)
    }

    /// The text of before, where it was kept.
    ///
    /// # Errors
    /// [`InstallError`] where it cannot be read.
    pub fn backup(&self) -> Result<Option<String>, InstallError> {
        Ok(Self::look_anywhere(self.backup_path())?.text)
    }

    /// Keeps what is there now, for `uninstall`, with the owner and the permissions that it has.
    ///
    /// # Errors
    /// [`InstallError`]
    pub fn keep(&self) -> Result<(), InstallError> {
        match &self.document {
            Some(document) => self.put(&self.backup_path(), &document.bytes, document),
            None => self.forget(),
        }
    }

    /// Takes away the copy of before.
    ///
    /// # Errors
    /// [`InstallError`]
    pub fn forget(&self) -> Result<(), InstallError> {
        remove(&self.backup_path())
    }

    /// Writes the file: a new one, or in place of the one that was read.
    ///
    /// # Errors
    /// [`InstallError`]; what was there is then as it was.
    pub fn write(&self, text: &str) -> Result<(), InstallError> {
        match &self.document {
            Some(document) => Ok(document.replace_for_good(text.as_bytes())?),
            None => self.create(text),
        }
    }

    /// Removes the file, and its folder and the one above where nothing else is in them.
    ///
    /// # Errors
    /// [`InstallError`]
    pub fn remove(&self) -> Result<(), InstallError> {
        remove(&self.path)?;
        // It stays where anything else is in it, or where it is not ours to remove. One for parts is made in another.
        for (number, folder) in self.path.ancestors().skip(1).take(2).enumerate() {
            let is_for_parts = self.path.parent().and_then(Path::extension).is_some_and(|extension| extension == "d");
            if (number > 0 && !is_for_parts) || rustix::fs::rmdir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn create(&self, text: &str) -> Result<(), InstallError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(failed("make the folder", folder))?;
        let (directory, name) = self.parent(&self.path)?;
        // As packages have their configuration.
        put(&directory, &name, text.as_bytes(), (None, None), 0o644).map_err(failed("write", &self.path))
    }

    fn put(&self, path: &Path, content: &[u8], like: &Document) -> Result<(), InstallError> {
        let (directory, name) = self.parent(path)?;
        let (uid, gid, mode) = like.owner();
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        put(&directory, &name, content, owner, mode).map_err(failed("write", path))
    }

    fn parent(&self, path: &Path) -> Result<(OwnedFd, OsString), InstallError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(folder, flags, Mode::empty()).map_err(failed("open the folder", folder))?;
        Ok((directory, path.file_name().unwrap_or(OsStr::new("")).to_owned()))
    }
}

fn put(
    directory: &OwnedFd,
    name: &OsStr,
    content: &[u8],
    owner: (Option<Uid>, Option<Gid>),
    mode: u32,
) -> io::Result<()> {
    let mut temporary = Temporary::create(directory, name)?;
    temporary.file.write_all(content)?;
    rustix::fs::fchown(&temporary.file, owner.0, owner.1)?;
    rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(mode))?;
    temporary.file.sync_all()?;
    temporary.rename_to(name)
}

fn remove(path: &Path) -> Result<(), InstallError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The runtime as the system below `root` calls it: beside this program where that is below the root, else where
/// programs are installed. Engines run it as root, so nobody else may be able to change it.
///
/// # Errors
/// [`InstallError`] where it is not there, or others can change it.
pub fn program(root: &Path) -> Result<PathBuf, InstallError> {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default().with_file_name(PROGRAM);
    let candidates: Vec<PathBuf> = if own.starts_with(root) {
        vec![own]
    } else {
        PROGRAM_FOLDERS.iter().map(|folder| root.join(folder).join(PROGRAM)).collect()
    };
    let there = candidates.iter().find_map(|path| Some((path, std::fs::metadata(path).ok()?)));
    let Some((path, metadata)) = there else {
        return Err(InstallError::NoProgram(candidates.into_iter().next().unwrap_or_default()));
    };
    let untrusted = |error| InstallError::Untrusted("cudaview-runtime", error);
    trusted::program(path, &metadata).map_err(untrusted)?;
    trusted::folder(path.parent().unwrap_or(root)).map_err(untrusted)?;
    Ok(Path::new("/").join(path.strip_prefix(root).unwrap_or(path)))
}
