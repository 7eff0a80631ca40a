//! Reconciliation: the rules that make the grant and `CUDA_VISIBLE_DEVICES` mean one thing. This is the product.
//!
//! The rule numbers are those of `docs/semantics.md`.

use crate::config::{ImageDefault, OnNoMatch, OrderPolicy, Reconcile, WhenUnset};
use crate::cuda::{self, DeviceOrder, Entry, EntryKind, Meaning, Value};
use crate::finding::{Code, Finding, Severity, quoted, quoted_list};
use crate::inventory::{Device, Inventory};
use crate::provenance::Provenance;
use crate::spelling;

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
            decide_list(question, text, &value, entries, findings)
        }
    }
}

/// A list as one of the two readings keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    devices: Vec<Device>,
    /// Entries used, in the order of `devices`, then repeats.
    used: Vec<Entry>,
    repeats: Vec<String>,
    lost: Vec<String>,
}

fn read_list(question: &Question<'_>, entries: &[Entry], reading: Reading) -> Kept {
    let mut kept = Kept { devices: Vec::new(), used: Vec::new(), repeats: Vec::new(), lost: Vec::new() };
    for (position, entry) in entries.iter().enumerate() {
        let Some(device) = find(question, entry, reading) else {
            kept.lost = entries[position..].iter().map(|entry| entry.text.clone()).collect();
            break;
        };
        kept.used.push(entry.clone());
        if kept.devices.contains(&device) {
            kept.repeats.push(entry.text.clone());
        } else {
            kept.devices.push(device);
        }
    }
    kept
}

fn find(question: &Question<'_>, entry: &Entry, reading: Reading) -> Option<Device> {
    let Some(index) = entry.index() else {
        return cuda::named_or_begun(question.inventory, question.granted, &entry.text);
    };
    match reading {
        Reading::Container => question.granted.get(usize::try_from(index).ok()?).copied(),
        Reading::Host => {
            question.granted.iter().copied().find(|device| question.inventory.gpu(*device).index.0 == index)
        }
    }
}

/// Rules 6 to 8, and 15.
fn decide_list(
    question: &Question<'_>,
    text: &str,
    value: &Value,
    entries: &[Entry],
    findings: &mut Vec<Finding>,
) -> (View, Basis) {
    let has_index = entries.iter().any(|entry| entry.index().is_some());
    let has_mig = question.granted.iter().any(|device| device.mig.is_some());
    if has_index && has_mig {
        return decide_mig_index(question, text, value, entries, findings);
    }
    let container = read_list(question, entries, Reading::Container);
    let host = read_list(question, entries, Reading::Host);
    let (reading, taken, other) = if host.devices.len() > container.devices.len() {
        (Reading::Host, host, container)
    } else {
        (Reading::Container, container, host)
    };
    if taken.devices.is_empty() {
        return no_match(question, text, findings);
    }
    report_list(question, text, reading, &taken, &other, findings);
    report_malformed(question, text, value, &taken, findings);
    let basis = Basis::List { reading, lost: taken.lost, other: other.devices };
    (View::Devices(taken.devices), basis)
}

/// Rule 15: integers over MIG devices follow `predict`, where it is certain.
fn decide_mig_index(
    question: &Question<'_>,
    text: &str,
    value: &Value,
    entries: &[Entry],
    findings: &mut Vec<Finding>,
) -> (View, Basis) {
    // Without the quotes and white space that rule 6 takes away, over which CUDA would trip.
    let plain = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",");
    let prediction = cuda::predict(question.inventory, question.granted, Some(&plain), question.order);
    if !prediction.certain || prediction.visible.is_empty() {
        return no_match(question, text, findings);
    }
    let asked = entries.len();
    if prediction.visible.len() < asked {
        let message = format!(
            "CUDA_VISIBLE_DEVICES={} has {asked} entries, and CUDA shows {} of them: {}",
            quoted(text),
            prediction.visible.len(),
            prediction.notes.join("; ")
        );
        let hint = format!("CUDA_VISIBLE_DEVICES={}", question.inventory.uuid(prediction.visible[0]));
        findings.push(Finding::new(Code::OverrideExceedsGrant, Severity::Warning, message, hint));
    }
    let other = read_list(question, entries, Reading::Host);
    if !other.devices.is_empty() && other.lost.is_empty() && other.devices != prediction.visible {
        report_ambiguous(question, text, &prediction.visible, &other.devices, findings);
    }
    let devices = prediction.visible;
    let taken = Kept { devices, used: entries.to_vec(), repeats: Vec::new(), lost: Vec::new() };
    report_malformed(question, text, value, &taken, findings);
    (View::Devices(taken.devices), Basis::List { reading: Reading::Container, lost: Vec::new(), other: Vec::new() })
}

fn no_match(question: &Question<'_>, text: &str, findings: &mut Vec<Finding>) -> (View, Basis) {
    let granted = question.hosts(question.granted);
    let message = format!("CUDA_VISIBLE_DEVICES={} names none of the granted GPUs ({granted})", quoted(text));
    let uuids: Vec<&str> = question.granted.iter().map(|d| question.inventory.uuid(*d)).collect();
    let has_mig = question.granted.iter().any(|device| device.mig.is_some());
    let hint = if has_mig {
        format!("CUDA_VISIBLE_DEVICES={} (one of: {})", uuids[0], uuids.join(" "))
    } else {
        "leave CUDA_VISIBLE_DEVICES out, or count from 0 among the granted GPUs".to_owned()
    };
    let severity = if question.refuses() { Severity::Error } else { Severity::Warning };
    findings.push(Finding::new(Code::OverrideMatchesNothing, severity, message, hint));
    let view = match (question.typed(), question.rules.on_no_match) {
        (true, OnNoMatch::Hide | OnNoMatch::Refuse) => View::Hidden,
        _ => question.all_granted(),
    };
    (view, Basis::NoMatch)
}

fn report_list(
    question: &Question<'_>,
    text: &str,
    reading: Reading,
    taken: &Kept,
    other: &Kept,
    findings: &mut Vec<Finding>,
) {
    let inside = positions(&taken.devices, question.granted);
    if reading == Reading::Host {
        let message = format!("CUDA_VISIBLE_DEVICES={} holds host numbers; inside they are {inside}", quoted(text));
        // Left out, CUDA shows all that was granted, in the host's order.
        let hint = if taken.devices == question.granted {
            format!("leave CUDA_VISIBLE_DEVICES out, or count from 0: {inside}")
        } else {
            format!("count from 0 among the granted GPUs: {inside}")
        };
        findings.push(Finding::new(Code::HostIndexOverride, Severity::Info, message, hint));
    } else if !other.devices.is_empty() && other.devices.len() == taken.devices.len() && other.devices != taken.devices
    {
        report_ambiguous(question, text, &taken.devices, &other.devices, findings);
    }
    if !taken.lost.is_empty() {
        let lost = quoted_list(&taken.lost);
        let message = format!("CUDA_VISIBLE_DEVICES={} names more than was granted; left out: {lost}", quoted(text));
        let hint = "grant more with --gpus, or leave those entries out";
        findings.push(Finding::new(Code::OverrideExceedsGrant, Severity::Warning, message, hint));
    }
    if !taken.repeats.is_empty() {
        let message = format!(
            "CUDA_VISIBLE_DEVICES={} names a GPU twice, for which CUDA would show none; the repeat was dropped",
            quoted(text)
        );
        findings.push(Finding::new(Code::DuplicateEntries, Severity::Warning, message, format!("type {inside}")));
    }
}

/// A number that means one thing inside and another on the host.
fn report_ambiguous(
    question: &Question<'_>,
    text: &str,
    taken: &[Device],
    other: &[Device],
    findings: &mut Vec<Finding>,
) {
    let message = format!(
        "CUDA_VISIBLE_DEVICES={} is {} as a number inside, and {} as a host number; \
         the number inside was taken",
        quoted(text),
        question.hosts(taken),
        question.hosts(other),
    );
    let uuids = |devices: &[Device]| -> String {
        devices.iter().map(|device| question.inventory.uuid(*device)).collect::<Vec<_>>().join(",")
    };
    let hint = format!(
        "CUDA_VISIBLE_DEVICES={} for {}, CUDA_VISIBLE_DEVICES={} for {}",
        uuids(taken),
        question.hosts(taken),
        uuids(other),
        question.hosts(other),
    );
    findings.push(Finding::new(Code::AmbiguousIndex, Severity::Warning, message, hint));
}

/// Rule 6: quotes, or characters that were ignored in an entry that was kept.
fn report_malformed(question: &Question<'_>, text: &str, value: &Value, taken: &Kept, findings: &mut Vec<Finding>) {
    let trailing = taken.used.iter().any(|entry| matches!(entry.kind, EntryKind::Index { trailing: true, .. }));
    if !value.quoted && !trailing {
        return;
    }
    let what = if value.quoted {
        "the quotes are part of the value"
    } else {
        "only the number at the start of an entry counts"
    };
    let understood = positions(&taken.devices, question.granted);
    let range = taken.used.iter().any(|entry| entry.text.contains('-')) && trailing;
    let note = if range { " (0-2 is not a range)" } else { "" };
    let message = format!("CUDA_VISIBLE_DEVICES={}: {what}; understood as {understood}{note}", quoted(text));
    // What `0-2` or `1 3` was meant to be, where all of it was granted: by one way of counting or by the other.
    let plain = spelling::numbers(text.trim().trim_matches(['"', '\'']));
    let inside = |n: &u32| usize::try_from(*n).is_ok_and(|n| n < question.granted.len());
    let on_host = |n: &u32| question.granted.iter().any(|device| question.inventory.gpu(*device).index.0 == *n);
    let plain = plain.filter(|all| all.iter().all(inside) || all.iter().all(on_host));
    let hint = match plain {
        Some(numbers) => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        None => "0,1".to_owned(),
    };
    let hint = format!("write plain numbers: {hint}");
    findings.push(Finding::new(Code::MalformedValue, Severity::Warning, message, hint));
}

/// Rule 3's finding, unless the image's value shows just what was granted.
fn report_image_default(question: &Question<'_>, text: &str, value: &Value, findings: &mut Vec<Finding>) {
    let wanted = match &value.meaning {
        Meaning::Hidden => Vec::new(),
        Meaning::All => question.granted.to_vec(),
        Meaning::List(entries) => read_list(question, entries, Reading::Container).devices,
    };
    if wanted == question.granted && value.meaning != Meaning::All {
        return;
    }
    let fewer = wanted.len() < question.granted.len();
    let severity = if question.broad && fewer { Severity::Warning } else { Severity::Info };
    let message = format!(
        "the image's CUDA_VISIBLE_DEVICES={} yields to what was typed: {}",
        quoted(text),
        question.hosts(question.granted)
    );
    let hint = match question.granted {
        [only] => {
            format!("image maintainers: delete the ENV; {} is granted either way", question.hosts(&[*only]))
        }
        [first, ..] => format!("to keep to one GPU, type --gpus device={}", question.inventory.host_label(*first)),
        [] => String::new(),
    };
    findings.push(Finding::new(Code::ImageDefaultYields, severity, message, hint));
}

fn report_mixed_order(question: &Question<'_>, text: &str, wide: &[Device], findings: &mut Vec<Finding>) {
    let order = question.order.map_or_else(
        || "without CUDA_DEVICE_ORDER".to_owned(),
        |order| format!("with CUDA_DEVICE_ORDER={}", quoted(order)),
    );
    let message = format!(
        "CUDA_VISIBLE_DEVICES={} {order} over different models: \
         nobody can say which GPUs it means, so it was left as it is",
        quoted(text)
    );
    let uuids: Vec<&str> = wide.iter().map(|device| question.inventory.uuid(*device)).collect();
    let hint = format!("CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs: {}", uuids.join(" "));
    findings.push(Finding::new(Code::DeviceOrderMixed, Severity::Warning, message, hint));
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

fn report_withheld(question: &Question<'_>, kept: &[Device], openable: &[Device], findings: &mut Vec<Finding>) {
    let gone: Vec<Device> = question.granted.iter().copied().filter(|device| !openable.contains(device)).collect();
    if !gone.is_empty() {
        let were = if gone.len() == 1 { "was granted and is" } else { "were granted and are" };
        let message = format!("{} {were} left out by the value", question.hosts(&gone));
        let hint = "to keep what was left out, narrow = false in config.toml";
        findings.push(Finding::new(Code::Withheld, Severity::Info, message, hint));
    }
    let more: Vec<Device> = openable.iter().copied().filter(|device| !kept.contains(device)).collect();
    if !more.is_empty() && question.provenance != Provenance::Exec {
        let message = format!(
            "the container can open {} too: its device rules allow more than was chosen",
            question.hosts(&more)
        );
        let hint = "leave --privileged (or the wide --device-cgroup-rule) out";
        findings.push(Finding::new(Code::CannotNarrow, Severity::Warning, message, hint));
    }
}

/// Rule 11, `CUDA_DEVICE_ORDER`.
fn emit_order(question: &Question<'_>, view: &View, openable: &[Device], findings: &mut Vec<Finding>) -> Emission {
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
fn emit_view(question: &Question<'_>, view: &View, basis: &Basis, openable: &[Device]) -> Emission {
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
    let text = if by_name {
        devices.iter().map(|device| question.inventory.uuid(*device)).collect::<Vec<_>>().join(",")
    } else {
        // CUDA numbers full GPUs first, then MIG devices.
        let full: Vec<Device> = openable.iter().copied().filter(|device| device.mig.is_none()).collect();
        positions(devices, &full)
    };
    changed(question, text)
}

fn changed(question: &Question<'_>, text: String) -> Emission {
    if question.value == Some(text.as_str()) { Emission::Keep } else { Emission::Set(text) }
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
