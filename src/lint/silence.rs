//! Comments that silence: `# cudaview: ignore=CODE`.

use crate::finding::Code;

/// The words of such a comment.
const MARK: &str = "cudaview: ignore";

/// One code in such a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The code as written.
    pub code: String,
    /// The line of the comment, from 1.
    pub line: usize,
    /// Which findings it is for.
    scope: Scope,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// `ignore-file=`
    File,
    /// A comment behind something: its own line.
    Line,
    /// A comment in a line of its own: the first line below that is none.
    Below(usize),
}

impl Silence {
    /// Whether it is for a finding with this code in these lines.
    pub fn covers(&self, lines: [usize; 2], code: Code) -> bool {
        let here = match self.scope {
            Scope::File => true,
            Scope::Line => lines.contains(&self.line),
            Scope::Below(line) => lines.contains(&line),
        };
        here && self.code.eq_ignore_ascii_case(code.name())
    }
}

/// Every code that a comment of this text silences.
pub fn silences(text: &str) -> Vec<Silence> {
    let lines: Vec<&str> = text.lines().collect();
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let mut out = Vec::new();
    for (position, line) in lines.iter().enumerate() {
        let Some((before, comment)) = line.split_once('#') else { continue };
        // The mark may stand behind a `#` of the line's own text.
        let Some((_, rest)) = comment.split_once(MARK) else { continue };
        let (whole_file, rest) = match rest.strip_prefix("-file") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let Some(codes) = rest.trim_start().strip_prefix('=') else { continue };
        let below = lines[position + 1..].iter().take_while(|line| is_comment(line)).count();
        let scope = if whole_file {
            Scope::File
        } else if before.trim().is_empty() {
            Scope::Below(position + 2 + below)
        } else {
            Scope::Line
        };
        let names = codes.split([',', ' ', '\t']).filter(|name| !name.is_empty());
        out.extend(names.map(|name| Silence { code: name.to_owned(), line: position + 1, scope: scope.clone() }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_what_they_are_for() {
        let text = "# cudaview: ignore=a, b\n# more\nENV X=1\nY: 1 # cudaview: ignore=c\n#cudaview: ignore-file=d\n";
        let all: Vec<(String, Scope)> = silences(text).into_iter().map(|s| (s.code, s.scope)).collect();
        let expected = [("a", Scope::Below(3)), ("b", Scope::Below(3)), ("c", Scope::Line), ("d", Scope::File)];
        assert_eq!(all, expected.map(|(code, scope)| (code.to_owned(), scope)));
    }
}
