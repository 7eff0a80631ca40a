//! Runs `cudaview-nvml`, the only program that loads NVML, and waits for it for five seconds.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::LIMIT;
use crate::inventory::{InvalidInventory, Inventory};

/// The driver can take seconds to start up when nothing holds it open.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often an ended program is looked for once its output has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// NVML could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The program does not start.
    #[error("failed to start {path:?}")]
    Start {
        /// The program.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It did not end in time.
    #[error("cudaview-nvml gave no answer within 5 seconds")]
    Timeout,
    /// It failed, and said this.
    #[error("cudaview-nvml: {0}")]
    Failed(String),
    /// It printed something else than an inventory.
    #[error("failed to read the answer of cudaview-nvml")]
    Answer(#[from] InvalidInventory),
    /// Its output cannot be read.
    #[error("failed to read from cudaview-nvml")]
    Read(#[from] io::Error),
}

/// Runs the program and reads the inventory that it prints.
pub(super) fn run(path: &Path) -> Result<Inventory, HelperError> {
    let deadline = Instant::now() + PATIENCE;
    let started = Command::new(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|source| HelperError::Start { path: path.to_owned(), source })?;
    let answer = wait(&mut child, deadline);
    if answer.is_err() {
        // It may have ended meanwhile; either way nobody waits for its answer.
        drop(child.kill());
        drop(child.wait());
    }
    let (status, output, complaint) = answer?;
    if !status.success() {
        let complaint = String::from_utf8_lossy(&complaint);
        let line = complaint.lines().next().unwrap_or_default();
        let line = line.strip_prefix("cudaview-nvml: ").unwrap_or(line).to_owned();
        return Err(HelperError::Failed(if line.is_empty() { status.to_string() } else { line }));
    }
    Ok(Inventory::from_json(&output)?)
}

type Answer = (ExitStatus, Vec<u8>, Vec<u8>);

fn wait(child: &mut Child, deadline: Instant) -> Result<Answer, HelperError> {
    let output = read_apart(child.stdout.take());
    let complaint = read_apart(child.stderr.take());
    let left = || deadline.saturating_duration_since(Instant::now());
    let receive = |receiver: &mpsc::Receiver<io::Result<Vec<u8>>>| match receiver.recv_timeout(left()) {
        Ok(text) => Ok(text?),
        Err(RecvTimeoutError::Timeout) => Err(HelperError::Timeout),
        Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
    };
    let texts = (receive(&output)?, receive(&complaint)?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, texts.0, texts.1));
        }
        if left().is_zero() {
            return Err(HelperError::Timeout);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads a pipe in a thread of its own, which ends with the pipe.
fn read_apart(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = pipe.map_or(Ok(0), |pipe| pipe.take(LIMIT).read_to_end(&mut text));
        // Nobody listens after a timeout.
        drop(sender.send(read.map(|_| text)));
    });
    receiver
}
