//! Finds out which GPUs the host has: a file, `/proc/driver/nvidia`, a cache, and only then NVML in a program apart.

mod cache;
mod drm;
mod helper;
mod procfs;

use std::io;
use std::path::{Path, PathBuf};

use super::trusted::{self, Untrusted};
use crate::config::Config;
use crate::inventory::{InvalidInventory, Inventory};

pub use drm::add_drm_nodes;
pub use helper::HelperError;

/// An inventory of 16 GPUs with 7 MIG devices each is below 30 KiB.
const LIMIT: u64 = 4 << 20;

/// The GPUs of the host could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file that replaces discovery cannot be opened or read.
    #[error("failed to read the inventory {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file that the configuration names must not be used.
    #[error("failed to read the inventory")]
    Untrusted(#[from] Untrusted),
    /// The file that the configuration names is not there.
    #[error("failed to read the inventory {0:?}: the file does not exist")]
    Missing(PathBuf),
    /// The file is not an inventory.
    #[error("failed to read the inventory {path:?}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: InvalidInventory,
    },
    /// No source answers.
    #[error("failed to list the GPUs of this host")]
    Helper(#[from] HelperError),
    /// The cache cannot be written.
    #[error("failed to write the cache {path:?}")]
    Cache {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } | Self::Invalid { .. } | Self::Missing(_) => {
                "an inventory file is what cudaview inventory --format json prints".to_owned()
            }
            Self::Untrusted(untrusted) => untrusted.hint(),
            Self::Helper(HelperError::Start { .. }) => {
                "install cudaview-nvml beside cudaview, or name a file with --inventory FILE".to_owned()
            }
            Self::Helper(HelperError::Timeout) => {
                "turn persistence mode on (nvidia-smi -pm 1), so that the driver need not start up each time".to_owned()
            }
            Self::Helper(_) => "see that nvidia-smi works, or name a file with --inventory FILE".to_owned(),
            Self::Cache { .. } => "writing the cache needs root".to_owned(),
        }
    }
}

/// Where the sources are.
#[derive(Clone, Debug)]
pub struct Places {
    /// `/proc`.
    pub proc: PathBuf,
    /// The cache.
    pub cache: PathBuf,
    /// The program that asks NVML.
    pub helper: PathBuf,
}

impl Places {
    /// Where they are on every host.
    pub fn usual() -> Self {
        // A program that cannot say where it is has no helper; an empty path does not start.
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        Self {
            proc: PathBuf::from("/proc"),
            cache: PathBuf::from("/run/cudaview/inventory.json"),
            helper: own.with_file_name("cudaview-nvml"),
        }
    }
}

/// The GPUs of this host, or those of `file`, or those of the file that the configuration names.
///
/// # Errors
/// [`LoadError`] where a named file cannot be used, or no source answers.
pub fn load(config: &Config, file: Option<&Path>) -> Result<Inventory, LoadError> {
    load_from(config, file, &Places::usual())
}

/// As [`load`], with the sources somewhere else.
///
/// # Errors
/// As [`load`].
pub fn load_from(config: &Config, file: Option<&Path>, places: &Places) -> Result<Inventory, LoadError> {
    if let Some(path) = file {
        // Whoever types it answers for it.
        let text = std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        return parse(path, &text);
    }
    if let Some(path) = config.inventory.as_deref().map(Path::new) {
        let text = trusted::read(path, LIMIT)?.ok_or_else(|| LoadError::Missing(path.to_owned()))?;
        return parse(path, &text);
    }
    let host = procfs::read(&places.proc);
    if let Some(inventory) = host.inventory {
        return Ok(inventory);
    }
    match cache::read(&places.cache, &host.key) {
        Some(inventory) => Ok(inventory),
        None => Ok(helper::run(&places.helper)?),
    }
}

/// Asks NVML, and keeps the answer in the cache.
///
/// # Errors
/// [`LoadError`] where NVML does not answer or the cache cannot be written.
pub fn refresh(places: &Places) -> Result<Inventory, LoadError> {
    let inventory = helper::run(&places.helper)?;
    let key = procfs::read(&places.proc).key;
    cache::write(&places.cache, &key, &inventory)
        .map_err(|source| LoadError::Cache { path: places.cache.clone(), source })?;
    Ok(inventory)
}

fn parse(path: &Path, text: &[u8]) -> Result<Inventory, LoadError> {
    Inventory::from_json(text).map_err(|source| LoadError::Invalid { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
