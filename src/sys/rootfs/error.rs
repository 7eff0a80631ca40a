//! What can go wrong in a container's root file system.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::device::DeviceNumber;
use crate::exit::Exit;
use crate::sys::errno::Cause;

/// A node could not be verified or made.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    /// The hook is registered at a stage where the runtime does not tell the process.
    #[error("wrong stage: the state's pid is {pid}; this hook belongs in createRuntime, not in createContainer")]
    WrongStage {
        /// What the state said.
        pid: i64,
    },
    /// No process can have this number.
    #[error("the state's pid {pid} is no process")]
    InvalidPid {
        /// What the state said.
        pid: i64,
    },
    /// The root's path would depend on the working directory.
    #[error("the root {root:?} is no absolute path")]
    RelativeRoot {
        /// What was given.
        root: PathBuf,
    },
    /// Whatever is done there would be done to the host.
    #[error("refused to touch process {pid}: it has no mount namespace of its own")]
    HostNamespace {
        /// The process.
        pid: u32,
    },
    /// The process ended while its properties were being read.
    #[error("the container's process {pid} has ended")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// A node's path is not one that we would ever plan.
    #[error("refused the node path {0:?}: not a plain path under /dev")]
    Path(String),
    /// The container's `/dev`, or a folder in it, is a link or something else.
    #[error("refused {0:?} in the container: a symbolic link, or what is no folder, stands in the way")]
    NoFolder(String),
    /// Something else stands at the node's path.
    #[error("failed to verify {path:?} in the container: expected a character device {expected}, found {found}")]
    WrongNode {
        /// Path in the container.
        path: String,
        /// The planned number.
        expected: DeviceNumber,
        /// What is there, in words.
        found: String,
    },
    /// The host's node is not what the inventory says.
    #[error("failed to bind {path:?} from the host: expected a character device {expected}, found {found}")]
    WrongSource {
        /// Path on the host.
        path: PathBuf,
        /// The planned number.
        expected: DeviceNumber,
        /// What is there, in words.
        found: String,
    },
    /// The node is missing where none may be made.
    #[error("{path:?} is missing in the container, and cannot be made there: {reason}")]
    NotOurs {
        /// Path in the container.
        path: String,
        /// What about `/dev` forbids it.
        reason: &'static str,
    },
    /// The kernel, or a filter in front of it, does not have the call that keeps lookups inside the root.
    #[error("refused to look into the container: openat2 is not available (kernel 5.6, no filter)")]
    NoOpenat2(#[source] Cause),
    /// Out of time.
    #[error("failed to verify the container's nodes in time")]
    Deadline,
    /// A system call failed.
    #[error("failed to {operation}")]
    System {
        /// What was being done, to what, and by which call.
        operation: String,
        /// Why it failed.
        #[source]
        source: Cause,
    },
}

impl RootfsError {
    /// How the hook ends.
    pub fn exit(&self) -> Exit {
        match self {
            Self::WrongStage { .. }
            | Self::InvalidPid { .. }
            | Self::RelativeRoot { .. }
            | Self::HostNamespace { .. }
            | Self::Path(_) => Exit::BadInput,
            _ => Exit::Failed,
        }
    }

    pub(super) fn system(operation: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let operation = operation.into();
        move |errno| Self::System { operation, source: Cause(errno) }
    }
}
