//! What `cudaview-hook` does under the name of NVIDIA's hook, for which dockerd takes `--gpus`.
//!
//! cudaview's runtime takes the entry out of the containers that it gives GPUs.
//! Whoever runs it all the same asked for GPUs that nobody gives, and must not be left to compute on the CPU.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::cmd::failure::Failure;
use crate::exit::Exit;
use crate::spec::last_var;
use crate::sys::bundle::Document;
use crate::sys::{stand_in, state};

/// What Docker writes a request into, behind what an image says.
const SELECTION: &str = "NVIDIA_VISIBLE_DEVICES";

pub(super) const HELP: &str = "\
nvidia-container-runtime-hook: cudaview's stand-in for NVIDIA's hook

It gives no GPUs. It is there so that Docker takes --gpus, which cudaview's
runtime then carries out; of a container under another runtime it says so, and
fails. Undo: cudaview uninstall gpus-flag
";

/// Whether a program was started by the name of NVIDIA's hook.
pub(super) fn is_called(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(OsStr::new(stand_in::NAME))
}

/// The stage at which Docker has it called.
///
/// # Errors
/// [`Failure`] for every container that was to get GPUs.
pub(super) fn prestart(options: &[OsString], deadline: Instant) -> Result<(), Failure> {
    // The runtime waits for the state to be read.
    let state = state::read(rustix::stdio::stdin(), deadline);
    if let Some(unknown) = options.first() {
        return Err(Failure::usage(format!("unknown argument {:?}", unknown.to_string_lossy())));
    }
    if state.is_ok_and(|text| wants_none(&text) == Some(true)) {
        return Ok(());
    }
    let text = "--gpus without cudaview's runtime: the container would have no GPU";
    Err(Failure::text_only(Exit::Refused, text).hint(
        "add --runtime cudaview, or make it Docker's default runtime\n  \
         (mode = \"observe\" and inject = \"nvidia\" of cudaview's config.toml do this too)",
    ))
}

/// Whether a container is to have no GPU; `None` where it cannot be told.
///
/// For `--gpus 0` Docker 28 writes `void`, Docker 20.10 nothing.
fn wants_none(state: &[u8]) -> Option<bool> {
    let state = state::parse(state).ok()?;
    let config = Document::read(&Path::new(&state.bundle).join("config.json")).ok()?;
    let config: Value = serde_json::from_slice(&config.bytes).ok()?;
    let selection = last_var(config.pointer("/process/env")?.as_array()?, SELECTION);
    Some(matches!(selection, None | Some("" | "void" | "none")))
}
