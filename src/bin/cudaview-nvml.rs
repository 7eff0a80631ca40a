//! Prints this host's inventory as NVML knows it, and ends. The only program of the project that loads NVML.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments and answers")]

use std::io::Write;
use std::process::ExitCode;

use cudaview::exit::Exit;
use cudaview::sys::nvml;

const HELP: &str = "\
cudaview-nvml: prints this host's GPUs as NVML knows them, in JSON

usage: cudaview-nvml [--version | --help]

cudaview and its other programs start it where nothing else says which GPUs
there are; cudaview inventory shows the same to people.
";

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        None => inventory(),
        Some(argument) if argument == "--help" || argument == "-h" => print(HELP.as_bytes()),
        Some(argument) if argument == "--version" || argument == "-V" => {
            print(concat!("cudaview-nvml ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())
        }
        Some(argument) => {
            let text =
                format!("cudaview-nvml: unknown argument {:?} (see cudaview-nvml --help)", argument.to_string_lossy());
            drop(writeln!(std::io::stderr(), "{text}"));
            ExitCode::from(Exit::Usage.code())
        }
    }
}

fn print(text: &[u8]) -> ExitCode {
    let written = std::io::stdout().write_all(text);
    ExitCode::from(if written.is_ok() { Exit::Done } else { Exit::Failed }.code())
}

fn inventory() -> ExitCode {
    match nvml::ask() {
        Ok(inventory) => match serde_json::to_vec(&inventory) {
            Ok(text) => print(&text),
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
