//! cudaview's own configuration and programs, CDI, and what the host does with containers.

use super::{Check, Facts, SeLinux};
use crate::config::{Inject, Mode};
use crate::finding::printable;
use crate::inventory::list;

/// What writes a CDI specification.
const GENERATE: &str = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";

pub(super) fn policy(facts: &Facts) -> Check {
    const NAME: &str = "policy";
    let (file, path) = (&facts.policy, &facts.policy.path);
    if let Some(trouble) = &file.trouble {
        return Check::error(NAME, trouble.text.clone())
            .so("cudaview's runtime starts no container before that is corrected.")
            .looked_at([path.clone()])
            .fix(trouble.fix.clone());
    }
    let looked_at = [path.clone()];
    if let Err(reason) = &facts.low_level_runtime {
        return Check::error(NAME, reason.clone())
            .so("cudaview's runtime hands containers on to one of them, and can start none.")
            .looked_at(looked_at)
            .fix(format!("install runc or crun, or name yours as low_level_runtime in {path}"));
    }
    if facts.config.mode == Mode::Observe {
        return Check::warning(NAME, format!("{path}: mode = \"observe\""))
            .so("What cudaview would change or refuse is written down, and nothing is done.")
            .looked_at(looked_at)
            .fix(format!("mode = \"enforce\" in {path}, where that is not meant"));
    }
    if file.exists {
        Check::ok(NAME, format!("{path}: owned by root, all keys known")).looked_at(looked_at)
    } else {
        Check::ok(NAME, format!("no {path}: the defaults")).looked_at(looked_at)
    }
}

/// Nothing is said of programs that are as they should be.
pub(super) fn programs(facts: &Facts) -> Option<Check> {
    let broken: Vec<_> = facts.programs.iter().filter(|program| program.problem.is_some()).collect();
    let first = broken.first()?;
    let problem = first.problem.clone().unwrap_or_default();
    let others = match broken.len() {
        1 => String::new(),
        count => format!(" ({} more like it)", count - 1),
    };
    Some(
        Check::error("programs", format!("{} {problem}{others}", first.path))
            .so("cudaview's programs find one another in one folder; without this one containers with GPUs do not start.")
            .looked_at(facts.programs.iter().map(|program| program.path.clone()))
            .fix("install cudaview's programs again, into one folder of root's"),
    )
}

pub(super) fn toolkit(facts: &Facts) -> Check {
    const NAME: &str = "toolkit";
    let toolkit = &facts.toolkit;
    let names: Vec<String> =
        toolkit.programs.iter().filter_map(|path| Some(path.rsplit('/').next()?.to_owned())).collect();
    if names.is_empty() {
        return Check::skipped(NAME, "NVIDIA's is not installed; cudaview needs none of it");
    }
    let looked_at = || toolkit.programs.iter().chain([&toolkit.file]).cloned();
    // libnvidia-container, cli/configure.c: for rootless engines alone.
    if toolkit.no_cgroups && names.iter().any(|name| name == "nvidia-container-cli") {
        return Check::warning(NAME, format!("no-cgroups = true in {}", toolkit.file))
            .so("NVIDIA's hook then sets no device rules: what it gives to containers of root's they may not open \
                 (\"Failed to initialize NVML\"). Rootless engines need it so; cudaview's own nodes do not mind.")
            .looked_at(looked_at())
            .fix(format!("no-cgroups = false in {}, unless all containers here are rootless", toolkit.file));
    }
    Check::ok(NAME, format!("NVIDIA's: {}", list(&names))).looked_at(looked_at())
}

pub(super) fn cdi(facts: &Facts) -> Check {
    const NAME: &str = "CDI";
    let cdi = &facts.cdi;
    let has_ctk = facts.toolkit.programs.iter().any(|path| path.ends_with("/nvidia-ctk"));
    let package = if has_ctk { "" } else { " (package nvidia-container-toolkit-base)" };
    let fix = format!("{GENERATE}{package}");
    let folders = cdi.folders.clone();
    if let Some(trouble) = &cdi.trouble {
        return Check::error(NAME, trouble.text.clone())
            .so("Containers that ask for a GPU are refused.")
            .looked_at(folders)
            .fix(trouble.fix.clone());
    }
    let Some(first) = cdi.files.first() else {
        // What writes one asks the driver.
        if !facts.driver.modules.iter().any(|module| module == "nvidia") {
            return Check::skipped(NAME, "no specification for nvidia.com/gpu; it is written where the driver runs");
        }
        return Check::warning(NAME, "no specification for nvidia.com/gpu")
            .so("podman run --device nvidia.com/gpu=1 cannot work, and cudaview has no list of the driver's files: an \
                 image without libcuda.so.1 gets the nodes alone.")
            .looked_at(folders)
            .fix(fix);
    };
    let files = || cdi.files.iter().map(|file| file.path.clone());
    if let Some((file, missing)) = cdi.files.iter().find_map(|file| Some((file, file.missing.first()?))) {
        let more = match file.missing.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        return Check::error(NAME, format!("{} is out of date", file.path))
            .so(format!(
                "It names {}{more}, which is not there, as after an update of the driver. Containers that get their \
                 GPUs by it do not start.",
                printable(missing)
            ))
            .looked_at(files())
            .fix(fix);
    }
    let known = |name: &String| cdi.files.iter().any(|file| file.devices.contains(name));
    let gpus = facts.inventory.as_ref().map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    let unnamed: Vec<String> = gpus
        .iter()
        .filter(|gpu| !known(&gpu.index.to_string()) && !known(&gpu.uuid.to_string()) && gpu.mig.is_empty())
        .map(|gpu| gpu.index.to_string())
        .collect();
    if !unnamed.is_empty() {
        let plural = if unnamed.len() == 1 { "GPU" } else { "GPUs" };
        return Check::warning(NAME, format!("{} has no {plural} {}", first.path, list(&unnamed)))
            .so("What names them by CDI, as podman's --device does, finds no such device.")
            .looked_at(files())
            .fix(fix);
    }
    let devices = cdi.files.iter().map(|file| file.devices.len()).sum::<usize>();
    Check::ok(NAME, format!("{}: {devices} devices, and the files that it names are there", first.path))
        .looked_at(files())
}

pub(super) fn cgroups(facts: &Facts) -> Check {
    const NAME: &str = "cgroups";
    let looked_at = ["/sys/fs/cgroup"];
    match facts.cgroup_version {
        0 => Check::skipped(NAME, "not mounted").looked_at(looked_at),
        1 => Check::ok(NAME, "version 1: device rules are files").looked_at(looked_at),
        version => Check::ok(NAME, format!("version {version}: device rules are in force before hooks run"))
            .looked_at(looked_at),
    }
}

pub(super) fn systemd(facts: &Facts) -> Check {
    const NAME: &str = "systemd";
    if !facts.systemd {
        return Check::skipped(NAME, "does not run this host");
    }
    let driver = facts.docker.cgroup_driver.as_str();
    let looked_at = ["/run/systemd/system".to_owned(), format!("{} (CgroupDriver)", facts.docker.socket)];
    if driver == "cgroupfs" {
        return Check::ok(NAME, "Docker keeps its cgroups itself: daemon-reload leaves them").looked_at(looked_at);
    }
    let is_nvidia = facts
        .low_level_runtime
        .as_ref()
        .is_ok_and(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("nvidia-container-runtime")));
    if facts.config.inject == Inject::Nvidia || is_nvidia {
        // NVIDIA/nvidia-container-toolkit#48
        return Check::warning(NAME, "NVIDIA's hook makes the GPU nodes: daemon-reload takes them away")
            .so("A running container then says \"Failed to initialize NVML: Unknown Error\", and CUDA finds no device.")
            .looked_at(looked_at)
            .fix("inject = \"native\" and low_level_runtime = [\"runc\"] in the configuration put them into the spec");
    }
    Check::ok(NAME, "GPU nodes are in the spec: daemon-reload leaves them").looked_at(looked_at)
}

pub(super) fn selinux(facts: &Facts) -> Check {
    const NAME: &str = "SELinux";
    match facts.selinux {
        SeLinux::Absent => Check::skipped(NAME, "not enabled on this host"),
        SeLinux::Permissive => Check::ok(NAME, "permissive").looked_at(["/sys/fs/selinux"]),
        SeLinux::Enforcing(Some(false)) => Check::warning(NAME, "containers may not use devices")
            .so("A container that is confined finds its GPU nodes, and may not open them.")
            .looked_at(["/sys/fs/selinux/booleans/container_use_devices"])
            .fix("sudo setsebool -P container_use_devices=true"),
        SeLinux::Enforcing(Some(true)) => Check::ok(NAME, "enforcing, and containers may use devices")
            .looked_at(["/sys/fs/selinux/booleans/container_use_devices"]),
        SeLinux::Enforcing(None) => Check::ok(NAME, "enforcing; its policy has no switch for containers' devices")
            .looked_at(["/sys/fs/selinux"]),
    }
}

pub(super) fn processes(facts: &Facts) -> Check {
    const NAME: &str = "processes";
    let Some(processes) = &facts.processes else {
        return Check::skipped(NAME, "needs root: sudo cudaview doctor");
    };
    let inside = processes.iter().filter(|process| process.in_container).count();
    let outside: Vec<String> = processes
        .iter()
        .filter(|process| !process.in_container)
        .take(3)
        .map(|process| format!("{} {}", process.pid, printable(&process.name)))
        .collect();
    let count = processes.len() - inside;
    let line = match (inside, count) {
        (0, 0) => "none has a GPU open".to_owned(),
        (inside, 0) => format!("{inside} in containers have a GPU open, none outside"),
        (inside, count) => {
            let more = if count > outside.len() { " …" } else { "" };
            format!("{inside} in containers have a GPU open, {count} outside: {}{more}", outside.join(", "))
        }
    };
    Check::ok(NAME, line).looked_at(["/proc/*/fd"])
}
