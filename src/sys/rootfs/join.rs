//! Before and at the join: the container's process, and the host's nodes that it may need.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, open, openat, openat2, stat, statat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::error::RootfsError;
use super::resolve::identify;
use crate::node::DeviceNode;
use crate::sys::errno::Cause;
use crate::sys::mountinfo::{self, Mount};
use crate::sys::{raw, read_all, read_to_end};

/// How a missing node gets into the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// By mknod, in the initial user namespace.
    Make,
    /// As a bind of the host's node, on a file made under these ids (of the container's root).
    Bind {
        /// Owner of what is made.
        uid: u32,
        /// Group of what is made.
        gid: u32,
    },
}

/// The container's process, held by a descriptor so that its number cannot be reused under us.
pub(super) struct Target {
    pid: u32,
    pidfd: OwnedFd,
    pub(super) placement: Placement,
    their_mounts: OwnedFd,
    our_mounts: OwnedFd,
}

/// A host node as a detached mount; nothing where none is needed.
pub(super) type Source = Option<Result<OwnedFd, RootfsError>>;

impl Target {
    pub(super) fn open(pid: u32) -> Result<Self, RootfsError> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(RootfsError::InvalidPid { pid: i64::from(pid) })?;
        let failed = |what: &str, call: &str| RootfsError::system(format!("{what} of process {pid}: {call}"));
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(failed("get hold", "pidfd_open"))?;
        let proc_dir = format!("/proc/{pid}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = open(&proc_dir, flags, Mode::empty()).map_err(failed("open the /proc folder", "open"))?;
        let same = |namespace: &str| -> Result<bool, RootfsError> {
            let theirs = statat(&proc, namespace, AtFlags::empty()).map_err(failed("read a namespace", "stat"))?;
            let ours = stat(format!("/proc/self/{namespace}")).map_err(failed("read a namespace", "stat"))?;
            Ok((theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino))
        };
        if same("ns/mnt")? {
            return Err(RootfsError::HostNamespace { pid });
        }
        let read = |file: &str| {
            let text = read_all(&proc, Path::new(file)).map_err(failed("read the id maps", "read"))?;
            Ok::<_, RootfsError>(String::from_utf8_lossy(&text).into_owned())
        };
        let (uids, gids) = (read("uid_map")?, read("gid_map")?);
        let placement = if !same("ns/user")? {
            Placement::Bind { uid: host_id_of_root(&uids)?, gid: host_id_of_root(&gids)? }
        } else if is_identity(&uids) {
            Placement::Make
        } else {
            // The runtime itself runs in a user namespace (rootless), and the container in the same one.
            Placement::Bind { uid: 0, gid: 0 }
        };
        // Opened now, since /proc is not used after the join; read only if a node has to be made.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let their_mounts = openat(&proc, "mountinfo", flags, Mode::empty()).map_err(failed("open the mounts", "open"));
        let our_mounts = open("/proc/self/mountinfo", flags, Mode::empty());
        let our_mounts = our_mounts.map_err(RootfsError::system("open \"/proc/self/mountinfo\""))?;
        let target = Self { pid, pidfd, placement, their_mounts: their_mounts?, our_mounts };
        // While it lives its number is its own, so all of the above was read from the right process.
        target.is_alive()?.then_some(target).ok_or(RootfsError::Gone { pid })
    }

    fn is_alive(&self) -> Result<bool, RootfsError> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now));
        Ok(ended.map_err(RootfsError::system(format!("watch process {}: poll", self.pid)))? == 0)
    }

    /// Clones the host's nodes, where they may be needed. A fault counts only if the node turns out to be missing.
    pub(super) fn open_sources(&self, nodes: &[DeviceNode], dev_root: &Path) -> Vec<Source> {
        let source = |node| match self.placement {
            Placement::Make => None,
            Placement::Bind { .. } => Some(open_source(node, dev_root)),
        };
        nodes.iter().map(source).collect()
    }

    /// Moves this process into the container's mount namespace, for ever.
    pub(super) fn join(&self) -> Result<(), RootfsError> {
        let operation = format!("join the mount namespace of process {}: setns", self.pid);
        move_into_thread_name_spaces(self.pidfd.as_fd(), ThreadNameSpaceType::MOUNT)
            .map_err(RootfsError::system(operation))
    }

    /// The container's mounts and the hook's, as they were when the target was opened or are now.
    pub(super) fn mounts(&self) -> Result<(Vec<Mount>, Vec<Mount>), RootfsError> {
        let read = |file: &OwnedFd| {
            let text = read_to_end(file).map_err(RootfsError::system("read the container's mounts"))?;
            Ok::<_, RootfsError>(mountinfo::parse(&text))
        };
        Ok((read(&self.their_mounts)?, read(&self.our_mounts)?))
    }
}

fn open_source(node: &DeviceNode, dev_root: &Path) -> Result<OwnedFd, RootfsError> {
    let path: PathBuf = dev_root.join(node.path.trim_start_matches('/'));
    let failed = |call: &str| RootfsError::system(format!("open {:?} on the host: {call}", path.to_string_lossy()));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, dev_root, flags, Mode::empty()).map_err(failed("open"))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let handle = match openat2(&root, node.path.as_str(), flags, Mode::empty(), resolve) {
        Err(errno @ (Errno::NOSYS | Errno::PERM)) => return Err(RootfsError::NoOpenat2(Cause(errno))),
        result => result.map_err(failed("openat2"))?,
    };
    let (found, number) = identify(handle.as_fd()).map_err(failed("fstat"))?;
    if number != Some(node.number) {
        return Err(RootfsError::WrongSource { path, expected: node.number, found });
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = open_tree(&handle, "", flags).map_err(failed("open_tree"))?;
    raw::make_private_nosuid(clone.as_fd()).map_err(failed("mount_setattr"))?;
    Ok(clone)
}

/// Whether an id map says that this is the initial user namespace; `user_namespaces(7)`.
fn is_identity(map: &str) -> bool {
    let mut fields = map.split_ascii_whitespace();
    (fields.next(), fields.next(), fields.next()) == (Some("0"), Some("0"), Some("4294967295"))
}

/// The host's id of the container's root or, where that is not mapped, of the first id that is.
fn host_id_of_root(map: &str) -> Result<u32, RootfsError> {
    let entry = |line: &str| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u32>);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    let entries: Vec<(u32, u32)> = map.lines().filter_map(entry).collect();
    let root = entries.iter().find(|(inside, _)| *inside == 0).or(entries.first());
    root.map(|(_, outside)| *outside).ok_or(RootfsError::System {
        operation: "find the container's root in its id maps".to_owned(),
        source: Cause(Errno::INVAL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_maps() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0     100000      65536\n"));
        assert!(!is_identity(""));
        assert_eq!(host_id_of_root("         0     100000      65536\n").ok(), Some(100_000));
        // keep-id: the container's root is not the first entry's outside id.
        assert_eq!(host_id_of_root("1000 0 1\n0 1 1000\n").ok(), Some(1));
        assert_eq!(host_id_of_root("1000 5 1\n").ok(), Some(5));
        assert!(host_id_of_root("").is_err());
    }
}
