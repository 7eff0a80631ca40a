//! What leaves a command: data on stdout, the rest on stderr.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::exit::Exit;
use crate::finding::steers;
use crate::report::Style;
use crate::sys::configuration::ConfigurationError;
use crate::sys::inventory::LoadError;

/// Columns where no terminal says otherwise.
const WIDTH: usize = 80;

/// A command that could not do its job.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    error: anyhow::Error,
    hint: String,
}

impl Failure {
    /// A wrong command line.
    pub(super) fn usage(text: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, anyhow::anyhow!("{text}"), hint)
    }

    /// `hint` may be empty.
    pub(super) fn new(exit: Exit, error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        Self { exit, error: error.into(), hint: hint.into() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let exit = if matches!(error, LoadError::Invalid { .. }) { Exit::BadInput } else { Exit::NoInventory };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}

impl From<ConfigurationError> for Failure {
    fn from(error: ConfigurationError) -> Self {
        let hint = error.hint();
        Self::new(Exit::Configuration, error, hint)
    }
}

/// Says what went wrong, and how the command ends. A reader of our output that went away is no fault.
pub(super) fn report(failure: &Failure) -> Exit {
    if let Some(error) = failure.error.downcast_ref::<io::Error>()
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        return Exit::Done;
    }
    say("cudaview", &format!("{:#}", failure.error));
    if !failure.hint.is_empty() {
        say("hint", &failure.hint);
    }
    failure.exit
}

/// Writes data to stdout.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Done, error, ""),
        _ => Failure::new(Exit::Failed, anyhow::Error::new(error).context("failed to write to stdout"), ""),
    })
}

/// Writes JSON to stdout.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(Exit::Bug, error, ""))?;
    print(&(for_terminals(&text) + "\n"))
}

/// Writes JSON to stdout, a line of it.
pub(super) fn print_line(value: &serde_json::Value) -> Result<(), Failure> {
    print(&(for_terminals(&value.to_string()) + "\n"))
}

/// The same JSON without letters by which an image could steer a terminal: beyond ASCII's, which are escaped already,
/// the second set of control characters, and those that turn the direction of text. They stand in strings only.
fn for_terminals(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            letter if steers(letter) && letter != '\n' => {
                let escape = format!("\\u{:04x}", u32::from(letter));
                out.push_str(&escape);
            }
            letter => out.push(letter),
        }
    }
    out
}

/// Writes to stderr where a reader finds more.
pub(super) fn why(text: &str) {
    say("why", text);
}

/// Writes a note to stderr.
pub(super) fn note(text: &str) {
    say("note", text);
}

/// Writes to stderr what only helps a person.
pub(super) fn aside(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

/// Writes what to do about a note to stderr.
pub(super) fn hint(text: &str) {
    say("hint", text);
}

fn say(tag: &str, text: &str) {
    // What a text of somebody else's brings along, whoever forgot it.
    let harmless = |letter: char| {
        let escaped = (steers(letter) && letter != '\n').then(|| letter.escape_default().to_string());
        escaped.unwrap_or_else(|| letter.to_string())
    };
    let text: String = text.chars().map(harmless).collect();
    let text = style_of(&io::stderr()).tagged(0, tag, &text);
    // There is no third place to complain to.
    drop(io::stderr().write_all(text.as_bytes()));
}

/// How text is laid out for whoever reads stdout.
pub(super) fn style() -> Style {
    style_of(&io::stdout())
}

fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    let is_terminal = stream.is_terminal();
    let size = rustix::termios::tcgetwinsize(stream).ok().filter(|size| is_terminal && size.ws_col > 0);
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    // https://no-color.org: set and not empty.
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    Style {
        width: size.map(|size| usize::from(size.ws_col)).or(columns).unwrap_or(WIDTH),
        colour: is_terminal && !no_colour && !is_dumb,
    }
}
