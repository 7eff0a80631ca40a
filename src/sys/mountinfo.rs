//! `/proc/PID/mountinfo`, as far as it is needed; proc(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::device::DeviceNumber;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique while the mount exists; `statx` reports it for an open file.
    pub id: u64,
    /// The file system that is mounted (`st_dev`).
    pub device: DeviceNumber,
    /// Which directory of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub mount_point: PathBuf,
    /// Whether mounts below it propagate to other namespaces.
    pub shared: bool,
    /// `tmpfs`, `cgroup2`, …
    pub fs_type: String,
    /// Options of the file system itself; for cgroup v1 they name its controllers.
    pub super_options: String,
}

/// Reads a whole file of mounts; a line of another form is left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAG…] - TYPE SOURCE SUPER-OPTIONS
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let (major, minor) = device.split_once(':')?;
    let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    fields.next()?;
    let mut shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            tag => shared |= tag.starts_with(b"shared:"),
        }
    }
    let fs_type = text(fields.next()?);
    let super_options = text(fields.nth(1).unwrap_or_default());
    Some(Mount { id, device, root, mount_point, shared, fs_type, super_options })
}

/// Undoes the kernel's `\040` for blanks, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| *first == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        if let Some(digits) = digits {
            let value = digits.iter().fold(0_u16, |sum, digit| sum * 8 + u16::from(digit - b'0'));
            out.push((value & 0xff) as u8);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_and_without_tags() {
        let text = b"36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n\
            40 27 0:6 /a\\040b /mnt/x\\134y rw shared:5 master:1 - devtmpfs devtmpfs rw,mode=755\nnonsense\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].id, 36);
        assert_eq!(mounts[0].super_options, "rw,devices");
        assert!(!mounts[0].shared);
        assert_eq!(mounts[1].root, PathBuf::from("/a b"));
        assert_eq!(mounts[1].mount_point, PathBuf::from("/mnt/x\\y"));
        assert_eq!((mounts[1].fs_type.as_str(), mounts[1].shared), ("devtmpfs", true));
        assert_eq!(mounts[1].device, DeviceNumber { major: 0, minor: 6 });
    }

    #[test]
    fn a_slave_is_not_shared_and_a_missing_separator_is_no_mount() {
        assert!(!parse(b"40 27 0:6 / /x rw master:1 - tmpfs tmpfs rw")[0].shared);
        assert_eq!(parse(b"40 27 0:6 / /x rw shared:1"), Vec::new());
        assert_eq!(parse(b"40 27 0:6 / /x rw shared:1 -"), Vec::new());
    }
}
