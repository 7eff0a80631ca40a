//! The stand-in for NVIDIA's hook: a link by that name to `cudaview-hook`, for which dockerd takes `--gpus`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::runtime::DIRECTORIES;
use super::trusted::{self, Untrusted};

/// The program that dockerd looks for, once, when it starts.
// moby daemon/nvidia_linux.go; since 29.2 daemon/devices_nvidia_linux.go
pub const NAME: &str = "nvidia-container-runtime-hook";

/// The program that the link leads to.
const HOOK: &str = "cudaview-hook";

/// What else makes dockerd take `--gpus`: a newer part of NVIDIA's toolkit, and AMD's runtime, which an older dockerd
/// leaves out where it finds NVIDIA's hook.
// moby daemon/devices_nvidia_linux.go, daemon/devices_amd_linux.go
const OTHERS: [&str; 2] = ["nvidia-cdi-hook", "amd-container-runtime"];

/// Where NVIDIA's packages have their hook. In a folder that comes earlier in a daemon's `PATH` ours would hide theirs
/// from the day on which it is installed; here a package takes the name over.
const FOLDER: [&str; 2] = ["usr", "bin"];

/// Where `cudaview-hook` is looked for in a root that is not ours.
const HOOK_FOLDERS: [&str; 2] = ["usr/bin", "usr/local/bin"];

/// Why the stand-in is not installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// Another program has the name.
    #[error("{0:?} is there, and is not cudaview's")]
    Foreign(PathBuf),
    /// Another program makes dockerd take `--gpus`.
    #[error("--gpus belongs to another program here: {0:?}")]
    Other(PathBuf),
    /// The link would lead nowhere.
    #[error("cudaview-hook is not installed: {0:?} is missing")]
    NoHook(PathBuf),
    /// The link would lead to what others can change.
    #[error("failed to link to cudaview-hook")]
    Hook(#[source] Untrusted),
    /// Others could change the link.
    #[error("failed to use the folder of the link")]
    Folder(#[source] Untrusted),
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

impl StandInError {
    /// Whether somebody else's program is what stands against it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Foreign(_) | Self::Other(_))
    }

    /// What to do about it; may be empty.
    pub fn hint(&self) -> String {
        match self {
            Self::Foreign(path) => {
                format!("for that program Docker takes --gpus; whose it is: dpkg -S {0}, or rpm -qf", path.display())
            }
            Self::Other(path) if path.ends_with("nvidia-cdi-hook") => {
                "Docker 29.2 and newer take --gpus by it; for an older one install the package nvidia-container-toolkit"
                    .to_owned()
            }
            Self::Other(_) => "Docker gives AMD's GPUs for --gpus here".to_owned(),
            Self::NoHook(_) => "install cudaview's programs first, in one folder".to_owned(),
            Self::Hook(untrusted) | Self::Folder(untrusted) => untrusted.hint(),
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "only root may do this: run it with sudo".to_owned()
            }
            Self::System { source, path, .. } if source.kind() == io::ErrorKind::NotADirectory => {
                format!("a link is not followed here: ls -ld {}", crate::shell::quote_path(path))
            }
            Self::System { .. } => String::new(),
        }
    }
}

/// What has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing has.
    Nothing,
    /// A link of ours, and where it leads.
    Ours(PathBuf),
    /// Something else has.
    Foreign,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was so already.
    None,
    /// A link was made.
    Made,
    /// A link of ours that led elsewhere was replaced.
    Replaced,
    /// The link was removed.
    Removed,
}

/// The place of the stand-in, and what is there.
#[derive(Debug)]
pub struct Place {
    root: OwnedFd,
    folder: OwnedFd,
    /// The path of the link.
    pub path: PathBuf,
    found: Found,
}

impl Place {
    /// Looks at the place below a root, `/` or another system's.
    ///
    /// # Errors
    /// [`StandInError`] where it cannot be looked at, or others could change what is there.
    pub fn look(root: &Path) -> Result<Self, StandInError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = rustix::fs::open(root, flags, Mode::empty()).map_err(failed("open", root))?;
        let mut path = root.to_owned();
        let mut folder = root_fd.try_clone().map_err(failed("open", root))?;
        check_folder(&folder, &path)?;
        for name in FOLDER {
            path.push(name);
            // No link is followed: whoever could change one could have the name made elsewhere.
            folder = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(failed("open the folder", &path))?;
            check_folder(&folder, &path)?;
        }
        path.push(NAME);
        let found = found_at(&folder, NAME).map_err(failed("examine", &path))?;
        Ok(Self { root: root_fd, folder, path, found })
    }

    /// What has the name.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Whether the link is there and leads to this very target.
    pub fn leads_to(&self, target: &Path) -> bool {
        self.found == Found::Ours(target.to_owned())
    }

    /// Whether a link of ours is there.
    pub fn is_installed(&self) -> bool {
        matches!(self.found, Found::Ours(_))
    }

    /// Fails where another program has the name, here or elsewhere on a daemon's usual `PATH`, or takes `--gpus`.
    ///
    /// # Errors
    /// [`StandInError::Foreign`] and [`StandInError::Other`].
    pub fn check_free(&self) -> Result<(), StandInError> {
        if self.found == Found::Foreign {
            return Err(StandInError::Foreign(self.path.clone()));
        }
        for directory in DIRECTORIES {
            let relative = directory.trim_start_matches('/');
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // Absolute links lead to places below the root.
            let opened = rustix::fs::openat2(&self.root, relative, flags, Mode::empty(), ResolveFlags::IN_ROOT);
            let Ok(folder) = opened else { continue };
            let path = |name: &str| self.root_path().join(relative).join(name);
            if found_at(&folder, NAME) == Ok(Found::Foreign) {
                return Err(StandInError::Foreign(path(NAME)));
            }
            if let Some(other) = OTHERS.into_iter().find(|name| found_at(&folder, name) == Ok(Found::Foreign)) {
                return Err(StandInError::Other(path(other)));
            }
        }
        Ok(())
    }

    /// What the link is to lead to: beside this program where it is below the root, else where programs are installed.
    ///
    /// # Errors
    /// [`StandInError`] where it is not there, or others can change it.
    pub fn target(&self) -> Result<PathBuf, StandInError> {
        let root = self.root_path();
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default().with_file_name(HOOK);
        let candidates: Vec<PathBuf> = if own.starts_with(&root) {
            vec![own]
        } else {
            HOOK_FOLDERS.iter().map(|folder| root.join(folder).join(HOOK)).collect()
        };
        let there = candidates.iter().find_map(|path| Some((path, std::fs::metadata(path).ok()?)));
        let Some((path, metadata)) = there else {
            return Err(StandInError::NoHook(candidates.into_iter().next().unwrap_or_default()));
        };
        trusted::program(path, &metadata).map_err(StandInError::Hook)?;
        if path.parent() == self.path.parent() {
            return Ok(PathBuf::from(HOOK));
        }
        Ok(Path::new("/").join(path.strip_prefix(&root).unwrap_or(path)))
    }

    fn root_path(&self) -> PathBuf {
        self.path.ancestors().nth(FOLDER.len() + 1).unwrap_or(Path::new("/")).to_owned()
    }

    /// Makes the link, or makes one of ours lead to the target. Nothing of somebody else's is ever replaced.
    ///
    /// # Errors
    /// [`StandInError`]; what was there is then as it was.
    pub fn install(&self, target: &Path) -> Result<Change, StandInError> {
        match &self.found {
            Found::Foreign => Err(StandInError::Foreign(self.path.clone())),
            Found::Ours(leads_to) if leads_to == target => Ok(Change::None),
            Found::Ours(_) => self.replace(target).map(|()| Change::Replaced),
            Found::Nothing => match rustix::fs::symlinkat(target, &self.folder, NAME) {
                Ok(()) => Ok(Change::Made),
                // Somebody was faster, perhaps another run of ours.
                Err(Errno::EXIST) if found_at(&self.folder, NAME) == Ok(Found::Ours(target.to_owned())) => {
                    Ok(Change::None)
                }
                Err(Errno::EXIST) => Err(StandInError::Foreign(self.path.clone())),
                Err(error) => Err(failed("make the link", &self.path)(error)),
            },
        }
    }

    /// Removes the link, if it is ours.
    ///
    /// # Errors
    /// [`StandInError`]; what was there is then as it was.
    pub fn uninstall(&self) -> Result<Change, StandInError> {
        match self.found {
            Found::Foreign => return Err(StandInError::Foreign(self.path.clone())),
            Found::Nothing => return Ok(Change::None),
            Found::Ours(_) => {}
        }
        // Out of the way first: what is looked at under a name of our own, nobody replaces between look and removal.
        let aside = aside();
        self.clear(&aside)?;
        let moved = rustix::fs::renameat_with(&self.folder, NAME, &self.folder, &aside, RenameFlags::NOREPLACE);
        moved.map_err(failed("remove", &self.path))?;
        if !self.is_ours(&aside) {
            let back = rustix::fs::renameat_with(&self.folder, &aside, &self.folder, NAME, RenameFlags::NOREPLACE);
            back.map_err(failed("put back", &self.path))?;
            return Err(StandInError::Foreign(self.path.clone()));
        }
        self.clear(&aside).map(|()| Change::Removed)
    }

    /// Exchanges the two links, so that the name is always there, and puts back what was not ours.
    fn replace(&self, target: &Path) -> Result<(), StandInError> {
        let aside = aside();
        self.clear(&aside)?;
        rustix::fs::symlinkat(target, &self.folder, &aside).map_err(failed("replace", &self.path))?;
        let exchange = || rustix::fs::renameat_with(&self.folder, &aside, &self.folder, NAME, RenameFlags::EXCHANGE);
        let exchanged = exchange().map_err(failed("replace", &self.path));
        let foreign = exchanged.is_ok() && !self.is_ours(&aside);
        if foreign {
            exchange().map_err(failed("put back", &self.path))?;
        }
        self.clear(&aside)?;
        exchanged?;
        if foreign { Err(StandInError::Foreign(self.path.clone())) } else { Ok(()) }
    }

    fn is_ours(&self, name: &str) -> bool {
        matches!(found_at(&self.folder, name), Ok(Found::Ours(_)))
    }

    /// Removes a link of ours under a name of our own; one may be left of a process of the same number that was killed.
    fn clear(&self, aside: &str) -> Result<(), StandInError> {
        if !self.is_ours(aside) {
            return Ok(());
        }
        rustix::fs::unlinkat(&self.folder, aside, AtFlags::empty()).map_err(failed("remove", &self.path))
    }
}

/// A name that nobody else writes.
fn aside() -> String {
    format!(".{NAME}.cudaview-{}", std::process::id())
}

/// Whether a program, such as the one that a hook entry names, is the stand-in.
pub fn is_stand_in(program: &Path) -> bool {
    std::fs::canonicalize(program).is_ok_and(|path| path.file_name() == Some(OsStr::new(HOOK)))
}

fn found_at(folder: &OwnedFd, name: &str) -> rustix::io::Result<Found> {
    match rustix::fs::readlinkat(folder, name, Vec::new()) {
        Ok(target) => {
            let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
            let is_ours = target.file_name() == Some(OsStr::new(HOOK));
            Ok(if is_ours { Found::Ours(target) } else { Found::Foreign })
        }
        Err(Errno::NOENT) => Ok(Found::Nothing),
        // There, and no link.
        Err(Errno::INVAL) => Ok(Found::Foreign),
        Err(error) => Err(error),
    }
}

fn check_folder(folder: &OwnedFd, path: &Path) -> Result<(), StandInError> {
    let metadata = folder.try_clone().map(File::from).and_then(|file| file.metadata());
    let metadata = metadata.map_err(failed("examine", path))?;
    trusted::owned(path, metadata.uid(), metadata.mode()).map_err(StandInError::Folder)
}

fn failed<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> StandInError {
    let path = path.to_owned();
    move |source| StandInError::System { operation, path, source: source.into() }
}
