//! Why a shell did not do its work, and how it ends.

use std::fmt::Display;

use crate::exit::Exit;
use crate::sys::errno::chain;
use crate::sys::rootfs::RootfsError;

/// A failure, with what a person can do about it.
#[derive(Debug)]
pub struct Failure {
    /// How the program ends; under crun this is all that a user gets to see of a hook.
    pub exit: Exit,
    /// What was being done, to what, and why it failed.
    pub error: anyhow::Error,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hint: String::new() }
    }

    /// A failure from a text.
    pub fn text_only(exit: Exit, text: impl Display) -> Self {
        Self::new(exit, anyhow::anyhow!("{text}"))
    }

    /// A wrong command line of the hook.
    pub fn usage(text: impl Display) -> Self {
        Self::text_only(Exit::Usage, format!("{text} (see cudaview-hook --help)"))
    }

    /// The same, with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The whole chain of causes, once, then the hint. System errors stand as symbols: Docker searches the text for their
    /// words, and changes its exit code and its advice when it finds them.
    pub fn text(&self) -> String {
        let text = chain(self.error.as_ref());
        if self.hint.is_empty() { text } else { format!("{text}\n  hint: {}", self.hint) }
    }
}

impl From<RootfsError> for Failure {
    fn from(error: RootfsError) -> Self {
        Self::new(error.exit(), error)
    }
}
