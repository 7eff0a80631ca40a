//! `cudaview explain`: what the program will see, and who decided it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::Context;

use super::cli::{EXPLAIN_TAKES, ExplainArgs, Format};
use super::command;
use super::compose::{self, Asked};
use super::container;
use super::flags::{check_entries, what_if};
use super::image;
use super::output::{Failure, note, print, print_json, style};
use crate::config::{Config, Mode};
use crate::device::DeviceNumber;
use crate::exit::Exit;
use crate::finding::{Code, quoted};
use crate::inventory::Inventory;
use crate::plan::{ExecPlan, Plan, Verdict, plan, plan_exec};
use crate::provenance::{Engine, EngineFacts};
use crate::report::{ImageEnv, ImageSource, Subject, Told, explain, explain_json, page};
use crate::situation::{HostFacts, Situation, from_spec};
use crate::spec::Spec;
use crate::spelling;
use crate::sys::{configuration, containers, inventory};
use crate::whatif::WhatIf;

/// What to type in place of a bare `explain`.
const ABOUT: &str = "--container NAME for one that exists, or the flags of docker run for one that does not yet; \
                     cudaview explain --help has examples";

/// Why the origin of a value is not known, where it was typed so.
const GIVEN: &str = "given with --unknown-env";

/// The largest `config.json` that is read.
const BUNDLE_LIMIT: u64 = 16 << 20;

pub(super) fn run(arguments: &ExplainArgs) -> Result<(), Failure> {
    if let Some(file) = &arguments.compose {
        return compose(file, arguments);
    }
    if command::is_command(&arguments.words) {
        return whole_command(arguments);
    }
    let is_real = arguments.bundle.is_some() || arguments.container.is_some();
    let is_what_if = arguments.what_if.is_given() || arguments.image.is_some();
    let about_container = is_what_if || is_real || !arguments.exec_env.is_empty();
    match arguments.words.as_slice() {
        [] => {}
        [name] if !about_container => return print_page(name, arguments.format),
        [first, ..] if !about_container => {
            let text = format!("{} is neither docker, podman nor nerdctl", quoted(first));
            return Err(Failure::usage(text, EXPLAIN_TAKES));
        }
        words => {
            let text = format!("explain takes no words beside its flags: {}", quoted(&words.join(" ")));
            return Err(Failure::usage(text, EXPLAIN_TAKES));
        }
    }
    if is_real && is_what_if {
        let (flag, source) = match &arguments.bundle {
            Some(_) => ("--bundle", "from its config.json"),
            None => ("--container", "as it is"),
        };
        let hint =
            format!("{flag} takes the whole container {source}; leave --gpus, --device, -e, --image and the rest out");
        return Err(Failure::usage(format!("{flag} cannot be used with flags of docker run"), hint));
    }
    if arguments.bundle.is_some() && arguments.container.is_some() {
        return Err(Failure::usage("--bundle and --container cannot be used together", "leave one of them out"));
    }
    check_entries("--exec-env", &arguments.exec_env)?;
    let what_if = what_if(&arguments.what_if)?;
    let config = load_config(arguments)?;
    // By the policy a container may have GPUs without a flag; without both there is nothing to explain.
    if !about_container && arguments.config.is_none() && !config.grant.grants_unasked() {
        return Err(Failure::usage("explain was not told about which container", ABOUT));
    }
    if let Some(name) = &arguments.container {
        return container::run(name, arguments, &config);
    }
    if let Some(folder) = &arguments.bundle {
        let inventory = inventory::look(&config, arguments.inventory.as_deref())?;
        let situation = bundle(folder, &inventory, &config)?;
        let told = (Told::Bundle, "looked at config.json, which does not say");
        return what_would_be(&situation, &ImageEnv::default(), told, &inventory, arguments, &config);
    }
    match &arguments.image {
        None => of_flags(&what_if, None, GIVEN, arguments, &config),
        Some(name) => {
            // What is typed is added to what the image has.
            let (mut env, source) = image::look(name)?;
            env.extend(what_if.image_env);
            of_flags(&WhatIf { image_env: env, ..what_if }, Some(source), GIVEN, arguments, &config)
        }
    }
}

/// A container of these flags, that does not exist.
pub(super) fn of_flags(
    what_if: &WhatIf,
    source: Option<ImageSource>,
    origin_unknown: &str,
    arguments: &ExplainArgs,
    config: &Config,
) -> Result<(), Failure> {
    misspelt(what_if);
    let inventory = inventory::look(config, arguments.inventory.as_deref())?;
    let image = ImageEnv { source, ..what_if.image() };
    let situation = what_if.situation(&inventory, config);
    let told = (Told::Flags, origin_unknown);
    what_would_be(&situation, &image, told, &inventory, arguments, config)
}

/// Says which variables nobody reads, since their names are nearly those of others.
fn misspelt(what_if: &WhatIf) {
    for entry in what_if.env.iter().chain(&what_if.image_env).chain(&what_if.unknown_env) {
        let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
        if let Some(meant) = spelling::variable(name) {
            note(&format!("nothing reads {}: the variable is called {meant}", quoted(name)));
        }
    }
}

fn what_would_be(
    situation: &Situation,
    image: &ImageEnv,
    (told, origin_unknown): (Told, &str),
    inventory: &Inventory,
    arguments: &ExplainArgs,
    config: &Config,
) -> Result<(), Failure> {
    let plan = plan(inventory, situation, config);
    let exec = exec(arguments, inventory, situation, &plan, config);
    let subject = Subject {
        inventory,
        situation,
        plan: &plan,
        exec: exec.as_ref(),
        image,
        name: None,
        container: None,
        done: false,
        told,
        observe: config.mode == Mode::Observe,
        origin_unknown,
    };
    if config.mode == Mode::Observe {
        note("mode = \"observe\" in the configuration: it is written down and not done");
    }
    show(&subject, arguments.format)
}

/// The services of a Compose file.
fn compose(file: &Path, arguments: &ExplainArgs) -> Result<(), Failure> {
    if arguments.what_if.is_given() || !arguments.words.is_empty() {
        let hint = "--compose takes the services from the file; leave --gpus, --device, -e and the rest out";
        return Err(Failure::usage("--compose cannot be used with flags of docker run", hint));
    }
    check_entries("--exec-env", &arguments.exec_env)?;
    let config = load_config(arguments)?;
    let asked = Asked { file, services: arguments.service.clone(), image: arguments.image.as_deref() };
    compose::run(&asked, arguments, &config)
}

/// `-- docker run …`.
fn whole_command(arguments: &ExplainArgs) -> Result<(), Failure> {
    if arguments.bundle.is_some() || arguments.container.is_some() {
        let hint = "a command starts a container of its own; leave --bundle and --container out";
        return Err(Failure::usage("--bundle and --container cannot be used with a command", hint));
    }
    check_entries("--exec-env", &arguments.exec_env)?;
    command::run(arguments)
}

pub(super) fn load_config(arguments: &ExplainArgs) -> Result<Config, Failure> {
    Ok(match &arguments.config {
        Some(file) => configuration::load_file(file)?,
        None => configuration::load()?,
    })
}

pub(super) fn show(subject: &Subject<'_>, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => print_json(&explain_json(subject)),
        Format::Human => print(&explain(subject, style())),
    }
}

fn print_page(name: &str, format: Format) -> Result<(), Failure> {
    if let Some(code) = Code::ALL.iter().find(|code| code.name().eq_ignore_ascii_case(name)) {
        if format == Format::Json {
            let hint = format!("cudaview explain {} prints it as text", code.name());
            return Err(Failure::usage("the page of a finding has no JSON form", hint));
        }
        return print(&page(*code, style()));
    }
    if matches!(name, "docker" | "podman" | "nerdctl") {
        return Err(Failure::usage(format!("{name} alone starts no container"), EXPLAIN_TAKES));
    }
    let names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    let hint = match spelling::nearest(&name.to_ascii_lowercase(), names.iter().copied()) {
        Some(near) => format!("did you mean cudaview explain {near}?"),
        None if containers::is_name(name) => {
            format!("for a container: cudaview explain --container {name}; findings: {}", names.join(", "))
        }
        None => format!("one of: {}", names.join(", ")),
    };
    Err(Failure::usage(format!("no finding is called {}", quoted(name)), hint))
}

/// A container as its bundle describes it.
fn bundle(folder: &Path, inventory: &Inventory, config: &Config) -> Result<Situation, Failure> {
    let path = folder.join("config.json");
    let bad = |error: anyhow::Error| {
        let hint = "--bundle takes the folder that holds an OCI config.json";
        Failure::new(Exit::BadInput, error.context(format!("failed to read {:?}", path.display().to_string())), hint)
    };
    let text = read_limited(&path).map_err(bad)?;
    let value: serde_json::Value = serde_json::from_slice(&text).context("not JSON").map_err(bad)?;
    let spec = Spec::new(&value).context("not a container configuration").map_err(bad)?;
    let mounts = spec.mounts();
    let number = |source: &str| {
        let metadata = std::fs::metadata(source).ok().filter(|metadata| metadata.file_type().is_char_device())?;
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Some(DeviceNumber { major, minor })
    };
    let numbered = mounts.iter().filter(|mount| mount.bind && mount.source.starts_with('/'));
    let mount_numbers = numbered.filter_map(|mount| Some((mount.position, number(mount.source)?))).collect();
    let host = HostFacts { mount_numbers, ..HostFacts::default() };
    Ok(from_spec(spec, inventory, &EngineFacts::nothing_known(Engine::Unknown), &host, config))
}

pub(super) fn read_limited(path: &Path) -> anyhow::Result<Vec<u8>> {
    Ok(crate::sys::read_plain(path, BUNDLE_LIMIT)?)
}

/// The process that is added, if one was asked about and there is a container to add it to.
pub(super) fn exec(
    arguments: &ExplainArgs,
    inventory: &Inventory,
    situation: &Situation,
    plan: &Plan,
    config: &Config,
) -> Option<ExecPlan> {
    if arguments.exec_env.is_empty() {
        return None;
    }
    let current = WhatIf::exec_variables(&situation.original, &arguments.exec_env);
    match plan.verdict {
        Verdict::Refused => {
            note("the container is refused, so there is nothing to exec in");
            None
        }
        Verdict::NotApplicable => Some(ExecPlan {
            verdict: Verdict::NotApplicable,
            emitted: current.clone(),
            current,
            provenance: situation.provenance,
            reconciliation: None,
            visible: Vec::new(),
            findings: Vec::new(),
        }),
        Verdict::Consistent | Verdict::Rewritten => {
            let record = plan.record(inventory, situation);
            let mut exec = plan_exec(&record, &record.inventory(), &current, config);
            exec.visible = in_inventory(&exec.visible, &record.inventory(), inventory);
            Some(exec)
        }
    }
}

/// Devices of the container's part of the host, as devices of the host.
fn in_inventory(
    devices: &[crate::inventory::Device],
    part: &Inventory,
    whole: &Inventory,
) -> Vec<crate::inventory::Device> {
    devices.iter().filter_map(|device| whole.by_uuid(part.uuid(*device))).collect()
}
