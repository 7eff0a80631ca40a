//! Engines, and whether they would call cudaview.

use super::{Check, Docker, Facts, GpusFlag, Podman, Presence, Runtime};
use crate::finding::{printable, quoted};
use crate::shell;

/// Where cudaview's wrapper is, where no other place is known.
const WRAPPER: &str = "/usr/bin/cudaview-runtime";

pub(super) fn docker(facts: &Facts) -> Check {
    const NAME: &str = "Docker";
    let docker = &facts.docker;
    let check = match &docker.presence {
        Presence::Absent => return Check::skipped(NAME, "not installed"),
        Presence::Denied => return Check::skipped(NAME, "needs root, or the group docker: sudo cudaview doctor"),
        Presence::Elsewhere(host) => return Check::skipped(NAME, format!("DOCKER_HOST={} is no socket", quoted(host))),
        Presence::Silent(reason) => Check::warning(NAME, format!("does not answer: {}", printable(reason)))
            .so("No container of Docker's starts.")
            .fix(docker.start.clone()),
        Presence::Answers => answering(facts),
    };
    let asked = if docker.presence == Presence::Answers { "docker info" } else { docker.socket.as_str() };
    check.looked_at([docker.file.path.as_str(), asked])
}

fn answering(facts: &Facts) -> Check {
    const NAME: &str = "Docker";
    let docker = &facts.docker;
    let file = &docker.file;
    let rootless = if docker.rootless { " (rootless)" } else { "" };
    let version = format!("{}{rootless}", printable(&docker.version));
    let known = docker.runtimes.iter().find(|runtime| runtime.is_ours());
    if let Some(trouble) = &file.trouble {
        return Check::error(NAME, trouble.text.clone())
            .so(format!("Docker {version} runs with what it read before, and will not start again with this file."))
            .fix(trouble.fix.clone());
    }
    let written = docker.in_file.iter().find(|runtime| runtime.is_ours());
    match (known, written) {
        (None, Some(written)) => {
            let other = docker.runtimes.iter().find(|runtime| runtime.name == written.name);
            let line = match other {
                Some(other) => {
                    let (name, path) = (quoted(&written.name), printable(&other.path));
                    format!("{version} starts {path} for the runtime {name}")
                }
                None => format!("{version} does not know the runtime {}", quoted(&written.name)),
            };
            Check::error(NAME, line)
                .so(format!("{} has it; the daemon has not read that yet.", file.path))
                .fix(format!("{} (running containers stay up)", docker.reload))
        }
        (None, None) => unknown(facts, &version),
        (Some(known), written) => registered(docker, known, written, &version),
    }
}

fn unknown(facts: &Facts, version: &str) -> Check {
    const NAME: &str = "Docker";
    let docker = &facts.docker;
    let line = format!("{version} does not know cudaview");
    // Another engine that calls cudaview is the one that is meant.
    let elsewhere = facts.podman.runtimes.iter().any(Runtime::is_ours)
        || !facts.podman.hooks.is_empty()
        || !facts.containerd.handlers.is_empty();
    let check = if elsewhere { Check::warning(NAME, line) } else { Check::error(NAME, line) };
    if docker.file_is_denied {
        let fix = format!("sudo cudaview doctor says whether {} has it", docker.file.path);
        return check.so("docker run --runtime cudaview says: unknown or invalid runtime name.").fix(fix);
    }
    let wrapper = facts.programs.iter().find(|program| program.path.ends_with("/cudaview-runtime"));
    let wrapper = wrapper.filter(|program| program.problem.is_none()).map_or(WRAPPER, |program| program.path.as_str());
    check.so("docker run --runtime cudaview says: unknown or invalid runtime name.").fix(format!(
        "add \"runtimes\": {{\"cudaview\": {{\"path\": {wrapper:?}}}}} to {}, then {}",
        docker.file.path, docker.reload
    ))
}

fn registered(docker: &Docker, known: &Runtime, written: Option<&Runtime>, version: &str) -> Check {
    const NAME: &str = "Docker";
    let name = quoted(&known.name);
    if let Some(problem) = &known.problem {
        return Check::error(NAME, format!("the runtime {name} is {}, which {problem}", printable(&known.path)))
            .so(format!("docker run --runtime {} starts nothing.", printable(&known.name)))
            .fix("install cudaview's programs there, or correct the path in the file and reload Docker");
    }
    if let Some(written) = written.filter(|written| written.path != known.path) {
        return Check::warning(NAME, format!("{version} still starts {}", printable(&known.path)))
            .so(format!("{} says {} by now.", docker.file.path, printable(&written.path)))
            .fix(format!("{} (running containers stay up)", docker.reload));
    }
    let default = if docker.default_runtime == known.name { " (its default)" } else { "" };
    Check::ok(NAME, format!("{version}: the runtime {name}{default} is {}", printable(&known.path)))
}

pub(super) fn gpus_flag(facts: &Facts) -> Check {
    const NAME: &str = "--gpus flag";
    let docker = &facts.docker;
    if docker.presence == Presence::Absent {
        return Check::skipped(NAME, "Docker is not installed");
    }
    let restart = if docker.presence != Presence::Answers {
        docker.start.clone()
    } else if docker.live_restore {
        format!("{} (running containers stay up: live-restore)", docker.restart)
    } else {
        format!("{} (stops running containers)", docker.restart)
    };
    let not_taken = "docker run --gpus says: could not select device driver \"\" with capabilities: [[gpu]].";
    match &facts.gpus_flag {
        GpusFlag::Nobody => Check::warning(NAME, "not accepted: nobody on this host gives GPUs for it")
            .so(not_taken)
            .looked_at(["nvidia-container-runtime-hook and nvidia-cdi-hook in the system's folders"])
            .fix(format!("sudo cudaview install gpus-flag, then {restart}")),
        GpusFlag::Broken(path) => Check::error(NAME, format!("{path} leads nowhere"))
            .so(not_taken)
            .looked_at([path.clone()])
            .fix(format!("sudo cudaview install gpus-flag, then {restart}")),
        GpusFlag::Ours { path, is_newer_than_daemon: Some(true) } => {
            Check::error(NAME, "not accepted yet: Docker was started before cudaview's link was made")
                .so(not_taken)
                .looked_at([path.clone(), "dockerd's start".to_owned()])
                .fix(restart)
        }
        GpusFlag::Ours { path, .. } => {
            Check::ok(NAME, "accepted, by cudaview's nvidia-container-runtime-hook").looked_at([path.clone()])
        }
        // moby daemon/devices_nvidia_linux.go
        GpusFlag::Other(path) if path.ends_with("/nvidia-cdi-hook") && is_before(&docker.version, (29, 2)) => {
            Check::warning(
                NAME,
                format!("not accepted: Docker {} knows no nvidia-cdi-hook", printable(&docker.version)),
            )
            .so(not_taken)
            .looked_at([path.clone()])
            .fix(format!("install the package nvidia-container-toolkit, then {restart}"))
        }
        GpusFlag::Other(path) => Check::ok(NAME, format!("accepted, by {path}")).looked_at([path.clone()]),
    }
}

/// Whether a version is known to be older.
fn is_before(version: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < wanted,
        _ => false,
    }
}

pub(super) fn podman(facts: &Facts) -> Check {
    const NAME: &str = "podman";
    let podman = &facts.podman;
    if !podman.installed {
        return Check::skipped(NAME, "not installed");
    }
    if let Some(trouble) = &podman.trouble {
        return Check::error(NAME, trouble.text.clone())
            .so("podman starts nothing before that is corrected.")
            .looked_at(podman.files.clone())
            .fix(trouble.fix.clone());
    }
    let places = || {
        let files = podman.files.iter().cloned();
        let hooks = podman.hooks.iter().map(|hook| hook.path.clone());
        let found: Vec<String> = files.chain(hooks).collect();
        if found.is_empty() { vec!["/etc/containers/containers.conf, containers.conf.d".to_owned()] } else { found }
    };
    hook_problem(podman).unwrap_or_else(|| podman_runtime(podman)).looked_at(places())
}

fn hook_problem(podman: &Podman) -> Option<Check> {
    const NAME: &str = "podman";
    let is_precreate = |stages: &[String]| stages.iter().any(|stage| stage == "precreate");
    let shared = podman.hooks.iter().find(|hook| hook.in_shared_folder && is_precreate(&hook.stages));
    if let Some(hook) = shared {
        let name = hook.path.rsplit('/').next().unwrap_or_default();
        return Some(
            Check::error(NAME, format!("{} has a stage that others do not know", hook.path))
                .so("podman build and CRI-O read this folder too, and stop: unknown stage \"precreate\".")
                .fix(format!(
                    "sudo mkdir -p /usr/share/cudaview/precreate && sudo mv {} /usr/share/cudaview/precreate/{}, \
                     and name that folder in containers.conf (hooks/podman/precreate.conf)",
                    shell::quote(&hook.path),
                    shell::quote(name)
                )),
        );
    }
    let hook = podman.hooks.iter().find(|hook| hook.is_missing)?;
    Some(
        Check::error(NAME, format!("{} names {}, which is not there", hook.path, printable(&hook.program)))
            .so("podman leaves such a hook out without a word: nothing of cudaview's happens to its containers.")
            .fix("install cudaview-hook there, or correct the path in the file"),
    )
}

fn podman_runtime(podman: &Podman) -> Check {
    const NAME: &str = "podman";
    let ours = podman.runtimes.iter().find(|runtime| runtime.is_ours());
    let precreate = podman.hooks.iter().find(|hook| hook.stages.iter().any(|stage| stage == "precreate"));
    match (ours, precreate) {
        (Some(ours), _) if ours.problem.is_some() => {
            let problem = ours.problem.clone().unwrap_or_default();
            Check::error(
                NAME,
                format!("the runtime {} is {}, which {problem}", quoted(&ours.name), printable(&ours.path)),
            )
            .so(format!("podman --runtime {} starts nothing.", printable(&ours.name)))
            .fix("install cudaview's programs there, or correct the path in the file")
        }
        (Some(ours), _) => {
            let default = if podman.default_runtime.as_ref() == Some(&ours.name) { " (its default)" } else { "" };
            let line = format!("the runtime {}{default}; --device goes through CDI", quoted(&ours.name));
            Check::ok(NAME, line)
        }
        (None, Some(_)) => Check::ok(NAME, "cudaview's precreate hook; --device goes through CDI"),
        (None, None) => Check::warning(NAME, "does not know cudaview")
            .so("podman run gives GPUs by CDI alone; CUDA_VISIBLE_DEVICES stays as it was typed.")
            .fix("copy hooks/podman/containers.conf to /etc/containers/containers.conf.d/50-cudaview.conf"),
    }
}

pub(super) fn containerd(facts: &Facts) -> Check {
    const NAME: &str = "containerd";
    let containerd = &facts.containerd;
    if !containerd.installed {
        return Check::skipped(NAME, "not installed");
    }
    let files = || containerd.files.clone();
    if let Some(trouble) = &containerd.trouble {
        return Check::error(NAME, trouble.text.clone())
            .so("containerd will not start again with this file.")
            .looked_at(files())
            .fix(trouble.fix.clone());
    }
    let Some(handler) = containerd.handlers.first() else {
        return Check::skipped(NAME, "no runtime handler of cudaview's (for Kubernetes and nerdctl)")
            .looked_at(["/etc/containerd/config.toml"]);
    };
    let name = quoted(&handler.name);
    if let Some(problem) = &handler.problem {
        return Check::error(NAME, format!("the handler {name} is {}, which {problem}", printable(&handler.path)))
            .so("Pods of its RuntimeClass do not start.")
            .looked_at(files())
            .fix("install cudaview's programs there, or correct BinaryName in the file");
    }
    if containerd.is_changed == Some(true) {
        return Check::warning(NAME, "its configuration has changed since it was started")
            .so(format!("The handler {name} may not be known yet: no runtime for {name} is configured."))
            .looked_at(files())
            .fix("sudo systemctl restart containerd (running containers stay up)");
    }
    Check::ok(NAME, format!("the handler {name} is {}", printable(&handler.path))).looked_at(files())
}
