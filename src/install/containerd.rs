//! containerd's `config.toml`, or a file beside it that it takes in.

use toml::{Table, Value};

use super::blocks::{append, entry, get, leaves, line_end, section, set, take_out, unset, without_empty};
use super::{Change, NAME, Refusal, Wanted, check_program, is_made_of, refused, snippet};

/// The usual file, as the daemon calls it.
pub const MAIN: &str = "/etc/containerd/config.toml";
/// Ours, where the daemon takes in such files.
pub const DROP_IN: &str = "/etc/containerd/conf.d/50-cudaview.toml";

const DEFAULT: &str = "default_runtime_name";

/// Where the version of a file has the runtimes.
// containerd docs/cri/config.md
fn plugin(version: i64) -> Option<[&'static str; 3]> {
    match version {
        1 => Some(["plugins", "cri", "containerd"]),
        2 => Some(["plugins", "io.containerd.grpc.v1.cri", "containerd"]),
        3 => Some(["plugins", "io.containerd.cri.v1.runtime", "containerd"]),
        _ => None,
    }
}

/// Whether ours is to be a file of its own: the daemon merges such files since version 2 of it, into version 3 of the
/// configuration; before, what one says of a plugin replaces all that the main file says of it.
pub fn takes_drop_ins(main: Option<&str>) -> bool {
    let Some(table) = main.and_then(|text| toml::from_str::<Table>(text).ok()) else { return false };
    let imports = table.get("imports").and_then(Value::as_array).into_iter().flatten();
    let is_ours = |pattern: &str| pattern == "/etc/containerd/conf.d/*.toml" || pattern == "conf.d/*.toml";
    table.get("version").and_then(Value::as_integer) == Some(3) && imports.filter_map(Value::as_str).any(is_ours)
}

/// The text of a file of our own.
///
/// # Errors
/// [`Refusal`] where the main file has another runtime by our name.
pub fn drop_in(main: &str, wanted: Wanted<'_>) -> Result<String, Refusal> {
    check_program(wanted.program)?;
    let (table, version) = read(main, 2)?;
    if let Some(found) = plugin(version).and_then(|plugin| program(&table, &plugin)) {
        return taken(&found);
    }
    let new = snippet(include_str!("../../hooks/containerd/config-v3.toml"), wanted.program);
    Ok(if wanted.default { format!("{new}\n{}", default_block(3)) } else { new })
}

/// What the main file becomes; `daemon` is the version of containerd.
///
/// # Errors
/// [`Refusal`] where it is not understood, or has another runtime by our name.
pub fn install(text: Option<&str>, daemon: u32, wanted: Wanted<'_>) -> Result<Change, Refusal> {
    check_program(wanted.program)?;
    let is_blank = |text: &str| text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
    let text = text.unwrap_or_default();
    if is_blank(text) {
        let (version, whole) = if daemon >= 2 { (3, V3) } else { (2, V2) };
        let new = append(text, &snippet(whole, wanted.program));
        return Ok(Change::Write(if wanted.default { append(&new, &default_block(version)) } else { new }));
    }
    let (table, version) = read(text, daemon)?;
    let Some(plugin) = plugin(version) else { return unknown_version(version) };
    let mut expected = table.clone();
    let mut new = text.to_owned();
    match program(&table, &plugin) {
        Some(found) if found == wanted.program => {}
        Some(found) => return taken(&found),
        None => {
            new = append(&new, &block(version, wanted.program));
            let runtime = [&plugin[..], &["runtimes", NAME]].concat();
            set(&mut expected, &[&runtime[..], &["runtime_type"]].concat(), "io.containerd.runc.v2".into());
            set(&mut expected, &[&runtime[..], &["options", "BinaryName"]].concat(), wanted.program.into());
        }
    }
    let default = [&plugin[..], &[DEFAULT]].concat();
    if wanted.default && get(&table, &default).and_then(Value::as_str) != Some(NAME) {
        new = with_default(&new, version, NAME);
        set(&mut expected, &default, NAME.into());
    }
    checked(text, new, &expected)
}

/// What the main file becomes once the daemon is to know us no more; `backup` is what it was before [`install`].
///
/// # Errors
/// [`Refusal`] where it is not understood.
pub fn uninstall(text: Option<&str>, daemon: u32, backup: Option<&str>) -> Result<Change, Refusal> {
    let Some(text) = text.filter(|text| is_installed(text)) else { return Ok(Change::None) };
    let (table, version) = read(text, daemon)?;
    let Some(plugin) = plugin(version) else { return unknown_version(version) };
    let before = backup.filter(|backup| !is_installed(backup));
    let made = |text: Option<&str>, wanted: Wanted<'_>| install(text, daemon, wanted);
    let found = program(&table, &plugin).unwrap_or_default();
    if let Some(before) = before.filter(|before| is_made_of(text, Some(before), &found, made)) {
        return Ok(Change::Write(before.to_owned()));
    }
    if backup.is_none() && is_made_of(text, None, &found, made) {
        return Ok(Change::Remove);
    }
    let mut expected = table.clone();
    let mut new = text.to_owned();
    let default = [&plugin[..], &[DEFAULT]].concat();
    if get(&table, &default).and_then(Value::as_str) == Some(NAME) {
        let former = backup.and_then(|before| former_default(before, daemon));
        match &former {
            Some(name) => set(&mut expected, &default, name.as_str().into()),
            None => unset(&mut expected, &default),
        }
        new = without_default(&new, version, former.as_deref());
    }
    unset(&mut expected, &[&plugin[..], &["runtimes", NAME]].concat());
    match take_out(&new, &block(version, &found)) {
        Some(without) => checked(text, without, &expected),
        None if program(&table, &plugin).is_none() => checked(text, new, &expected),
        None => refused(
            format!("the tables of the runtime \"{NAME}\" are not as cudaview wrote them"),
            format!("take the tables \"…runtimes.{NAME}\" out of {MAIN} by hand"),
        ),
    }
}

/// Whether a file has the runtime in it, or as the default.
pub fn is_installed(text: &str) -> bool {
    let Ok(table) = toml::from_str::<Table>(text) else { return false };
    [1, 2, 3].into_iter().filter_map(plugin).any(|plugin| {
        let default = [&plugin[..], &[DEFAULT]].concat();
        program(&table, &plugin).is_some() || get(&table, &default).and_then(Value::as_str) == Some(NAME)
    })
}

/// Whether a file beside the main one names us as the default.
pub fn is_default(text: &str) -> bool {
    let (Ok(table), Some(plugin)) = (toml::from_str::<Table>(text), plugin(3)) else { return false };
    get(&table, &[&plugin[..], &[DEFAULT]].concat()).and_then(Value::as_str) == Some(NAME)
}

/// Whether a file beside the main one has nothing in it but what is ours.
pub fn is_ours(text: &str) -> bool {
    let (Ok(table), Some(plugin)) = (toml::from_str::<Table>(text), plugin(3)) else { return false };
    let runtime = [&plugin[..], &["runtimes", NAME]].concat();
    let default = [&plugin[..], &[DEFAULT]].concat();
    leaves(&table).iter().all(|path| {
        let is_below = path.len() >= runtime.len() && path.iter().zip(&runtime).all(|(found, part)| found == part);
        is_below || *path == default || *path == ["version"]
    })
}

/// Whether a file is what [`install`] makes where there is none.
pub fn is_only_ours(text: &str, daemon: u32) -> bool {
    let Ok((table, version)) = read(text, daemon) else { return false };
    let program = plugin(version).and_then(|plugin| program(&table, &plugin));
    program.is_some_and(|program| is_made_of(text, None, &program, |text, wanted| install(text, daemon, wanted)))
}

const V2: &str = include_str!("../../hooks/containerd/config-v2.toml");
const V3: &str = include_str!("../../hooks/containerd/config-v3.toml");

/// Our tables alone, for a file that is there.
fn block(version: i64, program: &str) -> String {
    let whole = if version == 3 { V3 } else { V2 };
    let tables = whole.find("\n[").and_then(|at| whole.get(at + 1..)).unwrap_or(whole);
    let text = snippet(tables, program);
    if version == 1 { text.replace("\"io.containerd.grpc.v1.cri\"", "cri") } else { text }
}

/// The header of the table that has the default.
fn default_header(version: i64) -> &'static str {
    match version {
        1 => "[plugins.cri.containerd]",
        2 => "[plugins.\"io.containerd.grpc.v1.cri\".containerd]",
        _ => "[plugins.'io.containerd.cri.v1.runtime'.containerd]",
    }
}

fn default_block(version: i64) -> String {
    format!("{}\n{DEFAULT} = \"{NAME}\"\n", default_header(version))
}

fn with_default(text: &str, version: i64, name: &str) -> String {
    let Some(path) = plugin(version) else { return text.to_owned() };
    let Some(part) = section(text, &path) else { return append(text, &default_block(version)) };
    let mut out = text.to_owned();
    match entry(text, part.clone(), DEFAULT) {
        Some((_, value)) => out.replace_range(value, &format!("\"{name}\"")),
        None => out.insert_str(part.start, &format!("  {DEFAULT} = \"{name}\"{}", line_end(text))),
    }
    out
}

fn without_default(text: &str, version: i64, former: Option<&str>) -> String {
    if let Some(name) = former {
        return with_default(text, version, name);
    }
    if let Some(out) = take_out(text, &default_block(version)) {
        return out;
    }
    let part = plugin(version).and_then(|path| section(text, &path));
    let mut out = text.to_owned();
    if let Some((line, _)) = part.and_then(|part| entry(text, part, DEFAULT)) {
        out.replace_range(line, "");
    }
    out
}

fn former_default(before: &str, daemon: u32) -> Option<String> {
    let (table, version) = read(before, daemon).ok()?;
    let plugin = plugin(version)?;
    let name = get(&table, &[&plugin[..], &[DEFAULT]].concat())?.as_str()?;
    Some(name.to_owned()).filter(|name| name != NAME)
}

/// The file, and its version.
fn read(text: &str, daemon: u32) -> Result<(Table, i64), Refusal> {
    let table: Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            let line = error.message().lines().next().unwrap_or_default().to_owned();
            return refused(format!("it is no TOML: {line}"), "containerd does not start with it either");
        }
    };
    let disabled = table.get("disabled_plugins").and_then(Value::as_array).into_iter().flatten();
    if disabled.filter_map(Value::as_str).any(|name| name == "cri" || name.starts_with("io.containerd.grpc.v1.cri")) {
        let text = "\"disabled_plugins\" has Kubernetes's part of containerd in it: nobody would read a runtime here";
        return refused(text, "for Docker: cudaview install docker; for Kubernetes take \"cri\" out of that list");
    }
    match table.get("version") {
        // Without a version it is the first, which containerd 2 does not read any more.
        None if daemon >= 2 => {
            refused("it has no \"version\"", "containerd config migrate writes it in the newest one")
        }
        None => Ok((table, 1)),
        Some(version) => match version.as_integer() {
            Some(version) if plugin(version).is_some() && (daemon >= 2 || version < 3) => Ok((table, version)),
            _ => unknown_version(version.as_integer().unwrap_or_default()),
        },
    }
}

fn unknown_version<T>(version: i64) -> Result<T, Refusal> {
    refused(format!("version {version} of the file is not one that this containerd and cudaview know"), "")
}

fn program(table: &Table, plugin: &[&str]) -> Option<String> {
    let runtime = get(table, &[plugin, &["runtimes", NAME]].concat())?;
    let path = runtime.get("options").and_then(|options| options.get("BinaryName")).and_then(Value::as_str);
    Some(path.unwrap_or_default().to_owned())
}

fn taken<T>(path: &str) -> Result<T, Refusal> {
    let text = format!("the runtime \"{NAME}\" of this file has another BinaryName: {path:?}");
    refused(text, format!("take that runtime out of {MAIN}, or put cudaview-runtime there"))
}

/// The new text, if it says what it is to say.
fn checked(old: &str, new: String, expected: &Table) -> Result<Change, Refusal> {
    if new == old {
        return Ok(Change::None);
    }
    match toml::from_str::<Table>(&new) {
        Ok(table) if without_empty(&table) == without_empty(expected) => Ok(Change::Write(new)),
        _ => refused("this file cannot be changed without a risk to what else is in it", "change it by hand"),
    }
}
