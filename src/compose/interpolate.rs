//! `${VAR}` in values, as Compose replaces it.
// https://docs.docker.com/reference/compose-file/interpolation/, compose-go template/template.go

use std::collections::BTreeSet;

/// Nested defaults go no deeper.
const DEEPEST: usize = 20;

/// What all values of a file may come to, in bytes: variables of variables make a small file a large one.
pub(super) const MOST_TEXT: usize = 4 << 20;

/// What is known of the values so far.
#[derive(Debug)]
pub(super) struct Tally {
    /// The variables that had neither value nor default.
    pub(super) unset: BTreeSet<String>,
    /// How much more the values may come to, in bytes.
    pub(super) left: usize,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { unset: BTreeSet::new(), left: MOST_TEXT }
    }

    fn take(&mut self, text: &str) -> Result<(), InvalidText> {
        self.left = self.left.checked_sub(text.len()).ok_or(InvalidText::Long)?;
        Ok(())
    }
}

/// Why a value cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidText {
    /// `${`, `${1}`, `$ `.
    #[error("invalid interpolation format; a $ that is meant as such is written $$")]
    Format,
    /// Its variables, or those of the file, come to more than is read.
    #[error("with their variables the values come to more than {} MiB", MOST_TEXT >> 20)]
    Long,
    /// `${VAR:?text}` without the variable.
    #[error("required variable {name} is missing a value: {text}")]
    Required {
        /// The variable.
        name: String,
        /// What the file says about it.
        text: String,
    },
}

/// Replaces the variables in a value. `tally` gets the names of those that had neither value nor default.
///
/// # Errors
/// [`InvalidText`] where Compose stops.
pub(super) fn interpolate(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    tally: &mut Tally,
) -> Result<String, InvalidText> {
    replace(text, lookup, tally, 0)
}

fn replace(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    tally: &mut Tally,
    depth: usize,
) -> Result<String, InvalidText> {
    if depth > DEEPEST {
        return Err(InvalidText::Format);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        tally.take(before)?;
        out.push_str(before);
        rest = match after.chars().next() {
            Some('$') => {
                out.push('$');
                &after[1..]
            }
            Some('{') => {
                let end = closing(&after[1..]).ok_or(InvalidText::Format)?;
                out.push_str(&braced(&after[1..=end], lookup, tally, depth)?);
                &after[end + 2..]
            }
            _ => {
                let length = name_length(after);
                if length == 0 {
                    return Err(InvalidText::Format);
                }
                out.push_str(&value(&after[..length], lookup, tally)?);
                &after[length..]
            }
        };
    }
    tally.take(rest)?;
    out.push_str(rest);
    Ok(out)
}

/// Where the brace closes, inner ones passed over.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if at > 0 && bytes.get(at - 1) == Some(&b'$') => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

fn name_length(text: &str) -> usize {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let bytes = text.as_bytes();
    if !bytes.first().copied().is_some_and(is_first) {
        return 0;
    }
    bytes.iter().take_while(|byte| is_first(**byte) || byte.is_ascii_digit()).count()
}

fn value(name: &str, lookup: &dyn Fn(&str) -> Option<String>, tally: &mut Tally) -> Result<String, InvalidText> {
    let Some(value) = lookup(name) else {
        tally.unset.insert(name.to_owned());
        return Ok(String::new());
    };
    tally.take(&value)?;
    Ok(value)
}

/// What stands between the braces.
fn braced(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    tally: &mut Tally,
    depth: usize,
) -> Result<String, InvalidText> {
    let (name, rest) = text.split_at(name_length(text));
    if name.is_empty() {
        return Err(InvalidText::Format);
    }
    if rest.is_empty() {
        return value(name, lookup, tally);
    }
    // With a colon an empty value counts as none.
    let (colon, rest) = rest.strip_prefix(':').map_or((false, rest), |rest| (true, rest));
    let Some(operator) = rest.chars().next().filter(|c| matches!(c, '-' | '?' | '+')) else {
        return Err(InvalidText::Format);
    };
    let word = &rest[1..];
    let found = lookup(name).filter(|value| !(colon && value.is_empty()));
    match (operator, found) {
        ('-' | '?', Some(value)) => {
            tally.take(&value)?;
            Ok(value)
        }
        ('-', None) | ('+', Some(_)) => replace(word, lookup, tally, depth + 1),
        ('?', None) => {
            let text = replace(word, lookup, tally, depth + 1)?;
            Err(InvalidText::Required { name: name.to_owned(), text })
        }
        _ => Ok(String::new()),
    }
}
