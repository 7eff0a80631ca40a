//! JSON that every reader takes for the same.
//!
//! Of a member that is there twice, runc takes the last, or merges the two; crun takes the first.
//! And runc, like everything that Go's `encoding/json` reads, takes `"Env"` for `"env"`.
//! What we decide must hold for what the runtime reads, so a file that they could read differently is refused.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::Value;

/// The members that we read or write, at whatever place.
const MEMBERS: [&str; 27] = [
    "process",
    "root",
    "mounts",
    "hooks",
    "linux",
    "annotations",
    "env",
    "devices",
    "resources",
    "namespaces",
    "prestart",
    "createRuntime",
    "path",
    "args",
    "timeout",
    "type",
    "major",
    "minor",
    "fileMode",
    "uid",
    "gid",
    "allow",
    "access",
    "destination",
    "source",
    "options",
    "cgroupsPath",
];

/// Objects whose keys are anybody's own words.
const FREE: [&str; 3] = ["annotations", "sysctl", "unified"];

/// The member under which serde_json hands a number on with all its digits. An object of somebody's with this member
/// would become that number.
// serde_json, src/number.rs, TOKEN.
const NUMBER: &str = "$serde_json::private::Number";

/// Reads JSON in which no member is there twice, and none that we know is spelled in another case.
///
/// # Errors
/// Where it is no such JSON; the text says which member it was.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_slice(text);
    Any { free: false }.deserialize(&mut json)?;
    serde_json::from_slice(text)
}

/// Looks at a value of any kind and keeps nothing.
#[derive(Clone, Copy)]
struct Any {
    /// The value's own keys are free.
    free: bool,
}

impl<'de> DeserializeSeed<'de> for Any {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: BTreeSet<Cow<'de, str>> = BTreeSet::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if !self.free && MEMBERS.iter().any(|member| *member != key && folded(member).eq(folded(&key))) {
                return Err(A::Error::custom(format_args!("the member {key:?} is in another case than it should be")));
            }
            if key == NUMBER {
                map.next_value_seed(Digits)?;
            } else {
                map.next_value_seed(Any { free: FREE.contains(&&*key) })?;
            }
            if let Some(key) = seen.replace(key) {
                return Err(A::Error::custom(format_args!("the member {key:?} is there twice")));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Any { free: false })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The digits of a number, which come as a `String` of the reader's own; a text of the file never does.
struct Digits;

impl<'de> DeserializeSeed<'de> for Digits {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Digits {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no member called {NUMBER:?}, which cannot be kept")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Err(E::invalid_type(Unexpected::Str(text), &self))
    }

    fn visit_string<E>(self, _: String) -> Result<(), E> {
        Ok(())
    }
}

/// A key as Go compares it: for Unicode, two more characters are the letters s and k.
// encoding/json, fold.go.
fn folded(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_reader_takes_for_the_same() {
        for text in [
            r#"{"process":{"env":["A=b","A=b"],"args":[]},"x":[1,-2,3.5e100,18446744073709551616,true,null]}"#,
            r#"{"annotations":{"Path":"a","PATH":"b","path":"c"},"linux":{"sysctl":{"Env":"x"}}}"#,
            r#"{"mounts":[{"type":"bind"},{"type":"bind"}],"Vendor":{"a":{},"b":{}}}"#,
            "null",
        ] {
            assert_eq!(parse(text.as_bytes()).expect(text), serde_json::from_str::<Value>(text).expect(text));
        }
    }

    #[test]
    fn what_readers_could_take_differently() {
        for (text, word) in [
            (r#"{"process":{"env":["A=b"],"env":[]}}"#, r#""env" is there twice"#),
            (r#"{"process":{"env":["A=b"]},"process":{"args":[]}}"#, r#""process" is there twice"#),
            (r#"{"process":{"env":["A=b"],"\u0065nv":[]}}"#, "there twice"),
            (r#"{"annotations":{"a":"b","a":"c"}}"#, "there twice"),
            (r#"{"x":[[{"y":1,"y":2}]]}"#, "there twice"),
            (r#"{"Process":{"env":["A=b"]}}"#, r#""Process" is in another case"#),
            (r#"{"process":{"ENV":["A=b"]}}"#, "another case"),
            ("{\"proce\u{17f}\u{17f}\":{}}", "another case"),
            (r#"{"linux":{"devices":[{"Major":195}]}}"#, "another case"),
            (r#"{"hooks":{"createruntime":[]}}"#, "another case"),
            (r#"{"annotations":[{"Env":[]}]}"#, "another case"),
            ("{} {}", "trailing"),
            ("\u{feff}{}", "expected value"),
            (r#"{"a":"\ud800"}"#, "hex escape"),
            (r#"{"a":{"$serde_json::private::Number":"1"}}"#, "no member called"),
            (r#"{"a":{"\u0024serde_json::private::Number":"1"}}"#, "no member called"),
            (r#"{"a":{"b":1,"$serde_json::private::Number":{}}}"#, "no member called"),
            (&"[".repeat(1000), "recursion limit"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
