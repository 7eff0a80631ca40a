//! The pure library as a door uses it: one configuration in, what was decided and the edited one out.

use cudaview::config::Config;
use cudaview::cuda;
use cudaview::edits::{ContainerEdits, Places, apply, edits};
use cudaview::inventory::{Device, Inventory};
use cudaview::node::DeviceNode;
use cudaview::plan::{Plan, Verdict, plan};
use cudaview::provenance::EngineFacts;
use cudaview::reconcile::View;
use cudaview::situation::{HostFacts, Situation, from_spec};
use cudaview::spec::Spec;
use serde_json::Value;

/// The inventories that tests share, by name.
pub(crate) const INVENTORIES: [(&str, &str); 6] = [
    ("a100x4", include_str!("../data/inventories/a100x4.json")),
    ("h100x8", include_str!("../data/inventories/h100x8.json")),
    ("mixed5", include_str!("../data/inventories/mixed5.json")),
    ("a100mig4", include_str!("../data/inventories/a100mig4.json")),
    ("h100mig3", include_str!("../data/inventories/h100mig3.json")),
    ("a100old2", include_str!("../data/inventories/a100old2.json")),
];

/// One of a host where nothing can be chosen; the laws are about choices.
const WITHOUT_SELECTION: (&str, &str) = ("wsl2", include_str!("../data/inventories/wsl2.json"));

/// The inventory with this name.
pub(crate) fn inventory(name: &str) -> Inventory {
    let found = INVENTORIES.iter().chain([&WITHOUT_SELECTION]).find(|(known, _)| *known == name);
    let (_, text) = found.unwrap_or_else(|| panic!("no inventory {name:?}"));
    Inventory::from_json(text.as_bytes()).unwrap()
}

/// What one door made of a configuration.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) situation: Situation,
    pub(crate) plan: Plan,
    pub(crate) edits: ContainerEdits,
    /// The configuration as the low-level runtime gets it; as it was when the container is refused.
    pub(crate) after: Value,
}

/// Everything but the configuration that a door looks at.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) inventory: Inventory,
    pub(crate) facts: EngineFacts,
    pub(crate) host: HostFacts,
    pub(crate) config: Config,
}

/// Takes a configuration through a door.
pub(crate) fn pass(before: &Value, world: &World) -> Passed {
    let World { inventory, facts, host, config } = world;
    let control: Vec<DeviceNode> = vec!["/dev/nvidiactl=195:255".parse().unwrap()];
    let spec = Spec::new(before).unwrap();
    let situation = from_spec(spec, inventory, facts, host, config);
    let plan = plan(inventory, &situation, config);
    let places = Places { hook: "/h/cudaview-hook", root: "/r", dev_root: "/", control_nodes: &control, cdi: None };
    let edits = edits(&plan, &situation, inventory, spec, host, &places);
    let mut after = before.clone();
    if plan.verdict != Verdict::Refused {
        apply(&mut after, &edits);
    }
    Passed { situation, plan, edits, after }
}

pub(crate) fn is_subset(part: &[Device], whole: &[Device]) -> bool {
    part.iter().all(|device| whole.contains(device))
}

/// The laws that hold for every plan, whatever was asked and whoever asked.
pub(crate) fn check_laws(inventory: &Inventory, situation: &Situation, plan: &Plan) -> Result<(), String> {
    let granted = &plan.grant.devices;
    let demand = |holds: bool, law: &str| if holds { Ok(()) } else { Err(format!("{law}: {plan:#?}")) };
    demand(is_subset(granted, &inventory.all_devices()), "G is what the host has")?;
    demand(granted.is_sorted(), "G is in PCI order")?;
    if matches!(plan.verdict, Verdict::Refused | Verdict::NotApplicable) {
        demand(plan.kept().is_empty() && plan.visible.is_empty(), "without a grant nothing is kept")?;
        return demand(
            plan.verdict == Verdict::NotApplicable || plan.emitted == situation.current,
            "refused is unchanged",
        );
    }
    let decided = plan.reconciliation.as_ref().ok_or("a grant was reconciled")?;
    demand(is_subset(plan.kept(), granted), "K is part of G")?;
    demand(!plan.kept().is_empty(), "K is not empty")?;
    demand(is_subset(plan.kept(), plan.openable()), "what is kept can be opened")?;
    let outside: Vec<Device> = plan.openable().iter().copied().filter(|d| !plan.kept().contains(d)).collect();
    demand(is_subset(&outside, &situation.openable_anyway), "only what cannot be taken away is more than K")?;
    if let View::Devices(view) = &decided.view {
        demand(is_subset(view, plan.kept()), "the view is part of K")?;
        let mut once = view.clone();
        once.sort_unstable();
        once.dedup();
        demand(once.len() == view.len() && !view.is_empty(), "a view names each device once")?;
    }
    let value = plan.emitted.visible_devices.as_deref();
    let read = cuda::predict(inventory, plan.openable(), value, plan.emitted.device_order.as_deref());
    demand(!plan.certain || !read.certain || read.visible == plan.visible, "CUDA shows what the plan says")?;
    let has_mig = plan.openable().iter().any(|device| device.mig.is_some());
    match &decided.view {
        View::Hidden => demand(read.visible.is_empty() || !read.certain, "a hidden view shows nothing"),
        // Before R570 a process sees one MIG device only, so a view that has more is shown in part.
        View::Devices(view) if has_mig => {
            demand(!read.certain || is_subset(&read.visible, view), "no more than the view")
        }
        View::Devices(view) => demand(!read.certain || read.visible == *view, "CUDA shows exactly the view"),
        View::AsWritten => Ok(()),
    }
}
