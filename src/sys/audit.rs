//! The audit trail: one line of JSON for each container that was changed, refused, or had a request ignored.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The journal's own socket.
// systemd.io, Native Journal Protocol
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Where records go without a journal.
const FILE: &str = "/var/log/cudaview/audit.jsonl";

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
