//! The table of `cudaview ps`: which container holds which GPU.

use serde_json::{Value, json};

use super::Style;
use super::style::{Tone, cut};
use crate::finding::printable;
use crate::inventory::{Device, Inventory, list};
use crate::usage::{DeviceUsage, Usage};

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

/// A process on a GPU that is in none of the containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The UUID of the GPU or the MIG device.
    pub uuid: String,
    /// Its id.
    pub pid: u32,
    /// Whether its cgroup names a container that whoever asks cannot look at.
    pub in_container: bool,
    /// Whose it is, where that can be seen.
    pub user: Option<String>,
    /// When it was started.
    pub since: (String, Option<String>),
}

/// What is held on a host, as far as whoever asks can see it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// The containers.
    pub holders: Vec<Holder>,
    /// Processes outside of them.
    pub outside: Vec<Outside>,
    /// Memory and processes, where NVML can be asked.
    pub usage: Option<Usage>,
    /// Where one could not look, each with the reason.
    pub unseen: Vec<String>,
    /// Root asks, who sees every user's containers.
    pub is_root: bool,
}

impl Held {
    /// Whether nothing that holds a GPU can have been missed.
    fn sees_all(&self) -> bool {
        self.is_root && self.unseen.is_empty() && self.usage.is_some()
    }

    fn usage_of(&self, inventory: &Inventory, device: Device) -> Option<&DeviceUsage> {
        self.usage.as_ref()?.of(inventory.uuid(device))
    }

    fn holders_of(&self, device: Device) -> Vec<&Holder> {
        self.holders.iter().filter(|holder| holder.openable.contains(&device)).collect()
    }

    fn outside_of(&self, inventory: &Inventory, device: Device) -> Vec<&Outside> {
        self.outside.iter().filter(|process| process.uuid == inventory.uuid(device)).collect()
    }

    /// Nobody holds it and nobody uses it, and that is certain.
    fn is_idle(&self, inventory: &Inventory, device: Device) -> bool {
        self.sees_all()
            && self.holders_of(device).is_empty()
            && self.usage_of(inventory, device).is_some_and(|usage| usage.processes.is_empty())
    }
}

const TITLES: [&str; 7] = ["GPU", "MEMORY GiB", "HELD BY", "HOW", "USER", "SEES IT AS", "SINCE"];

/// The column that is there only where NVML answered.
const MEMORY: usize = 1;

/// The table, and what it leaves open.
pub fn ps_table(inventory: &Inventory, held: &Held, style: Style) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for device in shown(inventory) {
        rows.extend(rows_of(inventory, held, device));
    }
    let widths = widths(&rows, held.usage.is_some(), style);
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().filter(|(column, _)| *column != MEMORY || held.usage.is_some());
        let cells = cells.map(|(_, (cell, width))| format!("{:width$}", cut(cell, width)));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(&style.paint_cuda(line.trim_end()));
        out.push('\n');
    }
    out + &remarks(inventory, held, style)
}

fn rows_of(inventory: &Inventory, held: &Held, device: Device) -> Vec<[String; 7]> {
    let name = |user: &Option<String>| user.as_deref().map_or_else(|| "-".to_owned(), printable);
    let mut rows: Vec<[String; 5]> = Vec::new();
    for holder in held.holders_of(device) {
        let seen = seen_as(holder, device);
        rows.push([printable(&holder.name), holder.how.clone(), name(&holder.user), seen, holder.since.0.clone()]);
    }
    for process in held.outside_of(inventory, device) {
        let how = if process.in_container { "a container" } else { "no container" };
        let pid = format!("pid {}", process.pid);
        rows.push([pid, how.to_owned(), name(&process.user), "-".to_owned(), process.since.0.clone()]);
    }
    if rows.is_empty() {
        let word = if held.is_idle(inventory, device) { "idle" } else { "-" };
        rows.push([word, "", "", "", ""].map(str::to_owned));
    }
    let memory = held.usage_of(inventory, device).map_or_else(|| "-".to_owned(), memory);
    let mut first = [inventory.host_label(device), memory];
    rows.into_iter()
        .map(|[who, how, user, seen, since]| {
            let [label, memory] = std::mem::take(&mut first);
            [label, memory, who, how, user, seen, since]
        })
        .collect()
}

fn memory(usage: &DeviceUsage) -> String {
    format!("{} of {}", gib(usage.memory_used), gib(usage.memory_total))
}

/// To the nearest.
fn gib(bytes: u64) -> u64 {
    (bytes + (1 << 29)) >> 30
}

/// Names give way where the terminal is narrow.
fn widths(rows: &[[String; 7]], has_memory: bool, style: Style) -> [usize; 7] {
    let mut widths = [0; 7];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut room = style.width.saturating_sub(1 + 2 * (widths.len() - 1));
    if !has_memory {
        room += widths[MEMORY] + 2;
    }
    for _ in room..widths.iter().sum() {
        let widest = [2, 3, 4].into_iter().filter(|column| widths[*column] > 8).max_by_key(|column| widths[*column]);
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

/// The ordinal of a device in a container; a dash where its program does not see it.
fn seen_as(holder: &Holder, device: Device) -> String {
    match holder.visible.iter().position(|seen| *seen == device) {
        Some(ordinal) if holder.certain => format!("cuda:{ordinal}"),
        Some(_) => "cuda:?".to_owned(),
        None => "-".to_owned(),
    }
}

fn remarks(inventory: &Inventory, held: &Held, style: Style) -> String {
    let mut remarks: Vec<String> = Vec::new();
    let with_user = |name: String, user: &Option<String>| match user {
        Some(user) => format!("{name} ({})", printable(user)),
        None => name,
    };
    let mut idle: Vec<String> = Vec::new();
    for device in shown(inventory) {
        let holders =
            held.holders_of(device).into_iter().map(|holder| with_user(printable(&holder.name), &holder.user));
        let outside = held.outside_of(inventory, device);
        let outside = outside.into_iter().map(|process| with_user(format!("pid {}", process.pid), &process.user));
        let names: Vec<String> = holders.chain(outside).collect();
        if names.len() > 1 {
            remarks.push(format!("GPU {} is shared: {}", inventory.host_label(device), list(&names)));
        }
        if held.is_idle(inventory, device) {
            idle.push(inventory.host_label(device));
        }
    }
    match idle.as_slice() {
        [] => {}
        [only] => {
            remarks.push(format!("GPU {only} is idle: no container and no process. Take it: --gpus device={only}"));
        }
        all => {
            let text = format!("GPUs {} are idle: no container and no process. Take them:", list(all));
            remarks.push(format!("{text} --gpus '\"device={}\"'", all.join(",")));
        }
    }
    remarks.extend(unused(inventory, held));
    remarks.extend(limits(held));
    let lines: String = remarks.iter().map(|text| paragraph(text, style)).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// What may be free, for whoever cannot see all that could hold it.
fn unused(inventory: &Inventory, held: &Held) -> Option<String> {
    if held.sees_all() {
        return None;
    }
    let is_unused = |device: &Device| {
        let usage = held.usage_of(inventory, *device);
        held.holders_of(*device).is_empty()
            && usage.is_some_and(|usage| usage.processes.is_empty() && gib(usage.memory_used) == 0)
    };
    let unused: Vec<String> =
        shown(inventory).into_iter().filter(is_unused).map(|device| inventory.host_label(device)).collect();
    match unused.as_slice() {
        [] => None,
        [only] => Some(format!("GPU {only} shows no process and no memory in use")),
        all => Some(format!("GPUs {} show no process and no memory in use", list(all))),
    }
}

/// What is not seen, for whom.
fn limits(held: &Held) -> Vec<String> {
    if held.sees_all() {
        return Vec::new();
    }
    let mut missed = Vec::new();
    if held.usage.is_none() {
        missed.push("processes outside of containers (NVML cannot be asked)".to_owned());
    }
    if !held.is_root {
        missed.push("other users' rootless containers".to_owned());
    }
    missed.extend(held.unseen.iter().cloned());
    let mut out = vec![format!("Not seen from here: {}", missed.join(", "))];
    if !held.is_root {
        out.push("For all of it: sudo cudaview ps".to_owned());
    }
    out
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
            let holders: Vec<Value> = held.holders_of(device).into_iter().map(|holder| of(holder, device)).collect();
            let outside = held.outside_of(inventory, device).into_iter();
            let outside: Vec<Value> = outside
                .map(|process| {
                    json!({"pid": process.pid, "inContainer": process.in_container, "user": process.user,
                        "since": process.since.1})
                })
                .collect();
            let usage = held.usage_of(inventory, device);
            json!({"host": inventory.host_label(device), "uuid": inventory.uuid(device), "heldBy": holders,
                "processes": outside, "idle": held.is_idle(inventory, device),
                "memoryUsed": usage.map(|usage| usage.memory_used), "memoryTotal": usage.map(|usage| usage.memory_total)})
        })
        .collect();
    json!({"schemaVersion": 1, "gpus": devices, "complete": held.sees_all(), "unseen": held.unseen})
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
    fn who_holds_what_without_nvml() {
        let held = Held {
            holders: vec![
                holder("trainer", "docker", None, &[1, 3], &[3, 1]),
                holder("llm", "podman, rootless", Some("alice"), &[2], &[2]),
                holder("idle", "containerd", None, &[2, 3], &[]),
            ],
            ..Held::default()
        };
        let expected = "\
GPU  HELD BY  HOW               USER   SEES IT AS  SINCE
0    -
1    trainer  docker            -      cuda:1      13:05
2    llm      podman, rootless  alice  cuda:0      13:05
     idle     containerd        -      -           13:05
3    trainer  docker            -      cuda:0      13:05
     idle     containerd        -      -           13:05

GPU 2 is shared: llm (alice) and idle
GPU 3 is shared: trainer and idle
Not seen from here: processes outside of containers (NVML cannot be asked),
other users' rootless containers
For all of it: sudo cudaview ps
";
        assert_eq!(ps_table(&inventory(), &held, STYLE), expected);
        let json = ps_json(&inventory(), &held);
        assert_eq!(json["gpus"][3]["heldBy"][0]["cudaOrdinal"], 0);
        assert_eq!(json["gpus"][2]["heldBy"][1]["cudaOrdinal"], Value::Null);
        assert_eq!((&json["gpus"][0]["idle"], &json["complete"]), (&json!(false), &json!(false)));
    }

    fn usage(used: [u64; 4], processes: [&[u32]; 4]) -> Usage {
        let gpus = inventory().gpus;
        let devices = gpus.iter().zip(used).zip(processes).map(|((gpu, used), processes)| DeviceUsage {
            uuid: gpu.uuid.as_str().to_owned(),
            memory_used: used << 30,
            memory_total: 40 << 30,
            processes: processes.to_vec(),
        });
        Usage { devices: devices.collect() }
    }

    /// The screen of the design.
    #[test]
    fn idle_is_what_nobody_holds_or_uses() {
        let bob = Outside {
            uuid: inventory().gpus[2].uuid.as_str().to_owned(),
            pid: 48211,
            in_container: false,
            user: Some("bob".to_owned()),
            since: ("12:30".to_owned(), None),
        };
        let mut held = Held {
            holders: vec![
                holder("trainer", "docker", None, &[1, 3], &[1, 3]),
                holder("llm", "podman, rootless", Some("alice"), &[2], &[2]),
            ],
            outside: vec![bob],
            usage: Some(usage([0, 31, 22, 31], [&[], &[7], &[8, 48211], &[7]])),
            is_root: true,
            unseen: Vec::new(),
        };
        let expected = "\
GPU  MEMORY GiB  HELD BY    HOW               USER   SEES IT AS  SINCE
0    0 of 40     idle
1    31 of 40    trainer    docker            -      cuda:0      13:05
2    22 of 40    llm        podman, rootless  alice  cuda:0      13:05
                 pid 48211  no container      bob    -           12:30
3    31 of 40    trainer    docker            -      cuda:1      13:05

GPU 2 is shared: llm (alice) and pid 48211 (bob)
GPU 0 is idle: no container and no process. Take it: --gpus device=0
";
        assert_eq!(ps_table(&inventory(), &held, STYLE), expected);
        held.holders.truncate(0);
        let text = ps_table(&inventory(), &held, STYLE);
        assert!(!text.contains("GPU 1 is idle") && text.contains("GPU 0 is idle"), "a process uses GPU 1: {text}");
        let changes: [fn(&mut Held); 3] = [
            |held| held.is_root = false,
            |held| held.unseen.push("docker.sock (not permitted)".to_owned()),
            |held| held.usage = None,
        ];
        for change in changes {
            let mut held = held.clone();
            change(&mut held);
            assert!(!ps_table(&inventory(), &held, STYLE).contains("idle"));
            assert_eq!(ps_json(&inventory(), &held)["gpus"][0]["idle"], false);
        }
    }

    #[test]
    fn long_names_and_hostile_ones() {
        let name = "x\u{1b}[31m".repeat(30);
        let held = Held { holders: vec![holder(&name, "docker", Some(&name), &[0], &[0])], ..Held::default() };
        let text = ps_table(&inventory(), &held, STYLE);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }
}
