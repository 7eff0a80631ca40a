//! Where NVIDIA's container toolkit has its configuration.

use std::path::{Path, PathBuf};

use rustix::fs::CWD;

use crate::toolkit::Toolkit;

/// Below a folder of configurations.
const NAME: &str = "nvidia-container-runtime/config.toml";

/// What its runtime and its hook go by. Neither file nor folder have to be trusted: it goes by them, trusted or not.
pub fn configuration(low_level: Option<&Path>) -> Toolkit {
    let text = super::read_all(CWD, &path()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let mut toolkit = text.and_then(|text| Toolkit::parse(&text)).unwrap_or_default();
    // nvidia-container-runtime.cdi and .legacy are the same with a mode of their own.
    for mode in ["cdi", "legacy"] {
        if low_level.is_some_and(|path| path.ends_with(format!("nvidia-container-runtime.{mode}"))) {
            mode.clone_into(&mut toolkit.mode);
        }
    }
    toolkit
}

/// Where the toolkit looks. It inherits our environment, which is the engine's and never a container's.
// api/config/v1/config.go.
fn path() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("NVIDIA_CTK_CONFIG_FILE_PATH")
        .unwrap_or_else(|| from("XDG_CONFIG_HOME").unwrap_or_else(|| PathBuf::from("/etc")).join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_nvidias_runtime_that_are_modes() {
        let mode = |name: &str| configuration(Some(&Path::new("/usr/bin").join(name))).mode;
        assert_eq!(mode("nvidia-container-runtime.cdi"), "cdi");
        assert_eq!(mode("nvidia-container-runtime.legacy"), "legacy");
        assert_eq!(mode("runc"), mode("nvidia-container-runtime"));
    }
}
