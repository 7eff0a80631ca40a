//! `cudaview predict` for people.

use super::Style;
use super::changes::mapping;
use super::style::{Tone, cut};
use crate::cuda::Prediction;
use crate::inventory::Inventory;

/// What CUDA would show, as text.
pub fn predict_text(inventory: &Inventory, prediction: &Prediction, style: Style) -> String {
    let seen = &prediction.visible;
    let answer = if seen.is_empty() { "no GPU: CUDA finds no device".to_owned() } else { mapping(inventory, seen) };
    let sure = if prediction.certain { "certain" } else { "not certain" };
    let full = Style { width: style.width + 1, ..style };
    let lines = full.wrap(0, &format!("{answer} ({sure})"));
    let mut out: String = lines.into_iter().map(|line| style.paint(Tone::Bold, &line) + "\n").collect();
    if !seen.is_empty() {
        out.push_str("\n  PROGRAM  HOST  UUID                                      NAME\n");
    }
    for (ordinal, device) in seen.iter().enumerate() {
        let program = style.paint(Tone::Green, &format!("{:7}", format!("cuda:{ordinal}")));
        let gpu = inventory.gpu(*device);
        let profile = inventory.mig(*device).map(|mig| format!(" MIG {}", mig.profile)).unwrap_or_default();
        let name = cut(&format!("{}{profile}", gpu.name), style.width.saturating_sub(60).max(19));
        out.push_str(&format!(
            "  {program}  {:4}  {:40}  {name}\n",
            inventory.host_label(*device),
            inventory.uuid(*device)
        ));
    }
    for note in &prediction.notes {
        out.push_str(&style.tagged(0, "note", note));
    }
    out
}
