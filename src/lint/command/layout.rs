//! Words as they are shown: quoted, in one line.

use std::ops::Range;

use crate::shell::quote;

/// The line, and where each word is in it.
pub(super) struct Layout {
    /// The line.
    pub(super) text: String,
    words: Vec<Place>,
}

struct Place {
    span: Range<usize>,
    /// Whether the word is shown as it is.
    plain: bool,
}

impl Layout {
    pub(super) fn of(words: &[String]) -> Self {
        let mut out = Self { text: String::new(), words: Vec::new() };
        for word in words {
            if !out.text.is_empty() {
                out.text.push(' ');
            }
            let start = out.text.len();
            let shown = quote(word);
            out.text.push_str(&shown);
            out.words.push(Place { span: start..out.text.len(), plain: shown == *word });
        }
        out
    }

    /// Where a word is shown from this byte on; a quoted one as a whole.
    pub(super) fn part(&self, word: usize, byte: usize) -> Range<usize> {
        let Some(place) = self.words.get(word) else { return self.text.len()..self.text.len() };
        let skipped = if place.plain { byte } else { 0 };
        (place.span.start + skipped).min(place.span.end)..place.span.end
    }
}
