//! Finding `one-mig-device`: what a driver shows of several MIG devices.

use std::collections::BTreeSet;

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
    let hint = one_each(first);
    Some(Finding::new(Code::OneMigDevice, Severity::Warning, message, hint))
}

// NVIDIA MIG User Guide, "CUDA visible devices", R570 and later.
fn shared_instance(inventory: &Inventory, view: &[Device]) -> Option<Finding> {
    let instance = |device: &Device| Some((device.gpu, inventory.mig(*device)?.gi));
    let mut sorted: Vec<(usize, u32)> = view.iter().filter_map(instance).collect();
    sorted.sort_unstable();
    let shared: BTreeSet<_> = sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    let first = view.iter().filter_map(instance).find(|instance| shared.contains(instance))?;
    let parts: Vec<Device> = view.iter().copied().filter(|device| instance(device) == Some(first)).collect();
    let driver = inventory.driver_version.as_deref().unwrap_or("unknown");
    let message = format!(
        "{} are compute instances of one GPU instance, of which a process sees one with drivers from 570 on (here {driver})",
        inventory.host_names(&parts)
    );
    let hint = one_each(inventory.uuid(parts[0]));
    Some(Finding::new(Code::OneMigDevice, Severity::Warning, message, hint))
}

/// A value of the container's own would take the others away from it, so each process has its own.
fn one_each(first: &str) -> String {
    format!("one container for each, or one process for each: docker exec -e CUDA_VISIBLE_DEVICES={first} …")
}
