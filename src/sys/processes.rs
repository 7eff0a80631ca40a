//! The processes of engines, dockerd, conmon and containerd's shims, and what they were told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A process of root's or of whoever asks, in no container: anybody may call one as an engine's is called.
pub(super) struct Process {
    path: PathBuf,
    words: Vec<OsString>,
}

/// Every such process of this name, of which the kernel keeps fifteen bytes.
pub(super) fn called(name: &'static str) -> impl Iterator<Item = Process> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter_map(move |path| of_engine(&path, name))
}

fn of_engine(path: &Path, name: &str) -> Option<Process> {
    let comm = std::fs::read(path.join("comm")).ok()?;
    if comm.trim_ascii_end() != name.as_bytes() || !is_trusted(&std::fs::read_to_string(path.join("status")).ok()?) {
        return None;
    }
    let text = std::fs::read(path.join("cmdline")).ok()?;
    let words = text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    Some(Process { path: path.to_owned(), words })
}

/// In our own pid namespace, since a process in one below has a second id there; and of root or our own by each of its
/// four uids: whoever starts a setuid program by another name, and writes its arguments, stays the real one.
// proc_pid_status(5)
fn is_trusted(status: &str) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let uids: Vec<Option<u32>> = field("Uid:").split_whitespace().map(|uid| uid.parse().ok()).collect();
    let is_one = |uid: u32| uids == [Some(uid); 4];
    (is_one(0) || is_one(own)) && field("NSpid:").split_whitespace().count() == 1
}

impl Process {
    /// Its id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.path.file_name()?.to_str()?.parse().ok()
    }

    /// The words behind its name.
    pub(super) fn arguments(&self) -> &[OsString] {
        self.words.get(1..).unwrap_or_default()
    }

    /// What stands behind a flag.
    pub(super) fn argument(&self, flag: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == flag)?;
        self.words.get(at + 1).map(OsString::as_os_str).and_then(OsStr::to_str)
    }

    /// The folder that it stands in, for who may know.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        std::fs::read_link(self.path.join("cwd")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_process_is() {
        let check = |uids: &str, ids: &str, expect: bool| {
            let status = format!("Name:\tdockerd\nUid:\t{uids}\nGid:\t0\t0\t0\t0\nNSpid:\t{ids}\n");
            assert_eq!(is_trusted(&status), expect, "{status}");
        };
        let own = rustix::process::geteuid().as_raw();
        check("0\t0\t0\t0", "7", true);
        check(&format!("{own}\t{own}\t{own}\t{own}"), "7", true);
        check("0\t0\t0\t0", "7\t1", false);
        check("61234\t0\t0\t0", "7", false);
        check("61234\t61234\t61234\t61234", "7", false);
        assert!(!is_trusted(""));
    }
}
