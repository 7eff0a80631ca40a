//! Five sessions at a terminal, on one server with four GPUs: every screen, at 80 and 120 columns, in colour and without.
//!
//! Each is a file of its own, and so is each screen below `sessions/snapshots`, for whoever wants to look at them.

mod first_run;
mod host;
mod lint;
mod refused;
mod terminal;
mod what_if;

use std::process::Command;

use crate::command::{cudaview, data};

/// Nothing to take out.
fn as_it_is(seen: &str) -> String {
    seen.to_owned()
}

/// `explain` over the server's inventory.
fn what_if(arguments: &[&str]) -> Command {
    let mut command = cudaview();
    command.args(["explain", "--inventory"]).arg(data("inventories/a100x4.json"));
    // Nobody's configuration.
    command.args(["--config", "/dev/null"]).args(arguments);
    command
}
