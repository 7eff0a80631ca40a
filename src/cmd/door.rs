//! What the wrapper and podman's precreate hook have in common: gather, decide, and work out the edits.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cmd::failure::Failure;
use crate::config::{Config, ImageRequest};
use crate::edits::{ContainerEdits, Places, edits};
use crate::exit::Exit;
use crate::finding::{Code, Finding, Severity, quoted_list};
use crate::inventory::{Device, Inventory};
use crate::plan::{Plan, Verdict, plan};
use crate::provenance::{Engine, EngineFacts, Provenance};
use crate::record::Variables;
use crate::report;
use crate::request::DeviceRequest;
use crate::shell;
use crate::situation::{Injection, Situation, from_spec};
use crate::spec::Spec;
use crate::sys::{self, audit, driver, host, inventory, provenance};

/// A container at one of our doors.
#[derive(Debug)]
pub struct Container<'a> {
    /// The name of the door, for the audit record.
    pub door: &'static str,
    /// Its configuration.
    pub spec: Spec<'a>,
    /// Its bundle, absolute.
    pub bundle: &'a Path,
    /// Its id.
    pub id: &'a str,
    /// `--root` of the runtime.
    pub runtime_root: Option<&'a Path>,
    /// The low-level runtime, where it is ours to choose.
    pub low_level: Option<&'a Path>,
    /// What an operator asked this very door for.
    pub requests: &'a [DeviceRequest],
}

/// What was found out and decided.
#[derive(Debug)]
pub struct Decision {
    /// What the engine's files say.
    pub facts: EngineFacts,
    /// The host's GPUs.
    pub inventory: Inventory,
    /// What the rules looked at.
    pub situation: Situation,
    /// What they came to.
    pub plan: Plan,
    /// What has to change.
    pub edits: ContainerEdits,
}

/// Gathers the facts and decides. A refusal is a decision, not a failure.
///
/// # Errors
/// [`Failure`] where GPUs were asked for and the host's are not known, or our hook is not installed.
pub fn decide(container: &Container<'_>, config: &Config) -> Result<Decision, Failure> {
    let spec = container.spec;
    let facts = provenance::facts(container.bundle, spec.value(), container.id, container.runtime_root);
    let (mut inventory, problem) = match inventory::load(config, None) {
        Ok(inventory) => (inventory, None),
        Err(error) => (Inventory::empty("none"), Some(error)),
    };
    inventory::add_drm_nodes(&mut inventory, spec.nodes().into_iter().map(|node| node.number));
    let host = host::facts(spec, container.low_level, config);
    let mut situation = from_spec(spec, &inventory, &facts, &host, config);
    situation.requests.extend_from_slice(container.requests);
    let mut decided = plan(&inventory, &situation, config);
    // Asked only now: it looks through the host's processes, for a container that nobody asked a GPU for.
    if decided.grant.image_request_ignored && config.grant.image_request == ImageRequest::Auto {
        situation.runtime_named = provenance::docker_daemon::runtime_is_default(&facts).map(|is_default| !is_default);
        decided = plan(&inventory, &situation, config);
    }
    if let Some(error) = problem.filter(|_| !decided.grant.requests.is_empty()) {
        let hint = error.hint();
        return Err(Failure::new(Exit::NoInventory, error).hint(hint));
    }
    let control_nodes = host::control_nodes(&config.dev_root);
    let injected_by_us = situation.injection == Injection::Native && !decided.kept().is_empty();
    if injected_by_us
        && let Some(missing) = driver::missing(Path::new("/proc"), &Path::new(&config.dev_root).join("dev"))
    {
        // Without them CUDA cannot start in the container, which would fall back to the CPU unnoticed.
        let hint = missing.hint(&config.dev_root);
        return Err(Failure::text_only(Exit::NoInventory, missing).hint(hint));
    }
    if situation.injection == Injection::Nvidia && !decided.kept().is_empty() && !host.toolkit.can_be_told(spec) {
        return Err(deaf_toolkit());
    }
    let cdi = if injected_by_us {
        sys::cdi::edits(&config.cdi_spec_dirs, &inventory, decided.kept()).map_err(|error| {
            let hint = error.hint();
            Failure::new(Exit::Configuration, error).hint(hint)
        })?
    } else {
        None
    };
    if let Some(cdi) = cdi.as_ref().filter(|cdi| !cdi.missing.is_empty()) {
        let message = format!("{} does not know {}", quoted_list(&cdi.files), inventory.host_names(&cdi.missing));
        let file = cdi.files.first().map_or("/etc/cdi/nvidia.yaml", String::as_str);
        let hint = format!("sudo nvidia-ctk cdi generate --output={}", shell::quote(file));
        decided.findings.push(Finding::new(Code::CdiOutOfDate, Severity::Warning, message, hint));
    }
    let hook = hook_path()?;
    let root = container.bundle.join(spec.root_path().unwrap_or("rootfs"));
    let places = Places {
        hook: &hook,
        root: &root.to_string_lossy(),
        dev_root: &config.dev_root,
        control_nodes: &control_nodes,
        cdi: cdi.as_ref(),
    };
    let edits = edits(&decided, &situation, &inventory, spec, &host, &places);
    if edits.hook.is_some() && root.to_str().is_none() {
        // The hook is told by an argument in a JSON file, which cannot hold this path.
        return Err(Failure::text_only(Exit::BadInput, format!("the container's root {root:?} is not UTF-8")));
    }
    if edits.hook.is_some() && !Path::new(&hook).is_file() {
        let text = format!("cudaview-hook is not installed beside this program: {hook:?} is missing");
        return Err(Failure::text_only(Exit::Configuration, text).hint("install cudaview again"));
    }
    Ok(Decision { facts, inventory, situation, plan: decided, edits })
}

/// The container would start without a GPU, and nobody would say so.
fn deaf_toolkit() -> Failure {
    let text = "NVIDIA's toolkit takes GPUs for this container neither from its variables nor from its mounts";
    let hint = "inject = \"auto\" lets cudaview do it; or set accept-nvidia-visible-devices-as-volume-mounts = true in \
                the toolkit's config.toml";
    Failure::text_only(Exit::Configuration, text.to_owned()).hint(hint)
}

/// `cudaview-hook`, beside whichever of our programs runs.
fn hook_path() -> Result<String, Failure> {
    let own = std::fs::read_link("/proc/self/exe").map_err(|error| Failure::new(Exit::Failed, error))?;
    // After an upgrade the kernel marks a program that was replaced while it ran.
    let own = PathBuf::from(own.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    Ok(own.with_file_name("cudaview-hook").to_string_lossy().into_owned())
}

impl Decision {
    /// The refusal, as text for the engine's user.
    pub fn refusal(&self) -> Option<Failure> {
        (self.plan.verdict == Verdict::Refused).then(|| {
            let text = report::refusal(&self.plan, &self.situation, &self.inventory);
            Failure::text_only(Exit::Refused, text.trim_start_matches("cudaview: "))
        })
    }

    /// Writes the audit record, for a container that was changed, refused, or had a request ignored.
    pub fn audit(&self, container: &Container<'_>, config: &Config, mode: &str) {
        // A privileged container that nobody gave a GPU is none of our business, on a host with GPUs.
        let worth_a_line = |finding: &Finding| finding.code != Code::CannotNarrow;
        let untouched = self.plan.verdict == Verdict::NotApplicable && !self.plan.findings.iter().any(worth_a_line);
        if untouched && self.edits == ContainerEdits::default() {
            return;
        }
        if let Err(error) = audit::write(&config.audit, &self.audit_record(container, mode)) {
            log::warn!("failed to write the audit record to {error}");
        }
    }

    fn audit_record<'a>(&'a self, container: &Container<'a>, mode: &'a str) -> AuditRecord<'a> {
        let hosts = |devices: &[Device]| devices.iter().map(|device| self.inventory.host_label(*device)).collect();
        let granted: Vec<String> = hosts(&self.plan.grant.devices);
        // Most often the same.
        let again =
            |devices: &[Device]| if devices == self.plan.grant.devices { granted.clone() } else { hosts(devices) };
        let mut sources: Vec<String> =
            self.plan.grant.requests.iter().map(|request| format!("{:?}", request.source).to_lowercase()).collect();
        sources.dedup();
        AuditRecord {
            schema_version: 1,
            time: crate::sys::report::now(),
            door: container.door,
            mode,
            id: container.id,
            name: self.facts.container_name.as_deref(),
            image: self.facts.image.as_deref(),
            engine: self.facts.engine,
            verdict: self.plan.verdict,
            source: sources,
            kept: again(self.plan.kept()),
            visible: again(&self.plan.visible),
            granted,
            provenance: self.situation.provenance,
            // An image must not make the record too long for the journal.
            before: self.situation.original.clone().told(),
            after: self.plan.emitted.clone().told(),
            findings: &self.plan.findings,
        }
    }
}

/// One line of the audit trail (`docs/audit.md`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditRecord<'a> {
    schema_version: u32,
    time: String,
    door: &'static str,
    mode: &'a str,
    id: &'a str,
    name: Option<&'a str>,
    image: Option<&'a str>,
    engine: Engine,
    verdict: Verdict,
    source: Vec<String>,
    granted: Vec<String>,
    kept: Vec<String>,
    visible: Vec<String>,
    provenance: Provenance,
    before: Variables,
    after: Variables,
    findings: &'a [Finding],
}
