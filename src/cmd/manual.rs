//! `cudaview completion` and `cudaview manual`: made from the command line's own definition.

use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use super::output::{Failure, print};
use crate::exit::Exit;

/// Prints what makes a shell complete our commands.
pub(super) fn completion(shell: Shell, command: &mut clap::Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(shell, command, "cudaview", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// Writes a page for the program and one for each command into a folder that exists.
pub(super) fn pages(folder: &Path, command: clap::Command) -> Result<(), Failure> {
    let written = clap_mangen::generate_to(command.disable_help_subcommand(true), folder);
    let written = written.with_context(|| format!("failed to write manual pages to {}", folder.display()));
    written.map_err(|error| Failure::new(Exit::Failed, error, "the folder must exist"))
}
