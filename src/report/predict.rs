//! `cudaview predict` for people.

use super::Style;
use super::changes::mapping;
use super::style::{Tone, cut};
use crate::cuda::Prediction;
use crate::inventory::Inventory;

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
    if !seen.is_empty() {
        let width = if style.is_wide() { FULL_UUID } else { SHORT_UUID };
        out.push_str(&format!("\n  PROGRAM  HOST  {:width$}  NAME\n", "UUID"));
    }
    for (ordinal, device) in seen.iter().enumerate() {
        let program = style.paint(Tone::Green, &format!("{:7}", format!("cuda:{ordinal}")));
        let uuid = if style.is_wide() { inventory.uuid(*device) } else { inventory.short_uuid(*device) };
        let profile = inventory.mig(*device).map(|mig| format!(" MIG {}", mig.profile)).unwrap_or_default();
        let name = format!("{}{profile}", inventory.gpu(*device).name);
        let name = cut(&name, style.width.saturating_sub(20 + uuid.len()).max(19));
        out.push_str(&format!("  {program}  {:4}  {uuid}  {name}\n", inventory.host_label(*device)));
    }
    for note in &prediction.notes {
        out.push_str(&style.tagged(0, "note", note));
    }
    out
}
