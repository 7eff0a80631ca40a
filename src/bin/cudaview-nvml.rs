//! Prints this host's inventory as NVML knows it, and ends. The only program of the project that loads NVML.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments and answers")]

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use cudaview::exit::Exit;
use cudaview::sys::nvml;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => answer(nvml::ask(Path::new("/proc"))),
        ["--proc", _] => answer(nvml::ask(Path::new(&arguments[1]))),
        ["--usage"] => answer(nvml::usage()),
        ["--help" | "-h", ..] => print(nvml::HELP.as_bytes()),
        ["--version" | "-V", ..] => print(concat!("cudaview-nvml ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        [unknown, ..] => {
            let what = if *unknown == "--proc" {
                "--proc needs one folder".to_owned()
            } else {
                format!("unknown argument {unknown:?}")
            };
            drop(writeln!(std::io::stderr(), "cudaview-nvml: {what} (see cudaview-nvml --help)"));
            ExitCode::from(Exit::Usage.code())
        }
    }
}

fn print(text: &[u8]) -> ExitCode {
    let exit = match std::io::stdout().write_all(text) {
        Ok(()) => Exit::Done,
        // A reader that went away has what it wanted.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
        Err(_) => Exit::Failed,
    };
    ExitCode::from(exit.code())
}

fn answer(answer: Result<impl serde::Serialize, nvml::AskError>) -> ExitCode {
    match answer {
        Ok(answer) => match serde_json::to_vec(&answer) {
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
