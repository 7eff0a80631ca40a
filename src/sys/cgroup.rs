//! The device cgroup of a container's process, for the hook that works without the wrapper.
//!
//! All of this looks at the host's `/sys/fs/cgroup`: call it before the container's mount namespace is joined.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstatfs, open, openat};

use super::errno::Cause;
use super::mountinfo::{self, Mount};
use crate::device::DeviceNumber;

/// `CGROUP_SUPER_MAGIC`; linux/magic.h.
const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;

/// Who decides which devices a process may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCgroup {
    /// A directory of the v1 `devices` controller that is the container's own: rules can be added.
    V1 {
        /// The directory, as the hook sees it.
        dir: PathBuf,
    },
    /// A v2 cgroup of the container's own: a BPF program decides, and no second one can widen it.
    V2,
    /// The process is in the hook's own cgroup, in one above it, or in the root (`--cgroups=disabled`).
    /// No rule may be written there: it would hold for more than the container.
    Shared,
    /// No device controller can be reached from here.
    None,
}

/// The device cgroup could not be found or changed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file could not be read, opened or written.
    #[error("failed to {operation} {path:?}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: Cause,
    },
    /// Only a v1 directory of the container's own takes rules.
    #[error("failed to allow device {number}: the container has no v1 device cgroup of its own")]
    NotV1 {
        /// The device.
        number: DeviceNumber,
    },
    /// The directory is on another file system.
    #[error("failed to allow a device: {0:?} is no cgroup v1 directory")]
    NotCgroup(PathBuf),
}

/// Finds the device cgroup of a process; on a host with both versions the v1 controller decides.
pub fn find(pid: u32) -> Result<DeviceCgroup, CgroupError> {
    let theirs = read(&PathBuf::from(format!("/proc/{pid}/cgroup")))?;
    let ours = read(Path::new("/proc/self/cgroup"))?;
    let mounts = mountinfo::parse(&read(Path::new("/proc/self/mountinfo"))?);
    Ok(locate(&String::from_utf8_lossy(&theirs), &String::from_utf8_lossy(&ours), &mounts))
}

/// Lets the container's cgroup open a device for reading and writing. It may not make nodes: those are made for it.
pub fn allow(cgroup: &DeviceCgroup, number: DeviceNumber) -> Result<(), CgroupError> {
    let DeviceCgroup::V1 { dir } = cgroup else { return Err(CgroupError::NotV1 { number }) };
    let file = dir.join("devices.allow");
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |errno| CgroupError::System { operation, path, source: Cause(errno) }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = open(dir, flags, Mode::empty()).map_err(failed("open", dir))?;
    let magic = fstatfs(&handle).map_err(failed("identify the file system of", dir))?.f_type;
    if u64::try_from(magic) != Ok(CGROUP_SUPER_MAGIC) {
        return Err(CgroupError::NotCgroup(dir.clone()));
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let rules = openat(&handle, "devices.allow", flags, Mode::empty()).map_err(failed("open", &file))?;
    let rule = format!("c {number} rw");
    rustix::io::write(&rules, rule.as_bytes()).map_err(failed("write a rule to", &file))?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, CgroupError> {
    super::read_all(CWD, path).map_err(|errno| CgroupError::System {
        operation: "read",
        path: path.to_owned(),
        source: Cause(errno),
    })
}

/// A v1 directory of the container's own decides, else a v2 cgroup of its own: on a hybrid host the kernel lists both,
/// and a runtime uses one of them. `theirs` and `ours` are texts of `/proc/PID/cgroup`; nothing is opened.
pub fn locate(theirs: &str, ours: &str, mounts: &[Mount]) -> DeviceCgroup {
    let own_v1 = v1_path(theirs).filter(|path| !contains(path, v1_path(ours)));
    let own_v2 = v2_path(theirs).filter(|path| !contains(path, v2_path(ours)));
    let of_devices =
        |mount: &&Mount| mount.fs_type == "cgroup" && mount.super_options.split(',').any(|o| o == "devices");
    if let Some(path) = own_v1 {
        let dir = mounts.iter().filter(of_devices).find_map(|mount| directory(mount, path));
        return dir.map_or(DeviceCgroup::None, |dir| DeviceCgroup::V1 { dir });
    }
    match (own_v2, v1_path(theirs).or_else(|| v2_path(theirs))) {
        (Some(_), _) => DeviceCgroup::V2,
        (None, Some(_)) => DeviceCgroup::Shared,
        (None, None) => DeviceCgroup::None,
    }
}

/// Whether the cgroup at `path` is the root, or is or contains the cgroup at `own`. Not knowing counts as yes.
fn contains(path: &str, own: Option<&str>) -> bool {
    own.is_none_or(|own| Path::new(own).starts_with(path))
}

/// Path of the process in the hierarchy of the v1 `devices` controller.
fn v1_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "devices").then_some(path)
    })
}

fn v2_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Where a cgroup is seen through a mount of its hierarchy, if it is.
fn directory(mount: &Mount, path: &str) -> Option<PathBuf> {
    let below = Path::new(path).strip_prefix(&mount.root).ok()?;
    // A path outside the hook's cgroup namespace begins with `/..`.
    let plain = below.components().all(|component| matches!(component, std::path::Component::Normal(_)));
    (plain && below.components().next().is_some()).then(|| mount.mount_point.join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNT: &str = "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    fn check(theirs: &str, ours: &str, mounts: &str, expected: &DeviceCgroup) {
        assert_eq!(locate(theirs, ours, &mountinfo::parse(mounts.as_bytes())), *expected, "{theirs:?} {ours:?}");
    }

    #[test]
    fn v1_wins_on_a_hybrid_host() {
        let v1 = |dir: &str| DeviceCgroup::V1 { dir: dir.into() };
        check("5:devices:/c/1\n0::/c/1\n", "5:devices:/\n0::/\n", V1_MOUNT, &v1("/sys/fs/cgroup/devices/c/1"));
        check("5:cpu,devices:/c\n", "5:cpu,devices:/x\n", V1_MOUNT, &v1("/sys/fs/cgroup/devices/c"));
        let partial = "36 31 0:33 /docker /cg rw - cgroup cgroup rw,devices\n";
        check("5:devices:/docker/1\n", "5:devices:/docker/2\n", partial, &v1("/cg/1"));
        check("5:devices:/other/1\n", "5:devices:/\n", partial, &DeviceCgroup::None);
        check("5:devices:/c\n", "5:devices:/\n", "", &DeviceCgroup::None);
        check("5:devices:/../c\n", "5:devices:/\n", V1_MOUNT, &DeviceCgroup::None);
    }

    #[test]
    fn v2_and_nothing() {
        check("0::/c\n", "0::/s\n", V2_MOUNT, &DeviceCgroup::V2);
        check("4:memory:/c\n0::/c\n", "4:memory:/\n0::/\n", V1_MOUNT, &DeviceCgroup::V2);
        check("4:memory:/c\n", "4:memory:/\n", "", &DeviceCgroup::None);
        check("", "", "", &DeviceCgroup::None);
    }

    #[test]
    fn a_cgroup_that_holds_more_than_the_container_is_shared() {
        for (theirs, ours) in [("/", "/"), ("/", "/s"), ("/s", "/s"), ("/s", "/s/hook")] {
            let line = |path| format!("5:devices:{path}\n0::{path}\n");
            check(&line(theirs), &line(ours), V1_MOUNT, &DeviceCgroup::Shared);
            check(&format!("0::{theirs}"), &format!("0::{ours}"), V2_MOUNT, &DeviceCgroup::Shared);
        }
        check("5:devices:/c\n", "0::/\n", V1_MOUNT, &DeviceCgroup::Shared);
        check(
            "5:devices:/sub\n",
            "5:devices:/s\n",
            V1_MOUNT,
            &DeviceCgroup::V1 { dir: "/sys/fs/cgroup/devices/sub".into() },
        );
    }
}
