//! The table of `cudaview ps`: which container holds which GPU.

use serde_json::{Value, json};

use super::Style;
use super::style::{Tone, cut};
use crate::finding::printable;
use crate::inventory::{Device, Inventory, list};

/// A running container that can open GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name, or the beginning of its id.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The engine, and whether it is an ordinary user's: `podman, rootless`.
    pub how: String,
    /// Whose it is, where that is known.
    pub user: Option<String>,
    /// What it can open.
    pub openable: Vec<Device>,
    /// What a CUDA program in it sees, in CUDA's order.
    pub visible: Vec<Device>,
    /// Whether the order is certain.
    pub certain: bool,
    /// When it was started, as people read it, and as programs do.
    pub since: (String, Option<String>),
}

/// What is held on a host, as far as whoever asks can see it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// The containers.
    pub holders: Vec<Holder>,
    /// Where one could not look, each with the reason.
    pub unseen: Vec<String>,
}

const TITLES: [&str; 6] = ["GPU", "HELD BY", "HOW", "USER", "SEES IT AS", "SINCE"];

/// The table, and what it leaves open.
pub fn ps_table(inventory: &Inventory, held: &Held, style: Style) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for device in shown(inventory) {
        let holders = holders_of(held, device);
        if holders.is_empty() {
            rows.push([
                inventory.host_label(device),
                "-".to_owned(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
        for (number, holder) in holders.iter().enumerate() {
            let label = if number == 0 { inventory.host_label(device) } else { String::new() };
            let user = holder.user.as_deref().map_or_else(|| "-".to_owned(), printable);
            let name = printable(&holder.name);
            rows.push([label, name, holder.how.clone(), user, seen_as(holder, device), holder.since.0.clone()]);
        }
    }
    let widths = widths(&rows, style);
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cut(cell, width)));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(&style.paint_cuda(line.trim_end()));
        out.push('\n');
    }
    out + &remarks(inventory, held, style)
}

/// Names give way where the terminal is narrow.
fn widths(rows: &[[String; 6]], style: Style) -> [usize; 6] {
    let mut widths = [0; 6];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let room = style.width.saturating_sub(1 + 2 * (widths.len() - 1));
    for _ in room..widths.iter().sum() {
        let widest = [1, 2, 3].into_iter().filter(|column| widths[*column] > 8).max_by_key(|column| widths[*column]);
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
    }
    widths
}

/// The devices that get a line: MIG devices in place of the GPU that they are on.
fn shown(inventory: &Inventory) -> Vec<Device> {
    inventory
        .all_devices()
        .into_iter()
        .filter(|device| device.mig.is_some() || inventory.gpu(*device).mig.is_empty())
        .collect()
}

fn holders_of(held: &Held, device: Device) -> Vec<&Holder> {
    held.holders.iter().filter(|holder| holder.openable.contains(&device)).collect()
}

/// The ordinal of a device in a container; a dash where its program does not see it.
fn seen_as(holder: &Holder, device: Device) -> String {
    match holder.visible.iter().position(|seen| *seen == device) {
        Some(ordinal) if holder.certain => format!("cuda:{ordinal}"),
        Some(_) => "cuda:?".to_owned(),
        None => "-".to_owned(),
    }
}

fn remarks(inventory: &Inventory, held: &Held, style: Style) -> String {
    let mut out = String::new();
    for device in shown(inventory) {
        let names: Vec<String> = holders_of(held, device).iter().map(|holder| printable(&holder.name)).collect();
        if names.len() > 1 {
            out.push_str(&paragraph(
                &format!("GPU {} is shared: {}", inventory.host_label(device), list(&names)),
                style,
            ));
        }
    }
    let mut limits =
        "What runs outside of containers, and other users' rootless containers, are not seen here".to_owned();
    if !held.unseen.is_empty() {
        limits.push_str(&format!("; nor could be looked at: {}", held.unseen.join(", ")));
    }
    let gap = if out.is_empty() { "\n" } else { "" };
    format!("{}{out}{gap}{}", if out.is_empty() { "" } else { "\n" }, paragraph(&limits, style))
}

fn paragraph(text: &str, style: Style) -> String {
    style.wrap(0, text).into_iter().map(|line| line + "\n").collect()
}

/// The same for programs.
pub fn ps_json(inventory: &Inventory, held: &Held) -> Value {
    let of = |holder: &Holder, device: Device| {
        let ordinal = holder.visible.iter().position(|seen| *seen == device).filter(|_| holder.certain);
        json!({"name": holder.name, "id": holder.id, "how": holder.how, "user": holder.user, "cudaOrdinal": ordinal,
            "since": holder.since.1})
    };
    let devices: Vec<Value> = shown(inventory)
        .into_iter()
        .map(|device| {
            let holders: Vec<Value> = holders_of(held, device).into_iter().map(|holder| of(holder, device)).collect();
            json!({"host": inventory.host_label(device), "uuid": inventory.uuid(device), "heldBy": holders})
        })
        .collect();
    json!({"schemaVersion": 1, "gpus": devices, "unseen": held.unseen})
}

impl Style {
    /// What a program calls its GPUs is green everywhere.
    fn paint_cuda(self, line: &str) -> String {
        let Some(at) = line.find("cuda:").filter(|_| self.colour) else { return line.to_owned() };
        let (before, rest) = line.split_at(at);
        let end = rest.find(' ').unwrap_or(rest.len());
        format!("{before}{}{}", self.paint(Tone::Green, &rest[..end]), &rest[end..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style { width: 80, colour: false };

    fn inventory() -> Inventory {
        Inventory::from_json(include_bytes!("../../tests/data/inventories/a100x4.json")).expect("a fixture")
    }

    fn holder(name: &str, how: &str, user: Option<&str>, openable: &[usize], visible: &[usize]) -> Holder {
        let devices = |gpus: &[usize]| gpus.iter().map(|gpu| Device { gpu: *gpu, mig: None }).collect();
        Holder {
            name: name.to_owned(),
            id: name.repeat(3),
            how: how.to_owned(),
            user: user.map(str::to_owned),
            openable: devices(openable),
            visible: devices(visible),
            certain: true,
            since: ("13:05".to_owned(), None),
        }
    }

    #[test]
    fn who_holds_what() {
        let held = Held {
            holders: vec![
                holder("trainer", "docker", None, &[1, 3], &[3, 1]),
                holder("llm", "podman, rootless", Some("alice"), &[2], &[2]),
                holder("idle", "containerd", None, &[2, 3], &[]),
            ],
            unseen: Vec::new(),
        };
        let expected = "\
GPU  HELD BY  HOW               USER   SEES IT AS  SINCE
0    -
1    trainer  docker            -      cuda:1      13:05
2    llm      podman, rootless  alice  cuda:0      13:05
     idle     containerd        -      -           13:05
3    trainer  docker            -      cuda:0      13:05
     idle     containerd        -      -           13:05

GPU 2 is shared: llm and idle
GPU 3 is shared: trainer and idle
What runs outside of containers, and other users' rootless containers, are not
seen here
";
        assert_eq!(ps_table(&inventory(), &held, STYLE), expected);
        let json = ps_json(&inventory(), &held);
        assert_eq!(json["gpus"][3]["heldBy"][0]["cudaOrdinal"], 0);
        assert_eq!(json["gpus"][2]["heldBy"][1]["cudaOrdinal"], Value::Null);
    }

    #[test]
    fn long_names_and_hostile_ones() {
        let name = "x\u{1b}[31m".repeat(30);
        let held = Held { holders: vec![holder(&name, "docker", Some(&name), &[0], &[0])], unseen: Vec::new() };
        let text = ps_table(&inventory(), &held, STYLE);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }
}
