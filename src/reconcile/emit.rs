//! Rules 10 and 11: what becomes of the two variables.

use super::{Basis, Emission, Question, View, positions, union};
use crate::config::{OrderPolicy, WhenUnset};
use crate::cuda;
use crate::finding::{Code, Finding, Severity};
use crate::inventory::Device;

/// Rule 11, `CUDA_DEVICE_ORDER`.
pub(super) fn emit_order(
    question: &Question<'_>,
    view: &View,
    openable: &[Device],
    findings: &mut Vec<Finding>,
) -> Emission {
    let sees_devices = matches!(view, View::Devices(devices) if !devices.is_empty());
    if question.order.is_some() || question.rules.device_order == OrderPolicy::Leave || !sees_devices {
        return Emission::Keep;
    }
    if question.inventory.models_differ(openable) {
        let message = "CUDA_DEVICE_ORDER was unset and is now PCI_BUS_ID: among different models cuda:0 may be \
                       another card than before";
        let hint = "to keep CUDA's own order, set CUDA_DEVICE_ORDER=FASTEST_FIRST";
        findings.push(Finding::new(Code::DeviceOrderChanged, Severity::Warning, message, hint));
    }
    Emission::Set("PCI_BUS_ID".to_owned())
}

/// Rule 10, with what rules 2, 4, 7 and 11 say about when not to.
pub(super) fn emit_view(question: &Question<'_>, view: &View, basis: &Basis, openable: &[Device]) -> Emission {
    let View::Devices(devices) = view else {
        let hide = *basis == Basis::NoMatch && !question.refuses();
        return if hide { changed(question, "-1".to_owned()) } else { Emission::Keep };
    };
    let has_mig = devices.iter().any(|device| device.mig.is_some());
    if *basis == Basis::Unset {
        // Unset shows everything that can be opened, so it can stay so only where that is what was granted.
        let wide = union(question.granted, question.openable_anyway);
        let leave = question.rules.when_unset == WhenUnset::Leave || has_mig || question.order_is_mixed(&wide);
        if leave && openable == question.granted {
            return Emission::Keep;
        }
    }
    let by_name = has_mig || question.order_is_mixed(openable);
    // CUDA numbers full GPUs first, then MIG devices.
    let full: Vec<Device> = openable.iter().copied().filter(|device| device.mig.is_none()).collect();
    let numbers = positions(devices, &full);
    if by_name || (full.len() < openable.len() && !counts_so(question, openable, &numbers)) {
        let names: Vec<&str> = devices.iter().map(|device| question.inventory.uuid(*device)).collect();
        return changed(question, names.join(","));
    }
    changed(question, numbers)
}

/// Whether it is certain how CUDA counts what can be opened, MIG devices among it.
fn counts_so(question: &Question<'_>, openable: &[Device], numbers: &str) -> bool {
    let order = match question.rules.device_order {
        OrderPolicy::Pci => question.order.or(Some("PCI_BUS_ID")),
        OrderPolicy::Leave => question.order,
    };
    cuda::predict(question.inventory, openable, Some(numbers), order).certain
}

fn changed(question: &Question<'_>, text: String) -> Emission {
    if question.value == Some(text.as_str()) { Emission::Keep } else { Emission::Set(text) }
}
