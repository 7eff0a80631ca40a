//! What `cudaview install` makes of an engine's configuration, and what `uninstall` leaves: text in, text out.
//!
//! Nothing is serialised anew: the text keeps its order, its comments and its spaces, and only what is asked for changes.
//! What came out is read again and compared with what it was to say; where that differs, nothing is written.

mod blocks;
pub mod containerd;
pub mod daemon_json;
pub mod dropin;
mod json;
pub mod observe;
#[cfg(test)]
mod tests;

/// The name by which engines know the runtime.
pub const NAME: &str = "cudaview";

/// Where the files under `hooks/` say that the runtime is.
const USUAL_PROGRAM: &str = "/usr/bin/cudaview-runtime";

/// What an engine is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The absolute path of `cudaview-runtime`.
    pub program: &'a str,
    /// It is to be the runtime of containers for which none is named.
    pub default: bool,
}

/// What is to become of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    None,
    /// It is to have this text.
    Write(String),
    /// It is to go.
    Remove,
}

/// Why a file is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// What is in the way.
    pub text: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

fn refused<T>(text: impl Into<String>, hint: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { text: text.into(), hint: hint.into() })
}

/// A file of ours under `hooks/`, for a program that may be elsewhere.
fn snippet(text: &str, program: &str) -> String {
    text.replace(USUAL_PROGRAM, program)
}

/// Whether a path can stand in quotes of JSON and of TOML as it is.
fn check_program(program: &str) -> Result<(), Refusal> {
    let is_plain = |letter: char| letter != '"' && letter != '\\' && letter != '\'' && !letter.is_control();
    if program.starts_with('/') && program.chars().all(is_plain) {
        return Ok(());
    }
    refused(format!("the path of cudaview-runtime cannot be written down: {program:?}"), "install it in /usr/bin")
}

/// The text of before, where the text of now is what [`Wanted`] made of it; `install` is the engine's.
fn is_made_of(
    now: &str,
    before: Option<&str>,
    program: &str,
    install: impl Fn(Option<&str>, Wanted<'_>) -> Result<Change, Refusal>,
) -> bool {
    [false, true].into_iter().any(|default| {
        let made = install(before, Wanted { program, default });
        matches!(made, Ok(Change::Write(text)) if text == now)
    })
}
