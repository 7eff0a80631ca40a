//! After the join: the container's `/dev` and the nodes in it.

use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, StatxFlags, Uid, chownat, fstat, makedev, mkdirat, mknodat, open,
    statx,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::process::{getegid, geteuid};

use super::Outcome;
use super::error::RootfsError;
use super::join::{Placement, Source, Target};
use super::resolve::{Mounts, anything, directory, identify};
use crate::device::DeviceNumber;
use crate::node::{DeviceNode, NODE_MODE};
use crate::sys::raw;

/// Limits of a node's path; far above any real one.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;
const MAX_COMPONENTS: usize = 64;

/// The container's `/dev`.
pub(super) struct Dev<'a> {
    root: OwnedFd,
    handle: OwnedFd,
    target: &'a Target,
    /// Kept, since the lists of mounts can be read once only.
    reason_not_to_create: OnceCell<Option<&'static str>>,
}

impl<'a> Dev<'a> {
    pub(super) fn open(root: &Path, target: &'a Target) -> Result<Self, RootfsError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(root, flags, Mode::empty());
        let operation = format!("open the container's root {:?}: open", root.to_string_lossy());
        let root = opened.map_err(RootfsError::system(operation))?;
        match directory(root.as_fd(), "dev", Mounts::Cross) {
            Ok(handle) => Ok(Self { root, handle, target, reason_not_to_create: OnceCell::new() }),
            Err(failure) => Err(failure.on_the_way_to("/dev")),
        }
    }

    /// Verifies a node, and makes it if nothing is there.
    pub(super) fn ensure(&self, node: &DeviceNode, source: Source) -> Result<Outcome, RootfsError> {
        let (parents, name) = components(&node.path)?;
        if let Some(handle) = self.find(node, &parents, name)? {
            return verify(handle.as_fd(), node).map(|()| Outcome::Verified);
        }
        if self.reason_not_to_create.get().is_none() {
            // A `Dev` belongs to one thread, so nobody else sets it meanwhile.
            let _ = self.reason_not_to_create.set(self.find_reason_not_to_create()?);
        }
        if let Some(Some(reason)) = self.reason_not_to_create.get() {
            return Err(RootfsError::NotOurs { path: node.path.clone(), reason });
        }
        let outcome = if let (Placement::Bind { uid, gid }, Some(source)) = (self.target.placement, source) {
            self.bind(node, &parents, name, &source?, (uid, gid))?;
            Outcome::Bound
        } else {
            self.make(node, &parents, name)?;
            Outcome::Created
        };
        let made = self.find(node, &parents, name)?;
        let made =
            made.ok_or_else(|| RootfsError::system(format!("find {:?} after making it", node.path))(Errno::NOENT))?;
        verify(made.as_fd(), node).map(|()| outcome)
    }

    /// A handle on whatever is at the node's path, on whichever mount: it is only looked at.
    fn find(&self, node: &DeviceNode, parents: &[&str], name: &str) -> Result<Option<OwnedFd>, RootfsError> {
        let mut parent: Option<OwnedFd> = None;
        for component in parents {
            let at = parent.as_ref().unwrap_or(&self.handle);
            match directory(at.as_fd(), component, Mounts::Cross) {
                Ok(handle) => parent = Some(handle),
                Err(failure) if failure.is_missing() => return Ok(None),
                Err(failure) => return Err(failure.on_the_way_to(&node.path)),
            }
        }
        let at = parent.as_ref().unwrap_or(&self.handle);
        match anything(at.as_fd(), name, Mounts::Cross) {
            Ok(handle) => Ok(Some(handle)),
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(failure.at(&node.path)),
        }
    }

    /// Why nothing may be made in this `/dev`; nothing if it is a tmpfs of the container's own.
    fn find_reason_not_to_create(&self) -> Result<Option<&'static str>, RootfsError> {
        let (root, dev) = (mount_of(self.root.as_fd())?, mount_of(self.handle.as_fd())?);
        if root == dev {
            return Ok(Some("its /dev is the image's own directory"));
        }
        let (theirs, ours) = self.target.mounts()?;
        let Some(mount) = theirs.iter().find(|mount| mount.id == dev.id) else {
            return Ok(Some("its /dev is not among its mounts"));
        };
        Ok(if mount.fs_type != "tmpfs" || mount.root != Path::new("/") {
            Some("its /dev is not a tmpfs of its own")
        } else if mount.shared {
            Some("its /dev is shared with other mount namespaces")
        } else if ours.iter().any(|our| our.device == dev.device) {
            Some("its /dev is mounted on the host too")
        } else {
            None
        })
    }

    fn make(&self, node: &DeviceNode, parents: &[&str], name: &str) -> Result<(), RootfsError> {
        let failed = |call: &str| RootfsError::system(format!("make {:?} in the container: {call}", node.path));
        let parent = self.make_parents(node, parents)?;
        let device = makedev(node.number.major, node.number.minor);
        mknodat(&parent, name, FileType::CharacterDevice, Mode::from_raw_mode(NODE_MODE), device)
            .map_err(failed("mknodat"))?;
        let made = anything(parent.as_fd(), name, Mounts::Stay).map_err(|failure| failure.at(&node.path))?;
        verify(made.as_fd(), node)?;
        chownat(&made, "", Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::EMPTY_PATH).map_err(failed("fchownat"))?;
        // The umask is empty, so the mode is the one asked for unless /dev has a default ACL.
        let got = fstat(&made).map_err(failed("fstat"))?.st_mode & 0o7777;
        if got != NODE_MODE {
            return Err(failed(&format!("it got mode {got:o}, not {NODE_MODE:o}"))(Errno::ACCESS));
        }
        Ok(())
    }

    fn bind(
        &self,
        node: &DeviceNode,
        parents: &[&str],
        name: &str,
        source: &OwnedFd,
        ids: (u32, u32),
    ) -> Result<(), RootfsError> {
        let failed = |call: &str| RootfsError::system(format!("bind {:?} in the container: {call}", node.path));
        // In the tmpfs of a user namespace only its own ids can make anything: EOVERFLOW otherwise.
        let own = (geteuid().as_raw(), getegid().as_raw());
        raw::set_fs_ids(ids.0, ids.1).map_err(failed("setfsuid"))?;
        let made = self.make_parents(node, parents).and_then(|parent| {
            mknodat(&parent, name, FileType::RegularFile, Mode::RUSR, 0).map_err(failed("mknodat"))?;
            anything(parent.as_fd(), name, Mounts::Stay).map_err(|failure| failure.at(&node.path))
        });
        raw::set_fs_ids(own.0, own.1).map_err(failed("setfsuid"))?;
        let made = made?;
        let stat = fstat(&made).map_err(failed("fstat"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed("the file that was made for it is another")(Errno::STALE));
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(source, "", &made, "", flags).map_err(failed("move_mount"))
    }

    /// Opens the directory of the node, making what is missing, without leaving `/dev`'s own mount.
    fn make_parents(&self, node: &DeviceNode, parents: &[&str]) -> Result<OwnedFd, RootfsError> {
        let failed = |call: &str| RootfsError::system(format!("make the folder of {:?}: {call}", node.path));
        let mut parent = rustix::io::fcntl_dupfd_cloexec(&self.handle, 3).map_err(failed("fcntl"))?;
        for component in parents {
            let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
            match mkdirat(&parent, *component, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("mkdirat")(errno)),
            }
            parent = directory(parent.as_fd(), component, Mounts::Stay)
                .map_err(|failure| failure.on_the_way_to(&node.path))?;
        }
        Ok(parent)
    }
}

/// Splits a node's path below `/dev` into folders and a name, and takes nothing that is not plain.
fn components(path: &str) -> Result<(Vec<&str>, &str), RootfsError> {
    let refused = || RootfsError::Path(path.chars().take(200).collect());
    let below = path.strip_prefix("/dev/").ok_or_else(refused)?;
    let mut parents: Vec<&str> = below.split('/').collect();
    let plain = |part: &&str| !matches!(*part, "" | "." | "..") && part.len() <= MAX_NAME && !part.contains('\0');
    if path.len() > MAX_PATH || parents.len() > MAX_COMPONENTS || !parents.iter().all(plain) {
        return Err(refused());
    }
    let name = parents.pop().ok_or_else(refused)?;
    Ok((parents, name))
}

fn verify(handle: BorrowedFd<'_>, node: &DeviceNode) -> Result<(), RootfsError> {
    let failed = RootfsError::system(format!("look at {:?} in the container: fstat", node.path));
    let (found, number) = identify(handle).map_err(failed)?;
    if number == Some(node.number) {
        return Ok(());
    }
    Err(RootfsError::WrongNode { path: node.path.clone(), expected: node.number, found })
}

/// Which mount of which file system a handle is on.
#[derive(PartialEq, Eq)]
struct OnMount {
    id: u64,
    device: DeviceNumber,
}

fn mount_of(handle: BorrowedFd<'_>) -> Result<OnMount, RootfsError> {
    let failed = || RootfsError::system("identify the mount of the container's /dev: statx");
    let found: Statx = statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(failed())?;
    if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        let device = DeviceNumber { major: found.stx_dev_major, minor: found.stx_dev_minor };
        return Ok(OnMount { id: found.stx_mnt_id, device });
    }
    Err(failed()(Errno::NOSYS))
}

#[cfg(test)]
mod races;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_paths() {
        assert_eq!(components("/dev/nvidia0").ok(), Some((vec![], "nvidia0")));
        assert_eq!(components("/dev/nvidia-caps/nvidia-cap1").ok(), Some((vec!["nvidia-caps"], "nvidia-cap1")));
        let (long_name, deep) = (format!("/dev/{}", "a".repeat(256)), format!("/dev{}", "/a".repeat(65)));
        for bad in [
            "",
            "/dev",
            "/dev/",
            "/dev/.",
            "/dev/../x",
            "/dev/a//b",
            "/dev/a/",
            "/etc/x",
            "/dev/a\0b",
            &long_name,
            &deep,
        ] {
            assert!(components(bad).is_err(), "{bad:?}");
        }
    }
}
