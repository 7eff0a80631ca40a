//! The temporary file beside a file that is being replaced, and what a killed process left of one.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

/// What stands between the name of the file and the number of the process.
const MARK: &[u8] = b".cudaview-";
/// How much of a directory is looked through for leftovers: some two hundred names, where a bundle has five.
/// Process files may lie in `/tmp`, where anybody can put a million.
const LISTING: usize = 8 << 10;

/// A temporary file that goes away unless it was renamed.
pub(super) struct Temporary<'a> {
    directory: &'a OwnedFd,
    name: OsString,
    /// To be written to.
    pub(super) file: std::fs::File,
    renamed: bool,
}

impl<'a> Temporary<'a> {
    /// Makes one in this directory, and takes away what killed processes left there.
    pub(super) fn create(directory: &'a OwnedFd, beside: &OsStr) -> std::io::Result<Self> {
        remove_leftovers(directory);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut name = OsString::from(".");
        name.push(beside);
        name.push(OsStr::from_bytes(MARK));
        name.push(std::process::id().to_string());
        let open = || rustix::fs::openat(directory, &name, flags, Mode::RUSR | Mode::WUSR);
        let fd = match open() {
            // Left behind by a process of the same number that was killed; nobody else writes this name.
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
                open()?
            }
            other => other?,
        };
        Ok(Self { directory, file: fd.into(), name, renamed: false })
    }

    /// Puts it in place of this file of the same directory.
    pub(super) fn rename_to(&mut self, name: &OsStr) -> std::io::Result<()> {
        rustix::fs::renameat(self.directory, &self.name, self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing can be done about a failure; the error that led here is the one that counts.
            let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Removes our own temporary files of processes that are no more. That it cannot be done is no failure: they are in
/// nobody's way, and engines remove the whole folder.
fn remove_leftovers(directory: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = rustix::fs::openat(directory, ".", flags, Mode::empty()) else { return };
    let mut buffer = [MaybeUninit::uninit(); LISTING];
    let mut entries = RawDir::new(&listed, &mut buffer);
    // One reading of the directory, however long it is.
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if owner(name.to_bytes()).is_some_and(has_ended) && is_ours(directory, OsStr::from_bytes(name.to_bytes())) {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
        if entries.is_buffer_empty() {
            return;
        }
    }
}

/// The process in the name of a temporary file.
fn owner(name: &[u8]) -> Option<Pid> {
    let rest = name.strip_prefix(b".")?;
    let at = rest.windows(MARK.len()).rposition(|window| window == MARK)?;
    let number = rest.get(at + MARK.len()..)?;
    let is_number = (1..=10).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(number).ok().filter(|_| is_number)?;
    Pid::from_raw(number.parse().ok()?)
}

fn has_ended(process: Pid) -> bool {
    test_kill_process(process) == Err(Errno::SRCH)
}

fn is_ours(directory: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        stat.st_uid == geteuid().as_raw() && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_with_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ended = std::process::Command::new("true").spawn().expect("true");
        ended.wait().expect("its end");
        let (gone, here) = (ended.id(), std::os::unix::process::parent_id());
        let stays = [
            format!(".config.json.cudaview-{here}"),
            format!("config.json.cudaview-{gone}"),
            format!(".config.json.cudaview-{gone}x"),
            ".config.json.cudaview-".to_owned(),
            ".config.json.cudaview-99999999999".to_owned(),
            "config.json".to_owned(),
        ];
        let goes = [format!(".config.json.cudaview-{gone}"), format!(".process.cudaview-{gone}")];
        for name in stays.iter().chain(&goes) {
            std::fs::write(folder.path().join(name), "x").expect("a file");
        }
        let link = format!(".link.cudaview-{gone}");
        std::os::unix::fs::symlink("config.json", folder.path().join(&link)).expect("a link");
        let directory: OwnedFd = std::fs::File::open(folder.path()).expect("the folder").into();
        drop(Temporary::create(&directory, OsStr::new("config.json")).expect("a temporary file"));
        let entries = std::fs::read_dir(folder.path()).expect("a listing");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let mut expected: Vec<String> = stays.into_iter().chain([link]).collect();
        expected.sort();
        assert_eq!(names, expected);
    }
}
