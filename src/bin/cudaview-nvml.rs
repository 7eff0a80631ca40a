//! Prints this host's inventory as NVML knows it, and ends. The only program of the project that loads NVML.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments and answers")]

use std::io::Write;
use std::process::ExitCode;

use cudaview::exit::Exit;
use cudaview::sys::nvml;

fn main() -> ExitCode {
    match nvml::ask() {
        Ok(inventory) => match serde_json::to_vec(&inventory) {
            Ok(text) => {
                let written = std::io::stdout().write_all(&text);
                ExitCode::from(if written.is_ok() { Exit::Done } else { Exit::Failed }.code())
            }
            Err(error) => fail(&error),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    let mut text = format!("cudaview-nvml: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // nvml-wrapper repeats the cause in its own text.
        let inner = error.to_string();
        if !text.ends_with(&inner) {
            text.push_str(": ");
            text.push_str(&inner);
        }
        cause = error.source();
    }
    // Nothing is left to do where even that cannot be written.
    drop(writeln!(std::io::stderr(), "{text}"));
    ExitCode::from(Exit::NoInventory.code())
}
