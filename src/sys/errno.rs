//! System errors by their symbolic names.

use std::fmt;

use rustix::io::Errno;

/// A system error, shown as `EACCES` and not in words.
///
/// Docker searches a failure's text for phrases such as "permission denied" and "no such file or directory", and when
/// it finds one it changes the exit code and adds advice that is wrong here; podman does the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cause(pub Errno);

const NAMES: [(Errno, &str); 29] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::SRCH, "ESRCH"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::NFILE, "ENFILE"),
    (Errno::MFILE, "EMFILE"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::ROFS, "EROFS"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::LOOP, "ELOOP"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::STALE, "ESTALE"),
    (Errno::TIMEDOUT, "ETIMEDOUT"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(errno, _)| *errno == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0.raw_os_error()),
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Cause {}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

/// An error and its causes in one line, with system errors by their symbols.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if !text.is_empty() {
            text.push_str(": ");
        }
        let errno = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        match errno {
            Some(errno) => text.push_str(&Cause(Errno::from_raw_os_error(errno)).to_string()),
            None => text.push_str(&error.to_string()),
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_symbols_and_unknown_ones_are_numbers() {
        assert_eq!(Cause(Errno::ACCESS).to_string(), "EACCES");
        assert_eq!(Cause(Errno::NOENT).to_string(), "ENOENT");
        assert_eq!(Cause(Errno::from_raw_os_error(133)).to_string(), "errno 133");
    }
}
