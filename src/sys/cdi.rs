//! The host's CDI specifications: files that decide, so they must be root's alone.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::cdi::{CdiEdits, CdiSpec, Contradiction, Format, GPU_KIND, InvalidCdi, Node, Source, inject, parse};
use crate::inventory::{Device, Inventory};
use crate::shell;
use crate::sys::trusted::{self, Untrusted};

/// The largest specification that is read. NVIDIA's, for sixteen GPUs in seven instances each, is a tenth of it.
const LIMIT: u64 = 4 * 1024 * 1024;

/// Why the specifications cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// A folder of specifications cannot be listed.
    #[error("failed to list the CDI specifications in {folder:?}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file that somebody else could have written.
    #[error("refused the CDI specification")]
    Untrusted(#[from] Untrusted),
    /// A file that is no valid specification.
    #[error("failed to read the CDI specification {file:?}")]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The member and what is wrong with it.
        source: InvalidCdi,
    },
    /// It does not fit this host, or another file.
    #[error("refused the CDI specification")]
    Contradiction(#[from] Contradiction),
    /// A program or file that it names is not what it should be.
    #[error("refused the CDI specification {file:?}: {field}: {problem}")]
    Host {
        /// The file.
        file: String,
        /// The member's kind and value.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl CdiError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Untrusted(error) => error.hint(),
            Self::Folder { folder, .. } => format!("ls -ld {}", shell::quote_path(folder)),
            Self::Invalid { file, .. } => correct(&file.display().to_string()),
            Self::Host { file, .. } => correct(file),
            Self::Contradiction(contradiction) => correct(&contradiction.file),
        }
    }
}

fn correct(file: &str) -> String {
    let file = shell::quote(file);
    format!("correct it, write it anew (sudo nvidia-ctk cdi generate --output={file}), or move it out of the folder")
}

/// What the specifications in these folders have for a container with these GPUs; `None` where there is none for GPUs.
///
/// A file that is no GPU's is not our affair, whatever is wrong with it.
///
/// # Errors
/// [`CdiError`] names file and member.
pub fn edits(folders: &[String], inventory: &Inventory, gpus: &[Device]) -> Result<Option<CdiEdits>, CdiError> {
    let edits = inject(&sources(folders)?, inventory, gpus)?;
    if let Some(edits) = &edits {
        check_host(edits)?;
    }
    Ok(edits)
}

/// Every specification of GPUs, earlier folders first.
pub(super) fn sources(folders: &[String]) -> Result<Vec<Source>, CdiError> {
    let mut out = Vec::new();
    for (priority, folder) in folders.iter().enumerate() {
        for (path, format) in files(Path::new(folder))? {
            let Some(text) = trusted_text(&path)? else { continue };
            let invalid = |source| CdiError::Invalid { file: path.clone(), source };
            let mut spec = parse(&text, format).map_err(invalid)?;
            if spec.kind == GPU_KIND {
                fill(&mut spec);
                out.push(Source { file: path.to_string_lossy().into_owned(), priority, spec });
            }
        }
    }
    Ok(out)
}

fn files(folder: &Path) -> Result<Vec<(PathBuf, Format)>, CdiError> {
    let failed = |source| CdiError::Folder { folder: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    // Who can write the folder can put a file of root's into it by its name.
    trusted::folder(&fs::canonicalize(folder).map_err(failed)?)?;
    let mut out = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let format = path.file_name().and_then(|name| Format::of(name.to_str()?));
        if let Some(format) = format {
            out.push((path, format));
        }
    }
    // The order of a folder's entries is the file system's; ours is not.
    out.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(out)
}

/// A file's text; a file that went away meanwhile, or that can hold nothing about GPUs, has none.
fn trusted_text(path: &Path) -> Result<Option<String>, CdiError> {
    let bytes = match trusted::read(path, LIMIT) {
        Ok(Some(bytes)) if names_nvidia(&bytes) => bytes,
        Ok(_) => return Ok(None),
        // Whoever could write it: nothing of it is used.
        Err(_) if untrusted(path).is_some_and(|bytes| !names_nvidia(&bytes)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8(bytes).map_err(|_| {
        let source = InvalidCdi { field: "the file".to_owned(), problem: "it is not UTF-8".to_owned() };
        CdiError::Invalid { file: path.to_owned(), source }
    })?;
    Ok(Some(text))
}

fn names_nvidia(text: &[u8]) -> bool {
    let word = b"nvidia.com";
    text.windows(word.len()).any(|window| window == word)
}

/// The whole of a file that must not be used, to see whose devices it is about.
fn untrusted(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let is_whole = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LIMIT);
    let mut bytes = Vec::new();
    (is_whole && file.take(LIMIT).read_to_end(&mut bytes).is_ok()).then_some(bytes)
}

/// Numbers and modes of nodes for which the file says "as on the host".
fn fill(spec: &mut CdiSpec) {
    let of_devices = spec.devices.iter_mut().map(|device| &mut device.container_edits);
    for edits in std::iter::once(&mut spec.container_edits).chain(of_devices) {
        edits.device_nodes.iter_mut().for_each(fill_node);
    }
}

fn fill_node(node: &mut Node) {
    if node.number().is_some() && node.file_mode.is_some() {
        return;
    }
    let Ok(metadata) = fs::metadata(node.on_host()) else { return };
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return,
    };
    if node.number().is_none() {
        // The file's word on the kind, if there is one, must be the host's.
        if !(node.kind.is_empty() || node.kind == kind || (node.kind == "u" && kind == "c")) {
            return;
        }
        kind.clone_into(&mut node.kind);
        node.major = i64::from(rustix::fs::major(metadata.rdev()));
        node.minor = i64::from(rustix::fs::minor(metadata.rdev()));
    }
    node.file_mode = node.file_mode.or(Some(metadata.mode() & 0o777));
}

/// Programs that would run as root, and files that would go into the container, must be there and be root's.
fn check_host(edits: &CdiEdits) -> Result<(), CdiError> {
    let file = edits.files.join(", ");
    let refuse = |field: String, problem: String| CdiError::Host { file: file.clone(), field, problem };
    for hook in &edits.hooks {
        let field = || format!("hook {:?}", hook.path);
        let metadata = fs::metadata(&hook.path).map_err(|error| refuse(field(), why(&error)))?;
        if !metadata.is_file() || metadata.mode() & 0o111 == 0 {
            return Err(refuse(field(), "it is no program".to_owned()));
        }
        if !trusted::is_trusted_owner(metadata.uid()) || metadata.mode() & 0o022 != 0 {
            return Err(refuse(field(), "it runs as root, and others than root could have written it".to_owned()));
        }
    }
    for mount in edits.mounts.iter().filter(|mount| mount.kind.is_empty() || mount.kind == "bind") {
        fs::symlink_metadata(&mount.host_path)
            .map_err(|error| refuse(format!("mount {:?}", mount.host_path), why(&error)))?;
    }
    Ok(())
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".to_owned(),
        kind => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SPEC: &str = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n    \
                        deviceNodes:\n    - {path: /dev/null, type: c, major: 1, minor: 3, fileMode: 438}\n";

    fn check(files: &[(&str, &str)]) -> Result<Vec<Source>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let folders = [folder.path().join("none"), folder.path().to_owned()];
        let folders = folders.map(|folder| folder.to_string_lossy().into_owned());
        sources(&folders).map_err(|error| crate::sys::errno::chain(&error))
    }

    #[test]
    fn only_specifications_of_gpus_are_read() {
        let found = check(&[
            ("a.yaml", SPEC),
            ("b.json", "{\"kind\": \"vendor.com/net\", broken"),
            ("c.yml", "nvidia.com/gpu: not a name that CDI reads"),
            ("d.yaml", &SPEC.replace("nvidia.com/gpu", "nvidia.com/gds")),
        ]);
        let found = found.expect("one of them");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].priority, found[0].spec.devices[0].name.as_str()), (1, "0"));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_member() {
        let text = |name, text: &str| check(&[(name, text)]).expect_err("a mistake");
        let broken = SPEC.replace("type: c", "type: x");
        let error = text("a.yaml", &broken);
        assert!(
            error.contains("/a.yaml\": devices[0].containerEdits.deviceNodes[0].type: \"x\" is no kind of node"),
            "{error}"
        );
        let error = text("a.json", "{\"kind\": \"nvidia.com/gpu\",\n oops}");
        assert!(error.contains("/a.json\": line 2 column 2: "), "{error}");
    }

    /// Written anew in another folder it would still be read here.
    #[test]
    fn the_hint_names_the_file_that_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("nvidia.yaml");
        fs::write(&file, SPEC.replace("type: c", "type: x")).expect("written");
        let error = sources(&[folder.path().to_string_lossy().into_owned()]).expect_err("a mistake");
        let command = format!("(sudo nvidia-ctk cdi generate --output={})", file.display());
        assert!(error.hint().starts_with("correct it, ") && error.hint().contains(&command), "{}", error.hint());
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("nvidia.yaml");
        fs::write(&file, SPEC).expect("written");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("mode");
        let error = sources(&[folder.path().to_string_lossy().into_owned()]).expect_err("refused");
        assert!(crate::sys::errno::chain(&error).contains("can be written by its group or by others"));
        assert_eq!(error.hint(), format!("sudo chmod go-w {}", file.display()));
    }

    /// Whatever is wrong with it: a GPU must not be out of reach for another vendor's packaging.
    #[test]
    fn another_vendors_file_is_not_our_affair() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("nvidia.yaml"), SPEC).expect("written");
        let other = SPEC.replace("nvidia.com", "vendor.com");
        fs::write(path("open.yaml"), &other).expect("written");
        fs::set_permissions(path("open.yaml"), PermissionsExt::from_mode(0o666)).expect("mode");
        fs::write(path("latin.yaml"), [other.as_bytes(), b"# \xe9\n"].concat()).expect("written");
        fs::write(path("kept"), &other).expect("written");
        std::os::unix::fs::symlink("kept", path("link.yaml")).expect("a link");
        let sources = || sources(&[folder.path().to_string_lossy().into_owned()]);
        assert_eq!(sources().expect("one of them").len(), 1);
        // What could be about GPUs is refused all the same.
        fs::write(path("kept"), SPEC).expect("written");
        assert!(matches!(sources(), Err(CdiError::Untrusted(Untrusted::NotRegular(_)))));
        fs::remove_file(path("link.yaml")).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo.yaml"), 0o600.into()).expect("a FIFO");
        assert!(matches!(sources(), Err(CdiError::Untrusted(Untrusted::NotRegular(_)))));
    }

    #[test]
    fn a_node_is_filled_in_from_the_host() {
        let spec = SPEC.replace(", type: c, major: 1, minor: 3, fileMode: 438", "");
        let found = check(&[("a.yaml", &spec)]).expect("read");
        let node = &found[0].spec.devices[0].container_edits.device_nodes[0];
        assert_eq!((node.kind.as_str(), node.major, node.minor, node.file_mode), ("c", 1, 3, Some(0o666)));
    }
}
