//! The `cudaview` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cudaview::cmd::main(std::env::args_os())
}
