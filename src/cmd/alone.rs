//! The createRuntime hook without a wrapper: it mounts what was granted, and says what only another door can do.
//!
//! The runtime has handed the environment to the container's first process by now, so it cannot be rewritten here.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use crate::cmd::door::{Container, Decision, decide};
use crate::cmd::failure::Failure;
use crate::cmd::hook::Arguments;
use crate::config::{Config, Mode, OnUnfixableEnv};
use crate::cuda;
use crate::exit::Exit;
use crate::finding::{Code, Finding, Severity, quoted};
use crate::inventory::Device;
use crate::node::DeviceNode;
use crate::plan::Verdict;
use crate::request::{DeviceRequest, Source, parse_gpus};
use crate::spec::{Rule, Spec, allowed};
use crate::sys::bundle::Document;
use crate::sys::cgroup::{self, DeviceCgroup};
use crate::sys::state::State;
use crate::sys::{configuration, host, rootfs, trusted};
use crate::unambiguous;

/// Which doors can do what this one cannot.
const OTHER_DOORS: &str = "use cudaview-runtime as the runtime (docker run --runtime cudaview, podman --runtime), \
                           or under podman the precreate hook";

/// Decides for a container and mounts its nodes. A warning, if there is one, is the result.
///
/// # Errors
/// [`Failure`] where the container must not start.
pub fn run(arguments: &Arguments, state: &State, deadline: Instant) -> Result<Option<String>, Failure> {
    let config = configuration::load().map_err(|error| Failure::new(Exit::Configuration, error))?;
    let requests = requests(arguments)?;
    let (bundle, document) = find_bundle(state)?;
    let value = unambiguous::parse(&document.bytes)
        .with_context(|| format!("failed to parse {:?}", document.path()))
        .map_err(|error| Failure::new(Exit::BadInput, error))?;
    let spec = Spec::new(&value).map_err(|error| Failure::new(Exit::BadInput, error))?;
    if spec.record().is_some() {
        // The wrapper or precreate has decided, and its own hook entry does the rest.
        return Ok(None);
    }
    let container = Container {
        door: "hook",
        spec,
        bundle: &bundle,
        id: &state.id,
        runtime_root: None,
        low_level: None,
        requests: &requests,
    };
    let mut decision = decide(&container, &config)?;
    if config.mode == Mode::Observe {
        decision.audit(&container, &config, "observe");
        return Ok(None);
    }
    let refusal = decision.refusal();
    if refusal.is_some() || decision.plan.verdict == Verdict::NotApplicable {
        decision.audit(&container, &config, "enforce");
        return refusal.map_or(Ok(None), Err);
    }
    let nodes = nodes(&decision, &config);
    let unfixable = unfixable(&decision, &config);
    let outcome = within_limit(&decision)
        .and_then(|()| answer(unfixable.as_ref()))
        .and_then(|warning| allow(state, spec, &nodes).map(|()| warning));
    as_left(&mut decision, unfixable, outcome.is_err());
    decision.audit(&container, &config, "enforce");
    let warning = outcome?;
    let root = root(state, spec, &bundle);
    let target = rootfs::Container::new(state.pid, &root)?;
    rootfs::ensure_nodes(&target, &nodes, Path::new(&config.dev_root), deadline)?;
    Ok(warning)
}

fn requests(arguments: &Arguments) -> Result<Vec<DeviceRequest>, Failure> {
    let Some(text) = &arguments.gpus else { return Ok(Vec::new()) };
    let flag = parse_gpus(text).map_err(|error| Failure::usage(format!("--gpus {}: {error}", quoted(text))))?;
    Ok(vec![DeviceRequest { source: Source::Policy, selection: flag.selection }])
}

/// The bundle as the state names it; crun with a user namespace names `/`, and then the process stands in it.
fn find_bundle(state: &State) -> Result<(PathBuf, Document), Failure> {
    let named = PathBuf::from(&state.bundle);
    let bundle = if named.is_absolute() && named != Path::new("/") {
        named
    } else {
        let link = format!("/proc/{}/cwd", state.pid);
        std::fs::read_link(&link)
            .with_context(|| format!("the state names the bundle {:?}, and {link:?} cannot be read", state.bundle))
            .map_err(|error| Failure::new(Exit::BadInput, error).hint(OTHER_DOORS))?
    };
    let document = Document::read(&bundle.join("config.json"))
        .map_err(|error| Failure::new(Exit::BadInput, error).hint(OTHER_DOORS))?;
    Ok((bundle, document))
}

fn root(state: &State, spec: Spec<'_>, bundle: &Path) -> PathBuf {
    let named = spec.root_path().or(state.root.as_deref()).unwrap_or("rootfs");
    bundle.join(named)
}

/// What `[limit]` withholds and the engine has put in already, nobody takes away here.
fn within_limit(decision: &Decision) -> Result<(), Failure> {
    let by_engine = decision.situation.requests.iter().filter(|request| request.source == Source::Nodes);
    let mut beyond: Vec<_> =
        by_engine.flat_map(|request| request.selection.resolve(&decision.inventory).devices).collect();
    beyond.retain(|device| !decision.plan.grant.devices.contains(device));
    if beyond.is_empty() {
        return Ok(());
    }
    let hosts = decision.inventory.host_names(&beyond);
    let text = format!("refused, [limit] withholds {hosts}, and a createRuntime hook cannot take that away");
    Err(Failure::text_only(Exit::Refused, text).hint(OTHER_DOORS))
}

/// What the environment should say and does not: a warning, or by policy an error.
fn unfixable(decision: &Decision, config: &Config) -> Option<Finding> {
    let original = &decision.situation.original;
    let value = original.visible_devices.as_deref()?;
    let (inventory, granted) = (&decision.inventory, &decision.plan.grant.devices);
    let shown = cuda::predict(inventory, granted, Some(value), original.device_order.as_deref());
    if shown.visible == decision.plan.visible {
        return None;
    }
    let hosts = |devices: &[Device]| match devices {
        [] => "no GPU".to_owned(),
        devices => inventory.host_names(devices),
    };
    let message = format!(
        "CUDA_VISIBLE_DEVICES={} cannot be rewritten by a createRuntime hook: the program will see {}, not {}",
        quoted(value),
        hosts(&shown.visible),
        hosts(&decision.plan.visible)
    );
    let severity = match config.hook.on_unfixable_env {
        OnUnfixableEnv::Refuse => Severity::Error,
        OnUnfixableEnv::Warn => Severity::Warning,
    };
    Some(Finding::new(Code::UnfixableEnv, severity, message, OTHER_DOORS))
}

/// The same for whoever reads the hook's standard error: a runtime shows that of a hook that fails, and no other's.
fn answer(finding: Option<&Finding>) -> Result<Option<String>, Failure> {
    match finding {
        None => Ok(None),
        Some(Finding { severity: Severity::Error, message, hint, .. }) => {
            Err(Failure::text_only(Exit::Refused, format!("refused, {message}")).hint(hint.as_str()))
        }
        Some(Finding { message, hint, .. }) => Ok(Some(format!("warning: {message}\n  hint: {hint}"))),
    }
}

/// The plan as this door leaves the container: nothing is rewritten and nothing narrowed away.
fn as_left(decision: &mut Decision, unfixable: Option<Finding>, refused: bool) {
    let original = decision.situation.original.clone();
    let granted = decision.plan.grant.devices.clone();
    let (value, order) = (original.visible_devices.as_deref(), original.device_order.as_deref());
    decision.plan.visible = cuda::predict(&decision.inventory, &granted, value, order).visible;
    decision.plan.verdict = if refused { Verdict::Refused } else { Verdict::Consistent };
    if let Some(decided) = &mut decision.plan.reconciliation {
        decided.kept = granted;
    }
    decision.plan.emitted = original;
    let of_grant = &decision.plan.grant.findings;
    decision
        .plan
        .findings
        .retain(|finding| of_grant.contains(finding) || holds_unchanged(finding.code, unfixable.is_none()));
    decision.plan.findings.extend(unfixable);
}

/// Whether a finding of the rules is true of a container whose environment and nodes stay as they were, and whose value
/// shows by itself what the rules came to, or does not.
fn holds_unchanged(code: Code, means_the_same: bool) -> bool {
    match code {
        Code::Withheld | Code::DeviceOrderChanged => false,
        Code::HostIndexOverride
        | Code::AmbiguousIndex
        | Code::OverrideMatchesNothing
        | Code::OverrideExceedsGrant
        | Code::DuplicateEntries
        | Code::MalformedValue
        | Code::ImageDefaultYields => means_the_same,
        _ => true,
    }
}

/// Everything that was granted: without a rewritten environment nothing may be narrowed away.
fn nodes(decision: &Decision, config: &Config) -> Vec<DeviceNode> {
    let inventory = &decision.inventory;
    let mut nodes = host::control_nodes(&config.dev_root);
    for device in &decision.plan.grant.devices {
        nodes.push(DeviceNode::gpu(inventory.gpu(*device).minor));
        let capabilities = inventory.mig(*device).into_iter().flat_map(|mig| &mig.capability_nodes);
        nodes.extend(capabilities.map(|node| DeviceNode { path: node.path.clone(), number: node.number }));
    }
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Makes sure that the container may open the nodes, or refuses: on cgroup v2 the runtime's program is attached
/// already, and a second one cannot widen it.
fn allow(state: &State, spec: Spec<'_>, nodes: &[DeviceNode]) -> Result<(), Failure> {
    let rules: Vec<Rule> = spec.rules();
    let blocked: Vec<&DeviceNode> = nodes.iter().filter(|node| !allowed(rules.iter().copied(), node.number)).collect();
    if blocked.is_empty() {
        return Ok(());
    }
    let pid = u32::try_from(state.pid)
        .map_err(|_| Failure::text_only(Exit::BadInput, format!("{} is no process id", state.pid)))?;
    let found = cgroup::find(pid).map_err(|error| Failure::new(Exit::Failed, error))?;
    match found {
        DeviceCgroup::V1 { .. } => {
            for node in blocked {
                cgroup::allow(&found, node.number).map_err(|error| Failure::new(Exit::Failed, error))?;
            }
            Ok(())
        }
        // No device cgroup of its own: the nodes alone decide.
        DeviceCgroup::Shared | DeviceCgroup::None => Ok(()),
        DeviceCgroup::V2 if trusted::in_user_namespace() => Ok(()),
        DeviceCgroup::V2 => {
            let paths: Vec<&str> = blocked.iter().map(|node| node.path.as_str()).collect();
            let text = format!(
                "refused, a createRuntime hook cannot allow {} on cgroup v2: the container's device rules are in force",
                paths.join(" ")
            );
            Err(Failure::text_only(Exit::Refused, text).hint(OTHER_DOORS))
        }
    }
}
