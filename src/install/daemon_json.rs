//! Docker's `daemon.json`.

use serde_json::Value;

use super::json::{Object, repeated};
use super::{Change, NAME, Refusal, Wanted, check_program, is_made_of, refused, snippet};

/// The member that lists the runtimes.
const RUNTIMES: &str = "runtimes";
/// The member that names the runtime of containers for which none is named.
const DEFAULT: &str = "default-runtime";

/// What a file of the daemon's becomes; `None` stands for one that is not there.
///
/// # Errors
/// [`Refusal`] where it is not understood, or has another runtime by our name.
pub fn install(text: Option<&str>, wanted: Wanted<'_>) -> Result<Change, Refusal> {
    check_program(wanted.program)?;
    // dockerd takes an empty file for an empty object.
    let Some(old) = text.filter(|text| !text.trim().is_empty()) else {
        let new = snippet(include_str!("../../hooks/docker/daemon.json"), wanted.program);
        return Ok(Change::Write(if wanted.default { with(&new, DEFAULT, &format!("\"{NAME}\"")) } else { new }));
    };
    let value = read(old)?;
    let mut new = old.to_owned();
    match program(&value) {
        Some(path) if path == wanted.program => {}
        Some(path) => return taken(path),
        None => new = with_runtime(&new, &value, wanted.program),
    }
    if wanted.default && value[DEFAULT] != NAME {
        new = with(&new, DEFAULT, &format!("\"{NAME}\""));
    }
    let mut expected = value;
    expected[RUNTIMES][NAME]["path"] = wanted.program.into();
    if wanted.default {
        expected[DEFAULT] = NAME.into();
    }
    checked(old, new, &expected)
}

/// What a file becomes once the daemon is to know us no more; `backup` is what it was before [`install`].
///
/// # Errors
/// [`Refusal`] where it is not understood.
pub fn uninstall(text: Option<&str>, backup: Option<&str>) -> Result<Change, Refusal> {
    let Some(old) = text.filter(|text| !text.trim().is_empty()) else { return Ok(Change::None) };
    let value = read(old)?;
    let is_default = value[DEFAULT] == NAME;
    if program(&value).is_none() && !is_default {
        return Ok(Change::None);
    }
    let before = backup.filter(|backup| !is_installed(backup));
    if let Some(program) = program(&value) {
        if let Some(before) = before.filter(|before| is_made_of(old, Some(before), program, install)) {
            return Ok(Change::Write(before.to_owned()));
        }
        if backup.is_none() && is_made_of(old, None, program, install) {
            return Ok(Change::Remove);
        }
    }
    let mut expected = value.clone();
    let mut new = old.to_owned();
    if let Some(runtimes) = expected.get_mut(RUNTIMES).and_then(Value::as_object_mut)
        && runtimes.shift_remove(NAME).is_some()
    {
        let was_there = before.is_none_or(|before| read(before).is_ok_and(|value| value.get(RUNTIMES).is_some()));
        if runtimes.is_empty() && !(before.is_some() && was_there) {
            expected.as_object_mut().and_then(|all| all.shift_remove(RUNTIMES));
            new = without(&new, RUNTIMES);
        } else {
            new = inside(&new, RUNTIMES, |object, text| object.without(text, NAME));
        }
    }
    if is_default {
        if let Some(name) = former_default(backup, &expected) {
            new = with(&new, DEFAULT, &Value::from(name.as_str()).to_string());
            expected[DEFAULT] = name.into();
        } else {
            expected.as_object_mut().and_then(|all| all.shift_remove(DEFAULT));
            new = without(&new, DEFAULT);
        }
    }
    checked(old, new, &expected)
}

/// Whether a file has the runtime in it, or as the default.
pub fn is_installed(text: &str) -> bool {
    read(text).is_ok_and(|value| program(&value).is_some() || value[DEFAULT] == NAME)
}

/// Whether a file is what [`install`] makes where there is none.
pub fn is_only_ours(text: &str) -> bool {
    read(text).is_ok_and(|value| program(&value).is_some_and(|program| is_made_of(text, None, program, install)))
}

/// The names of runtimes that are our program, whatever they are called.
pub fn names(text: &str) -> Vec<String> {
    let value = read(text).unwrap_or_default();
    let runtimes = value[RUNTIMES].as_object().into_iter().flatten();
    let is_ours = |(name, runtime): &(&String, &Value)| {
        *name == NAME || runtime["path"].as_str().is_some_and(|path| path.ends_with("/cudaview-runtime"))
    };
    runtimes.filter(is_ours).map(|(name, _)| name.clone()).collect()
}

/// What is the difference between two files, by what they say: lines with a sign.
pub fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new) = (read(old).unwrap_or_default(), read(new).unwrap_or_default());
    let mut out = Vec::new();
    for (sign, this, other) in [("-", &old, &new), ("+", &new, &old)] {
        if let Some(runtime) = this[RUNTIMES].get(NAME).filter(|_| other[RUNTIMES].get(NAME).is_none()) {
            let path = &runtime["path"];
            out.push(format!("{sign} \"{RUNTIMES}\": {{\"{NAME}\": {{\"path\": {path}}}}}"));
        }
        if let Some(default) = this[DEFAULT].as_str().filter(|_| this[DEFAULT] != other[DEFAULT]) {
            out.push(format!("{sign} \"{DEFAULT}\": {default:?}"));
        }
    }
    out
}

/// The runtime of NVIDIA's that is the default of a file, as the path of its program.
// The toolkit writes the bare name where its program is in a folder of the daemon's PATH, which is /usr/bin then.
pub fn nvidia_default(text: &str) -> Option<String> {
    let value = read(text).unwrap_or_default();
    let path = value[RUNTIMES].get(value[DEFAULT].as_str()?)?["path"].as_str()?;
    let name = path.rsplit('/').next().filter(|name| name.starts_with("nvidia-container-runtime"))?;
    Some(if path.starts_with('/') { path.to_owned() } else { format!("/usr/bin/{name}") })
}

/// The names of the runtimes that a file has beside ours.
pub fn others(text: &str) -> Vec<String> {
    let value = read(text).unwrap_or_default();
    let runtimes = value[RUNTIMES].as_object().into_iter().flatten();
    runtimes.map(|(name, _)| name.clone()).filter(|name| name != NAME).collect()
}

/// The runtime that was the default before, where it can be it again.
fn former_default(before: Option<&str>, now: &Value) -> Option<String> {
    let name = read(before?).ok()?[DEFAULT].as_str()?.to_owned();
    let is_known = name == "runc" || name.starts_with("io.containerd.") || now[RUNTIMES].get(&name).is_some();
    is_known.then_some(name)
}

/// The program of the runtime by our name.
fn program(value: &Value) -> Option<&str> {
    value[RUNTIMES].get(NAME).map(|runtime| runtime["path"].as_str().unwrap_or_default())
}

fn taken<T>(path: &str) -> Result<T, Refusal> {
    let text = if path.is_empty() {
        format!("the runtime \"{NAME}\" of this file is not a path")
    } else {
        format!("the runtime \"{NAME}\" of this file is another program: {path:?}")
    };
    refused(text, "take that entry out of \"runtimes\", or put cudaview-runtime there")
}

/// Reads a file as dockerd does; what it could read in two ways is refused.
fn read(text: &str) -> Result<Value, Refusal> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let hint = "python3 -m json.tool shows where; dockerd does not start with it either";
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) if text.trim().is_empty() => return Ok(Value::Object(serde_json::Map::new())),
        Err(error) => return refused(format!("it is no JSON: {error}"), hint),
    };
    let Some(members) = value.as_object() else {
        return refused("it is no JSON object", "dockerd does not start with it either");
    };
    if let Some(key) = repeated(text) {
        return refused(format!("{key:?} is there twice in one object"), "leave one of them");
    }
    // encoding/json takes any case for the member of a struct.
    for known in [RUNTIMES, DEFAULT] {
        if let Some(key) = members.keys().find(|key| key.eq_ignore_ascii_case(known) && *key != known) {
            return refused(format!("{key:?} is in another case than {known:?}"), "write it in small letters");
        }
    }
    match (members.get(RUNTIMES), members.get(DEFAULT)) {
        (Some(runtimes), _) if !runtimes.is_object() => refused("\"runtimes\" is no object", ""),
        (_, Some(default)) if !default.is_string() => refused("\"default-runtime\" is no string", ""),
        _ => Ok(value),
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

fn start(text: &str) -> usize {
    if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 }
}

fn with_runtime(text: &str, value: &Value, program: &str) -> String {
    let entry = format!("{{\"path\": \"{program}\"}}");
    if value.get(RUNTIMES).is_none() {
        return with(text, RUNTIMES, &format!("{{\"{NAME}\": {entry}}}"));
    }
    inside(text, RUNTIMES, |object, text| object.with(text, NAME, &entry))
}

/// The text with a member of the outermost object, in place of the one that is there.
fn with(text: &str, key: &str, value: &str) -> String {
    let Some(object) = Object::at(text, start(text)) else { return text.to_owned() };
    match object.get(key) {
        Some(member) => {
            let mut out = text.to_owned();
            out.replace_range(member.value.clone(), value);
            out
        }
        None => object.with(text, key, value),
    }
}

fn without(text: &str, key: &str) -> String {
    Object::at(text, start(text)).map_or_else(|| text.to_owned(), |object| object.without(text, key))
}

/// The text with a change in the object that a member of the outermost one is.
fn inside(text: &str, key: &str, change: impl FnOnce(&Object, &str) -> String) -> String {
    let outer = Object::at(text, start(text));
    let inner = outer.as_ref().and_then(|outer| Object::at(text, outer.get(key)?.value.start));
    inner.map_or_else(|| text.to_owned(), |inner| change(&inner, text))
}

/// The new text, if it says what it is to say.
fn checked(old: &str, new: String, expected: &Value) -> Result<Change, Refusal> {
    if new == old {
        return Ok(Change::None);
    }
    match read(&new) {
        Ok(value) if value == *expected => Ok(Change::Write(new)),
        _ => refused("this file cannot be changed without a risk to what else is in it", "change it by hand"),
    }
}
