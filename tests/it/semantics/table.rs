//! The tables of the documentation, read as text.

use std::collections::BTreeMap;

use cudaview::inventory::Inventory;

const TEXT: &str = include_str!("../../../docs/semantics.md");

/// The columns that say what goes in; a table may have any of them, and no other.
const INPUTS: [&str; 12] = [
    "host",
    "asked",
    "around",
    "image ENV",
    "-e",
    "of unknown origin",
    "policy",
    "exec -e",
    "between",
    "open",
    "CUDA_VISIBLE_DEVICES",
    "order",
];

/// The columns that say what comes out.
const OUTPUTS: [&str; 13] = [
    "verdict",
    "granted",
    "view",
    "nodes",
    "value",
    "findings",
    "order after",
    "NVIDIA_VISIBLE_DEVICES after",
    "trace",
    "original",
    "shows",
    "certain",
    "severity",
];

fn is_column(name: &str) -> bool {
    INPUTS.contains(&name) || OUTPUTS.contains(&name)
}

/// A row, with the heading that it stands under.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) line: usize,
    /// `Rule 4`, or the heading's words.
    pub(crate) section: String,
    pub(crate) host: String,
    cells: BTreeMap<String, String>,
}

/// The rows of every table that is headed `host`.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = String::new();
    let mut head: Option<Vec<String>> = None;
    for (number, line) in TEXT.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            heading.split(':').next().unwrap_or_default().trim().clone_into(&mut section);
        }
        let Some(cells) = cells(line) else {
            head = None;
            continue;
        };
        match &head {
            None => {
                let is_run = cells[0] == "host";
                let known = cells.iter().all(|cell| is_column(cell));
                assert!(known || !is_run, "line {}: unknown column in {cells:?}", number + 1);
                head = Some(if is_run { cells } else { Vec::new() });
            }
            Some(head) if head.is_empty() || cells[0].starts_with("--") => {}
            Some(head) => {
                assert_eq!(cells.len(), head.len(), "line {}: cells", number + 1);
                let cells: BTreeMap<String, String> = head.iter().cloned().zip(cells).collect();
                rows.push(Row { line: number + 1, section: section.clone(), host: cells["host"].clone(), cells });
            }
        }
    }
    rows
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

impl Row {
    /// The text of a cell; `None` where the table has no such column.
    pub(crate) fn cell(&self, column: &str) -> Option<&str> {
        assert!(is_column(column), "{column}");
        self.cells.get(column).map(String::as_str)
    }

    /// The columns of this row that say what comes out.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = &'static str> {
        OUTPUTS.into_iter().filter(|column| self.has(column))
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.cell(column).is_some()
    }

    /// What stands in backticks in a cell, with `{1}` and `{0:1}` replaced by the UUIDs of these devices.
    pub(crate) fn spans(&self, column: &str, inventory: &Inventory) -> Vec<String> {
        let cell = self.cell(column).unwrap_or_default();
        let spans = cell.split('`').skip(1).step_by(2);
        spans.map(|span| with_uuids(span, inventory)).collect()
    }

    /// The values of a cell of assignments, by the variable's whole name.
    pub(crate) fn variables(&self, column: &str, inventory: &Inventory) -> BTreeMap<&'static str, String> {
        let assignments = self.spans(column, inventory).into_iter();
        assignments
            .map(|span| {
                let (name, value) = span.split_once('=').unwrap_or_else(|| panic!("line {}: {span}", self.line));
                (self.variable(name), value.to_owned())
            })
            .collect()
    }

    fn variable(&self, name: &str) -> &'static str {
        match name {
            "CVD" => "CUDA_VISIBLE_DEVICES",
            "NVD" => "NVIDIA_VISIBLE_DEVICES",
            "ORDER" => "CUDA_DEVICE_ORDER",
            other => panic!("line {}: no variable {other:?}", self.line),
        }
    }

    /// A cell that holds one value: `–` is unset, the word empty is an empty one.
    pub(crate) fn value(&self, column: &str, inventory: &Inventory) -> Option<String> {
        match self.cell(column) {
            None | Some("–") => None,
            Some("empty") => Some(String::new()),
            Some(_) => Some(self.spans(column, inventory).concat()),
        }
    }
}

fn with_uuids(text: &str, inventory: &Inventory) -> String {
    let mut text = text.to_owned();
    for gpu in &inventory.gpus {
        text = text.replace(&format!("{{{}}}", gpu.index), gpu.uuid.as_str());
    }
    for device in inventory.all_devices() {
        text = text.replace(&format!("{{{}}}", inventory.host_label(device)), inventory.uuid(device));
    }
    text
}
