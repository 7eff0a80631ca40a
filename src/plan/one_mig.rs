//! Finding `one-mig-device`: what a driver shows of several MIG devices.

use crate::cuda;
use crate::finding::{Code, Finding, Severity};
use crate::inventory::{Device, Inventory};
use crate::reconcile::{Reconciliation, View};

/// Drivers before R570 show one MIG device to a process, however many it was granted, and later ones one compute instance
/// of each GPU instance.
pub(super) fn too_many_mig_devices(
    inventory: &Inventory,
    decided: &Reconciliation,
    visible: &[Device],
) -> Option<Finding> {
    let View::Devices(view) = &decided.view else { return None };
    let told = decided.findings.iter().any(|finding| finding.code == Code::OverrideExceedsGrant);
    if cuda::shows_many(inventory) {
        return shared_instance(inventory, view);
    }
    let has_mig = view.iter().any(|device| device.mig.is_some());
    if told || !has_mig || view.len() < 2 {
        return None;
    }
    let message = format!(
        "{} devices are chosen, and with driver {} a process sees one MIG device and no full GPU beside it",
        view.len(),
        inventory.driver_version.as_deref().unwrap_or("unknown")
    );
    let first = visible.first().or(view.first()).map_or("", |device| inventory.uuid(*device));
    let hint = format!("choose one, such as -e CUDA_VISIBLE_DEVICES={first}, and start one process for each");
    Some(Finding::new(Code::OneMigDevice, Severity::Warning, message, hint))
}

// NVIDIA MIG User Guide, "CUDA visible devices", R570 and later.
fn shared_instance(inventory: &Inventory, view: &[Device]) -> Option<Finding> {
    let instance = |device: &Device| inventory.mig(*device).map(|mig| (device.gpu, mig.gi));
    let same = |device: &Device| {
        let of: Vec<Device> = view.iter().copied().filter(|other| instance(other) == instance(device)).collect();
        (device.mig.is_some() && of.len() > 1).then_some(of)
    };
    let parts = view.iter().find_map(same)?;
    let driver = inventory.driver_version.as_deref().unwrap_or("unknown");
    let message = format!(
        "{} are compute instances of one GPU instance, of which a process sees one with drivers from 570 on (here {driver})",
        inventory.host_names(&parts)
    );
    let hint = format!(
        "choose one of them, such as -e CUDA_VISIBLE_DEVICES={}, and start one process for each",
        inventory.uuid(parts[0])
    );
    Some(Finding::new(Code::OneMigDevice, Severity::Warning, message, hint))
}
