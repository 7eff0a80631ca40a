//! Files of our own in a folder that podman or CRI-O reads.

use toml::{Table, Value};

use super::blocks::{get, leaves};
use super::{NAME, Refusal, Wanted, check_program, refused, snippet};

/// An engine that reads a folder of files, each of which can say anything, the last one counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// podman, for `containers.conf.d`.
    Podman,
    /// CRI-O, for `crio.conf.d`.
    Crio,
}

/// The name of our file.
pub const FILE: &str = "50-cudaview.conf";

/// podman's own lists, which a file replaces.
// containers.conf(5)
const LISTS: [&str; 2] = ["runtime_supports_json", "runtime_supports_nocgroup"];

impl Reader {
    fn snippet(self) -> &'static str {
        match self {
            Self::Podman => include_str!("../../hooks/podman/containers.conf"),
            Self::Crio => include_str!("../../hooks/crio/50-cudaview.conf"),
        }
    }

    /// Where a runtime stands.
    fn runtime(self) -> &'static [&'static str] {
        match self {
            Self::Podman => &["engine", "runtimes", NAME],
            Self::Crio => &["crio", "runtime", "runtimes", NAME],
        }
    }

    /// Where the default stands.
    fn default(self) -> &'static [&'static str] {
        match self {
            Self::Podman => &["engine", "runtime"],
            Self::Crio => &["crio", "runtime", "default_runtime"],
        }
    }

    /// Whether a file can be ours and have this in it.
    fn has(self, path: &[String]) -> bool {
        let is_list = self == Self::Podman && LISTS.iter().any(|list| path == ["engine", list]);
        let runtime = self.runtime();
        let is_below = path.len() >= runtime.len() && path.iter().zip(runtime).all(|(found, part)| found == part);
        is_list || is_below || path == self.default()
    }
}

/// A file that the engine reads.
#[derive(Clone, Copy, Debug)]
pub struct Other<'a> {
    /// Its path, for people.
    pub path: &'a str,
    /// What is in it.
    pub text: &'a str,
    /// It is read after ours, and counts where it says otherwise.
    pub is_later: bool,
}

/// The text of our file, beside the others that the engine reads, in their order.
///
/// # Errors
/// [`Refusal`] where another file is not understood, has a runtime by our name, or would outdo ours.
pub fn text(reader: Reader, others: &[Other<'_>], wanted: Wanted<'_>) -> Result<String, Refusal> {
    check_program(wanted.program)?;
    let mut new = snippet(reader.snippet(), wanted.program);
    let mut tables = Vec::new();
    for other in others {
        let path = other.path;
        let table: Table = match toml::from_str(other.text) {
            Ok(table) => table,
            Err(error) => {
                let line = error.message().lines().next().unwrap_or_default().to_owned();
                return refused(format!("{path} is no TOML: {line}"), format!("correct {path}"));
            }
        };
        if get(&table, reader.runtime()).is_some() {
            let text = format!("{path} has a runtime \"{NAME}\" already");
            return refused(text, format!("take it out of {path}"));
        }
        if wanted.default && other.is_later && get(&table, reader.default()).is_some() {
            let text = format!("{path} is read after cudaview's file, and names the default runtime");
            return refused(text, format!("name \"{NAME}\" there, or take that line out of {path}"));
        }
        tables.push((other, table));
    }
    if reader == Reader::Podman {
        for list in LISTS {
            new = with_list(&new, list, &tables)?;
        }
    }
    if wanted.default {
        let (before, line) = match reader {
            Reader::Podman => ("\n[engine]\n", format!("\n[engine]\nruntime = \"{NAME}\"\n")),
            Reader::Crio => (
                "\n[crio.runtime.runtimes",
                format!("\n[crio.runtime]\ndefault_runtime = \"{NAME}\"\n\n[crio.runtime.runtimes"),
            ),
        };
        new = new.replacen(before, &line, 1);
    }
    let made = toml::from_str::<Table>(&new).ok();
    let default = made.as_ref().and_then(|table| get(table, reader.default()));
    if made.as_ref().is_none_or(|table| get(table, reader.runtime()).is_none()) || default.is_some() != wanted.default {
        return refused("the file came out wrong", "this is a bug in cudaview");
    }
    Ok(new)
}

/// A list of podman's with what another file has put into it: ours would replace that.
fn with_list(text: &str, list: &str, tables: &[(&Other<'_>, Table)]) -> Result<String, Refusal> {
    let said = |table: &Table| get(table, &["engine", list]).cloned();
    let Some((other, value)) = tables.iter().rev().find_map(|(other, table)| Some((other, said(table)?))) else {
        return Ok(text.to_owned());
    };
    let listed = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names: Vec<&str> = listed.collect();
    if other.is_later && !names.contains(&NAME) {
        let text = format!("{} is read after cudaview's file, and has {list} without \"{NAME}\"", other.path);
        return refused(text, format!("add \"{NAME}\" to that list in {}", other.path));
    }
    if !names.contains(&NAME) {
        names.push(NAME);
    }
    // Names of programs, which both languages quote alike.
    let line = format!("{list} = {names:?}");
    let is_list = |found: &&str| found.starts_with(list);
    Ok(text.lines().find(is_list).map_or_else(|| text.to_owned(), |found| text.replacen(found, &line, 1)))
}

/// Whether a file names us as the default.
pub fn is_default(reader: Reader, text: &str) -> bool {
    let table = toml::from_str::<Table>(text).ok();
    table.as_ref().and_then(|table| get(table, reader.default())).and_then(Value::as_str) == Some(NAME)
}

/// Whether a file by our name has nothing in it but what is ours.
pub fn is_ours(reader: Reader, text: &str) -> bool {
    let Ok(table) = toml::from_str::<Table>(text) else { return false };
    leaves(&table).iter().all(|path| reader.has(path))
}
