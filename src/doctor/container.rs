//! A running container seen from outside: what cudaview decided for it, against what is there.

use super::{Check, NodeState};
use crate::device::DeviceNumber;
use crate::finding::{printable, quoted};
use crate::inventory::list;
use crate::record::{Record, Variables, devices};

/// What was found out about a container.
#[derive(Clone, Debug)]
pub struct Inside {
    /// What people call it.
    pub name: String,
    /// `running`, `exited` and so on, where that is known.
    pub state: Option<String>,
    /// It runs now.
    pub is_running: bool,
    /// The name or path of its runtime.
    pub runtime: Option<String>,
    /// Whether that is `cudaview-runtime`.
    pub is_ours: Option<bool>,
    /// Its bundle was read; else it is for others to look there.
    pub has_bundle: bool,
    /// What was decided for it.
    pub record: Option<Record>,
    /// Its first process, as the host counts.
    pub pid: Option<u32>,
    /// The nodes that it was to have.
    pub nodes: Vec<InsideNode>,
    /// GPUs' nodes that are there and were not planned, and that its rules let it open.
    pub more: Vec<String>,
    /// Where the device rules were read.
    pub rules: String,
    /// The variables of its first process; `None` where nobody may know.
    pub variables: Option<Variables>,
}

/// A node that a container was to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideNode {
    /// Its path inside.
    pub path: String,
    /// The number that it was to have.
    pub number: DeviceNumber,
    /// What is there; `None` where nobody may look.
    pub state: Option<NodeState>,
    /// Whether the device rules let the container open it.
    pub allowed: Option<bool>,
}

/// Every check of a container, causes before effects.
pub fn examine_container(inside: &Inside) -> Vec<Check> {
    let first = container(inside);
    if first.is_problem() {
        return vec![first];
    }
    vec![first, decided(inside), nodes(inside), rules(inside), variables(inside)]
}

fn container(inside: &Inside) -> Check {
    const NAME: &str = "container";
    let name = printable(&inside.name);
    let state = inside.state.as_deref().map_or_else(|| "not running".to_owned(), printable);
    match inside.pid {
        _ if !inside.is_running => Check::warning(NAME, format!("{name} does not run ({state})"))
            .so("There is nothing to look into; what it had is in its record.")
            .looked_at(["its engine"])
            .fix(format!("cudaview explain --container {name}")),
        Some(pid) => Check::ok(NAME, format!("{name}: {state}, its first process is {pid}")).looked_at(["its engine"]),
        None => Check::ok(NAME, format!("{name}: {state}")).looked_at(["its engine"]),
    }
}

fn decided(inside: &Inside) -> Check {
    const NAME: &str = "cudaview";
    let name = printable(&inside.name);
    let runtime = inside.runtime.as_deref().map_or_else(|| "another runtime".to_owned(), printable);
    match (&inside.record, inside.is_ours) {
        (Some(record), _) => {
            let inventory = record.inventory();
            let gpus = devices(&inventory, record.openable());
            let mut hosts: Vec<String> =
                gpus.iter().map(|device| inventory.gpus[device.gpu].index.to_string()).collect();
            hosts.dedup();
            let gpu = if hosts.len() == 1 { "GPU" } else { "GPUs" };
            Check::ok(NAME, format!("decided for host {gpu} {}", list(&hosts))).looked_at(["its bundle"])
        }
        (None, _) if !inside.has_bundle => Check::skipped(NAME, "its bundle needs root: sudo cudaview doctor"),
        (None, Some(false)) => Check::warning(NAME, format!("had no hand in it: it was started with {runtime}"))
            .so("Nobody compared its numbers with its GPUs.")
            .looked_at(["its bundle"])
            .fix("start it with --runtime cudaview; what that changes: cudaview explain --container NAME")
            .named(&name),
        (None, _) => Check::warning(NAME, "granted it no GPU, and passed it on as it was")
            .so("A program in it sees no GPU, unless another hook gave it one.")
            .looked_at(["its bundle"])
            .fix("cudaview explain --container NAME says why")
            .named(&name),
    }
}

impl Check {
    /// With the container's name in what is to be typed.
    fn named(self, name: &str) -> Self {
        let fix = self.fix.replace("NAME", name);
        self.fix(fix)
    }
}

fn nodes(inside: &Inside) -> Check {
    const NAME: &str = "nodes";
    if inside.nodes.is_empty() {
        return Check::skipped(NAME, "none was planned");
    }
    if inside.nodes.iter().any(|node| node.state.is_none()) {
        return Check::skipped(NAME, "its /dev needs root: sudo cudaview doctor");
    }
    let looked_at = ["/dev in its mount namespace, from outside"];
    let of = |state: &dyn Fn(&InsideNode) -> bool| -> Vec<String> {
        inside.nodes.iter().filter(|node| state(node)).map(|node| node.path.clone()).collect()
    };
    let restart = "start it again; if that does not help: sudo cudaview doctor";
    let missing = of(&|node| node.state == Some(NodeState::Missing));
    if !missing.is_empty() {
        let are = if missing.len() == 1 { "is" } else { "are" };
        return Check::error(NAME, format!("{} {are} not there", list(&missing)))
            .so("Somebody took it away after the start. Its programs count fewer GPUs, or CUDA does not start.")
            .looked_at(looked_at)
            .fix(restart);
    }
    let is_other = |node: &InsideNode| matches!(node.state, Some(NodeState::There(number, _)) if number != node.number);
    let other = of(&is_other);
    if let [first, ..] = other.as_slice() {
        return Check::error(NAME, format!("{first} is another device than was planned"))
            .so("Its programs open another GPU, or none.")
            .looked_at(looked_at)
            .fix(restart);
    }
    if !inside.more.is_empty() {
        let more: Vec<String> = inside.more.iter().map(|path| printable(path)).collect();
        return Check::warning(NAME, format!("it can open more than was decided: {}", list(&more)))
            .so("nvidia-smi and CUDA count these too, and cuda:0 can be another GPU than was meant.")
            .looked_at(looked_at)
            .fix("leave --privileged and binds of /dev out, and start it again");
    }
    Check::ok(NAME, format!("{} are there, with the right numbers", inside.nodes.len())).looked_at(looked_at)
}

fn rules(inside: &Inside) -> Check {
    const NAME: &str = "device rules";
    if inside.nodes.is_empty() {
        return Check::skipped(NAME, "no node was planned");
    }
    if inside.nodes.iter().any(|node| node.allowed.is_none()) {
        return Check::skipped(NAME, "nobody enforces any, or they need root to be read");
    }
    let closed: Vec<String> =
        inside.nodes.iter().filter(|node| node.allowed == Some(false)).map(|node| node.path.clone()).collect();
    let looked_at = [inside.rules.clone()];
    if closed.is_empty() {
        return Check::ok(NAME, "they let it open each of them").looked_at(looked_at);
    }
    Check::error(NAME, format!("they do not let it open {}", list(&closed)))
        .so("CUDA and nvidia-smi say \"Failed to initialize NVML\" or find no device. After systemctl daemon-reload this \
             happens to what a hook has allowed.")
        .looked_at(looked_at)
        .fix("start it again")
}

fn variables(inside: &Inside) -> Check {
    const NAME: &str = "variables";
    let Some(found) = &inside.variables else {
        return Check::skipped(NAME, "its environment needs root: sudo cudaview doctor");
    };
    let Some(record) = &inside.record else {
        return Check::skipped(NAME, "nothing was decided that they could be compared with");
    };
    let shown = |value: Option<&str>| value.map_or_else(|| "unset".to_owned(), quoted);
    // NVIDIA's own runtime, which comes after cudaview, may write its variable anew.
    let is_compared = |name: &str| name != "NVIDIA_VISIBLE_DEVICES" && !record.emitted.has_mark();
    let mut pairs = record.emitted.values().into_iter().zip(found.values()).zip(Variables::NAMES);
    let differs = pairs.find(|((emitted, found), name)| emitted != found && is_compared(name));
    let looked_at = ["/proc/PID/environ of its first process"];
    match differs {
        None => Check::ok(NAME, "its first process has what was decided").looked_at(looked_at),
        Some(((emitted, found), name)) => {
            let line = format!("{name} is {}, and {} was decided", shown(found), shown(emitted));
            Check::warning(NAME, line)
                .so("The image's entrypoint, or what it starts, sets it again; cudaview has no part in that.")
                .looked_at(looked_at)
                .fix(format!("look for {name} in the image's ENTRYPOINT and CMD, and in what they run"))
        }
    }
}
