//! YAML with places.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

/// How deep lists and maps may be nested.
const DEEPEST: usize = 64;

/// How far `<<` is followed, and how many there may be in one map.
const MERGES: (usize, usize) = (3, 8);

/// A text that is no YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {what}")]
pub struct InvalidYaml {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What the reader says of it.
    pub what: String,
}

/// A part of a document, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// What it is.
    pub(super) content: Content,
    /// Where, in bytes.
    pub(super) span: Range<usize>,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A text; a plain one may be a number or nothing.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Rc<Node>>),
    /// A map, in order.
    Map(Vec<(Rc<Node>, Rc<Node>)>),
}

impl Node {
    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether it is nothing: `null`, `~`, or empty.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null"))
    }

    /// Whether it is a plain number, which YAML does not take for a text.
    pub(super) fn is_number(&self) -> bool {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        matches!(&self.content, Content::Scalar { text, plain: true } if number(text))
    }

    /// The items of a list.
    pub(super) fn items(&self) -> &[Rc<Node>] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The members of a map, without what it merges in.
    pub(super) fn members(&self) -> &[(Rc<Node>, Rc<Node>)] {
        match &self.content {
            Content::Map(members) => members,
            _ => &[],
        }
    }

    /// A member of a map, its own or merged in, with its key.
    pub(super) fn member(&self, name: &str) -> Option<(&Rc<Node>, &Rc<Node>)> {
        self.member_at(name, 0)
    }

    fn member_at(&self, name: &str, depth: usize) -> Option<(&Rc<Node>, &Rc<Node>)> {
        let own = self.members().iter().find(|(key, _)| key.text() == Some(name));
        if let Some((key, value)) = own {
            return Some((key, value));
        }
        if depth >= MERGES.0 {
            return None;
        }
        let merges = self.members().iter().filter(|(key, _)| key.text() == Some("<<"));
        merges.take(MERGES.1).find_map(|(_, merged)| match &merged.content {
            Content::List(several) => several.iter().take(MERGES.1).find_map(|map| map.member_at(name, depth + 1)),
            _ => merged.member_at(name, depth + 1),
        })
    }

    /// The value of a member.
    pub(super) fn get(&self, name: &str) -> Option<&Rc<Node>> {
        self.member(name).map(|(_, value)| value)
    }
}

/// The first document of a text.
pub(super) fn parse(text: &str) -> Result<Option<Rc<Node>>, InvalidYaml> {
    let places = Places::new(text);
    let mut builder = Builder { places: &places, anchors: BTreeMap::new(), open: Vec::new(), root: None };
    let mut parser = Parser::new_from_str(text);
    loop {
        let (event, mark) = parser.next_token().map_err(|error| invalid(error.marker(), error.info()))?;
        match event {
            Event::StreamEnd | Event::DocumentEnd => return Ok(builder.root),
            event => builder.event(event, &mark)?,
        }
    }
}

fn invalid(mark: &Marker, what: &str) -> InvalidYaml {
    InvalidYaml { line: mark.line(), column: mark.col() + 1, what: what.to_owned() }
}

/// Where lines begin.
struct Places<'a> {
    text: &'a str,
    lines: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(starts).collect() }
    }

    /// The byte of a mark; the reader's lines count from 1 and its columns from 0.
    fn byte(&self, mark: &Marker) -> usize {
        let Some(start) = self.lines.get(mark.line().saturating_sub(1)) else { return self.text.len() };
        let line = self.line(*start);
        start + line.char_indices().nth(mark.col()).map_or(line.len(), |(at, _)| at)
    }

    fn line(&self, start: usize) -> &'a str {
        self.text[start..].split('\n').next().unwrap_or_default()
    }

    /// Where a block ends whose indicator is here: before the first line that is indented no deeper than its own.
    fn block(&self, start: usize) -> usize {
        let own = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let least = indent(self.line(own));
        let mut end = own + self.line(own).len();
        let mut lines = self.text[end..].split_inclusive('\n');
        end += lines.next().map_or(0, str::len);
        for line in lines {
            if !line.trim().is_empty() && indent(line) <= least {
                break;
            }
            end += line.len();
        }
        end.clamp(start, self.text.len())
    }

    /// Where a scalar that begins here ends.
    fn end(&self, start: usize, text: &str, style: TScalarStyle) -> usize {
        let rest = &self.text[start..];
        let line = start + self.line(start).trim_end().len();
        let quoted = |quote: char| {
            let mut escaped = false;
            let inner = rest.char_indices().skip(1).find(|(_, c)| {
                let closes = *c == quote && !escaped;
                escaped = quote == '"' && *c == '\\' && !escaped;
                closes
            });
            inner.map_or(line, |(at, _)| start + at + 1)
        };
        match style {
            TScalarStyle::Plain if rest.starts_with(text) => start + text.len(),
            TScalarStyle::SingleQuoted => quoted('\''),
            TScalarStyle::DoubleQuoted => quoted('"'),
            TScalarStyle::Literal | TScalarStyle::Folded => self.block(start),
            TScalarStyle::Plain => line.max(start),
        }
    }
}

/// A list or a map that is not complete.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<Rc<Node>>,
}

struct Builder<'a> {
    places: &'a Places<'a>,
    anchors: BTreeMap<usize, Rc<Node>>,
    open: Vec<Open>,
    root: Option<Rc<Node>>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event, mark: &Marker) -> Result<(), InvalidYaml> {
        let start = self.places.byte(mark);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let span = start..self.places.end(start, &text, style);
                let plain = style == TScalarStyle::Plain;
                self.add(Node { content: Content::Scalar { text, plain }, span }, anchor);
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| invalid(mark, "an alias of something that is not complete"))?;
                self.attach(node);
            }
            Event::SequenceStart(anchor, _) => self.begin(Content::List(Vec::new()), start, anchor, mark)?,
            Event::MappingStart(anchor, _) => self.begin(Content::Map(Vec::new()), start, anchor, mark)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(mut open) = self.open.pop() {
                    open.node.span.end = start.max(open.node.span.start);
                    self.add(open.node, open.anchor);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, content: Content, start: usize, anchor: usize, mark: &Marker) -> Result<(), InvalidYaml> {
        if self.open.len() >= DEEPEST {
            return Err(invalid(mark, "nested too deeply"));
        }
        self.open.push(Open { node: Node { content, span: start..start }, anchor, key: None });
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) {
        let node = Rc::new(node);
        // 0 is no anchor.
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.attach(node);
    }

    fn attach(&mut self, node: Rc<Node>) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match (&mut open.node.content, open.key.take()) {
            (Content::List(items), _) => items.push(node),
            (Content::Map(members), Some(key)) => members.push((key, node)),
            (_, None) => open.key = Some(node),
            (Content::Scalar { .. }, Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_scalars() {
        let text = "a: &x\n  - \"b \\\" c\"\n  - 'ü' # no\nd: {<<: {e: f g}}\nh: *x\n";
        let root = parse(text).unwrap().unwrap();
        let list = root.get("a").unwrap();
        let texts: Vec<&str> = list.items().iter().map(|item| &text[item.span.clone()]).collect();
        assert_eq!(texts, ["\"b \\\" c\"", "'ü'"]);
        let merged = root.get("d").unwrap().get("e").unwrap();
        assert_eq!((merged.text(), &text[merged.span.clone()]), (Some("f g"), "f g"));
        assert_eq!(root.get("h").unwrap().items().len(), 2);
    }

    #[test]
    fn what_is_no_yaml_says_where() {
        assert_eq!(parse("a: [1\nb: 2\n").unwrap_err().line, 2);
        assert!(parse(&"- ".repeat(100_000)).unwrap_err().what.contains("too deeply"));
        assert_eq!(parse("").unwrap(), None);
    }
}
