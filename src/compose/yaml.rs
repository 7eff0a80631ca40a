//! YAML text to values, within limits: aliases of aliases make a small file a large value, and deep ones exhaust the stack.

use serde_json::{Map, Value};
use yaml_rust2::Event;
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::TScalarStyle;

use super::InvalidCompose;

/// No file of people's comes near these.
const MOST_VALUES: usize = 20_000;

/// What the texts of all aliases may come to, in bytes.
const MOST_TEXT: usize = 4 << 20;
const DEEPEST: usize = 60;

/// What is being put together.
enum Open {
    List(Vec<Value>),
    /// Members, and the key whose value comes next.
    Map(Map<String, Value>, Option<String>),
}

/// A value that an alias may stand for, and how many it holds.
type Anchored = (usize, Value, usize);

struct Reader {
    open: Vec<(Open, usize, usize)>,
    anchors: Vec<Anchored>,
    values: usize,
    /// The bytes of text that aliases stood for so far.
    aliased: usize,
    document: Option<Value>,
}

/// Reads the one document in a text.
pub(super) fn read(text: &str) -> Result<Value, InvalidCompose> {
    let mut parser = Parser::new_from_str(text);
    let mut reader = Reader { open: Vec::new(), anchors: Vec::new(), values: 0, aliased: 0, document: None };
    loop {
        let at = |line: usize, column: usize| format!("line {line} column {}", column + 1);
        let (event, place) = parser
            .next_token()
            .map_err(|error| InvalidCompose::new(at(error.marker().line(), error.marker().col()), error.info()))?;
        let failed = |reason: &str| InvalidCompose::new(at(place.line(), place.col()), reason);
        match event {
            Event::StreamEnd => break,
            Event::DocumentStart if reader.document.is_some() => return Err(failed("it holds more than one document")),
            event => reader.take(event).map_err(|reason| failed(&reason))?,
        }
    }
    reader.document.ok_or_else(|| InvalidCompose::new("the file", "it is empty"))
}

impl Reader {
    fn take(&mut self, event: Event) -> Result<(), String> {
        let before = self.values;
        self.values += 1;
        match event {
            Event::SequenceStart(anchor, _) => self.open.push((Open::List(Vec::new()), anchor, before)),
            Event::MappingStart(anchor, _) => self.open.push((Open::Map(Map::new(), None), anchor, before)),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((open, anchor, began)) = self.open.pop() else { return Err("it ends twice".to_owned()) };
                let value = match open {
                    Open::List(items) => Value::Array(items),
                    Open::Map(members, _) => Value::Object(merged(members)?),
                };
                if anchor > 0 {
                    self.anchors.push((anchor, value.clone(), self.values - began));
                }
                self.put(value)?;
            }
            Event::Scalar(text, style, anchor, _) => {
                let value = scalar(text, style);
                if anchor > 0 {
                    self.anchors.push((anchor, value.clone(), 1));
                }
                self.put(value)?;
            }
            Event::Alias(anchor) => {
                let found = self.anchors.iter().rev().find(|(known, ..)| *known == anchor);
                let (_, value, count) = found.ok_or("an alias stands for what it is in")?;
                self.values += count;
                self.aliased += length(value);
                if self.values <= MOST_VALUES && self.aliased <= MOST_TEXT {
                    let value = value.clone();
                    self.put(value)?;
                }
            }
            _ => {}
        }
        if self.values > MOST_VALUES {
            return Err(format!("it holds more than {MOST_VALUES} values"));
        }
        if self.aliased > MOST_TEXT {
            return Err(format!("its aliases stand for more than {} MiB", MOST_TEXT >> 20));
        }
        if self.open.len() > DEEPEST {
            return Err(format!("it is more than {DEEPEST} levels deep"));
        }
        Ok(())
    }

    fn put(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            None => self.document = Some(value),
            Some((Open::List(items), ..)) => items.push(value),
            Some((Open::Map(members, key), ..)) => match key.take() {
                None => *key = Some(text_of(&value).ok_or("a member's name is no text")?),
                Some(name) if members.contains_key(&name) => return Err(format!("{name:?} is there twice")),
                Some(name) => drop(members.insert(name, value)),
            },
        }
        Ok(())
    }
}

/// The bytes of text in a value.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(length).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + length(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// `<<: *base`: members that are not there yet.
fn merged(mut members: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let sources = match members.remove("<<") {
        None => return Ok(members),
        Some(Value::Array(sources)) => sources,
        Some(source) => vec![source],
    };
    for source in sources {
        let Value::Object(source) = source else { return Err("what << names is no mapping".to_owned()) };
        for (name, value) in source {
            members.entry(name).or_insert(value);
        }
    }
    Ok(members)
}

/// A scalar without quotes may be no text.
fn scalar(text: String, style: TScalarStyle) -> Value {
    if style != TScalarStyle::Plain {
        return Value::String(text);
    }
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            // `07` and `+1` are numbers too, and lose their spelling where a number is asked for, not here.
            Ok(number) if number.to_string() == text => Value::from(number),
            _ => Value::String(text),
        },
    }
}

/// A scalar as text.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
