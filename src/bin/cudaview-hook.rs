//! The OCI hook; see `cudaview::cmd::hook`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cudaview::cmd::hook::run(std::env::args_os().skip(1)).code())
}
