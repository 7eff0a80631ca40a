//! The flags of `docker run`, as `explain` reads them: what Docker does not take is a usage error, with a hint.

use std::path::{Path, PathBuf};

use super::cli::WhatIfArgs;
use super::output::{Failure, note};
use crate::exit::Exit;
use crate::finding::quoted;
use crate::record::Variables;
use crate::request::{GpusFlag, InvalidGpus, Selection, Source, parse_gpus};
use crate::spelling;
use crate::whatif::{WhatIf, is_gpu_device, parse_env_file};

/// The flags, as the engine would read them.
pub(super) fn what_if(arguments: &WhatIfArgs) -> Result<WhatIf, Failure> {
    check_entries("-e", &arguments.env)?;
    check_entries("--image-env", &arguments.image_env)?;
    check_entries("--unknown-env", &arguments.unknown_env)?;
    arguments.device.iter().try_for_each(|name| check_device(name))?;
    let gpus: Result<Vec<GpusFlag>, Failure> = arguments.gpus.iter().map(|text| gpus_flag(text)).collect();
    // As in Docker, whatever the order on the command line.
    let mut env = Vec::new();
    for file in &arguments.env_file {
        env.extend(env_file(file)?);
    }
    env.extend(arguments.env.iter().cloned());
    Ok(WhatIf {
        gpus: gpus?,
        devices: arguments.device.clone(),
        env,
        image_env: arguments.image_env.clone(),
        unknown_env: arguments.unknown_env.clone(),
        privileged: arguments.privileged,
        default_runtime: arguments.default_runtime,
    })
}

/// Entries of `-e` and the like must have a name.
pub(super) fn check_entries(flag: &str, entries: &[String]) -> Result<(), Failure> {
    match entries.iter().find(|entry| entry.is_empty() || entry.starts_with('=')) {
        None => Ok(()),
        Some(entry) => Err(Failure::usage(
            format!("failed to read {flag} {entry:?}: it names no variable"),
            format!("{flag} NAME=VALUE, such as {flag} CUDA_VISIBLE_DEVICES=0"),
        )),
    }
}

fn env_file(path: &Path) -> Result<Vec<String>, Failure> {
    let bad = |error: anyhow::Error| {
        let hint = "--env-file takes lines NAME=VALUE, and comments that begin with #";
        Failure::new(Exit::BadInput, error.context(format!("failed to read {:?}", path.display().to_string())), hint)
    };
    let text = super::explain::read_limited(path).map_err(bad)?;
    let text = String::from_utf8(text).map_err(|error| bad(error.into()))?;
    let entries = parse_env_file(&text).map_err(|error| bad(error.into()))?;
    let is_bare = |name: &&str| text.lines().any(|line| line.trim_start() == *name);
    for name in Variables::NAMES.into_iter().filter(is_bare) {
        note(&format!("{path:?} has {name} without a value: Docker takes that of your shell, and here it is left out"));
    }
    Ok(entries)
}

/// A `--device` that is no GPU is left out; one that was meant to be one is a mistake.
fn check_device(name: &str) -> Result<(), Failure> {
    let is_path = name.starts_with('/') && name != "/dev/nvidia";
    let is_other_kind = name
        .split_once('=')
        .is_some_and(|(kind, device)| kind.contains('/') && !device.is_empty() && !kind.starts_with("nvidia.com/gpu"));
    if is_gpu_device(name) && name != "nvidia.com/gpu=" {
        return Ok(());
    }
    if is_path || is_other_kind {
        note(&format!("--device {} is no GPU and plays no part", quoted(name)));
        return Ok(());
    }
    let number = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let number = if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) { "1" } else { number };
    Err(Failure::usage(
        format!("failed to read --device {}: it names no GPU", quoted(name)),
        format!("--device nvidia.com/gpu={number} (or all), or --device /dev/nvidia{number}"),
    ))
}

fn gpus_flag(text: &str) -> Result<GpusFlag, Failure> {
    let flag = parse_gpus(text).map_err(|error| {
        let hint = gpus_hint(text, &error);
        Failure::new(Exit::Usage, anyhow::Error::new(error).context(format!("failed to read --gpus {text:?}")), hint)
    })?;
    // Docker takes the last number, and says nothing.
    if let (Selection::Count(count), Some(numbers)) = (&flag.selection, spelling::numbers(text))
        && text.contains(',')
    {
        note(&format!(
            "--gpus {} is a count of {count}, not a list; a list is {}",
            quoted(text),
            spelling::flags(Some(Source::Gpus), &numbers)
        ));
    }
    Ok(flag)
}

/// What to type in place of a `--gpus` that Docker refuses.
fn gpus_hint(text: &str, error: &InvalidGpus) -> String {
    let plain = text.trim_matches(['"', '\'']);
    let fields: Vec<&str> = plain.split(',').map(str::trim).collect();
    let device = fields.iter().find_map(|field| field.strip_prefix("device="));
    if fields.contains(&"all")
        && let Some(device) = device
    {
        return format!("all already includes every GPU: --gpus all, or just --gpus device={device}");
    }
    // `device=0,2`: one list, for which Docker needs the inner quotes.
    let is_one_list = plain.starts_with("device=") && fields[1..].iter().all(|field| !field.contains('='));
    let names_gpus = device.is_some() && spelling::are_gpu_names(plain.trim_start_matches("device="));
    if is_one_list && (*error == InvalidGpus::CountAndIds || names_gpus) {
        let list = plain.trim_start_matches("device=");
        let list = spelling::numbers(list).map_or_else(|| list.to_owned(), |numbers| joined(&numbers));
        return format!("--gpus '\"device={list}\"' (the inner quotes must reach Docker)");
    }
    if *error == InvalidGpus::CountAndIds {
        return "a count or a list, not both: --gpus 2, or --gpus '\"device=1,3\"'".to_owned();
    }
    match spelling::numbers(plain) {
        Some(numbers) if matches!(error, InvalidGpus::Count(_)) => spelling::flags(Some(Source::Gpus), &numbers),
        _ => "--gpus all, --gpus 2, --gpus device=1, --gpus '\"device=1,3\"'".to_owned(),
    }
}

fn joined(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl WhatIfArgs {
    /// Whether any of them was given.
    pub(super) fn is_given(&self) -> bool {
        let none = Self {
            gpus: Vec::new(),
            device: Vec::new(),
            env: Vec::new(),
            env_file: Vec::<PathBuf>::new(),
            image_env: Vec::new(),
            unknown_env: Vec::new(),
            privileged: false,
            default_runtime: false,
        };
        *self != none
    }
}
