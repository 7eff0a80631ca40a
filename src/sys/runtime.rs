//! The low-level runtime: found by absolute path, and put in our place by `execve`.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where runtimes are looked up. Never `PATH`: podman calls `kill` and `delete` without one, and a `PATH` can be
/// anybody's.
pub(in crate::sys) const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// No low-level runtime could be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// None of the configured ones is there.
    #[error("no low-level runtime found: looked for {0}")]
    Missing(String),
    /// The configured one is this very program.
    #[error("the low-level runtime {0:?} is cudaview-runtime itself")]
    Ourselves(PathBuf),
    /// It could not be started.
    #[error("failed to execute {path:?}")]
    Exec {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The first of these runtimes that exists, is executable and is not this program.
///
/// # Errors
/// [`RuntimeError`] where there is none.
pub fn find(candidates: &[String]) -> Result<PathBuf, RuntimeError> {
    let ourselves = std::fs::metadata("/proc/self/exe").ok().map(|meta| (meta.dev(), meta.ino()));
    let mut refused = None;
    for candidate in candidates {
        let paths: Vec<PathBuf> = if candidate.starts_with('/') {
            vec![PathBuf::from(candidate)]
        } else {
            DIRECTORIES.iter().map(|directory| Path::new(directory).join(candidate)).collect()
        };
        for path in paths {
            let Ok(meta) = std::fs::metadata(&path) else { continue };
            let is_ours = path.file_name().is_some_and(|name| name == "cudaview-runtime");
            if is_ours || ourselves == Some((meta.dev(), meta.ino())) {
                refused = Some(path);
            } else if meta.is_file() && meta.mode() & 0o111 != 0 {
                return Ok(path);
            }
        }
    }
    match refused {
        Some(path) => Err(RuntimeError::Ourselves(path)),
        None => Err(RuntimeError::Missing(candidates.join(", "))),
    }
}

/// Whether a runtime is NVIDIA's own wrapper, which injects devices after us.
pub fn is_nvidia(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nvidia-container-runtime"))
}

/// Whether NVIDIA's runtime is where an engine finds it, so that it may be the one that runs after us.
pub fn is_nvidia_installed() -> bool {
    is_installed("nvidia-container-runtime")
}

/// Whether a program is in one of the system's directories.
pub fn is_installed(name: &str) -> bool {
    DIRECTORIES.iter().any(|directory| Path::new(directory).join(name).is_file())
}

/// Replaces this process by the runtime. Environment, descriptors, signals and working directory stay as they are;
/// that is why it is not `std::process::Command`, which resets signal dispositions and the signal mask.
///
/// Returns only where that failed.
pub fn execute(path: &Path, args: &[OsString]) -> RuntimeError {
    let error = |source| RuntimeError::Exec { path: path.to_owned(), source };
    let words = std::iter::once(path.as_os_str()).chain(args.iter().map(OsString::as_os_str));
    let words: Result<Vec<CString>, _> = words.map(|word| CString::new(word.as_bytes())).collect();
    let words = match words {
        Ok(words) => words,
        Err(source) => return error(source.into()),
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    #[expect(unsafe_code, reason = "std's exec resets signal handling; the runtime must inherit ours")]
    // SAFETY: `pointers` is a null-terminated array of pointers to strings that live in `words` until after the call.
    unsafe {
        libc::execv(pointers[0], pointers.as_ptr());
    }
    error(std::io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_in_system_directories() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(find(&list(&["no-such-runtime", "sh"])).is_ok_and(|path| path.ends_with("sh")));
        assert!(matches!(find(&list(&["no-such-runtime", "/no/such"])), Err(RuntimeError::Missing(_))));
        let ourselves = std::env::current_exe().expect("exe").to_string_lossy().into_owned();
        assert!(matches!(find(&[ourselves]), Err(RuntimeError::Ourselves(_))));
    }
}
