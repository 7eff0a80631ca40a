//! The processes that engines leave beside a container, conmon and containerd's shims, and what they were told.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A process of root's or of whoever asks: anybody else may call one so.
pub(super) struct Process {
    path: PathBuf,
    words: Vec<String>,
}

/// Every such process of this name, of which the kernel keeps fifteen bytes.
pub(super) fn called(name: &'static str) -> impl Iterator<Item = Process> {
    let own = rustix::process::geteuid().as_raw();
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter_map(move |path| {
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        if comm.trim_end() != name || ![0, own].contains(&std::fs::metadata(&path).ok()?.uid()) {
            return None;
        }
        let text = std::fs::read(path.join("cmdline")).ok()?;
        let words = text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Some(Process { path, words })
    })
}

impl Process {
    /// What stands behind a flag.
    pub(super) fn argument(&self, flag: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == flag)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// The folder that it stands in, for who may know.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        std::fs::read_link(self.path.join("cwd")).ok()
    }
}
