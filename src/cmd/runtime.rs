//! `cudaview-runtime`: edits what the engine hands over, then becomes the low-level runtime.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::argv::{self, Command, Invocation};
use crate::cmd::door::{Container, decide};
use crate::cmd::failure::Failure;
use crate::config::{Config, Inject, Mode};
use crate::edits::{ContainerEdits, edit_array, set_env, write};
use crate::exit::Exit;
use crate::plan::{Verdict, plan_exec};
use crate::record::Variables;
use crate::report;
use crate::spec::{Spec, check_env, has_gpu_sign, last_var};
use crate::sys::bundle::{Document, DocumentError};
use crate::sys::report::{Channel, DebugLog, failure};
use crate::sys::{configuration, runtime, runtime_state, toolkit};
use crate::unambiguous;

/// How often an edit starts again when somebody else changed the file meanwhile.
const ATTEMPTS: usize = 3;

/// Runs the wrapper with its arguments, the program's name left out. Returns only on failure.
pub fn run(args: &[OsString]) -> Exit {
    let invocation = argv::parse(args);
    let channel = Channel { log: invocation.log.as_deref(), json: invocation.log_json };
    if let (true, Some(log)) = (invocation.debug, &invocation.log) {
        DebugLog::install(log, invocation.log_json);
    }
    let failed = match prepare(&invocation) {
        Ok(ready) => {
            let error = runtime::execute(&ready.low_level, args);
            if let Some(document) = ready.edited {
                // What could not be used is put back; the failure to start the runtime is what gets reported.
                let _ = document.restore();
            }
            Failure::new(Exit::Failed, error)
        }
        Err(failed) => failed,
    };
    failure(&channel, &format!("cudaview: {}", failed.text()));
    failed.exit
}

/// Everything is in place for the low-level runtime.
struct Ready {
    low_level: PathBuf,
    edited: Option<Document>,
}

fn prepare(invocation: &Invocation) -> Result<Ready, Failure> {
    let config = match (configuration::load(), &invocation.command) {
        (Ok(config), _) => config,
        // A wrong configuration must not keep a container from being stopped and deleted.
        (Err(_), Command::Other | Command::Update { .. }) => Config::built_in(),
        (Err(error), _) => {
            let hint = error.hint();
            return Err(Failure::new(Exit::Configuration, error).hint(hint));
        }
    };
    let low_level = runtime::find(&config.low_level_runtime).map_err(|error| {
        Failure::new(Exit::Configuration, error)
            .hint(format!("set low_level_runtime in {}", configuration::path().display()))
    })?;
    let edited = match &invocation.command {
        Command::Create { bundle, config: file } => {
            let bundle = absolute(bundle.as_deref().unwrap_or(Path::new(".")))?;
            // crun takes it as a path from where it was started, not from the bundle.
            let file = file.as_deref().map_or_else(|| Ok(bundle.join("config.json")), absolute)?;
            match create(invocation, &bundle, &file, &low_level, &config) {
                // Who only observes must not be in the way of a container either.
                Err(failed) if config.mode == Mode::Observe => {
                    log::warn!("observed only: {}", failed.text());
                    None
                }
                done => done?,
            }
        }
        Command::Exec { process: Some(process) } => exec(invocation, process, &config)?,
        Command::Update { resources: Some(resources) } => update(invocation, resources)?,
        Command::Exec { process: None } | Command::Update { resources: None } | Command::Other => None,
    };
    Ok(Ready { low_level, edited })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(Exit::BadInput, error))
}

fn create(
    invocation: &Invocation,
    bundle: &Path,
    file: &Path,
    low_level: &Path,
    config: &Config,
) -> Result<Option<Document>, Failure> {
    for attempt in 1.. {
        let document = match Document::read(file) {
            Ok(document) => document,
            // Not a bundle: the runtime says so better.
            Err(DocumentError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(Failure::new(Exit::BadInput, error)),
        };
        let is_nvidia = runtime::is_nvidia(low_level) || config.inject == Inject::Nvidia;
        let has_sign = |bytes: &[u8]| is_nvidia && toolkit::configuration(Some(low_level)).has_sign(bytes);
        let is_asked = has_gpu_sign(&document.bytes) || config.grant.grants_unasked() || has_sign(&document.bytes);
        if !is_asked {
            return Ok(None);
        }
        match edit_config(invocation, bundle, low_level, config, &document)? {
            None => return Ok(None),
            Some(content) => match document.replace(&content) {
                Ok(()) => return Ok(Some(document)),
                Err(DocumentError::Changed(_)) if attempt < ATTEMPTS => {}
                Err(error) => return Err(Failure::new(Exit::Failed, error)),
            },
        }
    }
    Ok(None)
}

/// The container's new configuration, or `None` where it stays as it is.
fn edit_config(
    invocation: &Invocation,
    bundle: &Path,
    low_level: &Path,
    config: &Config,
    document: &Document,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut value = parse(document)?;
    let spec = Spec::new(&value)
        .with_context(|| format!("{:?} is no container configuration", document.path()))
        .map_err(|error| Failure::new(Exit::BadInput, error))?;
    let id = invocation.id.as_deref().unwrap_or_default().to_string_lossy();
    let container = Container {
        door: "runtime",
        spec,
        bundle,
        id: &id,
        runtime_root: invocation.root.as_deref(),
        low_level: Some(low_level),
        requests: &[],
    };
    let decision = decide(&container, config)?;
    log::debug!("verdict {}, edits {:?}", decision.plan.verdict.name(), decision.edits);
    if config.mode == Mode::Observe {
        decision.audit(&container, config, "observe");
        return Ok(None);
    }
    decision.audit(&container, config, "enforce");
    if let Some(refusal) = decision.refusal() {
        return Err(refusal);
    }
    if decision.edits == ContainerEdits::default() {
        return Ok(None);
    }
    // Only what an earlier door left can be just what we would write; anything else is changed by our hook entry.
    let before = spec.record().is_some().then(|| value.clone());
    let content = write(&mut value, &decision.edits).map_err(|error| Failure::new(Exit::Failed, error))?;
    let is_the_same =
        before.is_some_and(|before| serde_json::from_slice::<Value>(&content).is_ok_and(|after| after == before));
    let content = (!is_the_same).then_some(content);
    // This program is about to become another; taking thousands of values apart first would be for nothing.
    std::mem::forget((value, decision));
    Ok(content)
}

fn written(value: &Value) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::new(Exit::Failed, error))
}

fn parse(document: &Document) -> Result<Value, Failure> {
    unambiguous::parse(&document.bytes)
        .with_context(|| format!("failed to parse {:?}", document.path()))
        .map_err(|error| Failure::new(Exit::BadInput, error))
}

/// Engines rebuild the environment of an added process from their own copy; it is rewritten here too.
fn exec(invocation: &Invocation, process: &Path, config: &Config) -> Result<Option<Document>, Failure> {
    let Some(record) = runtime_state::record(invocation, Some(process)) else { return Ok(None) };
    let document = Document::read(process).map_err(|error| Failure::new(Exit::BadInput, error))?;
    let mut value = parse(&document)?;
    check_env(value.get("env"), "/env")
        .with_context(|| format!("{process:?} is no process file"))
        .map_err(|error| Failure::new(Exit::BadInput, error))?;
    let env = value.get("env").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let current = Variables::collect(|name| last_var(env, name));
    let inventory = record.inventory();
    let plan = plan_exec(&record, &inventory, &current, config);
    if plan.verdict == Verdict::Refused {
        let text = report::exec_refusal(&plan, &record, &inventory);
        return Err(Failure::text_only(Exit::Refused, text.trim_start_matches("cudaview: ")));
    }
    let before = value.clone();
    edit_array(&mut value, "env", |env| {
        for (name, value) in Variables::NAMES.into_iter().zip(plan.emitted.values()) {
            if let Some(value) = value {
                set_env(env, name, value);
            }
        }
    });
    if value == before {
        return Ok(None);
    }
    document.replace(&written(&value)?).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Some(document))
}

/// podman sends its own device rules with every update, and crun obeys: the container would lose its GPUs.
fn update(invocation: &Invocation, resources: &Path) -> Result<Option<Document>, Failure> {
    if resources == Path::new("-") || runtime_state::record(invocation, None).is_none() {
        return Ok(None);
    }
    let Ok(document) = Document::read(resources) else { return Ok(None) };
    let Ok(mut value) = parse(&document) else { return Ok(None) };
    if value.as_object_mut().and_then(|object| object.shift_remove("devices")).is_none() {
        return Ok(None);
    }
    document.replace(&written(&value)?).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Some(document))
}
