//! The driver, its nodes, and the GPUs that it lists.

use super::{Check, Facts, Node, NodeState};
use crate::device::DeviceNumber;
use crate::finding::printable;
use crate::inventory::{Inventory, list};

/// What loads the driver's modules and makes the node of CUDA's memory.
const MODPROBE: &str = "sudo nvidia-modprobe -u -c0";

pub(super) fn driver(facts: &Facts) -> Check {
    const NAME: &str = "driver";
    let driver = &facts.driver;
    let is_loaded = driver.modules.iter().any(|module| module == "nvidia");
    let looked_at = ["/proc/driver/nvidia/version", "/proc/modules", "the host's libcuda.so.1 and libnvidia-ml.so.1"];
    if driver.wsl2 {
        return Check::warning(NAME, "WSL2: the driver is Windows', and /dev/dxg is all GPUs at once")
            .so("A container gets every GPU or none; cudaview passes containers through.")
            .looked_at(["/dev/dxg"])
            .fix("nothing is to be done: NVIDIA's toolkit gives it to containers (docker run --gpus all IMAGE)");
    }
    if is_loaded {
        return loaded(facts).looked_at(looked_at);
    }
    let looked_at = ["/proc/modules", "/proc/devices", "/sys/bus/pci/devices"];
    let check = match (driver.gpus_on_bus, driver.nouveau) {
        (Some(0), _) => Check::error(NAME, "no GPU of NVIDIA's is on the PCI bus")
            .so("No container can have a GPU here.")
            .fix("cudaview explain --gpus all --inventory FILE asks about another host"),
        (_, true) => Check::error(NAME, "the kernel's nouveau holds the GPUs, and NVIDIA's driver is not loaded")
            .so("CUDA cannot start, neither here nor in a container.")
            .fix("install NVIDIA's driver, keep nouveau from loading (blacklist nouveau in /etc/modprobe.d), reboot"),
        (_, false) if driver.libraries.is_empty() => Check::error(NAME, "NVIDIA's driver is not installed")
            .so("CUDA cannot start, neither here nor in a container.")
            .fix("install NVIDIA's driver with the package manager, and reboot"),
        (_, false) => Check::error(NAME, "the kernel module nvidia is not loaded")
            .so("CUDA cannot start, neither here nor in a container.")
            .fix(format!("{MODPROBE} (if that fails: journalctl -k -g NVRM)")),
    };
    check.looked_at(looked_at)
}

fn loaded(facts: &Facts) -> Check {
    const NAME: &str = "driver";
    let driver = &facts.driver;
    let version = driver.version.as_deref().map_or_else(|| "version unknown".to_owned(), printable);
    let others: Vec<&String> =
        driver.libraries.iter().filter(|library| Some(*library) != driver.version.as_ref()).collect();
    match (driver.libraries.as_slice(), others.as_slice()) {
        (_, []) if driver.version.is_none() => Check::ok(NAME, "loaded; it does not say which version it is"),
        ([], _) => Check::warning(NAME, format!("{version}: the kernel module is loaded, the libraries are not found"))
            .so("Without libcuda.so.1 on the host CUDA runs in no container that does not bring it along.")
            .fix(format!("install the libraries of driver {version}: with the package manager")),
        (_, []) => Check::ok(NAME, format!("{version}: kernel module and libraries agree")),
        (_, [other, ..]) => {
            Check::error(NAME, format!("the kernel module is {version}, the libraries are {}", printable(other)))
                .so("An update replaced the libraries, and the old module still runs. CUDA and nvidia-smi fail with \
                     \"Driver/library version mismatch\", here and in new containers.")
                .fix("sudo reboot (or stop what uses GPUs, and reload the modules)")
        }
    }
}

pub(super) fn gpus(facts: &Facts) -> Check {
    const NAME: &str = "GPUs";
    match &facts.inventory {
        Err(_) => Check::skipped(NAME, "not known, see inventory"),
        Ok(inventory) if inventory.gpus.is_empty() => Check::skipped(NAME, "none that can be told apart"),
        Ok(inventory) if inventory.gpus.iter().any(|gpu| gpu.mig_enabled && gpu.mig.is_empty()) => {
            let empty = inventory.gpus.iter().filter(|gpu| gpu.mig_enabled && gpu.mig.is_empty());
            let empty: Vec<String> = empty.map(|gpu| gpu.index.to_string()).collect();
            Check::warning(NAME, format!("MIG is on and there is no MIG device: GPU {}", list(&empty)))
                .so("CUDA shows nothing of such a GPU; nvidia-smi lists it all the same.")
                .looked_at([format!("inventory ({})", source(&inventory.source))])
                .fix(format!("sudo nvidia-smi -i {} -mig 0 turns MIG off; -cgi makes devices", empty.join(",")))
        }
        Ok(inventory) => {
            let shifted: Vec<String> = inventory
                .gpus
                .iter()
                .filter(|gpu| gpu.index.0 != gpu.minor.0)
                .map(|gpu| format!("GPU {} is /dev/nvidia{}", gpu.index, gpu.minor))
                .collect();
            let numbers = match shifted.as_slice() {
                [] => "host index = minor".to_owned(),
                [first] => format!("index is not minor: {first}"),
                [first, second] => format!("index is not minor: {first}, {second}"),
                [first, second, ..] => format!("index is not minor: {first}, {second} …"),
            };
            Check::ok(NAME, format!("{}, {numbers}, {}", models(inventory), mig(inventory)))
                .looked_at([format!("inventory ({})", source(&inventory.source))])
        }
    }
}

/// `4 x NVIDIA A100-SXM4-40GB`, and so for each model.
fn models(inventory: &Inventory) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for gpu in &inventory.gpus {
        match counts.iter_mut().find(|(name, _)| *name == gpu.name) {
            Some((_, count)) => *count += 1,
            None => counts.push((&gpu.name, 1)),
        }
    }
    let shown = |(name, count): &(&str, usize)| {
        let name = if name.is_empty() { "GPU of an unknown model".to_owned() } else { printable(name) };
        format!("{count} x {name}")
    };
    counts.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn mig(inventory: &Inventory) -> String {
    let parents: Vec<String> =
        inventory.gpus.iter().filter(|gpu| !gpu.mig.is_empty()).map(|gpu| gpu.index.to_string()).collect();
    if parents.is_empty() {
        return "no MIG".to_owned();
    }
    let count: usize = inventory.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    format!("{count} MIG devices on GPU {}", list(&parents))
}

/// Where an inventory comes from.
fn source(source: &str) -> String {
    match source {
        "procfs" => "/proc/driver/nvidia".to_owned(),
        "cache" => "the cache in /run/cudaview".to_owned(),
        "nvml" => "NVML".to_owned(),
        "" => "a file".to_owned(),
        other => printable(other),
    }
}

pub(super) fn nodes(facts: &Facts) -> Check {
    const NAME: &str = "device nodes";
    if facts.driver.wsl2 {
        return Check::skipped(NAME, "WSL2 has /dev/dxg alone");
    }
    if !facts.driver.modules.iter().any(|module| module == "nvidia") {
        return Check::skipped(NAME, "they come with the driver, see above");
    }
    let missing: Vec<&Node> = facts.nodes.iter().filter(|node| node.state == NodeState::Missing).collect();
    if !missing.is_empty() {
        return missing_nodes(facts, &missing);
    }
    let wrong = facts.nodes.iter().find_map(|node| match (node.state, node.expected) {
        (NodeState::There(found, _), Some(expected)) if found != expected => Some((node, found, expected)),
        _ => None,
    });
    let looked_at = ["/dev/nvidia*", "/proc/devices"];
    if let Some((node, found, expected)) = wrong {
        let (found, expected) = (number(found), number(expected));
        return Check::error(NAME, format!("{} is device {found}; the driver's is {expected}", node.path))
            .so(
                "It is of an earlier start of the driver. What opens it reaches another device or none, so CUDA cannot \
                 start.",
            )
            .looked_at(looked_at)
            .fix(format!("sudo rm {} && {}", node.path, remedy(&[node])));
    }
    let closed = facts.nodes.iter().find_map(|node| match node.state {
        NodeState::There(_, mode) if mode & 0o666 != 0o666 => Some((node, mode)),
        _ => None,
    });
    if let Some((node, mode)) = closed {
        return Check::warning(NAME, format!("not everybody may open {} (mode {:04o})", node.path, mode & 0o7777))
            .so("Rootless podman's containers have the host's own nodes, and may not open it either.")
            .looked_at(looked_at)
            .fix("if that is not meant: NVreg_DeviceFileMode=0666 among the options of the module nvidia");
    }
    let cards = facts.nodes.iter().filter(|node| is_of_gpu(&node.path)).count();
    let gpus = match cards {
        0 => String::new(),
        1 => "1 GPU, ".to_owned(),
        count => format!("{count} GPUs, "),
    };
    Check::ok(NAME, format!("{gpus}nvidiactl and nvidia-uvm are there")).looked_at(looked_at)
}

fn missing_nodes(facts: &Facts, missing: &[&Node]) -> Check {
    let paths: Vec<String> = missing.iter().map(|node| node.path.clone()).collect();
    let are = if missing.len() == 1 { "is" } else { "are" };
    let shown = match paths.as_slice() {
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first}, {second} and {} more", rest.len()),
        all => list(all),
    };
    let is_control = |name: &str| paths.iter().any(|path| path.ends_with(name));
    let consequence = if is_control("/nvidiactl") {
        "Neither CUDA nor nvidia-smi can start, neither here nor in a container."
    } else if is_control("/nvidia-uvm") {
        "CUDA cannot start in any container; nvidia-smi works without it."
    } else {
        "Containers that are given these GPUs cannot have them; programs count the others only."
    };
    let mut unloaded: Vec<&str> = missing.iter().map(|node| node.module).collect();
    unloaded.retain(|module| !facts.driver.modules.iter().any(|loaded| loaded == module));
    unloaded.dedup();
    let devices = match unloaded.as_slice() {
        [] => "/proc/devices (the modules are loaded)".to_owned(),
        modules => format!("/proc/devices (module {} not loaded)", modules.join(", ")),
    };
    Check::error("device nodes", format!("{shown} {are} missing"))
        .so(consequence)
        .looked_at(["/dev/nvidia*".to_owned(), devices])
        .fix(remedy(missing))
}

/// What makes these nodes. NVML makes those of the GPUs and `nvidiactl` when root asks it.
fn remedy(nodes: &[&Node]) -> String {
    let has_uvm = nodes.iter().any(|node| node.path.ends_with("/nvidia-uvm"));
    let has_others = nodes.iter().any(|node| !node.path.ends_with("/nvidia-uvm"));
    match (has_others, has_uvm) {
        (false, _) => MODPROBE.to_owned(),
        (true, false) => "sudo nvidia-smi -L".to_owned(),
        (true, true) => format!("sudo nvidia-smi -L && {MODPROBE}"),
    }
}

fn is_of_gpu(path: &str) -> bool {
    let name = path.rsplit('/').next().and_then(|name| name.strip_prefix("nvidia")).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(number: DeviceNumber) -> String {
    format!("{}:{}", number.major, number.minor)
}

pub(super) fn inventory(facts: &Facts) -> Check {
    const NAME: &str = "inventory";
    match &facts.inventory {
        Ok(inventory) => {
            let count = inventory.gpus.len();
            let gpus = if count == 1 { "GPU" } else { "GPUs" };
            let from = facts.config.inventory.as_deref().map_or_else(|| source(&inventory.source), printable);
            Check::ok(NAME, format!("{count} {gpus}, read from {from}"))
        }
        Err(_) if !facts.driver.modules.iter().any(|module| module == "nvidia") && facts.config.inventory.is_none() => {
            Check::skipped(NAME, "the driver lists the GPUs, see above")
        }
        Err(trouble) => Check::error(NAME, trouble.text.clone())
            .so("Containers that ask for a GPU are refused.")
            .looked_at(["/proc/driver/nvidia", "/run/cudaview"])
            .fix(trouble.fix.clone()),
    }
}
