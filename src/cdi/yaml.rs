//! YAML as a specification may be written in it, read to what JSON would hold.

use std::collections::BTreeMap;

use serde_json::Value;
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, ScanError};
use yaml_rust2::{Yaml, YamlLoader};

use super::{InvalidCdi, invalid};

/// How deep values may lie in each other: as deep as in JSON. The reader calls itself for each level.
const DEEPEST: usize = 128;

/// How much a file may hold, in bytes of text and values, once its aliases are written out: more than any file of the
/// size that is read holds without them.
const LARGEST: usize = 8 << 20;

/// Reads the one document of a file.
pub(super) fn parse(text: &str) -> Result<Value, InvalidCdi> {
    check_extent(text)?;
    let documents = YamlLoader::load_from_str(text).map_err(|error| said(&error))?;
    match documents.as_slice() {
        [document] => value(document, "the file"),
        [] => Err(invalid("the file", "it is empty")),
        _ => Err(invalid("the file", "it holds more than one document")),
    }
}

fn place(mark: Marker) -> String {
    format!("line {} column {}", mark.line(), mark.col() + 1)
}

fn said(error: &ScanError) -> InvalidCdi {
    invalid(place(*error.marker()), error.info())
}

/// Fails for a file that would come to more than memory and stack hold: a few aliases of aliases are enough.
fn check_extent(text: &str) -> Result<(), InvalidCdi> {
    let mut parser = Parser::new_from_str(text);
    let mut anchors: BTreeMap<usize, usize> = BTreeMap::new();
    // The anchors of the values around, and what each comes to; the first is the file.
    let mut around = vec![(0, 0_usize)];
    loop {
        let (event, mark) = parser.next_token().map_err(|error| said(&error))?;
        let (anchor, extent) = match event {
            Event::StreamEnd => return Ok(()),
            Event::Scalar(text, _, anchor, _) => (anchor, text.len().saturating_add(1)),
            Event::Alias(anchor) => (0, anchors.get(&anchor).copied().unwrap_or(1)),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if around.len() > DEEPEST {
                    return Err(invalid(place(mark), "it lies too deep"));
                }
                around.push((anchor, 1));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => around.pop().unwrap_or_default(),
            Event::Nothing | Event::StreamStart | Event::DocumentStart | Event::DocumentEnd => continue,
        };
        anchors.insert(anchor, extent);
        let Some((_, outer)) = around.last_mut() else { continue };
        *outer = outer.saturating_add(extent);
        if *outer > LARGEST {
            return Err(invalid(place(mark), "its aliases come to too much"));
        }
    }
}

fn value(yaml: &Yaml, field: &str) -> Result<Value, InvalidCdi> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Integer(value) => (*value).into(),
        Yaml::String(value) => value.as_str().into(),
        // Nothing in a specification is one, so whatever expects something else says so.
        Yaml::Real(value) => value.parse::<f64>().map_or(Value::Null, Value::from),
        Yaml::Array(items) => {
            let item = |(at, item)| value(item, &format!("{field}[{at}]"));
            Value::Array(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Yaml::Hash(members) => {
            let member = |(key, item): (&Yaml, &Yaml)| {
                let Yaml::String(key) = key else { return Err(invalid(field, "a member's name is no text")) };
                let inner = if field == "the file" { key.clone() } else { format!("{field}.{key}") };
                Ok((key.clone(), value(item, &inner)?))
            };
            Value::Object(members.iter().map(member).collect::<Result<_, _>>()?)
        }
        Yaml::Alias(_) | Yaml::BadValue => return Err(invalid(field, "it cannot be read")),
    })
}
