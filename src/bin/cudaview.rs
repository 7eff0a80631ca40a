//! The `cudaview` command.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments and answers")]

use std::process::ExitCode;

fn main() -> ExitCode {
    cudaview::cmd::cli::main(std::env::args_os())
}
