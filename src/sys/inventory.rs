//! Finds out which GPUs the host has: a file, `/proc/driver/nvidia`, a cache, and only then NVML in a program apart.

mod cache;
mod drm;
mod helper;
mod platform;
mod procfs;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::driver;
use super::trusted::{self, Untrusted};
use crate::config::Config;
use crate::device::Minor;
use crate::inventory::{InvalidInventory, Inventory};
use crate::shell;
use crate::usage::Usage;

pub use drm::add_drm_nodes;
pub use helper::HelperError;
pub use procfs::Doubt;
pub(super) use procfs::driver_version;

/// An inventory of 16 GPUs with 7 MIG devices each is below 30 KiB.
const LIMIT: u64 = 4 << 20;

/// Where NVML's answer is kept.
pub const CACHE: &str = "/run/cudaview/inventory.json";

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
    #[error("failed to list the GPUs of this host ({why})")]
    Helper {
        /// Why NVML had to be asked.
        why: Why,
        /// Why it did not answer.
        source: HelperError,
    },
    /// The GPU is part of a Tegra chip.
    #[error("failed to list the GPUs of this host: it is a Tegra system ({0}), which cudaview does not support")]
    Tegra(String),
    /// The cache cannot be written.
    #[error("failed to write the cache {path:?}")]
    Cache {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Why NVML has to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The driver is not there, and so many GPUs of NVIDIA's are on the PCI bus, where that is known.
    NoDriver(Option<usize>),
    /// The driver is there.
    Doubt(Doubt),
    /// Somebody wants its answer in the cache.
    Refresh,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(Some(0)) => f.write_str("no NVIDIA GPU is on its PCI bus"),
            Self::NoDriver(_) => f.write_str("the kernel module nvidia is not loaded"),
            Self::Doubt(doubt) => doubt.fmt(f),
            Self::Refresh => f.write_str("NVML has to say"),
        }
    }
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } | Self::Invalid { .. } | Self::Missing(_) => {
                "an inventory file is what cudaview inventory --format json prints".to_owned()
            }
            Self::Untrusted(untrusted) => untrusted.hint(),
            Self::Tegra(_) => "use NVIDIA's own runtime there: docker run --runtime nvidia --gpus all IMAGE".to_owned(),
            Self::Helper { why: Why::NoDriver(Some(0)), .. } => {
                "to try cudaview without a GPU: cudaview demo".to_owned()
            }
            Self::Helper { source: HelperError::Start { .. }, .. } => {
                "install cudaview-nvml beside the other programs of cudaview".to_owned()
            }
            // The words of NVML_ERROR_LIB_RM_VERSION_MISMATCH.
            Self::Helper { source: HelperError::Failed(said), .. } if said.contains("version mismatch") => {
                "the driver was updated and the old one still runs: restart the host, or reload the driver's modules"
                    .to_owned()
            }
            Self::Helper { why: Why::NoDriver(_), .. } => {
                "sudo nvidia-modprobe -u -c0 loads the driver and makes its nodes".to_owned()
            }
            Self::Helper { why: Why::Doubt(Doubt::NotNamed(_)), .. }
            | Self::Helper { source: HelperError::Timeout, .. } => {
                "turn persistence mode on (nvidia-smi -pm 1), so that the driver need not start up each time".to_owned()
            }
            Self::Helper { .. } => "see that nvidia-smi works".to_owned(),
            Self::Cache { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "writing the cache needs root".to_owned()
            }
            Self::Cache { path, .. } => {
                format!("ls -ld {}: it must be root's alone", shell::quote_path(path.parent().unwrap_or(path)))
            }
        }
    }
}

/// Where the sources are.
#[derive(Clone, Debug)]
pub struct Places {
    /// `/proc`.
    pub proc: PathBuf,
    /// The folder with the driver's nodes.
    pub dev: PathBuf,
    /// `/`, for `/sys` and the files that name a Tegra system.
    pub root: PathBuf,
    /// The cache.
    pub cache: PathBuf,
    /// Whether what NVML answered is kept there unasked: for root alone, and not in a user namespace, where nobody knows
    /// whose root that is.
    pub keeps: bool,
    /// The program that asks NVML.
    pub helper: PathBuf,
}

impl Places {
    /// Where they are on every host; the nodes are where the configuration says.
    pub fn usual(config: &Config) -> Self {
        // A program that cannot say where it is has no helper; an empty path does not start.
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        Self {
            proc: PathBuf::from("/proc"),
            dev: Path::new(&config.dev_root).join("dev"),
            root: PathBuf::from("/"),
            cache: PathBuf::from(CACHE),
            keeps: rustix::process::geteuid().is_root() && !trusted::in_user_namespace(),
            helper: own.with_file_name("cudaview-nvml"),
        }
    }
}

/// The GPUs of this host, or those of `file`, or those of the file that the configuration names.
///
/// # Errors
/// [`LoadError`] where a named file cannot be used, or no source answers.
pub fn load(config: &Config, file: Option<&Path>) -> Result<Inventory, LoadError> {
    load_from(config, file, &Places::usual(config))
}

/// The same for whoever only asks: what NVML answered is not kept.
///
/// # Errors
/// As [`load`].
pub fn look(config: &Config, file: Option<&Path>) -> Result<Inventory, LoadError> {
    load_from(config, file, &Places { keeps: false, ..Places::usual(config) })
}

/// How much of each GPU is in use, by NVML.
///
/// # Errors
/// [`HelperError`] where it cannot be asked.
pub fn usage(places: &Places) -> Result<Usage, HelperError> {
    helper::usage(&places.helper)
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
    let host = procfs::read(&places.proc, &places.dev);
    if let Some(other) = platform::find(places, &host) {
        return of_other(other);
    }
    let cached = || cache::read(&places.cache, host.key.as_ref()?).filter(|inventory| host.agrees(inventory));
    let why = match &host.inventory {
        Ok(inventory) => return Ok(inventory.clone()),
        Err(doubt) => doubt.clone(),
    };
    if let Some(inventory) = cached() {
        return Ok(inventory);
    }
    let inventory = ask(places, Some(why))?;
    if places.keeps
        && let Some(key) = unchanged(places, host.key)
        && let Err(error) = cache::write(&places.cache, &key, &inventory)
    {
        // The answer is as good; it will have to be asked for again.
        log::debug!("failed to write the cache {:?}: {error}", places.cache);
    }
    Ok(inventory)
}

/// Asks NVML, and keeps the answer in the cache, for as long as nothing changes.
///
/// # Errors
/// [`LoadError`] where NVML does not answer or the cache cannot be written.
pub fn refresh(places: &Places) -> Result<Inventory, LoadError> {
    let host = procfs::read(&places.proc, &places.dev);
    if let Some(other) = platform::find(places, &host) {
        return of_other(other);
    }
    let inventory = ask(places, host.inventory.err())?;
    if let Some(key) = unchanged(places, host.key) {
        cache::write(&places.cache, &key, &inventory)
            .map_err(|source| LoadError::Cache { path: places.cache.clone(), source })?;
    }
    Ok(inventory)
}

/// The minors of these GPUs that have no node.
pub fn without_node(inventory: &Inventory, dev: &Path) -> Vec<Minor> {
    let minors = inventory.gpus.iter().map(|gpu| gpu.minor);
    minors.filter(|minor| !procfs::has_node(dev, *minor)).collect()
}

fn of_other(other: platform::Other) -> Result<Inventory, LoadError> {
    match other {
        platform::Other::Wsl2(inventory) => Ok(inventory),
        platform::Other::Tegra(sign) => Err(LoadError::Tegra(sign)),
    }
}

fn ask(places: &Places, doubt: Option<Doubt>) -> Result<Inventory, LoadError> {
    helper::run(&places.helper).map_err(|source| {
        let has_driver = driver::loaded(&places.proc).contains(&"nvidia");
        let why = match doubt {
            Some(Doubt::NoGpu) if !has_driver => Why::NoDriver(driver::gpus_on_bus(&places.root.join("sys"))),
            Some(doubt) => Why::Doubt(doubt),
            None => Why::Refresh,
        };
        LoadError::Helper { why, source }
    })
}

/// The host as it is after NVML was asked, if the answer can be of it: NVML may have made nodes, and nothing else.
fn unchanged(places: &Places, before: Option<procfs::Key>) -> Option<procfs::Key> {
    let (before, now) = (before?, procfs::read(&places.proc, &places.dev).key?);
    (procfs::Key { nodes: now.nodes.clone(), ..before } == now).then_some(now)
}

fn parse(path: &Path, text: &[u8]) -> Result<Inventory, LoadError> {
    Inventory::from_json(text).map_err(|source| LoadError::Invalid { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
