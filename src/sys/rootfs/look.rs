//! A look at one path of a running container, from outside: its mount namespace is not joined.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::resolve::{Failure, Mounts, anything, directory};
use crate::device::DeviceNumber;

/// The number and the permissions of the character device at this path, one step at a time and through no link;
/// `None` where there is nothing, or something else.
///
/// # Errors
/// The container's root cannot be looked at.
pub fn look(pid: u32, path: &str) -> Result<Option<(DeviceNumber, u32)>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The kernel's own link to the root of that process.
    let mut folder = open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
    let mut steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let Some(last) = steps.pop() else { return Ok(None) };
    let none = |Failure(errno): Failure| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Ok(None),
        other => Err(other),
    };
    for step in steps {
        folder = match directory(folder.as_fd(), step, Mounts::Cross) {
            Ok(next) => next,
            Err(failure) => return none(failure),
        };
    }
    let found = match anything(folder.as_fd(), last, Mounts::Cross) {
        Ok(found) => found,
        Err(failure) => return none(failure),
    };
    let stat = fstat(&found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
        return Ok(None);
    }
    let number = DeviceNumber { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
    Ok(Some((number, stat.st_mode & 0o7777)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_this_very_process() {
        let pid = std::process::id();
        let null = DeviceNumber { major: 1, minor: 3 };
        assert_eq!(look(pid, "/dev/null").map(|found| found.map(|(number, _)| number)), Ok(Some(null)));
        // A link is not followed, a folder is no device.
        for none in ["/dev/stdin", "/dev", "/", "/dev/null/x", "/no/such"] {
            assert_eq!(look(pid, none), Ok(None), "{none}");
        }
    }
}
