//! Words as a POSIX shell reads and writes them.

use std::path::Path;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What the program gets.
    pub text: String,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// A line break, `;`, `&&`, `|` or the like: not a word, it ends a command.
    pub is_separator: bool,
}

/// The words of a text, without quotes; nothing is expanded. Quotes that do not close end with the text.
///
/// A backslash before a line break joins the lines, as in a script and in a Dockerfile.
pub fn split(text: &str) -> Vec<Word> {
    scan(text, true)
}

/// As [`split`], where only white space ends a word: the arguments of a Dockerfile's `ENV`.
pub fn words(text: &str) -> Vec<Word> {
    scan(text, false)
}

fn scan(text: &str, with_separators: bool) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut current: Option<Word> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        match c {
            '\\' => match chars.next() {
                Some((_, '\n')) | None => {}
                Some((at_next, next)) => push(&mut current, at, at_next + next.len_utf8(), next),
            },
            '\'' | '"' => quoted(&mut chars, &mut current, at, c),
            '\n' | ';' | '&' | '|' | '(' | ')' if with_separators => {
                words.extend(current.take());
                words.push(Word { text: c.to_string(), start: at, end, is_separator: true });
            }
            c if c.is_whitespace() => words.extend(current.take()),
            c => push(&mut current, at, end, c),
        }
    }
    words.extend(current);
    words
}

fn push(current: &mut Option<Word>, start: usize, end: usize, c: char) {
    let word = begin(current, start);
    word.text.push(c);
    word.end = end;
}

fn begin(current: &mut Option<Word>, start: usize) -> &mut Word {
    current.get_or_insert(Word { text: String::new(), start, end: start, is_separator: false })
}

/// What stands up to the closing quote.
fn quoted(
    chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    current: &mut Option<Word>,
    start: usize,
    quote: char,
) {
    begin(current, start).end = start + 1;
    while let Some((at, c)) = chars.next() {
        let word = begin(current, start);
        word.end = at + c.len_utf8();
        if c == quote {
            return;
        }
        if c == '\\' && quote == '"' {
            match chars.peek().copied() {
                Some((_, '\n')) => drop(chars.next()),
                Some((next_at, next @ ('"' | '\\' | '$' | '`'))) => {
                    chars.next();
                    push(current, start, next_at + next.len_utf8(), next);
                }
                _ => word.text.push(c),
            }
            continue;
        }
        word.text.push(c);
    }
}

/// A word as it has to be typed, with no more quotes than it needs.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.contains('\'') && !word.chars().any(|c| matches!(c, '"' | '$' | '`' | '\\' | '!')) {
        return format!("\"{word}\"");
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path as it has to be typed.
pub fn quote_path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// A command as it has to be typed.
pub fn join<T: AsRef<str>>(words: &[T]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split(text).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_come_as_a_shell_passes_them() {
        assert_eq!(texts(r#"--gpus '"device=0,2"' -e K="a b""#), ["--gpus", "\"device=0,2\"", "-e", "K=a b"]);
        assert_eq!(texts("a \\\n  b"), ["a", "b"]);
        assert_eq!(texts(r#"a\ b "c\"d" '' "#), ["a b", "c\"d", ""]);
        assert_eq!(texts("A=1 p;q &&r"), ["A=1", "p", ";", "q", "&", "&", "r"]);
        assert_eq!(texts("\"open"), ["open"]);
        assert_eq!(texts(""), Vec::<String>::new());
    }

    #[test]
    fn places_include_the_quotes() {
        let words = split("x 'a b'");
        assert_eq!((words[1].start, words[1].end), (2, 7));
    }

    #[test]
    fn what_is_quoted_comes_back_as_it_was() {
        for word in ["", "a b", "it's", "\"device=0,2\"", "it's \"$x\"", "a=b", "\\", "*", "~", "a\nb"] {
            assert_eq!(texts(&quote(word)), [word], "{}", quote(word));
        }
        assert_eq!(quote("\"device=0,2\""), "'\"device=0,2\"'");
        assert_eq!(quote("CUDA_VISIBLE_DEVICES=0,2"), "CUDA_VISIBLE_DEVICES=0,2");
    }
}
