//! The plan: everything that was decided for a container, as a value that can be shown, applied or compared.

mod one_mig;

use serde::Serialize;

use crate::config::Config;
use crate::cuda::{self, Prediction};
use crate::finding::{Code, Finding, Severity, quoted};
use crate::grant::{Asked, Grant, grant};
use crate::inventory::{Device, Inventory};
use crate::provenance::Provenance;
use crate::reconcile::{Basis, Emission, Question, Reconciliation, View, reconcile};
use crate::record::{Decided, Record, Variables, devices};
use crate::situation::{Injection, Situation, without_cudaview};
use crate::spelling;

/// The outcome in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The container has no GPU; it is passed through.
    NotApplicable,
    /// The value and the nodes stay as they were.
    Consistent,
    /// The value or the set of nodes changed.
    Rewritten,
    /// The container does not start.
    Refused,
}

impl Verdict {
    /// The word that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::NotApplicable => "not-applicable",
            Verdict::Consistent => "consistent",
            Verdict::Rewritten => "rewritten",
            Verdict::Refused => "refused",
        }
    }
}

/// Everything that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The outcome.
    pub verdict: Verdict,
    /// Who granted what.
    pub grant: Grant,
    /// How the value was reconciled with the grant; `None` without a grant.
    pub reconciliation: Option<Reconciliation>,
    /// The variables as the program will get them.
    pub emitted: Variables,
    /// What the program will see, in the order of its ordinals.
    pub visible: Vec<Device>,
    /// Whether `visible` is certain.
    pub certain: bool,
    /// What it would see without cudaview.
    pub without: Prediction,
    /// Everything that was noticed.
    pub findings: Vec<Finding>,
}

impl Plan {
    /// `K`: the granted devices that stay.
    pub fn kept(&self) -> &[Device] {
        self.reconciliation.as_ref().map_or(&[], |r| &r.kept)
    }

    /// A host of which nothing can be chosen, and the container asked for GPUs: it has all, or what is to bring them is
    /// missing.
    pub fn is_without_selection(&self, inventory: &Inventory) -> bool {
        !inventory.platform.is_usual() && !self.grant.requests.is_empty()
    }

    /// `O`: what the container can open.
    pub fn openable(&self) -> &[Device] {
        self.reconciliation.as_ref().map_or(&[], |r| &r.openable)
    }

    /// The record of this plan, for whoever comes after.
    pub fn record(&self, inventory: &Inventory, situation: &Situation) -> Record {
        Record::new(
            inventory,
            Decided {
                original: situation.original.clone(),
                provenance: situation.provenance,
                emitted: self.emitted.clone(),
                granted: &self.grant.devices,
                explicit: self.grant.explicit,
                asked: situation.way(&self.grant.requests),
                kept: self.kept(),
                openable: self.openable(),
            },
        )
    }
}

/// Decides for a container that is being created.
pub fn plan(inventory: &Inventory, situation: &Situation, config: &Config) -> Plan {
    let asked = Asked {
        requests: &situation.requests,
        visible_devices: situation.visible_devices_request.as_deref(),
        visible_devices_from: situation.visible_devices_from,
        runtime_named: situation.runtime_named,
        unreadable: situation.unreadable.as_deref(),
        sandbox: situation.sandbox,
    };
    let grant = grant(inventory, &asked, config);
    let without = without_cudaview(inventory, situation, &grant.requested);
    if grant.refused || grant.devices.is_empty() {
        return without_grant(inventory, situation, grant, without);
    }
    let question = Question {
        inventory,
        granted: &grant.devices,
        explicit: grant.explicit,
        broad: grant.broad,
        asked: situation.way(&grant.requests),
        value: situation.original.visible_devices.as_deref(),
        provenance: situation.provenance,
        order: situation.original.device_order.as_deref(),
        openable_anyway: &situation.openable_anyway,
        may_narrow: !situation.graphics,
        rules: &config.reconcile,
    };
    let decided = reconcile(&question);
    let mut findings = grant.findings.clone();
    findings.extend_from_slice(&decided.findings);
    warn_of_wide_rules(inventory, situation, &decided.kept, &mut findings);
    if decided.refused {
        return refused(grant, decided, situation, without, findings);
    }
    let (visible, certain) = visible(inventory, situation, &decided);
    findings.extend(one_mig::too_many_mig_devices(inventory, &decided, &visible));
    let emitted = emitted(inventory, situation, config, &decided, &visible, certain);
    let changed = emitted.visible_devices != situation.original.visible_devices || decided.kept != grant.devices;
    let verdict = if changed { Verdict::Rewritten } else { Verdict::Consistent };
    Plan { verdict, grant, reconciliation: Some(decided), emitted, visible, certain, without, findings }
}

fn refused(
    grant: Grant,
    decided: Reconciliation,
    situation: &Situation,
    without: Prediction,
    findings: Vec<Finding>,
) -> Plan {
    let emitted = situation.current.clone();
    let reconciliation = Some(Reconciliation { kept: Vec::new(), openable: Vec::new(), ..decided });
    let visible = Vec::new();
    Plan { verdict: Verdict::Refused, grant, reconciliation, emitted, visible, certain: true, without, findings }
}

/// Rules 1 and 18, and refusals before any reconciliation.
fn without_grant(inventory: &Inventory, situation: &Situation, mut grant: Grant, without: Prediction) -> Plan {
    // Where nothing can be chosen, a request is everything and is somebody else's to fulfil.
    let gets_everything = !inventory.platform.is_usual() && !grant.requests.is_empty();
    if gets_everything && !grant.refused && situation.injection == Injection::Native {
        let message = "on WSL2 cudaview gives no container its GPU: /dev/dxg and the driver's files come from NVIDIA's \
                       toolkit or a CDI specification, and neither is there";
        let hint = "install NVIDIA's toolkit; or --device nvidia.com/gpu=all after sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
        grant.refused = true;
        grant.findings = vec![Finding::new(Code::NoSelection, Severity::Error, message, hint)];
    }
    let verdict = if grant.refused { Verdict::Refused } else { Verdict::NotApplicable };
    let mut emitted = situation.current.clone();
    let mut findings = grant.findings.clone();
    if !grant.refused && !gets_everything {
        if situation.injector_follows && asks_injector(situation, &emitted) {
            emitted.nvidia_visible_devices = Some("void".to_owned());
        }
        findings.extend(nothing_granted(inventory, situation));
        findings.extend(openable_ungranted(inventory, situation));
    }
    let visible = Vec::new();
    Plan { verdict, grant, reconciliation: None, emitted, visible, certain: true, without, findings }
}

/// Whether NVIDIA's injector would put GPUs into a container with these variables.
fn asks_injector(situation: &Situation, variables: &Variables) -> bool {
    let asks = |value: &String| match value.as_str() {
        "" | "void" => false,
        "none" => situation.none_stops,
        _ => true,
    };
    variables.nvidia_visible_devices.as_ref().map_or(situation.unset_is_all, asks)
}

/// The longest list of GPUs that a hint writes out.
const MOST_HINTED: usize = 8;

fn nothing_granted(inventory: &Inventory, situation: &Situation) -> Option<Finding> {
    let text = situation.original.visible_devices.as_deref()?;
    let hides = cuda::Value::parse(text).meaning == cuda::Meaning::Hidden;
    if hides || situation.provenance != Provenance::User {
        return None;
    }
    let message = format!("CUDA_VISIBLE_DEVICES={} is set, but the container was given no GPU", quoted(text));
    let is_here = |number: &u32| inventory.position_of_index(*number).is_some();
    let hint = match spelling::numbers(text.trim().trim_matches(['"', '\''])) {
        Some(numbers)
            if numbers.len() <= MOST_HINTED && inventory.platform.is_usual() && numbers.iter().all(is_here) =>
        {
            // A range, quotes or a repeat would choose otherwise among the GPUs that the flags give.
            let plain: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let first = if text == plain.join(",") { "" } else { "leave CUDA_VISIBLE_DEVICES out: " };
            format!(
                "{first}{} gives it {}; {} gives it every GPU",
                spelling::flags(situation.asked, &numbers),
                spelling::host_gpus(&numbers),
                spelling::all(situation.asked)
            )
        }
        _ if text == "all" || !inventory.platform.is_usual() => spelling::all(situation.asked).to_owned(),
        // What the value names may not be there.
        _ => format!("leave CUDA_VISIBLE_DEVICES out: {} gives it every GPU", spelling::all(situation.asked)),
    };
    Some(Finding::new(Code::NothingGranted, Severity::Warning, message, hint))
}

/// `--privileged` is no grant, and opens every GPU that has a node all the same.
fn openable_ungranted(inventory: &Inventory, situation: &Situation) -> Option<Finding> {
    if situation.openable_anyway.is_empty() {
        return None;
    }
    let message = format!(
        "the container was given no GPU, and its device rules let it open {}",
        inventory.host_names(&situation.openable_anyway)
    );
    let hint = "leave --privileged (or the wide --device-cgroup-rule) out";
    Some(Finding::new(Code::CannotNarrow, Severity::Warning, message, hint))
}

fn warn_of_wide_rules(inventory: &Inventory, situation: &Situation, kept: &[Device], findings: &mut Vec<Finding>) {
    let has_all = inventory.all_devices().iter().all(|device| kept.contains(device));
    if situation.wide_rules && !has_all && !findings.iter().any(|finding| finding.code == Code::CannotNarrow) {
        let message = "the container's device rules allow GPUs that it has no node for, and it may make one";
        let hint = "leave --device-cgroup-rule out, or name single devices in it";
        findings.push(Finding::new(Code::CannotNarrow, Severity::Warning, message, hint));
    }
}

/// What the program will see: the view, or what CUDA makes of a value that is left alone.
fn visible(inventory: &Inventory, situation: &Situation, decided: &Reconciliation) -> (Vec<Device>, bool) {
    let has_mig = decided.openable.iter().any(|device| device.mig.is_some());
    match (&decided.view, &decided.visible_devices) {
        (View::Hidden, _) => (Vec::new(), true),
        (View::Devices(devices), Emission::Set(_)) if !has_mig => (devices.clone(), true),
        (View::Devices(devices), Emission::Keep) if !has_mig && decided.basis != Basis::Unset => {
            (devices.clone(), true)
        }
        (_, emission) => {
            let value = resulting(emission, situation.original.visible_devices.as_deref());
            let order = resulting(&decided.device_order, situation.original.device_order.as_deref());
            let prediction = cuda::predict(inventory, &decided.openable, value, order);
            (prediction.visible, prediction.certain)
        }
    }
}

fn resulting<'a>(emission: &'a Emission, original: Option<&'a str>) -> Option<&'a str> {
    match emission {
        Emission::Keep => original,
        Emission::Set(value) => Some(value),
    }
}

/// Rules 10, 11, 12 and 16.
fn emitted(
    inventory: &Inventory,
    situation: &Situation,
    config: &Config,
    decided: &Reconciliation,
    visible: &[Device],
    certain: bool,
) -> Variables {
    let original = &situation.original;
    let owned = |emission, value: &Option<String>| resulting(emission, value.as_deref()).map(str::to_owned);
    let mut out = Variables {
        visible_devices: owned(&decided.visible_devices, &original.visible_devices),
        device_order: owned(&decided.device_order, &original.device_order),
        ..original.clone()
    };
    let hidden = decided.view == View::Hidden;
    let was_set = original.nvidia_visible_devices.as_deref().is_some_and(|value| value != "void");
    // Whoever injects after us, whatever else was decided: it must not be left to an image's `all`.
    let follows = situation.runtime_injects || (situation.injection == Injection::Engine && situation.injector_follows);
    let follows = follows && asks_injector(situation, original);
    if situation.injection == Injection::Nvidia || follows || (was_set && !hidden) {
        let uuids: Vec<&str> = decided.kept.iter().map(|device| inventory.uuid(*device)).collect();
        out.nvidia_visible_devices = Some(uuids.join(","));
    }
    if config.trace && certain && !visible.is_empty() {
        out.host_gpus = Some(trace(inventory, visible));
    }
    out
}

fn trace(inventory: &Inventory, visible: &[Device]) -> String {
    visible.iter().map(|device| inventory.host_label(*device)).collect::<Vec<_>>().join(",")
}

/// What was decided for a process that is added to a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPlan {
    /// The outcome.
    pub verdict: Verdict,
    /// The variables as the process will get them.
    pub emitted: Variables,
    /// The variables as the engine sent them.
    pub current: Variables,
    /// Who set `CUDA_VISIBLE_DEVICES`.
    pub provenance: Provenance,
    /// How a value that was given to exec was read; `None` for an inherited one.
    pub reconciliation: Option<Reconciliation>,
    /// What the process will see.
    pub visible: Vec<Device>,
    /// What was noticed.
    pub findings: Vec<Finding>,
}

/// Decides for exec (rule 13). Devices in the result belong to `record.inventory()`, which is `inventory` here.
pub fn plan_exec(record: &Record, inventory: &Inventory, current: &Variables, config: &Config) -> ExecPlan {
    let openable = devices(inventory, record.openable());
    let kept = devices(inventory, record.kept());
    let mut emitted = record.emitted.clone();
    let compared = current.clone().marked();
    let own_order = current.device_order.is_some() && compared.device_order != record.original.device_order;
    if own_order {
        emitted.device_order.clone_from(&current.device_order);
    }
    let given = current.visible_devices.is_some() && compared.visible_devices != record.original.visible_devices;
    if !given && emitted.visible_devices.is_none() {
        // Left as it was at create, and too long for the record.
        emitted.visible_devices.clone_from(&current.visible_devices);
    }
    let mut out = ExecPlan {
        verdict: Verdict::Consistent,
        emitted,
        current: current.clone(),
        provenance: if given { Provenance::Exec } else { record.provenance },
        reconciliation: None,
        visible: Vec::new(),
        findings: Vec::new(),
    };
    if given && !kept.is_empty() {
        let mut decided = reconcile(&Question {
            inventory,
            granted: &kept,
            explicit: true,
            broad: false,
            asked: record.asked,
            value: current.visible_devices.as_deref(),
            provenance: Provenance::Exec,
            order: out.emitted.device_order.as_deref(),
            openable_anyway: &openable,
            may_narrow: false,
            rules: &config.reconcile,
        });
        out.findings.append(&mut decided.findings);
        let value = resulting(&decided.visible_devices, current.visible_devices.as_deref());
        out.emitted.visible_devices = value.map(str::to_owned);
        if let Emission::Set(order) = &decided.device_order {
            out.emitted.device_order = Some(order.clone());
        }
        out.reconciliation = Some(decided);
    }
    let (value, order) = (out.emitted.visible_devices.as_deref(), out.emitted.device_order.as_deref());
    let prediction = cuda::predict(inventory, &openable, value, order);
    out.visible = prediction.visible;
    let decided = out.reconciliation.as_ref();
    let of_migs = decided.and_then(|decided| one_mig::too_many_mig_devices(inventory, decided, &out.visible));
    out.findings.extend(of_migs);
    // An order of its own can move the numbers too.
    if given || own_order {
        let known = config.trace && prediction.certain && !out.visible.is_empty();
        out.emitted.host_gpus = known.then(|| trace(inventory, &out.visible));
    }
    let refused = out.reconciliation.as_ref().is_some_and(|decided| decided.refused);
    out.verdict = match () {
        () if refused => Verdict::Refused,
        () if out.emitted.visible_devices != current.visible_devices => Verdict::Rewritten,
        () => Verdict::Consistent,
    };
    if refused {
        out.visible.clear();
    }
    out
}
