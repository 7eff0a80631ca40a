//! The one module that touches a container's root file system.
//!
//! Everything in there belongs to whoever made the image, and a sibling container may change it while we look.
//! So nothing is done by path: the root is opened once, after the container's mount namespace was joined, and from then
//! on each step is one component, resolved by `openat2` from a descriptor, never through a link and never by `/proc`.
//! Nothing is ever opened for reading, and no directory is listed.
//!
//! Mounts may be crossed in two cases only: to get to `/dev`, and to look at the type and number of a node that is
//! there (a runtime binds nodes in user namespaces, and a user may bind one).
//! Nodes are made only in a `/dev` that is the container's own tmpfs; in a bind of the host's, or in the image's plain
//! directory, they are only verified.

mod error;
mod join;
mod look;
mod node;
mod resolve;

use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::Mode;
use rustix::process::umask;

pub use error::RootfsError;
pub use look::look;

use crate::node::DeviceNode;

/// A container that is being created: its process and its root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pid: u32,
    root: PathBuf,
}

impl Container {
    /// Takes the state's `pid` and the absolute path of the root, as the runtime's mount namespace names it.
    ///
    /// # Errors
    /// A `pid` of 0 or 1 is what runtimes report at the `createContainer` stage: [`RootfsError::WrongStage`].
    pub fn new(pid: i64, root: &Path) -> Result<Self, RootfsError> {
        if pid == 0 || pid == 1 {
            return Err(RootfsError::WrongStage { pid });
        }
        // A pid of the kernel is a positive int; whether the process is there shows when it is opened.
        let valid = i32::try_from(pid).ok().and_then(|pid| u32::try_from(pid).ok());
        let pid = valid.ok_or(RootfsError::InvalidPid { pid })?;
        if !root.is_absolute() {
            return Err(RootfsError::RelativeRoot { root: root.to_owned() });
        }
        Ok(Self { pid, root: root.to_owned() })
    }

    /// The process, as the hook sees it; always above 1.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// How a planned node came to be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was there, with the planned number.
    Verified,
    /// It was missing and has been made.
    Created,
    /// It was missing, and the host's node was bound there, since none can be made in a user namespace.
    Bound,
}

/// Verifies each planned node in the container, and makes it where it is missing.
///
/// `dev_root` is the host directory that holds the driver's `/dev`; nodes are taken from it only in a user namespace.
///
/// **The last thing that a process does**: it joins the container's mount namespace and cannot go back, and it leaves
/// the umask empty. The process must have one thread.
///
/// # Errors
/// The first node that is not what was planned, or cannot be made, ends the work.
/// What was made before stays; the runtime then gives the container up, and its `/dev` with it.
pub fn ensure_nodes(
    container: &Container,
    nodes: &[DeviceNode],
    dev_root: &Path,
    deadline: Instant,
) -> Result<Vec<Outcome>, RootfsError> {
    let target = join::Target::open(container.pid)?;
    let sources = target.open_sources(nodes, dev_root);
    target.join()?;
    umask(Mode::empty());
    let dev = node::Dev::open(&container.root, &target)?;
    let ensure = |(node, source)| {
        if Instant::now() >= deadline {
            return Err(RootfsError::Deadline);
        }
        dev.ensure(node, source)
    };
    nodes.iter().zip(sources).map(ensure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_real_process_and_an_absolute_root_make_a_container() {
        let root = Path::new("/b/rootfs");
        assert!(matches!(Container::new(0, root), Err(RootfsError::WrongStage { pid: 0 })));
        assert!(matches!(Container::new(1, root), Err(RootfsError::WrongStage { pid: 1 })));
        for pid in [-1, i64::MIN, 1 << 31, (1 << 32) + 7, i64::MAX] {
            assert!(matches!(Container::new(pid, root), Err(RootfsError::InvalidPid { .. })), "{pid}");
        }
        assert!(matches!(Container::new(7, Path::new("rootfs")), Err(RootfsError::RelativeRoot { .. })));
        assert_eq!(Container::new(7, root).map(|c| c.pid()).ok(), Some(7));
    }
}
