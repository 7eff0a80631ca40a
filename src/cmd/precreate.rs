//! podman's precreate stage: a container's configuration in, the edited one out.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;

use crate::cmd::door::{Container, decide};
use crate::cmd::failure::Failure;
use crate::config::{Config, Mode};
use crate::edits::write;
use crate::exit::Exit;
use crate::spec::{Spec, has_gpu_sign};
use crate::sys::{audit, configuration, runtime, state, toolkit};
use crate::unambiguous;

/// What shall be printed: one JSON document. `directory` is where podman started us, in newer versions the bundle.
///
/// # Errors
/// [`Failure`] where the container must not start; then nothing may be printed.
pub fn run(directory: Option<&Path>, deadline: Instant) -> Result<Vec<u8>, Failure> {
    let text = state::read(rustix::stdio::stdin(), deadline)
        .context("failed to read the container's configuration")
        .map_err(|error| Failure::new(Exit::BadInput, error))?;
    let config = configuration::load().map_err(|error| Failure::new(Exit::Configuration, error))?;
    let has_sign = || runtime::is_nvidia_installed() && toolkit::configuration(None).has_sign(&text);
    if !has_gpu_sign(&text) && !config.grant.grants_unasked() && !has_sign() {
        return Ok(text);
    }
    let mut value = unambiguous::parse(&text)
        .context("failed to parse the container's configuration")
        .map_err(|error| Failure::new(Exit::BadInput, error))?;
    let spec = Spec::new(&value).map_err(|error| Failure::new(Exit::BadInput, error))?;
    let bundle = directory.unwrap_or(Path::new("/"));
    let container = Container {
        door: "precreate",
        spec,
        bundle,
        id: &container_id(spec, bundle),
        runtime_root: None,
        low_level: None,
        requests: &[],
    };
    let decision = decide(&container, &config)?;
    if config.mode == Mode::Observe {
        decision.audit(&container, &config, "observe");
        return Ok(text);
    }
    decision.audit(&container, &config, "enforce");
    if let Some(refusal) = decision.refusal() {
        return Err(recorded(&refusal, &config));
    }
    write(&mut value, &decision.edits).map_err(|error| Failure::new(Exit::Failed, error))
}

/// The refusal with the place of its record: whoever reads podman's log alone looks there.
fn recorded(refusal: &Failure, config: &Config) -> Failure {
    let text = refusal.text();
    match text.strip_suffix(')') {
        Some(start) if config.audit != "off" => {
            Failure::text_only(refusal.exit, format!("{start}; recorded in {})", audit::place(&config.audit)))
        }
        _ => Failure::text_only(refusal.exit, text),
    }
}

/// podman's id: the last part of `cgroupsPath` (`…/libpod-ID`), else the folder above the bundle; none where podman 4
/// is rootless, which starts hooks wherever its user is.
fn container_id(spec: Spec<'_>, bundle: &Path) -> String {
    let from_cgroup = spec.text("/linux/cgroupsPath").and_then(|path| path.rsplit(['/', '-', ':']).next());
    let from_bundle = || bundle.parent().filter(|_| bundle.ends_with("userdata"))?.file_name()?.to_str();
    from_cgroup.or_else(from_bundle).unwrap_or_default().trim_end_matches(".scope").to_owned()
}
