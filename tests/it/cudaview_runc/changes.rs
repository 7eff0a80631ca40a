//! Which members of one JSON document are not those of another.

use serde_json::{Value, json};

/// JSON pointers of what changed: bare for another value, with `+` for what was added, with `-` for what is gone.
///
/// In an array that grew, what was appended is new; in one that shrank, whatever is not in the new one is gone.
/// Fails where the members that stayed are in another order.
#[track_caller]
pub(super) fn changes(before: &Value, after: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect(before, after, "", &mut out);
    out
}

#[track_caller]
fn collect(before: &Value, after: &Value, at: &str, out: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let stayed: Vec<&String> = new.keys().filter(|key| old.contains_key(*key)).collect();
            let expected: Vec<&String> = old.keys().filter(|key| new.contains_key(*key)).collect();
            assert_eq!(stayed, expected, "the members of {at:?} changed places");
            out.extend(old.keys().filter(|key| !new.contains_key(*key)).map(|key| format!("-{at}/{key}")));
            for (key, value) in new {
                match old.get(key) {
                    Some(old) => collect(old, value, &format!("{at}/{key}"), out),
                    None => out.push(format!("+{at}/{key}")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if new.len() < old.len() => {
            let mut rest = new.iter().peekable();
            for (position, value) in old.iter().enumerate() {
                if rest.peek() == Some(&value) {
                    rest.next();
                } else {
                    out.push(format!("-{at}/{position}"));
                }
            }
            assert_eq!(rest.next(), None, "{at:?} lost entries and got others");
        }
        (Value::Array(old), Value::Array(new)) => {
            for (position, value) in new.iter().enumerate() {
                match old.get(position) {
                    Some(old) => collect(old, value, &format!("{at}/{position}"), out),
                    None => out.push(format!("+{at}/{position}")),
                }
            }
        }
        // Numbers are compared as they are written.
        _ if before == after => {}
        _ => out.push(at.to_owned()),
    }
}

#[test]
fn what_changed_is_named() {
    let before = json!({"a": [1, 2, 3], "b": {"c": 1.0, "d": null}, "e": [1], "f": 0});
    assert_eq!(changes(&before, &before), [""; 0]);
    let after = json!({"a": [1, 3], "b": {"c": 1, "d": null}, "e": [2, 5], "g": 0});
    assert_eq!(changes(&before, &after), ["-/f", "-/a/1", "/b/c", "/e/0", "+/e/1", "+/g"]);
}
