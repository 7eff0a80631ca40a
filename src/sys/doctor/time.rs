//! When a process was started, and whether a file has changed since.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether what is at this path has changed since this process was started; `None` where nobody knows.
pub(super) fn is_newer(path: &Path, pid: u32) -> Option<bool> {
    let changed = std::fs::symlink_metadata(path).ok()?;
    let changed =
        f64::from(u32::try_from(changed.ctime()).ok()?) + f64::from(i32::try_from(changed.ctime_nsec()).ok()?) / 1e9;
    // The start is known to a hundredth, and the start of the machine to a second.
    Some(changed > started(pid)? + 1.0)
}

/// Seconds since this process was started.
pub(super) fn age(pid: u32) -> Option<f64> {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().ok()?;
    Some(now.as_secs_f64() - started(pid)?)
}

/// Seconds since 1970.
// proc_pid_stat(5), field 22; proc_stat(5), btime.
fn started(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name can hold blanks and brackets.
    let ticks: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: u32 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(f64::from(boot) + f64::from(ticks) / f64::from(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_has_just_been_started() {
        let pid = std::process::id();
        let age = age(pid).expect("it runs");
        assert!((-1.0..600.0).contains(&age), "{age}");
        assert_eq!(is_newer(Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENSE").as_path(), pid), Some(false));
        assert_eq!(is_newer(Path::new("/proc/self/exe-that-is-not-there"), pid), None);
        assert_eq!(is_newer(Path::new("/"), u32::MAX), None);
    }
}
