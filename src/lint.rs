//! `cudaview lint`: faults in the selection of GPUs that can be seen without a host, an engine or a GPU.
//!
//! Text in, findings out, each with its place. Findings that a running container has too keep their codes.

mod agree;
mod assigned;
mod command;
mod compose;
mod dockerfile;
mod envfile;
mod image;
mod interpolate;
mod silence;
mod values;
mod yaml;

pub use command::{Checked, command};
pub use compose::compose;
pub use dockerfile::dockerfile;
pub use envfile::env_file;
pub use image::{CheckedImage, Origin, image};
pub use silence::{Silence, silences};
pub use yaml::InvalidYaml;

use std::ops::Range;

use crate::finding::{Code, Severity};

/// One fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    /// Where the statement begins that it is in: a comment above it silences too.
    pub statement: usize,
    /// One line: what is wrong.
    pub title: String,
    /// What comes of it.
    pub text: String,
    /// What to type instead, or an empty string.
    pub fix: String,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Dockerfile or Containerfile.
    Dockerfile,
    /// A Compose file.
    Compose,
}

impl Kind {
    /// What a file of this name and with this text is, where that can be told.
    pub fn of(name: &str, text: &str) -> Option<Self> {
        let base = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        let is_build =
            |word: &str| base == word || base.starts_with(&format!("{word}.")) || base.ends_with(&format!(".{word}"));
        if is_build("dockerfile") || is_build("containerfile") {
            return Some(Kind::Dockerfile);
        }
        if [".yml", ".yaml"].iter().any(|end| base.ends_with(end)) {
            return Some(Kind::Compose);
        }
        let first = |word: &str| text.lines().any(|line| line.split_whitespace().next() == Some(word));
        if first("FROM") {
            return Some(Kind::Dockerfile);
        }
        text.lines().any(|line| line.trim_end() == "services:").then_some(Kind::Compose)
    }
}

/// The faults of a file, without those that comments in it silence, by place.
///
/// # Errors
/// [`InvalidYaml`] for a Compose file that is none.
pub fn file(kind: Kind, text: &str) -> Result<Vec<Fault>, InvalidYaml> {
    let mut faults = match kind {
        Kind::Dockerfile => dockerfile(text),
        Kind::Compose => compose(text)?,
    };
    unsilenced(text, &mut faults);
    faults.sort_by_key(|fault| (fault.span.start, fault.span.end, fault.code));
    Ok(faults)
}

/// Takes out what comments of the text silence.
fn unsilenced(text: &str, faults: &mut Vec<Fault>) {
    let (silences, lines) = (silences(text), Lines::of(text));
    faults.retain(|fault| {
        let at = [lines.line(fault.span.start), lines.line(fault.statement)];
        !silences.iter().any(|silence| silence.covers(at, fault.code))
    });
}

/// Where the lines of a text begin.
pub struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Of this text.
    pub fn of(text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(starts).collect() }
    }

    /// The line of a place, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    /// The line and the column of a place, both from 1; columns are characters.
    pub fn place(&self, at: usize) -> (usize, usize) {
        let line = self.line(at);
        let start = self.starts[line - 1];
        (line, self.text.get(start..at).map_or(0, |before| before.chars().count()) + 1)
    }

    /// A line, without its end.
    pub fn get(&self, line: usize) -> &'a str {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        self.text[start..].lines().next().unwrap_or_default()
    }

    /// Where the line of a place begins.
    pub fn start(&self, at: usize) -> usize {
        self.starts[self.line(at) - 1]
    }
}
