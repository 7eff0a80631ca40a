//! Reconciliation: the rules that make the grant and `CUDA_VISIBLE_DEVICES` mean one thing. This is the product.
//!
//! The rule numbers are those of `docs/semantics.md`.

mod emit;
mod list;
mod noticed;

use emit::{emit_order, emit_view};
use list::{Written, decide_list};
use noticed::{report_image_default, report_mixed_order, report_withheld};

use crate::config::{ImageDefault, OnNoMatch, OrderPolicy, Reconcile};
use crate::cuda::{DeviceOrder, Meaning, Value};
use crate::finding::{Code, Finding, Severity, quoted};
use crate::inventory::{Device, Inventory};
use crate::provenance::Provenance;
use crate::request::Source;

/// What reconciliation looks at.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The host, or the container's part of it.
    pub inventory: &'a Inventory,
    /// `G`: what the container is entitled to, in PCI order.
    pub granted: &'a [Device],
    /// An operator chose `granted`.
    pub explicit: bool,
    /// The choice named no particular GPU.
    pub broad: bool,
    /// In which way the choice was made, for hints.
    pub asked: Option<Source>,
    /// `CUDA_VISIBLE_DEVICES`; `None` is unset.
    pub value: Option<&'a str>,
    /// Who set it.
    pub provenance: Provenance,
    /// `CUDA_DEVICE_ORDER`; `None` is unset.
    pub order: Option<&'a str>,
    /// Devices that stay openable whatever is narrowed away (allow-all rules, or rules wider than one device).
    pub openable_anyway: &'a [Device],
    /// Whether granted GPUs may be taken away: at create, unless graphics were asked for.
    pub may_narrow: bool,
    /// The policy.
    pub rules: &'a Reconcile,
}

/// Which numbers a list was read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Index n is the n-th granted GPU: CUDA's own meaning.
    Container,
    /// Index n is the granted GPU with host index n.
    Host,
}

/// What a CUDA program is meant to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// These, in this order.
    Devices(Vec<Device>),
    /// None: somebody meant it.
    Hidden,
    /// Whatever CUDA makes of the value as it stands; nobody can say for certain.
    AsWritten,
}

/// How the value came to its view, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// It was unset.
    Unset,
    /// The image's value gave way.
    ImageYields,
    /// It hides every GPU.
    Hides,
    /// `all`.
    All,
    /// A list, read one way or the other; entries that were lost.
    List {
        /// Which numbers.
        reading: Reading,
        /// Entries that name nothing granted, and what followed them.
        lost: Vec<String>,
        /// What the other reading would have kept.
        other: Vec<Device>,
    },
    /// It names nothing that was granted.
    NoMatch,
    /// Left as written: the device order is not certain.
    Uncertain,
}

/// What happens to a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emission {
    /// It stays as it is, set or unset.
    Keep,
    /// It is set to this.
    Set(String),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciliation {
    /// What the program is meant to see.
    pub view: View,
    /// Why.
    pub basis: Basis,
    /// `K`: the granted devices that stay, in PCI order.
    pub kept: Vec<Device>,
    /// `O`: what the container can really open, in PCI order.
    pub openable: Vec<Device>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Emission,
    /// `CUDA_DEVICE_ORDER`.
    pub device_order: Emission,
    /// The container, or the exec, must not start.
    pub refused: bool,
    /// What was noticed.
    pub findings: Vec<Finding>,
}

/// Applies the rules to a container with a grant. `granted` must not be empty.
pub fn reconcile(question: &Question<'_>) -> Reconciliation {
    let mut findings = Vec::new();
    let (view, basis) = decide_view(question, &mut findings);
    let refused = basis == Basis::NoMatch && question.refuses();
    let kept = kept(question, &view);
    let openable = union(&kept, question.openable_anyway);
    report_withheld(question, &kept, &openable, &mut findings);
    let device_order = emit_order(question, &view, &openable, &mut findings);
    let visible_devices = emit_view(question, &view, &basis, &openable);
    Reconciliation { view, basis, kept, openable, visible_devices, device_order, refused, findings }
}

impl Question<'_> {
    /// Rule 7: whether a value that names nothing stops the container. A file that we could not read must not.
    fn refuses(&self) -> bool {
        self.rules.on_no_match == OnNoMatch::Refuse && self.typed()
    }

    /// Whether a person typed the value.
    fn typed(&self) -> bool {
        matches!(self.provenance, Provenance::User | Provenance::Exec)
    }

    /// Rule 11: the order is and stays another than PCI, and models differ over these devices.
    fn order_is_mixed(&self, devices: &[Device]) -> bool {
        let stays_other = match self.order {
            Some(_) => DeviceOrder::parse(self.order) != DeviceOrder::Pci,
            None => self.rules.device_order == OrderPolicy::Leave,
        };
        stays_other && self.inventory.models_differ(devices)
    }

    fn all_granted(&self) -> View {
        View::Devices(self.granted.to_vec())
    }

    /// These devices, as a person names them.
    fn hosts(&self, devices: &[Device]) -> String {
        self.inventory.host_names(devices)
    }
}

/// Rules 2 to 8, and the first half of 11.
fn decide_view(question: &Question<'_>, findings: &mut Vec<Finding>) -> (View, Basis) {
    let Some(text) = question.value else { return (question.all_granted(), Basis::Unset) };
    let value = Value::parse(text);
    let is_image_default = question.provenance == Provenance::Image && question.explicit;
    if is_image_default && question.rules.image_default == ImageDefault::Yield {
        report_image_default(question, text, &value, findings);
        return (question.all_granted(), Basis::ImageYields);
    }
    match &value.meaning {
        Meaning::Hidden => {
            let message = format!("CUDA_VISIBLE_DEVICES={} hides every GPU and was left as it is", quoted(text));
            let hint = "to see the granted GPUs, leave CUDA_VISIBLE_DEVICES out";
            findings.push(Finding::new(Code::DisabledByOverride, Severity::Info, message, hint));
            (View::Hidden, Basis::Hides)
        }
        Meaning::All => {
            let message = format!("CUDA_VISIBLE_DEVICES={} is no CUDA value: CUDA would show no GPU", quoted(text));
            let hint = "leave CUDA_VISIBLE_DEVICES out: CUDA then shows every GPU of the container";
            findings.push(Finding::new(Code::NotACudaValue, Severity::Warning, message, hint));
            (question.all_granted(), Basis::All)
        }
        Meaning::List(entries) => {
            let wide = union(question.granted, question.openable_anyway);
            if question.order_is_mixed(&wide) && entries.iter().any(|entry| entry.index().is_some()) {
                report_mixed_order(question, text, &wide, findings);
                return (View::AsWritten, Basis::Uncertain);
            }
            decide_list(question, Written { text, value: &value, entries }, findings)
        }
    }
}

/// Rule 9.
fn kept(question: &Question<'_>, view: &View) -> Vec<Device> {
    match view {
        View::Devices(devices) if question.rules.narrow && question.may_narrow => {
            let mut kept = devices.clone();
            kept.sort_unstable();
            kept
        }
        _ => question.granted.to_vec(),
    }
}

/// The position of each device in a list, as one value.
fn positions(devices: &[Device], among: &[Device]) -> String {
    let position = |device| among.iter().position(|candidate| candidate == device);
    devices.iter().filter_map(position).map(|position| position.to_string()).collect::<Vec<_>>().join(",")
}

/// Both sets, in PCI order. A full GPU and its own MIG devices do not occur together.
fn union(one: &[Device], other: &[Device]) -> Vec<Device> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    all.dedup();
    all
}
