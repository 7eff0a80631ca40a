//! `mode = "observe"` in cudaview's own configuration.

use toml::{Table, Value};

use super::blocks::{entry, line_end};
use super::{Change, Refusal, refused};

/// What the configuration becomes; `None` stands for a file that is not there.
///
/// # Errors
/// [`Refusal`] where it is no TOML.
pub fn install(text: Option<&str>) -> Result<Change, Refusal> {
    let old = text.unwrap_or_default();
    let mut expected: Table = match toml::from_str(old) {
        Ok(table) => table,
        Err(error) => return refused(format!("it is no TOML: {}", error.message()), "correct it first"),
    };
    if expected.get("mode").and_then(Value::as_str) == Some("observe") {
        return Ok(Change::None);
    }
    let top = old.split_inclusive('\n').take_while(|line| !line.trim_start().starts_with('[')).map(str::len).sum();
    let mut new = old.to_owned();
    if expected.contains_key("mode") {
        if let Some((_, value)) = entry(old, 0..top, "mode") {
            new.replace_range(value, "\"observe\"");
        }
    } else {
        new.insert_str(0, &format!("mode = \"observe\"{}", line_end(old)));
    }
    expected.insert("mode".to_owned(), "observe".into());
    if toml::from_str::<Table>(&new).is_ok_and(|table| table == expected) {
        return Ok(Change::Write(new));
    }
    refused("this file cannot be changed without a risk to what else is in it", "set mode = \"observe\" by hand")
}
