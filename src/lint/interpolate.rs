//! `${NAME:-default}` and its like, in Compose files and Dockerfiles.

/// How many defaults within defaults are followed.
const DEEPEST: usize = 8;

/// What a text with variables comes to where nobody sets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The text; `None` where it depends on a variable without a default.
    pub(super) text: Option<String>,
    /// The defaults in it.
    pub(super) defaults: Vec<String>,
}

/// Resolves a text; `lookup` knows values that are set elsewhere (an `ARG`).
// docs.docker.com/reference/compose-file/interpolation, docs.docker.com/reference/dockerfile, "Environment replacement"
pub(super) fn resolve(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Resolved {
    resolve_at(text, lookup, 0)
}

fn resolve_at(text: &str, lookup: &dyn Fn(&str) -> Option<String>, depth: usize) -> Resolved {
    let mut out = Resolved { text: Some(String::new()), defaults: Vec::new() };
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push(Some(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push(Some("$"));
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let end = closing(inner);
            out.braced(&inner[..end], lookup, depth);
            rest = inner.get(end + 1..).unwrap_or_default();
        } else {
            let name = name_of(rest);
            if name.is_empty() {
                out.push(Some("$"));
            } else {
                out.variable(name, lookup);
            }
            rest = &rest[name.len()..];
        }
    }
    out.push(Some(rest));
    out
}

impl Resolved {
    fn unknown() -> Self {
        Self { text: None, defaults: Vec::new() }
    }

    fn push(&mut self, part: Option<&str>) {
        match (&mut self.text, part) {
            (Some(text), Some(part)) => text.push_str(part),
            (text, _) => *text = None,
        }
    }

    fn variable(&mut self, name: &str, lookup: &dyn Fn(&str) -> Option<String>) {
        let value = lookup(name);
        self.defaults.extend(value.clone());
        self.push(value.as_deref());
    }

    /// What stands between the braces.
    fn braced(&mut self, inner: &str, lookup: &dyn Fn(&str) -> Option<String>, depth: usize) {
        let name = name_of(inner);
        let rest = &inner[name.len()..];
        match rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-')) {
            Some(default) => {
                let default = lookup(name).unwrap_or_else(|| default.to_owned());
                // A default may have one of its own; how deep is what the engines limit.
                let inner = if depth < DEEPEST { resolve_at(&default, lookup, depth + 1) } else { Self::unknown() };
                self.defaults.extend(inner.text.clone());
                self.push(inner.text.as_deref());
            }
            None if rest.is_empty() => self.variable(name, lookup),
            None => self.push(None),
        }
    }
}

fn name_of(text: &str) -> &str {
    let length = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    &text[..length]
}

/// Where the brace closes that was open; a default may hold braces of its own.
fn closing(inner: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    inner.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_comes_to() {
        let lookup = |name: &str| (name == "SET").then(|| "all".to_owned());
        for (text, value, defaults) in [
            ("0,1", Some("0,1"), vec![]),
            ("${GPUS:-all}", Some("all"), vec!["all"]),
            ("${GPUS-0},1", Some("0,1"), vec!["0"]),
            ("$GPUS", None, vec![]),
            ("${GPUS}", None, vec![]),
            ("${GPUS:?say which}", None, vec![]),
            ("$SET", Some("all"), vec!["all"]),
            ("a$$b", Some("a$b"), vec![]),
            ("${A:-${B:-all}}", Some("all"), vec!["all"]),
            ("${open", None, vec![]),
            ("$", Some("$"), vec![]),
        ] {
            let resolved = resolve(text, &lookup);
            assert_eq!(resolved.text.as_deref(), value, "{text}");
            assert_eq!(resolved.defaults, defaults, "{text}");
        }
    }
}
