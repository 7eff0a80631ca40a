//! Variables that a command sets for itself: `CUDA_VISIBLE_DEVICES=0 python`, `env …`, `export …`.

use std::ops::Range;

use super::Fault;
use super::values::{CUDA, NVIDIA};
use crate::finding::{Code, Severity};

/// One such place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    /// The variable.
    pub(super) name: &'static str,
    /// From the name to the end of the value.
    pub(super) span: Range<usize>,
    /// `export` stands before it.
    pub(super) exported: bool,
}

impl Assigned {
    /// The finding about a command that sets the variable when the container starts.
    pub(super) fn fault(&self, statement: usize) -> Fault {
        let name = self.name;
        let text =
            "It replaces what -e and an env file say, so that nobody who starts it can choose, and cudaview, which \
                    renumbers what the container is given, does not reach it."
                .to_owned();
        let fix = format!("delete it, or let {name} of the container win: {name}=${{{name}-0}} in a shell");
        Fault {
            code: Code::SetInCommand,
            severity: Severity::Warning,
            span: self.span.clone(),
            statement,
            title: format!("the command sets {name} itself"),
            text,
            fix,
        }
    }
}

/// Every place in a part of a text where a command sets one of the variables to something of its own.
///
/// One that takes up what was given, such as `${CUDA_VISIBLE_DEVICES:-0}`, is none.
pub(super) fn assigned(text: &str, part: Range<usize>) -> Vec<Assigned> {
    let Some(slice) = text.get(part.clone()) else { return Vec::new() };
    let mut out = Vec::new();
    for name in [CUDA, NVIDIA] {
        for (at, _) in slice.match_indices(name) {
            let (before, after) = (&slice[..at], &slice[at + name.len()..]);
            let is_inside = before.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '{' | '.'));
            let Some(rest) = after.strip_prefix('=').filter(|rest| !is_inside && !rest.starts_with('=')) else {
                continue;
            };
            let value = &rest[..length(rest)];
            if value.contains(name) {
                continue;
            }
            let start = part.start + at;
            let span = start..start + name.len() + 1 + value.len();
            out.push(Assigned { name, span, exported: before.trim_end().ends_with("export") });
        }
    }
    out.sort_by_key(|assigned| assigned.span.start);
    out
}

/// How long a value is that stands at the beginning of this text.
fn length(rest: &str) -> usize {
    for quote in ["\\\"", "\"", "'"] {
        if let Some(inner) = rest.strip_prefix(quote)
            && let Some(end) = inner.split('\n').next().and_then(|line| line.find(quote))
        {
            return quote.len() + end + quote.len();
        }
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | ')' | '"' | '\'' | '`' | '\\' | '>' | ']');
    rest.find(ends).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_commands() {
        for (text, expected) in [
            ("CUDA_VISIBLE_DEVICES=0 python", vec!["CUDA_VISIBLE_DEVICES=0"]),
            (r#"["env", "CUDA_VISIBLE_DEVICES=0,1", "python"]"#, vec!["CUDA_VISIBLE_DEVICES=0,1"]),
            (r#"["sh", "-c", "export CUDA_VISIBLE_DEVICES=\"0\"; x"]"#, vec![r#"CUDA_VISIBLE_DEVICES=\"0\""#]),
            (
                "CUDA_VISIBLE_DEVICES= NVIDIA_VISIBLE_DEVICES='all' x",
                vec!["CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES='all'"],
            ),
            ("CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} x", vec![]),
            ("echo $CUDA_VISIBLE_DEVICES ${CUDA_VISIBLE_DEVICES:=0}", vec![]),
            ("MY_CUDA_VISIBLE_DEVICES=0", vec![]),
            ("CUDA_VISIBLE_DEVICES", vec![]),
        ] {
            let found: Vec<&str> = assigned(text, 0..text.len()).into_iter().map(|a| &text[a.span]).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
