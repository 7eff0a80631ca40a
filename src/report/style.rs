//! How text is laid out: width, colour, wrapped lines.

/// For whom a report is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether colours are shown; nothing is told by colour alone.
    pub colour: bool,
}

/// From so many columns on, whole UUIDs are shown.
const WIDE: usize = 120;

/// From so many columns on a table's name is shortened; on a narrower terminal it is left out where it does not fit.
pub(super) const USUAL: usize = 80;

/// The least columns in which text can be read.
const LEAST: usize = 20;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// The answer.
    Bold,
    /// Not granted.
    Dim,
    /// A CUDA ordinal.
    Green,
    /// `error`
    Red,
    /// `warning`
    Yellow,
    /// What one can copy.
    Cyan,
}

impl Style {
    /// Whether whole UUIDs fit.
    pub(super) fn is_wide(self) -> bool {
        self.width >= WIDE
    }

    /// The text in its colour, if there are colours.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        // ECMA-48, SGR.
        let code = match tone {
            Tone::Bold => "1",
            Tone::Dim => "2",
            Tone::Red => "31",
            Tone::Green => "32",
            Tone::Yellow => "33",
            Tone::Cyan => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A text that is laid out already, in its colours: the answer first, and commands of ours that one can copy.
    pub(crate) fn screen(self, text: &str) -> String {
        let tone = |number: usize, line: &str| match number {
            0 => Some(Tone::Bold),
            _ if line.starts_with("  cudaview ") => Some(Tone::Cyan),
            _ => None,
        };
        let lines = text.lines().enumerate();
        lines
            .map(|(number, line)| tone(number, line).map_or(line.to_owned(), |tone| self.paint(tone, line)) + "\n")
            .collect()
    }

    /// Paragraphs in the columns from `indent` on; the last column stays free.
    pub(crate) fn wrap(self, indent: usize, text: &str) -> Vec<String> {
        let room = self.width.saturating_sub(indent + 1).max(LEAST);
        let mut lines: Vec<String> = Vec::new();
        for word in words(text) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(&word);
                }
                _ => lines.push(word),
            }
        }
        lines
    }

    /// `label`, padded to `column`, and the paragraphs beside it.
    pub(super) fn beside(self, label: &str, column: usize, paragraphs: &[String]) -> String {
        // On a narrow terminal the text goes under the label.
        let column = if column + LEAST > self.width { 4 } else { column };
        let lines = paragraphs.iter().flat_map(|paragraph| self.wrap(column, paragraph));
        let mut out = String::new();
        // A label that leaves no room stands alone.
        let fits = label.chars().count() + 2 <= column;
        if !fits {
            out.push_str(label);
            out.push('\n');
        }
        for (number, line) in lines.enumerate() {
            let left = if number == 0 && fits { label } else { "" };
            out.push_str(&format!("{left:column$}{line}"));
            out.push('\n');
        }
        out
    }

    /// `tag: text`, wrapped under the text.
    pub(crate) fn tagged(self, indent: usize, tag: &str, text: &str) -> String {
        let hanging = indent + tag.len() + 2;
        let mut out = String::new();
        for (number, line) in self.wrap(hanging, text).iter().enumerate() {
            let tone = if matches!(tag, "hint" | "fix") { Some(Tone::Cyan) } else { None };
            let painted = |text: &str| tone.map_or_else(|| text.to_owned(), |tone| self.paint(tone, text));
            if number == 0 {
                out.push_str(&format!("{:indent$}{}: {line}\n", "", painted(tag)));
            } else {
                out.push_str(&format!("{:hanging$}{line}\n", ""));
            }
        }
        out
    }
}

/// The words of a text; a flag and its value are one, since whoever copies half of it types something else.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match out.last_mut().filter(|last| matches!(last.as_str(), "-e" | "--gpus" | "--device" | "--container")) {
            Some(flag) => flag.extend([" ", word]),
            None => out.push(word.to_owned()),
        }
    }
    out
}

/// A text cut to so many characters.
pub(super) fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    kept + "…"
}
