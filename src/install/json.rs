//! The places of an object's members in a JSON text, and small changes there that leave the rest as it is.

use std::collections::BTreeSet;
use std::ops::Range;

/// An object in a text that is known to be JSON.
pub(super) struct Object {
    /// Its opening brace.
    open: usize,
    /// Its closing brace.
    close: usize,
    pub(super) members: Vec<Member>,
}

/// A member of it.
pub(super) struct Member {
    pub(super) key: String,
    start: usize,
    pub(super) value: Range<usize>,
}

impl Object {
    /// The object that begins at the first byte from here on that is no space; `None` where another value does.
    pub(super) fn at(text: &str, start: usize) -> Option<Self> {
        let open = skip_space(text, start);
        if byte(text, open) != Some(b'{') {
            return None;
        }
        let mut members = Vec::new();
        let mut at = skip_space(text, open + 1);
        while byte(text, at)? != b'}' {
            let key_end = skip_value(text, at);
            let key = serde_json::from_str(text.get(at..key_end)?).ok()?;
            let value = skip_space(text, skip_space(text, key_end) + 1);
            let end = skip_value(text, value);
            members.push(Member { key, start: at, value: value..end });
            at = skip_space(text, end);
            if byte(text, at)? == b',' {
                at = skip_space(text, at + 1);
            }
        }
        Some(Self { open, close: at, members })
    }

    pub(super) fn get(&self, key: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.key == key)
    }

    /// The text with one more member at the end, set off as the last one is.
    pub(super) fn with(&self, text: &str, key: &str, value: &str) -> String {
        let mut out = text.to_owned();
        let Some(last) = self.members.last() else {
            out.replace_range(self.open + 1..self.close, &format!("\"{key}\": {value}"));
            return out;
        };
        let before = match self.members.iter().rev().nth(1) {
            Some(previous) => skip_space(text, previous.value.end) + 1,
            None => self.open + 1,
        };
        let space = text.get(before..last.start).unwrap_or_default();
        // A line of its own where the others have one; behind a comma a space is usual.
        let space = if space.is_empty() { " " } else { space };
        out.insert_str(last.value.end, &format!(",{space}\"{key}\": {value}"));
        out
    }

    /// The text without a member.
    pub(super) fn without(&self, text: &str, key: &str) -> String {
        let mut out = text.to_owned();
        let Some(index) = self.members.iter().position(|member| member.key == key) else { return out };
        let previous = index.checked_sub(1).and_then(|index| self.members.get(index));
        let (this, next) = (self.members.get(index), self.members.get(index + 1));
        let range = match (previous, this, next) {
            (Some(previous), Some(this), _) => previous.value.end..this.value.end,
            (None, Some(this), Some(next)) => this.start..next.start,
            _ => self.open + 1..self.close,
        };
        out.replace_range(range, "");
        out
    }
}

/// A key that an object anywhere in a value has twice.
pub(super) fn repeated(text: &str) -> Option<String> {
    // Whatever stands in a list or an object is looked at in its turn.
    let mut waiting = vec![0];
    while let Some(start) = waiting.pop() {
        let start = skip_space(text, start);
        if let Some(object) = Object::at(text, start) {
            let mut seen = BTreeSet::new();
            for member in object.members {
                waiting.push(member.value.start);
                if let Some(key) = seen.replace(member.key) {
                    return Some(key);
                }
            }
        } else if byte(text, start) == Some(b'[') {
            let mut at = skip_space(text, start + 1);
            while byte(text, at).is_some_and(|byte| byte != b']') {
                waiting.push(at);
                at = skip_space(text, skip_value(text, at));
                if byte(text, at) == Some(b',') {
                    at = skip_space(text, at + 1);
                }
            }
        }
    }
    None
}

fn byte(text: &str, at: usize) -> Option<u8> {
    text.as_bytes().get(at).copied()
}

fn skip_space(text: &str, mut at: usize) -> usize {
    while byte(text, at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// Where the value that begins here ends.
fn skip_value(text: &str, mut at: usize) -> usize {
    let (mut depth, mut in_string) = (0_usize, false);
    while let Some(byte) = byte(text, at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    return at + 1;
                }
            }
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            // The end of a number or a word.
            b'}' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}
