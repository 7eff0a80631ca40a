//! The image that was looked at: what it sets, and which step of its making did.

use serde_json::{Value, json};

use super::{Style, Subject};
use crate::finding::{printable, quoted};
use crate::image::{Image, SetBy};
use crate::record::Variables;

/// An image that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// As it was named.
    pub name: String,
    /// Where it was found; the error is why its `ENV` is not known.
    pub found: Result<FoundIn, String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIn {
    /// `in Docker's store`, `an OCI layout`.
    pub place: String,
    /// Its id or digest.
    pub id: Option<String>,
    /// The variables that it sets, the value of each, and what set it.
    pub set_by: Vec<(&'static str, String, SetBy)>,
}

impl ImageSource {
    /// An image that was read.
    pub fn new(name: &str, place: String, id: Option<String>, image: &Image) -> Self {
        let [visible_devices, device_order, nvidia, _] = Variables::NAMES;
        let set = |name| Some((name, image.value(name)?.to_owned(), image.set_by(name)?));
        let set_by = [visible_devices, nvidia, device_order].into_iter().filter_map(set).collect();
        Self { name: name.to_owned(), found: Ok(FoundIn { place, id, set_by }) }
    }
}

/// The column beside the longest name, `NVIDIA_VISIBLE_DEVICES`.
const COLUMN: usize = 26;

/// The section, heading included; nothing where no image was asked about.
pub(super) fn section(subject: &Subject<'_>, style: Style) -> String {
    let Some(source) = &subject.image.source else { return String::new() };
    let found = match &source.found {
        Ok(found) => found,
        Err(reason) => {
            let lines = style.wrap(2, &format!("its ENV is not known: {reason}"));
            return lines.into_iter().fold(heading(&source.name, "", style), |out, line| out + "  " + &line + "\n");
        }
    };
    let mut out = heading(&source.name, &found.place, style);
    if found.set_by.is_empty() {
        out.push_str("  sets no variable about GPUs\n");
    }
    for (name, value, set_by) in &found.set_by {
        out.push_str(&style.beside(&format!("  {name}"), COLUMN, &said_of(value, set_by)));
    }
    out
}

fn heading(name: &str, place: &str, style: Style) -> String {
    let place = if place.is_empty() { String::new() } else { format!(", {place}") };
    // A path stays whole, so that it can be copied.
    style.wrap(0, &format!("The image {}{place}", printable(name))).into_iter().map(|line| line + "\n").collect()
}

/// What gave a variable the value that it has.
fn said_of(value: &str, set_by: &SetBy) -> Vec<String> {
    let value = quoted(value);
    match set_by {
        SetBy::Step { number, of, layers, instruction } => {
            let layer = match layers {
                Some((0, _)) => ", before its first layer".to_owned(),
                Some((below, layers)) => format!(", on layer {below} of {layers}"),
                None => String::new(),
            };
            vec![format!("{value} set by step {number} of {of}{layer}"), quoted(instruction)]
        }
        SetBy::Unknown => vec![format!("{value} set by a step that nobody could name")],
        SetBy::NoStep(0) => vec![format!("{value} set by no step: it has no history")],
        SetBy::NoStep(of) => {
            let steps = if *of == 1 { "its one step".to_owned() } else { format!("its {of} steps") };
            vec![format!("{value} set by no ENV among {steps}: an import, a commit or another tool did")]
        }
    }
}

/// The same as JSON.
pub(super) fn json(source: &ImageSource) -> Value {
    let found = match &source.found {
        Err(reason) => return json!({"name": source.name, "unknown": reason}),
        Ok(found) => found,
    };
    let variable = |(name, value, set_by): &(&'static str, String, SetBy)| {
        let mut out = json!({"variable": name, "value": value});
        match set_by {
            SetBy::Step { number, of, layers, instruction } => {
                out["step"] = json!(number);
                out["steps"] = json!(of);
                out["instruction"] = json!(instruction);
                if let Some((below, layers)) = layers {
                    out["layer"] = json!(below);
                    out["layers"] = json!(layers);
                }
            }
            SetBy::Unknown => {}
            SetBy::NoStep(of) => {
                out["step"] = Value::Null;
                out["steps"] = json!(of);
            }
        }
        out
    };
    json!({
        "name": source.name,
        "place": found.place,
        "id": found.id,
        "env": found.set_by.iter().map(variable).collect::<Vec<_>>(),
    })
}
