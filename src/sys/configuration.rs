//! Finds and reads the configuration.

use std::path::{Path, PathBuf};

use super::trusted::{self, Untrusted};
use crate::config::{Config, InvalidConfig};

/// Where the configuration is.
pub const PATH: &str = "/etc/cudaview/config.toml";

/// The same below the prefix of an installation that is not the system's.
const BELOW_PREFIX: &str = "etc/cudaview/config.toml";

const LIMIT: u64 = 1 << 20;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It must not be used, or cannot be read.
    #[error("failed to read the configuration")]
    File(#[from] Untrusted),
    /// Its text is wrong.
    #[error("failed to read the configuration {path:?}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: InvalidConfig,
    },
}

impl ConfigurationError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File(untrusted) => untrusted.hint(),
            Self::Text { path, .. } => format!("correct {}, or remove it to use the defaults", path.display()),
        }
    }
}

/// The file that this installation's configuration is in, or would be in.
pub fn path() -> PathBuf {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let prefixed = own.as_deref().and_then(prefix).map(|prefix| prefix.join(BELOW_PREFIX));
    prefixed.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PATH))
}

/// Reads the configuration of this installation; without a file, the built-in one.
///
/// # Errors
/// [`ConfigurationError`] where there is a file that cannot be used.
pub fn load() -> Result<Config, ConfigurationError> {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let prefixed = own.as_deref().and_then(prefix).map(|prefix| prefix.join(BELOW_PREFIX));
    for path in prefixed.into_iter().chain([PathBuf::from(PATH)]) {
        if let Some(text) = trusted::read(&path, LIMIT)? {
            return parse(&path, &text);
        }
    }
    Ok(Config::built_in())
}

/// Reads the configuration at the place of an installation; `None` without a file.
///
/// # Errors
/// [`ConfigurationError`] where there is a file that cannot be used.
pub fn load_at(path: &Path) -> Result<Option<Config>, ConfigurationError> {
    trusted::read(path, LIMIT)?.map(|text| parse(path, &text)).transpose()
}

/// Reads a configuration that the caller names, whoever owns it: for a what-if.
///
/// # Errors
/// [`ConfigurationError`] where it cannot be used.
pub fn load_file(path: &Path) -> Result<Config, ConfigurationError> {
    let text = std::fs::read(path).map_err(|source| Untrusted::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &[u8]) -> Result<Config, ConfigurationError> {
    let failed = |source| ConfigurationError::Text { path: path.to_owned(), source };
    let text = std::str::from_utf8(text).map_err(|error| failed(InvalidConfig::Toml(error.to_string())))?;
    Config::parse(text).map_err(failed)
}

/// The prefix of a program in `PREFIX/bin` or `PREFIX/sbin`, unless it is the system's own (`/` or `/usr`).
fn prefix(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    let in_bin = matches!(folder.file_name()?.to_str()?, "bin" | "sbin");
    let prefix = folder.parent()?;
    (in_bin && prefix != Path::new("/") && prefix != Path::new("/usr")).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_private_prefix_has_its_own_configuration() {
        let of = |program: &'static str| prefix(Path::new(program)).and_then(Path::to_str);
        assert_eq!(of("/opt/cudaview/bin/cudaview-runtime"), Some("/opt/cudaview"));
        assert_eq!(of("/usr/local/sbin/cudaview"), Some("/usr/local"));
        assert_eq!(of("/usr/bin/cudaview"), None);
        assert_eq!(of("/bin/cudaview"), None);
        assert_eq!(of("/src/target/debug/cudaview"), None);
    }

    #[test]
    fn mistakes_name_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[reconcile]\nnarow = true\n").expect("written");
        let error = load_file(&path).expect_err("a mistake");
        assert!(error.to_string().contains("config.toml"), "{error}");
        assert!(matches!(load_file(&folder.path().join("none")), Err(ConfigurationError::File(_))));
    }
}
