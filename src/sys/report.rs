//! Where a wrapper's or hook's words go: the runtime's log file and standard error.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::json;

use super::raw;

/// Where the engine wants the runtime's words.
#[derive(Clone, Debug, Default)]
pub struct Channel<'a> {
    /// `--log`.
    pub log: Option<&'a Path>,
    /// `--log-format json`.
    pub json: bool,
}

/// The current time in RFC 3339; Docker reads no other form.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Says why the operation failed: once to the log, which engines read, and once to standard error, which people read.
/// A failure to say it is not a reason to fail differently.
pub fn failure(channel: &Channel<'_>, text: &str) {
    append(channel, "error", text);
    // The wrapper keeps the signals that the runtime is to inherit; from here on there is no runtime.
    raw::ignore_broken_pipes();
    // Neither a closed nor a full standard error may change how this ends.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says something on the standard error of the process that started us, which may show more of it than ours.
pub fn to_parent(text: &str) {
    let Some(parent) = rustix::process::getppid() else { return };
    let its_own = descriptor_of(parent, 2).map(File::from);
    let is_regular = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut file = match its_own {
        // It shares the position, so that neither writes over what the other wrote.
        Ok(file) if is_regular(&file) => file,
        // Opened again, so that a full pipe does not keep us; where it is another user's, as it is if there is room.
        its_own => {
            let path = format!("/proc/{}/fd/2", parent.as_raw_nonzero());
            let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
            let again = std::fs::OpenOptions::new().append(true).custom_flags(flags).open(path);
            let Some(file) = again.ok().or_else(|| its_own.ok().filter(has_room)) else { return };
            file
        }
    };
    // An extra channel; the exit code holds without it.
    let _ = file.write_all(format!("{text}\n").as_bytes());
}

/// Whether a write would not wait.
fn has_room(file: &File) -> bool {
    let mut wait = [PollFd::new(file, PollFlags::OUT)];
    poll(&mut wait, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The very descriptor of another process.
fn descriptor_of(process: Pid, number: i32) -> rustix::io::Result<OwnedFd> {
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty())
}

/// Writes to the log alone.
pub fn append(channel: &Channel<'_>, level: &str, text: &str) {
    let Some(path) = channel.log else { return };
    let line = if channel.json {
        json!({"level": level, "msg": text, "time": now()}).to_string()
    } else {
        format!("time=\"{}\" level={level} msg={text:?}", now())
    };
    // A FIFO that nobody reads must not keep us from ending.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().append(true).create(true).custom_flags(flags).open(path);
    // One write, so that lines of several writers do not mix. There is no other place to tell that it failed.
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// Debug messages of `log` go to the runtime's log file when the engine asked for `--debug`.
#[derive(Debug)]
pub struct DebugLog {
    path: std::path::PathBuf,
    json: bool,
}

impl DebugLog {
    /// Installs the logger.
    pub fn install(path: &Path, json: bool) {
        let logger = Box::new(Self { path: path.to_owned(), json });
        if log::set_boxed_logger(logger).is_ok() {
            log::set_max_level(log::LevelFilter::Debug);
        }
    }
}

impl log::Log for DebugLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        let channel = Channel { log: Some(&self.path), json: self.json };
        append(
            &channel,
            record.level().as_str().to_ascii_lowercase().as_str(),
            &format!("cudaview: {}", record.args()),
        );
    }
    fn flush(&self) {}
}
