//! The instructions of a Dockerfile, with their places.

use std::ops::Range;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// `ENV`, in capitals.
    pub(super) keyword: String,
    /// Where it begins.
    pub(super) start: usize,
    /// What stands behind the keyword, continuation lines included.
    pub(super) arguments: Range<usize>,
    /// The lines of its here-documents.
    pub(super) body: Range<usize>,
}

/// The instructions, and the text in which comments are blanks and a continued line is one line; places are the same.
// docs.docker.com/reference/dockerfile: parser directives, line continuation, here-documents
pub(super) fn read(text: &str) -> (String, Vec<Instruction>) {
    let escape = escape(text);
    let mut masked = String::with_capacity(text.len());
    let mut out = Vec::new();
    let mut lines = text.split_inclusive('\n').peekable();
    // A byte order mark is no part of the first instruction.
    let mut at = 0;
    while let Some(line) = lines.next() {
        let start = at;
        at += line.len();
        if is_comment(line) {
            blank(&mut masked, line, true);
            continue;
        }
        let mut continued = take(&mut masked, line, escape);
        while continued && let Some(next) = lines.next() {
            at += next.len();
            if is_comment(next) || next.trim().is_empty() {
                blank(&mut masked, next, false);
            } else {
                continued = take(&mut masked, next, escape);
            }
        }
        let Some(mut instruction) = instruction(&masked, start, at) else { continue };
        for delimiter in delimiters(&instruction, &masked) {
            for next in lines.by_ref() {
                masked.push_str(next);
                at += next.len();
                if next.trim() == delimiter {
                    break;
                }
                instruction.body.end = at;
            }
        }
        out.push(instruction);
    }
    (masked, out)
}

/// The character that continues a line: a backslash, unless a directive at the top says otherwise.
fn escape(text: &str) -> char {
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        let Some((name, value)) = line[1..].split_once('=') else { break };
        if name.trim().eq_ignore_ascii_case("escape") && value.trim() == "`" {
            return '`';
        }
    }
    '\\'
}

fn is_comment(line: &str) -> bool {
    line.trim_start_matches('\u{feff}').trim_start().starts_with('#')
}

/// Copies a line; whether it goes on in the next.
fn take(masked: &mut String, line: &str, escape: char) -> bool {
    let kept = line.trim_end();
    match kept.strip_suffix(escape) {
        Some(before) if line.ends_with('\n') => {
            masked.push_str(before);
            blank(masked, &line[before.len()..], false);
            true
        }
        _ => {
            masked.push_str(line);
            false
        }
    }
}

fn blank(masked: &mut String, line: &str, keep_newline: bool) {
    let newline = keep_newline && line.ends_with('\n');
    let blanks = line.len() - usize::from(newline);
    masked.extend(std::iter::repeat_n(' ', blanks));
    if newline {
        masked.push('\n');
    }
}

/// The instruction in this part of the masked text, if there is one.
fn instruction(masked: &str, from: usize, to: usize) -> Option<Instruction> {
    let line = masked.get(from..to)?;
    let body = line.trim_start_matches('\u{feff}').trim_start();
    let start = from + line.len() - body.len();
    let keyword: String = body.chars().take_while(char::is_ascii_alphabetic).collect();
    if keyword.is_empty() {
        return None;
    }
    let end = from + line.trim_end().len();
    let inner = start + keyword.len();
    let keyword = keyword.to_ascii_uppercase();
    if keyword == "ONBUILD" {
        return instruction(masked, inner, to);
    }
    Some(Instruction { keyword, start, arguments: inner..end.max(inner), body: to..to })
}

/// The words that end its here-documents.
fn delimiters(instruction: &Instruction, masked: &str) -> Vec<String> {
    if !matches!(instruction.keyword.as_str(), "RUN" | "COPY" | "ADD") {
        return Vec::new();
    }
    let arguments = &masked[instruction.arguments.clone()];
    let mut out = Vec::new();
    for part in arguments.split("<<").skip(1) {
        let part = part.strip_prefix('-').unwrap_or(part);
        let part = part.trim_start_matches(['"', '\'']);
        let word: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // `<<<` is bash's, and `<< 3` is a shift.
        if word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            out.push(word);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_what_they_were() {
        let text = "# escape\nFROM a AS b\nENV A=1 \\\n  # no\n\n  B=2\nRUN <<EOF\nENV C=3\nEOF\nonbuild env D=4\n";
        let (masked, instructions) = read(text);
        assert_eq!(masked.len(), text.len());
        let found: Vec<(&str, &str)> =
            instructions.iter().map(|i| (i.keyword.as_str(), masked[i.arguments.clone()].trim())).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0], ("FROM", "a AS b"));
        assert!(found[1].1.starts_with("A=1 ") && found[1].1.ends_with("  B=2"), "{found:?}");
        assert_eq!(&text[instructions[2].body.clone()], "ENV C=3\n");
        assert_eq!(found[3], ("ENV", "D=4"));
    }

    #[test]
    fn backticks_continue_where_a_directive_says_so() {
        let (masked, instructions) = read("# escape=`\nENV A=1 `\n B=C:\\\n");
        assert_eq!(instructions.len(), 1);
        assert!(masked.ends_with(" B=C:\\\n"));
    }
}
