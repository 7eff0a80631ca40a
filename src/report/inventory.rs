//! The table of `cudaview inventory`.

use super::Style;
use super::style::{Tone, USUAL, cut};
use super::words::count;
use crate::inventory::Inventory;

/// The GPUs of a host, as a table.
pub fn inventory_table(inventory: &Inventory, style: Style) -> String {
    if !inventory.platform.is_usual() {
        let text = "WSL2: one device, /dev/dxg, is all GPUs of this host. Containers get all of them or none, and \
                    CUDA_VISIBLE_DEVICES stays as it is.";
        let lines = Style { width: style.width + 1, ..style }.wrap(0, text);
        return lines.into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect();
    }
    let driver = inventory.driver_version.as_deref().unwrap_or("unknown");
    let all: Vec<_> = (0..inventory.gpus.len()).map(|gpu| crate::inventory::Device { gpu, mig: None }).collect();
    let source = if inventory.source.is_empty() { "a file" } else { &inventory.source };
    let answer = format!("{}, driver {}, source: {}", count(&all), cut(driver, 20), cut(source, 30));
    let lines = Style { width: style.width + 1, ..style }.wrap(0, &answer);
    let mut out: String = lines.into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect();
    if inventory.gpus.is_empty() {
        return out;
    }
    let rows = rows(inventory, style);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (host, node, address, id) = (width(0), width(1), width(2), width(4));
    let fixed = 2 + host + 2 + node + 2 + id;
    let room = style.width.saturating_sub(fixed + 2 + address + 2 + 1);
    let name = width(3).min(room.max(12));
    // On a narrow terminal names go first, then addresses.
    let has_name = style.width >= USUAL || width(3) <= room;
    let has_address = style.width > fixed + 2 + address;
    out.push('\n');
    for row in &rows {
        let [index, file, bus, model, uuid] = row;
        let bus = if has_address { format!("{bus:address$}  ") } else { String::new() };
        let title = if has_name { format!("{:name$}  ", cut(model, name)) } else { String::new() };
        let line = format!("  {index:host$}  {file:node$}  {bus}{title}{uuid}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let text = "HOST: the number in nvidia-smi and --gpus. NODE: its file in /dev.";
    out.extend(style.wrap(2, text).iter().map(|line| format!("  {line}\n")));
    out
}

fn rows(inventory: &Inventory, style: Style) -> Vec<[String; 5]> {
    let mut rows = vec![["HOST", "NODE", "PCI ADDRESS", "NAME", "UUID"].map(str::to_owned)];
    for (position, gpu) in inventory.gpus.iter().enumerate() {
        let uuid = if style.is_wide() { gpu.uuid.as_str() } else { gpu.uuid.short() };
        let address = gpu.pci_bus_id.map(|address| address.to_string()).unwrap_or_default();
        rows.push([
            gpu.index.to_string(),
            format!("nvidia{}", gpu.minor),
            address,
            gpu.name.escape_debug().to_string(),
            uuid.to_owned(),
        ]);
        for device in inventory.devices_of(position).into_iter().filter(|device| device.mig.is_some()) {
            let profile = inventory.mig(device).map(|mig| mig.profile.clone()).unwrap_or_default();
            let uuid = if style.is_wide() { inventory.uuid(device).to_owned() } else { inventory.short_uuid(device) };
            let name = format!("  MIG {}", profile.escape_debug());
            rows.push([inventory.host_label(device), String::new(), String::new(), name, uuid]);
        }
    }
    rows
}
