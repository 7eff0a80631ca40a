//! The audit trail: one line of JSON for each container that was changed, refused, or had a request ignored.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::child::ask;
use super::errno::chain;
use super::trusted;

/// The journal's own socket.
// systemd.io, Native Journal Protocol
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Where records go without a journal.
const FILE: &str = "/var/log/cudaview/audit.jsonl";

/// As much of a trail is read, its end: some hundred thousand records.
const LIMIT: u64 = 64 << 20;

/// Why the trail is not for whoever asks.
pub const DENIED: &str = "not permitted";

/// Why there is no trail: nothing is written down.
pub const OFF: &str = "the configuration says audit = \"off\"";

/// Why there is no trail: nothing was written down yet.
pub const MISSING: &str = "not there";

/// How often a file is looked at for more.
const PAUSE: Duration = Duration::from_millis(250);

/// How long the journal may take to search itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// The journal's own reader.
const JOURNALCTL: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];

/// Writes a record where the configuration's `audit` says.
///
/// # Errors
/// The place and the cause; a container is never held up by it.
pub fn write(place: &str, record: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(record).map_err(|error| error.to_string())?;
    match place {
        "off" => Ok(()),
        "journal" => journal(&line).map_err(|error| format!("{JOURNAL}: {error}")),
        "auto" if Path::new(JOURNAL).exists() => journal(&line).map_err(|error| format!("{JOURNAL}: {error}")),
        "auto" => file(Path::new(FILE), &line).map_err(|error| format!("{FILE}: {error}")),
        path => file(Path::new(path), &line).map_err(|error| format!("{path}: {error}")),
    }
}

fn journal(line: &str) -> std::io::Result<()> {
    // The values hold no newline: JSON escapes it.
    let message = format!("MESSAGE={line}\nPRIORITY=6\nSYSLOG_IDENTIFIER=cudaview\n");
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(message.as_bytes(), JOURNAL).map(|_| ())
}

fn file(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        // Whatever the umask: who can write the folder can put another trail in place of this one.
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    // A record names images and GPUs, nothing secret; it is still only its operator's business.
    let mut options = std::fs::OpenOptions::new();
    // A FIFO that nobody reads must not keep a container from starting.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = options.append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// The place that [`write()`] uses now, for people.
pub fn place(place: &str) -> String {
    match place {
        "auto" if Path::new(JOURNAL).exists() => "the journal".to_owned(),
        "journal" => "the journal".to_owned(),
        "auto" => FILE.to_owned(),
        "off" => "the audit trail".to_owned(),
        path => path.to_owned(),
    }
}

/// What was read of the trail.
#[derive(Debug, Default)]
pub struct Trail {
    text: Vec<u8>,
    /// The file that it is of, and where in that it ends.
    end: (u64, u64),
}

impl Trail {
    /// Its records, the oldest first; a line that is none is left out. Each is read when it is come to.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = serde_json::Value> {
        self.text.split(|byte| *byte == b'\n').filter_map(record_of)
    }

    /// The newest of its records, the oldest of them first, and how many lines between them are none.
    pub fn newest(&self, most: usize) -> (Vec<serde_json::Value>, usize) {
        let (mut records, mut others) = (Vec::new(), 0);
        // What stands behind the last end of a line is still being written, and a cut may have left a part of the first.
        let whole = self.text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let is_cut = self.end.1 > u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1);
        let mut lines = self.text[..whole].rsplit(|byte| *byte == b'\n').peekable();
        while let (Some(line), true) = (lines.next(), records.len() < most) {
            match record_of(line) {
                Some(record) => records.push(record),
                None if line.is_empty() || is_cut && lines.peek().is_none() => {}
                None => others += 1,
            }
        }
        records.reverse();
        (records, others)
    }
}

/// Every record that can be read.
///
/// # Errors
/// Why there is nothing to read, for people.
pub fn read(place: &str) -> Result<Trail, String> {
    let ((text, start), inode) = match place {
        "off" => return Err(OFF.to_owned()),
        "journal" => ((read_journal()?, 0), 0),
        "auto" if Path::new(JOURNAL).exists() => ((read_journal()?, 0), 0),
        place => {
            let path = Path::new(if place == "auto" { FILE } else { place });
            let inode = std::fs::metadata(path).map_or(0, |file| file.ino());
            (read_file(path)?, inode)
        }
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    Ok(Trail { text, end: (inode, start + u64::try_from(whole).unwrap_or_default()) })
}

/// Hands on every record that is written after what was read, until `each` has had enough or there is nothing to read
/// any more.
///
/// # Errors
/// Why there is nothing to read, for people, or what `each` failed with.
pub fn follow<E: From<String>>(
    place: &str,
    trail: &Trail,
    each: &mut dyn FnMut(serde_json::Value) -> Result<(), E>,
) -> Result<(), E> {
    let mut each = |line: &[u8]| record_of(line).map_or(Ok(()), &mut *each);
    match place {
        "off" => Err(E::from(OFF.to_owned())),
        "journal" => follow_journal(&mut each),
        "auto" if Path::new(JOURNAL).exists() => follow_journal(&mut each),
        "auto" => follow_file(Path::new(FILE), trail.end, &mut each),
        path => follow_file(Path::new(path), trail.end, &mut each),
    }
}

/// A file that is appended to, and now and then replaced by a new one under the same name.
fn follow_file<E: From<String>>(
    path: &Path,
    (mut inode, mut position): (u64, u64),
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        // Between two names of a rotation there is no file.
        let (now, length) = std::fs::metadata(path).map_or((inode, position), |file| (file.ino(), file.len()));
        if now != inode || length < position {
            (inode, position) = (now, 0);
        }
        if length > position {
            let read = trusted::read_end(path, LIMIT).map_err(|error| E::from(chain(&error)))?;
            let (text, start) = read.unwrap_or_default();
            position = position.max(start);
            let new = text.get(usize::try_from(position - start).unwrap_or(usize::MAX)..).unwrap_or_default();
            // What has no end yet is read again.
            for line in new.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
                each(line)?;
                position += u64::try_from(line.len()).unwrap_or_default();
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn follow_journal<E: From<String>>(each: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let failed = |error: &dyn std::error::Error| E::from(format!("journalctl: {error}"));
    let mut command = journalctl().map_err(E::from)?;
    command.args(["--follow", "--lines=0"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let ended = match child.stdout.take().map(BufReader::new) {
        Some(output) => output.split(b'\n').try_for_each(|line| each(&line.map_err(|error| failed(&error))?)),
        None => Ok(()),
    };
    // Nobody reads it any more.
    drop(child.kill());
    drop(child.wait());
    ended
}

fn record_of(line: &[u8]) -> Option<serde_json::Value> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    (value["schemaVersion"] == 1 && value["door"].is_string()).then_some(value)
}

fn read_file(path: &Path) -> Result<(Vec<u8>, u64), String> {
    let in_words = |error: trusted::Untrusted| match error {
        trusted::Untrusted::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            DENIED.to_owned()
        }
        error => chain(&error),
    };
    trusted::read_end(path, LIMIT).map_err(in_words)?.ok_or_else(|| MISSING.to_owned())
}

/// Anybody may write to the journal under any name; the journal itself says who did. A rootless engine's records are
/// its user's.
fn journalctl() -> Result<Command, String> {
    let program = JOURNALCTL.map(PathBuf::from).into_iter().find(|path| path.is_file());
    let mut command = Command::new(program.ok_or_else(|| "journalctl is not installed".to_owned())?);
    command.args(["--identifier=cudaview", "--output=cat", "--no-pager", "--quiet", "_UID=0"]);
    command.arg(format!("_UID={}", rustix::process::geteuid().as_raw()));
    Ok(command)
}

fn read_journal() -> Result<Vec<u8>, String> {
    let answer = ask(&mut journalctl()?, PATIENCE, LIMIT).map_err(|error| format!("journalctl: {}", chain(&error)))?;
    if answer.status.success() { Ok(answer.output) } else { Err(format!("journalctl: {}", answer.first_complaint())) }
}
