//! The few system calls that `rustix` does not have.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// `MS_PRIVATE`; sys/mount.h.
const MS_PRIVATE: u64 = 1 << 18;
/// `MOUNT_ATTR_NOSUID`; linux/mount.h.
const MOUNT_ATTR_NOSUID: u64 = 0x2;

/// `struct mount_attr`, version 0; `mount_setattr(2)`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Makes a detached mount private and nosuid: private, so that nothing that is later mounted on it reaches the host.
pub(super) fn make_private_nosuid(mount: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = MountAttr { attr_set: MOUNT_ATTR_NOSUID, attr_clr: 0, propagation: MS_PRIVATE, userns_fd: 0 };
    #[expect(unsafe_code, reason = "rustix has no mount_setattr")]
    // SAFETY: the path is a NUL-terminated constant, and the structure lives through the call with its own size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Closes every descriptor but the three standard ones.
pub(super) fn close_inherited() -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "rustix has no close_range")]
    // SAFETY: only called first thing in a process, before anything of ours owns a descriptor.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Sets the ids under which this thread makes files, and says whether the kernel took them.
pub(super) fn set_fs_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "rustix has no setfsuid and setfsgid")]
    // SAFETY: both calls take plain numbers; an id of -1 changes nothing and returns the present one.
    let now = unsafe {
        // The group first: changing the user may take the right to change the group.
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(libc::uid_t::MAX), libc::setfsgid(libc::gid_t::MAX))
    };
    if now.0.cast_unsigned() == uid && now.1.cast_unsigned() == gid { Ok(()) } else { Err(Errno::PERM) }
}

/// Empties the environment.
pub(super) fn clear_environment() {
    #[expect(unsafe_code, reason = "the environment is a process-wide table")]
    // SAFETY: only called first thing in a process with one thread, before anything holds a pointer into it.
    unsafe {
        libc::clearenv();
    }
}

/// Unblocks every signal and gives each its default action, but for `SIGPIPE`, which stays ignored.
pub(super) fn reset_signals() {
    #[expect(unsafe_code, reason = "the signal state is process-wide")]
    // SAFETY: no handler of ours exists; the set is initialised by sigemptyset before it is read.
    unsafe {
        for signal in 1..=64 {
            let action = if signal == libc::SIGPIPE { libc::SIG_IGN } else { libc::SIG_DFL };
            // KILL, STOP and the C library's own two refuse, which is right.
            libc::signal(signal, action);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Makes writing to a pipe that nobody reads an error, and not the end of this process.
pub(super) fn ignore_broken_pipes() {
    #[expect(unsafe_code, reason = "rustix sets no signal actions")]
    // SAFETY: no handler is installed.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Whether the kernel raised this process's privileges at exec (`AT_SECURE`).
pub(super) fn runs_with_raised_privileges() -> bool {
    #[expect(unsafe_code, reason = "rustix has no AT_SECURE without its runtime feature")]
    // SAFETY: reads the auxiliary vector; no pointer is passed.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) };
    secure != 0
}

/// Has the kernel end this process after so many seconds, whatever it is waiting for.
pub(super) fn end_after(seconds: u32) {
    #[expect(unsafe_code, reason = "rustix has no alarm")]
    // SAFETY: takes a plain number.
    unsafe {
        libc::alarm(seconds);
    }
}
