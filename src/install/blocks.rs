//! TOML as lines: tables are added at the end, values are replaced where they stand.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// The path of a table's header, where the line is one.
pub(super) fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    if !line.starts_with('[') || line.starts_with("[[") {
        return None;
    }
    let table: Table = toml::from_str(line).ok()?;
    let (mut path, mut table) = (Vec::new(), &table);
    while let Some((key, value)) = table.iter().next() {
        path.push(key.clone());
        table = value.as_table()?;
    }
    Some(path)
}

/// Where each line begins, and the line with its end.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    })
}

/// The lines below a header, up to the next.
pub(super) fn section(text: &str, path: &[&str]) -> Option<Range<usize>> {
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let mut all = lines(text).skip_while(|(_, line)| header(line).is_none_or(|found| found != path));
    let (at, line) = all.next()?;
    let start = at + line.len();
    let end = all.find(|(_, line)| is_header(line)).map_or(text.len(), |(at, _)| at);
    Some(start..end)
}

/// The line of a key in a part of a text, and its value there.
pub(super) fn entry(text: &str, part: Range<usize>, key: &str) -> Option<(Range<usize>, Range<usize>)> {
    let offset = part.start;
    lines(text.get(part)?).find_map(|(at, line)| {
        let table = DeTable::parse(line).ok()?;
        let value = table.get_ref().get(key)?;
        let start = offset + at;
        let DeValue::String(_) = value.get_ref() else { return None };
        let span = value.span();
        Some((start..start + line.len(), start + span.start..start + span.end))
    })
}

/// The text with a block behind it, a blank line between.
pub(super) fn append(text: &str, block: &str) -> String {
    let end = line_end(text);
    let mut out = text.to_owned();
    if !out.is_empty() {
        if !out.ends_with('\n') {
            out.push_str(end);
        }
        out.push_str(end);
    }
    out.push_str(&block.replace('\n', end));
    out
}

/// The text without a block that [`append`] put there; `None` where it is not there as it was.
pub(super) fn take_out(text: &str, block: &str) -> Option<String> {
    let end = line_end(text);
    let block = block.replace('\n', end);
    let at = text.find(&block)?;
    let before = text.get(..at)?;
    // Whether the last line had an end of its own nobody knows; the blank line was ours.
    let before = before.strip_suffix(end).filter(|before| before.ends_with('\n')).unwrap_or(before);
    Some(format!("{before}{}", text.get(at + block.len()..)?))
}

/// How the lines of a text end.
pub(super) fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The value at a path.
pub(super) fn get<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (last, folders) = path.split_last()?;
    let mut table = table;
    for folder in folders {
        table = table.get(*folder)?.as_table()?;
    }
    table.get(*last)
}

/// Puts a value at a path; tables on the way are made.
pub(super) fn set(table: &mut Table, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.insert((*first).to_owned(), value);
        return;
    }
    let below = table.entry((*first).to_owned()).or_insert_with(|| Value::Table(Table::new()));
    if let Some(below) = below.as_table_mut() {
        set(below, rest, value);
    }
}

/// Takes away what is at a path, and the tables on the way that are empty then.
pub(super) fn unset(table: &mut Table, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.remove(*first);
        return;
    }
    if let Some(below) = table.get_mut(*first).and_then(Value::as_table_mut) {
        unset(below, rest);
        if below.is_empty() {
            table.remove(*first);
        }
    }
}

/// Every value that is no table, by its path.
pub(super) fn leaves(table: &Table) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for (key, value) in table {
        match value.as_table() {
            Some(below) => out.extend(leaves(below).into_iter().map(|path| [vec![key.clone()], path].concat())),
            None => out.push(vec![key.clone()]),
        }
    }
    out
}

/// The same table without those that are empty, which say nothing.
pub(super) fn without_empty(table: &Table) -> Table {
    let kept = table.iter().filter_map(|(key, value)| match value.as_table() {
        Some(below) => Some(without_empty(below)).filter(|below| !below.is_empty()).map(|b| (key.clone(), b.into())),
        None => Some((key.clone(), value.clone())),
    });
    kept.collect()
}
