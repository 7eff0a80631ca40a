//! `cudaview predict` for people.

use super::Style;
use super::changes::mapping;
use super::style::{Tone, USUAL, cut};
use crate::cuda::Prediction;
use crate::inventory::{Device, Inventory};

/// `GPU-` and 36 characters.
const FULL_UUID: usize = 40;

/// `GPU-` and eight characters.
const SHORT_UUID: usize = 12;

/// What CUDA would show, as text.
pub fn predict_text(inventory: &Inventory, prediction: &Prediction, style: Style) -> String {
    let seen = &prediction.visible;
    let answer = if seen.is_empty() { "no GPU: CUDA finds no device".to_owned() } else { mapping(inventory, seen) };
    let sure = if prediction.certain { "certain" } else { "not certain" };
    let full = Style { width: style.width + 1, ..style };
    let lines = full.wrap(0, &format!("{answer} ({sure})"));
    let mut out: String = lines.into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect();
    let name = |device: Device| {
        let profile = inventory.mig(device).map(|mig| format!(" MIG {}", mig.profile)).unwrap_or_default();
        format!("{}{profile}", inventory.gpu(device).name)
    };
    let room = style.width.saturating_sub(20 + if style.is_wide() { FULL_UUID } else { SHORT_UUID });
    let has_name = style.width >= USUAL || seen.iter().all(|device| name(*device).chars().count() <= room);
    if !seen.is_empty() {
        let width = if style.is_wide() { FULL_UUID } else { SHORT_UUID };
        let title = if has_name { "NAME" } else { "" };
        let line = format!("  PROGRAM  HOST  {:width$}  {title}", "UUID");
        out.push_str(&format!("\n{}\n", line.trim_end()));
    }
    for (ordinal, device) in seen.iter().enumerate() {
        let program = style.paint(Tone::Green, &format!("{:7}", format!("cuda:{ordinal}")));
        let uuid = if style.is_wide() { inventory.uuid(*device).to_owned() } else { inventory.short_uuid(*device) };
        let name = if has_name { cut(&name(*device), room.max(19)) } else { String::new() };
        let line = format!("  {program}  {:4}  {uuid}  {name}", inventory.host_label(*device));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for note in &prediction.notes {
        out.push_str(&style.tagged(0, "note", note));
    }
    out
}
