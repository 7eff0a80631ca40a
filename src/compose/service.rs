//! One service of a Compose file, variables replaced.

use std::collections::BTreeMap;

use serde_json::Value;

use super::yaml::text_of;
use super::{EnvFile, InvalidCompose, Service};
use crate::finding::quoted;
use crate::provenance::DockerDeviceRequest;

pub(super) fn read(name: &str, members: &Value) -> Result<Service, InvalidCompose> {
    let place = |member: &str| format!("services.{name}.{member}");
    let mut requests = Vec::new();
    match &members["gpus"] {
        Value::Null => {}
        Value::String(text) if text == "all" => requests.push(request_of(-1, Vec::new(), vec!["gpu".to_owned()])),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                requests.push(request(item, &format!("{}[{at}]", place("gpus")), true)?);
            }
        }
        _ => return Err(InvalidCompose::new(place("gpus"), "it must be all, or a list")),
    }
    let devices = &members["deploy"]["resources"]["reservations"]["devices"];
    let at_devices = place("deploy.resources.reservations.devices");
    for (at, item) in list(devices, &at_devices)?.iter().enumerate() {
        requests.push(request(item, &format!("{at_devices}[{at}]"), false)?);
    }
    let environment = match &members["environment"] {
        Value::Null => BTreeMap::new(),
        value => assignments(value).ok_or_else(|| {
            InvalidCompose::new(place("environment"), "it must be a mapping, or a list of NAME=VALUE")
        })?,
    };
    Ok(Service {
        name: name.to_owned(),
        image: text_of(&members["image"]),
        is_built: !members["build"].is_null(),
        requests,
        devices: devices_of(&members["devices"], &place("devices"))?,
        runtime: text_of(&members["runtime"]).filter(|runtime| !runtime.is_empty()),
        privileged: switch(&members["privileged"], &place("privileged"))?,
        env_files: env_files(&members["env_file"], &place("env_file"))?,
        environment,
        notes: Vec::new(),
    })
}

fn request_of(count: i64, device_ids: Vec<String>, capabilities: Vec<String>) -> DockerDeviceRequest {
    DockerDeviceRequest { driver: String::new(), count, device_ids, capabilities: vec![capabilities] }
}

/// A device request; in `gpus` it is one for GPUs without saying so.
fn request(item: &Value, place: &str, of_gpus: bool) -> Result<DockerDeviceRequest, InvalidCompose> {
    let bad = |member: &str, reason: &str| InvalidCompose::new(format!("{place}.{member}"), reason);
    if !item.is_object() {
        return Err(InvalidCompose::new(place, "it must be a mapping"));
    }
    let ids =
        texts(&item["device_ids"]).ok_or_else(|| bad("device_ids", "it must be a list of texts: [\"0\", \"2\"]"))?;
    let Some(mut capabilities) = texts(&item["capabilities"]) else {
        return Err(bad("capabilities", "it must be a list of texts: [gpu]"));
    };
    if of_gpus {
        if !capabilities.iter().any(|capability| capability == "gpu") {
            capabilities.push("gpu".to_owned());
        }
    } else if item["capabilities"].is_null() {
        return Err(bad("capabilities", "it is required: [gpu]"));
    }
    let count = match &item["count"] {
        Value::Null => None,
        Value::String(text) if text == "all" => Some(-1),
        value => match text_of(value).and_then(|text| text.parse().ok()) {
            Some(count) => Some(count),
            None => return Err(bad("count", "it must be a number or all")),
        },
    };
    let count = match (count, ids.is_empty()) {
        (Some(_), false) => {
            return Err(InvalidCompose::new(place, "\"count\" and \"device_ids\" attributes are exclusive"));
        }
        (Some(count), true) => count,
        // Whoever names neither gets all.
        (None, is_all) => -i64::from(is_all),
    };
    let driver = text_of(&item["driver"]).unwrap_or_default();
    Ok(DockerDeviceRequest { driver, ..request_of(count, ids, capabilities) })
}

/// `devices`: `HOST[:CONTAINER[:rwm]]` or a CDI name, or a mapping with a source.
fn devices_of(value: &Value, place: &str) -> Result<Vec<String>, InvalidCompose> {
    let text = |(at, item): (usize, &Value)| {
        let source = if item.is_object() { &item["source"] } else { item };
        text_of(source).ok_or_else(|| InvalidCompose::new(format!("{place}[{at}]"), "it must be a text"))
    };
    list(value, place)?.iter().enumerate().map(text).collect()
}

fn env_files(value: &Value, place: &str) -> Result<Vec<EnvFile>, InvalidCompose> {
    let one = |item: &Value, place: String| match item {
        Value::String(path) => Ok(EnvFile { path: path.clone(), required: true, raw: false }),
        Value::Object(members) if members.get("path").is_some_and(Value::is_string) => Ok(EnvFile {
            path: item["path"].as_str().unwrap_or_default().to_owned(),
            required: item["required"].is_null() || switch(&item["required"], &format!("{place}.required"))?,
            raw: item["format"] == "raw",
        }),
        _ => Err(InvalidCompose::new(place, "it must be a path, or a mapping with a path")),
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| one(item, format!("{place}[{at}]"))).collect(),
        item => Ok(vec![one(item, place.to_owned())?]),
    }
}

/// `environment` in either form; `None` where it is neither.
pub(super) fn assignments(value: &Value) -> Option<BTreeMap<String, Option<String>>> {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| match value {
                Value::Null => Some((name.clone(), None)),
                value => Some((name.clone(), Some(text_of(value)?))),
            };
            members.iter().map(member).collect()
        }
        Value::Array(items) => {
            let item = |item: &Value| {
                let text = text_of(item)?;
                Some(match text.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (text, None),
                })
            };
            items.iter().map(item).collect()
        }
        _ => None,
    }
}

fn list<'a>(value: &'a Value, place: &str) -> Result<&'a [Value], InvalidCompose> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(InvalidCompose::new(place, "it must be a list")),
    }
}

/// A list of texts; a number is none, and Compose refuses it.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn switch(value: &Value, place: &str) -> Result<bool, InvalidCompose> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(value) => Ok(*value),
        // A variable in its place is text.
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "y" | "yes" | "on" => Ok(true),
            "false" | "n" | "no" | "off" => Ok(false),
            _ => Err(InvalidCompose::new(place, format!("{} is neither true nor false", quoted(text)))),
        },
        _ => Err(InvalidCompose::new(place, "it must be true or false")),
    }
}
