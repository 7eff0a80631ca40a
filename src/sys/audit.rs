//! The audit trail: one line of JSON for each container that was changed, refused, or had a request ignored.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::child::ask;
use super::errno::chain;
use super::trusted;

/// The journal's own socket.
// systemd.io, Native Journal Protocol
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Where records go without a journal.
const FILE: &str = "/var/log/cudaview/audit.jsonl";

/// The longest trail that is read: some hundred thousand records.
const LIMIT: u64 = 64 << 20;

/// Why the trail is not for whoever asks.
pub const DENIED: &str = "not permitted";

/// How long the journal may take to search itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// The journal's own reader.
const JOURNALCTL: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];

/// Writes a record where the configuration's `audit` says.
///
/// # Errors
/// The place and the cause; a container is never held up by it.
pub fn write(place: &str, record: &serde_json::Value) -> Result<(), String> {
    let line = record.to_string();
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
        std::fs::create_dir_all(parent)?;
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

/// Every record that can be read, the oldest first; a line that is none is left out.
///
/// # Errors
/// Why there is nothing to read, for people.
pub fn read(place: &str) -> Result<Vec<serde_json::Value>, String> {
    let text = match place {
        "off" => return Err("the configuration says audit = \"off\"".to_owned()),
        "journal" => read_journal()?,
        "auto" if Path::new(JOURNAL).exists() => read_journal()?,
        "auto" => read_file(Path::new(FILE))?,
        path => read_file(Path::new(path))?,
    };
    let is_record = |value: &serde_json::Value| value["schemaVersion"] == 1 && value["door"].is_string();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok(lines.filter(is_record).collect())
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let in_words = |error: trusted::Untrusted| match error {
        trusted::Untrusted::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            DENIED.to_owned()
        }
        error => chain(&error),
    };
    trusted::read(path, LIMIT).map_err(in_words)?.ok_or_else(|| "not there".to_owned())
}

/// Anybody may write to the journal under any name; the journal itself says who did. A rootless engine's records are
/// its user's.
fn read_journal() -> Result<Vec<u8>, String> {
    let program = JOURNALCTL.map(PathBuf::from).into_iter().find(|path| path.is_file());
    let mut command = Command::new(program.ok_or_else(|| "journalctl is not installed".to_owned())?);
    command.args(["--identifier=cudaview", "--output=cat", "--no-pager", "--quiet", "_UID=0"]);
    command.arg(format!("_UID={}", rustix::process::geteuid().as_raw()));
    let answer = ask(&mut command, PATIENCE, LIMIT).map_err(|error| format!("journalctl: {}", chain(&error)))?;
    if answer.status.success() { Ok(answer.output) } else { Err(format!("journalctl: {}", answer.first_complaint())) }
}
