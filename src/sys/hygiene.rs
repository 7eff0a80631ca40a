//! What the hook does before it looks at anything: its surroundings may be an attacker's.
//!
//! A hook may be registered at a stage where its environment and working directory come out of an image
//! (CVE-2025-23266), and crun starts hooks with nearly every signal blocked.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, chdir, set_dumpable_behavior, setrlimit, umask};
use rustix::thread::set_no_new_privs;

use super::errno::Cause;
use super::raw;

/// The hook's surroundings could not be made safe.
#[derive(Debug, thiserror::Error)]
pub enum HygieneError {
    /// The program was made setuid or got file capabilities.
    #[error("failed to start: the program must not be setuid nor have file capabilities")]
    RaisedPrivileges,
    /// A system call failed.
    #[error("failed to {operation}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: Cause,
    },
}

/// Makes this process independent of what it inherited, except for its arguments and its standard streams.
///
/// Empties the environment, closes every other descriptor, resets signals (`SIGPIPE` stays ignored), umask and working
/// directory, forbids core dumps, gaining privileges and being traced by the container.
/// To be called first in `main`, while the process has one thread and owns no descriptor.
pub fn harden() -> Result<(), HygieneError> {
    if raw::runs_with_raised_privileges() {
        return Err(HygieneError::RaisedPrivileges);
    }
    // No PATH is set afterwards: nothing is executed, and nothing reads the environment.
    raw::clear_environment();
    raw::reset_signals();
    umask(Mode::empty());
    let step = |operation, result: rustix::io::Result<()>| {
        result.map_err(|errno| HygieneError::System { operation, source: Cause(errno) })
    };
    step("close inherited descriptors: close_range", raw::close_inherited())?;
    step("leave the working directory: chdir", chdir("/"))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    step("forbid core dumps: setrlimit", setrlimit(Resource::Core, none))?;
    step("forbid new privileges: prctl", set_no_new_privs(true))?;
    step("forbid tracing: prctl", set_dumpable_behavior(DumpableBehavior::NotDumpable))
}

/// A backstop behind the program's own deadline: the kernel ends the process after so many seconds.
///
/// It matters for a system call that does not return, such as a lookup on a dead FUSE file system.
/// Only after [`harden`]: before it, the signal may be blocked.
pub fn end_after(seconds: u32) {
    raw::end_after(seconds);
}
