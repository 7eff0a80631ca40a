//! The OCI state that a runtime writes to a hook's standard input.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;

use super::errno::Cause;

/// A state that is longer than this is refused; a real one is a few hundred bytes and its annotations.
pub const STATE_LIMIT: usize = 4 << 20;

/// What a hook needs of the state; unknown members are tolerated, annotations are not even kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct State {
    /// The container's id.
    pub id: String,
    /// The container's process as the hook sees it; 0 or 1 at the wrong stage.
    pub pid: i64,
    /// The bundle; `/` under crun with a user namespace.
    #[serde(default)]
    pub bundle: String,
    /// `root.path` of the bundle's config, verbatim; only crun gives it.
    #[serde(default)]
    pub root: Option<String>,
}

/// The state could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The runtime, or whoever called us, keeps the stream open.
    #[error("failed to read the container's state: standard input was not closed in time")]
    Deadline,
    /// Longer than [`STATE_LIMIT`].
    #[error("failed to read the container's state: longer than {STATE_LIMIT} bytes")]
    TooLong,
    /// A system call failed.
    #[error("failed to read the container's state from standard input")]
    Read(#[source] Cause),
    /// Not a state.
    #[error("failed to parse the container's state")]
    Parse(#[source] serde_json::Error),
}

/// Reads standard input to its end, before anything else is done.
///
/// To the end, since crun dies of `SIGPIPE` when a hook ends with its state unread.
pub fn read(stdin: BorrowedFd<'_>, deadline: Instant) -> Result<Vec<u8>, StateError> {
    let mut text = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        wait_readable(stdin, deadline)?;
        match rustix::io::read(stdin, &mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(StateError::Read(Cause(errno))),
        }
        if text.len() > STATE_LIMIT {
            return Err(StateError::TooLong);
        }
    }
}

fn wait_readable(stdin: BorrowedFd<'_>, deadline: Instant) -> Result<(), StateError> {
    loop {
        let left = deadline.checked_duration_since(Instant::now()).ok_or(StateError::Deadline)?;
        let timeout = Timespec::try_from(left).map_err(|_| StateError::Deadline)?;
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(StateError::Deadline),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(StateError::Read(Cause(errno))),
        }
    }
}

/// Understands a state.
pub fn parse(text: &[u8]) -> Result<State, StateError> {
    serde_json::from_slice(text).map_err(StateError::Parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_runc_and_crun() {
        let runc = br#"{"ociVersion":"1.0.2","id":"a","status":"creating","pid":12,"bundle":"/b","annotations":{}}"#;
        assert_eq!(parse(runc).ok(), Some(State { id: "a".into(), pid: 12, bundle: "/b".into(), root: None }));
        let crun = br#"{"id":"a","pid":12,"root":"rootfs","bundle":"/","status":"created","x":[{"y":1}]}"#;
        assert_eq!(parse(crun).ok().and_then(|state| state.root).as_deref(), Some("rootfs"));
        let bare = br#"{"id":"a","pid":-1}"#;
        assert_eq!(parse(bare).ok().map(|state| state.pid), Some(-1));
    }

    #[test]
    fn what_is_no_state() {
        for bad in ["", "{}", "[]", r#"{"id":"a"}"#, r#"{"id":"a","pid":"1"}"#, r#"{"id":"a","pid":1.5}"#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        for bad in
            [r#"{"id":"a","pid":1,"pid":2}"#, r#"{"id":"a","pid":18446744073709551616}"#, r#"{"id":"a","pid":1}x"#]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
