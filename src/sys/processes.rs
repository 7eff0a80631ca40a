//! The processes of engines, dockerd, conmon and containerd's shims, and what they were told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
    Some(Process { path: path.to_owned(), words: words(path)? })
}

/// Who runs a process, since when, and in which cgroups; `None` where it is gone, or hidden from whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The user, by name where it has one.
    pub user: String,
    /// When it was started.
    pub since: Option<SystemTime>,
    /// `/proc/PID/cgroup`; container ids stand in it.
    pub cgroups: String,
}

/// Looks at a process.
pub fn running(pid: u32) -> Option<Running> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let uid: u32 = field(&status, "Uid:").split_whitespace().nth(1)?.parse().ok()?;
    let cgroups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    Some(Running { user: user_of(uid), since: started(&folder), cgroups })
}

/// The name of a user in the host's own list.
pub(super) fn user_of(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut named = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = named.find(|words| words.get(2).and_then(|text| text.parse().ok()) == Some(uid));
    found.and_then(|words| words.first().map(|name| (*name).to_owned())).unwrap_or_else(|| uid.to_string())
}

// proc_pid_stat(5): starttime, in ticks since the boot; proc_stat(5): btime
fn started(folder: &Path) -> Option<SystemTime> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The name in parentheses may hold anything.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let boot = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let seconds = ticks.checked_div(rustix::param::clock_ticks_per_second())?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(boot.checked_add(seconds)?))
}

/// The monitors of other users' containers, for root: what they were told is those users' word.
pub(super) fn of_others(name: &'static str) -> impl Iterator<Item = (u32, Process)> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter_map(move |path| {
        let comm = std::fs::read(path.join("comm")).ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        if comm.trim_ascii_end() != name.as_bytes() || is_trusted(&status) {
            return None;
        }
        let uid: u32 = field(&status, "Uid:").split_whitespace().nth(1)?.parse().ok()?;
        let words = words(&path)?;
        Some((uid, Process { path, words }))
    })
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

fn words(path: &Path) -> Option<Vec<OsString>> {
    let text = super::read_told(&path.join("cmdline")).ok()?;
    Some(text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// In our own pid namespace, since a process in one below has a second id there; and of root or our own by each of its
/// four uids: whoever starts a setuid program by another name, and writes its arguments, stays the real one.
// proc_pid_status(5)
fn is_trusted(status: &str) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let uids: Vec<Option<u32>> = field(status, "Uid:").split_whitespace().map(|uid| uid.parse().ok()).collect();
    let is_one = |uid: u32| uids == [Some(uid); 4];
    (is_one(0) || is_one(own)) && field(status, "NSpid:").split_whitespace().count() == 1
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
