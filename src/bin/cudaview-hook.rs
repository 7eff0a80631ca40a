//! The OCI hook; see `cudaview::cmd::hook`.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments")]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cudaview::cmd::hook::run(std::env::args_os()).code())
}
