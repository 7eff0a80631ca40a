//! Runs `cudaview-nvml`, the only program that loads NVML, and waits for it for five seconds.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::LIMIT;
use crate::inventory::{InvalidInventory, Inventory};
use crate::sys::child::{ChildError, ask};
use crate::usage::Usage;

/// The driver can take seconds to start up when nothing holds it open.
const PATIENCE: Duration = Duration::from_secs(5);

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
    Ok(Inventory::from_json(&answer(&mut Command::new(path))?)?)
}

/// Has the program say what is in use.
pub(super) fn usage(path: &Path) -> Result<Usage, HelperError> {
    let answer = answer(Command::new(path).arg("--usage"))?;
    serde_json::from_slice(&answer).map_err(|error| HelperError::Answer(error.into()))
}

fn answer(command: &mut Command) -> Result<Vec<u8>, HelperError> {
    let path = Path::new(command.get_program()).to_owned();
    let answer = ask(command, PATIENCE, LIMIT).map_err(|error| match error {
        ChildError::Start(source) => HelperError::Start { path, source },
        ChildError::Timeout(_) => HelperError::Timeout,
        ChildError::Read(source) => HelperError::Read(source),
    })?;
    if !answer.status.success() {
        let line = answer.first_complaint();
        return Err(HelperError::Failed(line.strip_prefix("cudaview-nvml: ").unwrap_or(&line).to_owned()));
    }
    Ok(answer.output)
}
