//! Compose's `.env` and `env_file`: `NAME=VALUE` with quotes, comments and variables. `docker run --env-file` has none of
//! that; see [`crate::whatif::parse_env_file`].
// compose-go dotenv/parser.go

use crate::whatif::InvalidEnvFile;

use super::interpolate::{Tally, interpolate};

/// More assignments are no file that people write.
const MOST: usize = 10_000;

/// A line that Compose does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InvalidDotenv {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Reads a file. A bare name takes the value that the shell has; without one it is left out.
///
/// # Errors
/// [`InvalidDotenv`] for what Compose refuses.
pub fn parse(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, InvalidDotenv> {
    let mut out: Vec<(String, String)> = Vec::new();
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut rest = text.as_str();
    let mut tally = Tally::new();
    while !rest.is_empty() {
        let line = || text[..text.len() - rest.len()].matches('\n').count() + 1;
        let bad = |reason: &str| InvalidDotenv { line: line(), reason: reason.to_owned() };
        if out.len() == MOST {
            return Err(bad(&format!("it holds more than {MOST} assignments")));
        }
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let begun = first.trim_start();
        if begun.is_empty() || begun.starts_with('#') {
            rest = after;
            continue;
        }
        let begun = begun.strip_prefix("export ").unwrap_or(begun).trim_start();
        let end = begun.find(['=', ':']).unwrap_or(begun.len());
        let name = begun[..end].trim();
        let is_odd = |c: &char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-' | '[' | ']');
        // Not the whole line: a file of secrets that a Compose file names is none of its author's business.
        match name.chars().find(is_odd) {
            Some(odd) => return Err(bad(&format!("unexpected character {odd:?} in a variable's name"))),
            None if name.is_empty() => return Err(bad("there is no name before the value")),
            None => {}
        }
        if end == begun.len() {
            out.extend(lookup(name).map(|value| (name.to_owned(), value)));
            rest = after;
            continue;
        }
        let value_at = text.len() - rest.len() + (first.len() - begun.len()) + end + 1;
        let (value, next) = value(text.get(value_at..).unwrap_or_default()).map_err(|reason| bad(&reason))?;
        let value = match value {
            Written::Literal(value) => value,
            Written::Open(value) => {
                let known = |name: &str| {
                    let own = out.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
                    own.or_else(|| lookup(name))
                };
                interpolate(&value, &known, &mut tally).map_err(|error| bad(&error.to_string()))?
            }
        };
        out.push((name.to_owned(), value));
        rest = next;
    }
    Ok(out)
}

/// Reads a file of `format: raw`: every value as it stands.
///
/// # Errors
/// [`InvalidDotenv`] for what Compose refuses.
pub fn parse_raw(text: &str) -> Result<Vec<(String, String)>, InvalidDotenv> {
    let entries = crate::whatif::parse_env_file(text).map_err(|error| match error {
        InvalidEnvFile::NoName(line) => InvalidDotenv { line, reason: "there is no name before the value".to_owned() },
        // Not the name, for the reason above.
        InvalidEnvFile::WhiteSpace(line, _) => {
            InvalidDotenv { line, reason: "unexpected white space in a variable's name".to_owned() }
        }
    })?;
    Ok(entries.iter().filter_map(|entry| entry.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

/// A value, and whether variables in it are replaced.
enum Written {
    Literal(String),
    Open(String),
}

/// The value at the beginning of a text, and what comes after its line.
fn value(text: &str) -> Result<(Written, &str), String> {
    let text = text.trim_start_matches([' ', '\t']);
    let after_line = |text: &'_ str| text.find('\n').map_or(text.len(), |at| at + 1);
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let end = text.find('\n').unwrap_or(text.len());
        let line = &text[..end];
        // ` #` begins a comment.
        let comment = line
            .char_indices()
            .find(|(at, c)| *c == '#' && line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        let value = comment.map_or(line, |(at, _)| &line[..at]).trim_end();
        return Ok((Written::Open(value.to_owned()), &text[after_line(text)..]));
    };
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            let inner = &text[1..at];
            let rest = &text[at + 1..];
            let next = &rest[after_line(rest)..];
            let written = if quote == '"' {
                Written::Open(unescaped(inner))
            } else {
                Written::Literal(inner.replace("\\'", "'"))
            };
            return Ok((written, next));
        }
    }
    Err("unterminated quoted value".to_owned())
}

/// Backslashes in double quotes; `\$` is no variable.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('$')) => out.push_str("$$"),
            ('\\', Some(other @ ('"' | '\\'))) => out.push(other),
            ('\\', Some(other)) => out.extend(['\\', other]),
            (c, _) => out.push(c),
        }
    }
    out
}
