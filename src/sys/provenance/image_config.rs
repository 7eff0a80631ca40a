//! The environment in an image's configuration, and what leads there in an image store, read as the engine reads it.
//!
//! The file holds the image maker's bytes as they came. The engines read it with Go's `encoding/json`, for which
//! `env` is as good as `Env` and a later member overrides an earlier one: `{"Env": […], "env": […]}` would show us one
//! list and the engine another, and the difference would pass for a user's entries.
//! So a member with a look-alike beside it, or not spelled as engines write it, is refused.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// `.config.Env`; empty when there is none. The error says what was wrong, without naming the file.
pub(in crate::sys) fn env(content: &[u8]) -> Result<Vec<String>, String> {
    let member = Member { name: "config", inner: Member { name: "Env", inner: Plain::<Option<Vec<String>>>::new() } };
    Ok(read(content, member)?.flatten().flatten().unwrap_or_default())
}

/// `.config.digest` of an image's manifest. The error says what was wrong, without naming the file.
pub(in crate::sys) fn config_digest(manifest: &[u8]) -> Result<Option<String>, String> {
    let member = Member { name: "config", inner: Member { name: "digest", inner: Plain::<String>::new() } };
    Ok(read(manifest, member)?.flatten())
}

fn read<'de, S: DeserializeSeed<'de>>(content: &'de [u8], seed: S) -> Result<S::Value, String> {
    let read = || {
        let mut json = serde_json::Deserializer::from_slice(content);
        let value = seed.deserialize(&mut json)?;
        json.end()?;
        Ok::<_, serde_json::Error>(value)
    };
    read().map_err(|error| error.to_string())
}

/// Reads one member of an object and skips the rest; `None` when it is absent, or the object is `null`.
#[derive(Clone, Copy)]
struct Member<S> {
    name: &'static str,
    inner: S,
}

/// Whatever serde reads by itself.
#[derive(Clone, Copy)]
struct Plain<T>(PhantomData<T>);

impl<T> Plain<T> {
    fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Plain<T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Member<S> {
    type Value = Option<S::Value>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Member<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the member {:?}", self.name)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut inner, mut found) = (Some(self.inner), None);
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key != self.name && !key.eq_ignore_ascii_case(self.name) {
                map.next_value::<IgnoredAny>()?;
            } else if let (true, Some(inner)) = (key == self.name, inner.take()) {
                found = Some(map.next_value_seed(inner)?);
            } else {
                return Err(A::Error::custom(format_args!("{:?} is there twice or in another spelling", self.name)));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read() {
        let check = |json: &str, expect: &[&str]| assert_eq!(env(json.as_bytes()).unwrap(), expect, "{json}");
        check(
            r#"{"os":"linux","config":{"Cmd":["a"],"Env":["A=1","A=2","B","\u0043=\u0041"]}}"#,
            &["A=1", "A=2", "B", "C=A"],
        );
        check(r#"{"config":{"Env":null}}"#, &[]);
        check(r#"{"config":{}}"#, &[]);
        check(r#"{"config":null,"container_config":{"Env":["A=1"]}}"#, &[]);
        check("{}", &[]);
    }

    #[test]
    fn a_manifest_leads_to_the_configuration() {
        let check = |json: &str, expect| assert_eq!(config_digest(json.as_bytes()), expect, "{json}");
        check(
            r#"{"config":{"size":7,"digest":"sha256:a"},"layers":[{"digest":"b"}]}"#,
            Ok(Some("sha256:a".to_owned())),
        );
        check(r#"{"manifests":[{"digest":"b"}]}"#, Ok(None));
        for json in [
            r#"{"config":{"digest":"a","Digest":"b"}}"#,
            r#"{"config":{"digest":"a"},"CONFIG":{"digest":"b"}}"#,
            r#"{"config":{"digest":["a"]}}"#,
        ] {
            assert!(config_digest(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn what_another_reader_could_take_otherwise_is_refused() {
        for json in [
            r#"{"config":{"Env":["A=1"],"env":["B=1"]}}"#,
            r#"{"config":{"env":["B=1"],"Env":["A=1"]}}"#,
            r#"{"config":{"env":["B=1"]}}"#,
            r#"{"config":{"Env":["A=1"],"Env":["B=1"]}}"#,
            r#"{"config":{"Env":["A=1"]},"config":{}}"#,
            r#"{"config":{"Env":["A=1"]},"Config":{"Env":["B=1"]}}"#,
            r#"{"config":{"Env":["A=1",null]}}"#,
            r#"{"config":{"Env":["A=1","\ud800=1"]}}"#,
            r#"{"config":{"Env":["A=1"]}} {}"#,
            r#"{"config":[]}"#,
            "[]",
            "",
        ] {
            assert!(env(json.as_bytes()).is_err(), "{json}");
        }
        assert!(env(b"{\"config\":{\"Env\":[\"A=\xff\"]}}").is_err());
    }
}
