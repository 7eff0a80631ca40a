//! `cudaview explain -- docker run …`: a whole command, as it was typed.

use std::path::{Path, PathBuf};

use super::cli::{ExplainArgs, WhatIfArgs};
use super::compose::{self, Asked};
use super::explain::{load_config, of_flags};
use super::flags::what_if;
use super::image;
use super::output::{Failure, note};
use crate::finding::{printable, quoted};
use crate::report::ImageSource;
use crate::sys::images::Store;
use crate::typed::{self, Client, InvalidCommand, Typed, TypedCompose, TypedRun};
use crate::whatif::WhatIf;

/// The files that Compose looks for, in its order.
// compose-go cli/options.go, DefaultFileNames
const COMPOSE_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Flags of `docker` that name another daemon than the one that is asked.
const ELSEWHERE: [&str; 4] = ["-H", "--host", "--context", "-c"];

/// For whoever put a `docker exec` behind `explain`.
const ABOUT_EXEC: &str =
    "cudaview explain --container NAME --exec-env CUDA_VISIBLE_DEVICES=0 asks about an added process";

/// Whether these words are a command, rather than the name of a finding.
pub(super) fn is_command(words: &[String]) -> bool {
    match words {
        [] => false,
        [only] => only.contains(char::is_whitespace),
        several => !matches!(typed::parse(several), Err(InvalidCommand::Client(_))),
    }
}

pub(super) fn run(arguments: &ExplainArgs) -> Result<(), Failure> {
    if arguments.what_if.is_given() {
        let words = arguments.words.join(" ");
        let hint = "put -- before the whole command: cudaview explain -- docker run --gpus all IMAGE";
        return Err(Failure::usage(format!("flags of {} stand before it", quoted(&words)), hint));
    }
    let command = typed::parse(&arguments.words).map_err(|error| {
        let adds_a_process = matches!(&error, InvalidCommand::Verb(verb) if verb.ends_with(" exec"));
        let hint = if adds_a_process {
            ABOUT_EXEC
        } else {
            "docker run, podman run, nerdctl run and docker compose up are read"
        };
        Failure::usage(format!("failed to read the command: {error}"), hint)
    })?;
    match command {
        Typed::Run(run) => explain_run(&run, arguments),
        Typed::Compose(command) => explain_compose(&command, arguments),
    }
}

fn explain_run(run: &TypedRun, arguments: &ExplainArgs) -> Result<(), Failure> {
    let Some(name) = run.image() else {
        let text = format!("{} run names no image", run.client.name());
        return Err(Failure::usage(text, "flags, then the image, then its command"));
    };
    note_unknown(run);
    let mut what_if = flags(run)?;
    let config = load_config(arguments)?;
    let source = match &arguments.image {
        Some(other) => {
            let (env, source) = image::look(other)?;
            what_if.image_env = env;
            Some(source)
        }
        None if run.is_on("rootfs") => None,
        None => {
            let (env, source) = of_client(run, name);
            what_if.image_env = env;
            Some(source)
        }
    };
    let (what_if, origin_unknown) = as_kept(run.client, name, what_if);
    of_flags(&what_if, source, origin_unknown, arguments, &config)
}

/// Says which flags are in no table.
pub(super) fn note_unknown(run: &TypedRun) {
    for at in &run.unknown {
        let word = run.words.get(*at).map_or("", String::as_str);
        note(&format!("{} is no flag that is known; what follows it may have been misread", quoted(word)));
    }
}

/// What the engine keeps of whose a value is, and why it may not be known.
fn as_kept(client: Client, image: &str, what_if: WhatIf) -> (WhatIf, &'static str) {
    match client {
        Client::Docker if image.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64) => {
            (what_if.of_unknown_origin(), "the image is named by its whole id, as a step of docker build does")
        }
        Client::Docker => (what_if, ""),
        Client::Podman => (what_if.as_podman_keeps_it(), ""),
        Client::Nerdctl => (what_if.of_unknown_origin().by_cdi(), "containerd does not tell a runtime"),
    }
}

/// The image in the store of whoever would run it.
fn of_client(run: &TypedRun, name: &str) -> (Vec<String>, ImageSource) {
    let unknown = |reason: &str| (Vec::new(), ImageSource { name: name.to_owned(), found: Err(reason.to_owned()) });
    let before = run.words.iter().take_while(|word| !matches!(word.as_str(), "run" | "create"));
    let is_elsewhere =
        |word: &String| ELSEWHERE.iter().any(|flag| word == flag || word.starts_with(&format!("{flag}=")));
    match run.client {
        _ if before.clone().any(is_elsewhere) => unknown("the command asks another engine than this host's"),
        Client::Docker => image::look_if_there(name, Store::Docker),
        Client::Podman => image::look_if_there(name, Store::Podman),
        Client::Nerdctl => {
            let named = option(&run.words, &["-n", "--namespace"]);
            image::look_if_there(name, Store::Containerd(named.as_deref().unwrap_or("default")))
        }
    }
}

/// The command's flags, as the engine would read them.
fn flags(run: &TypedRun) -> Result<WhatIf, Failure> {
    let texts = |name: &str| run.values(name).map(str::to_owned).collect::<Vec<_>>();
    let shell = |name: &str| std::env::var(name).ok();
    let mut env = Vec::new();
    for entry in texts("env") {
        match (entry.contains('='), shell(&entry)) {
            (false, Some(value)) => env.push(format!("{entry}={value}")),
            // podman leaves it out; Docker takes the image's away.
            (false, None) if run.client == Client::Podman => {}
            _ => env.push(entry),
        }
    }
    let (mut gpus, mut device) = (texts("gpus"), texts("device"));
    if run.client == Client::Podman && !gpus.is_empty() {
        // containers/podman pkg/specgenutil: since version 5, a CDI name for each.
        note("--gpus is Docker's flag: podman takes it since version 5, as --device nvidia.com/gpu=…");
        let names = gpus.drain(..).flat_map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
        device.extend(names.map(|name| format!("nvidia.com/gpu={name}")));
    }
    let runtime = runtime(run);
    let read = what_if(&WhatIfArgs {
        gpus,
        device,
        env,
        env_file: run.values("env-file").map(PathBuf::from).collect(),
        image_env: Vec::new(),
        unknown_env: Vec::new(),
        privileged: run.is_on("privileged"),
        default_runtime: runtime.is_none(),
    })?;
    match &runtime {
        Some(name) if !name.contains("cudaview") => {
            let text =
                "shown is what cudaview would do; it has no part in this command unless that is cudaview-runtime";
            note(&format!("--runtime {}: {text}", printable(name)));
        }
        Some(_) => {}
        None => note(without_runtime(run.client)),
    }
    Ok(read)
}

fn without_runtime(client: Client) -> &'static str {
    match client {
        Client::Docker => "no --runtime is typed: this holds where cudaview is Docker's default runtime",
        Client::Podman => "no --runtime is typed: this holds where cudaview is podman's runtime, or its precreate hook",
        Client::Nerdctl => {
            "no --runtime is typed: this holds where cudaview is containerd's default runtime, and nerdctl gives GPUs by \
             CDI (since 2.3)"
        }
    }
}

/// The runtime that is typed; podman's stands before `run`.
fn runtime(run: &TypedRun) -> Option<String> {
    if let Some(name) = run.values("runtime").last() {
        return Some(name.to_owned());
    }
    option(&run.words, &["--runtime"])
}

/// The value of an option that stands before `run`.
fn option(words: &[String], names: &[&str]) -> Option<String> {
    let before = words.iter().position(|word| matches!(word.as_str(), "run" | "create"))?;
    let words = words.get(..before)?;
    words.iter().enumerate().rev().find_map(|(at, word)| {
        if names.contains(&word.as_str()) {
            return words.get(at + 1).cloned();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    })
}

fn explain_compose(command: &TypedCompose, arguments: &ExplainArgs) -> Result<(), Failure> {
    let verb = command.verb.and_then(|at| command.words.get(at)).map_or("", String::as_str);
    if !matches!(verb, "up" | "run" | "create" | "start" | "config") {
        let text = format!("compose {} starts no container", quoted(verb));
        return Err(Failure::usage(text, "docker compose up, run and create are read"));
    }
    let files: Vec<&str> = command.values("file").collect();
    let file = match files.as_slice() {
        [] => default_file(command.values("project-directory").last())?,
        [only] => PathBuf::from(only),
        several => {
            let text = format!("there are {} Compose files, and only one can be read", several.len());
            return Err(Failure::usage(text, "docker compose config > one.yaml puts them together"));
        }
    };
    let mut services: Vec<String> = command.services().map(str::to_owned).collect();
    if verb == "run" {
        note("what compose run is given beside the service (-e and the like) plays no part here");
        services.truncate(1);
    }
    let config = load_config(arguments)?;
    let asked = Asked { file: &file, services, image: arguments.image.as_deref() };
    compose::run(&asked, arguments, &config)
}

/// The file that Compose would take: in this folder, or in the nearest above it.
fn default_file(folder: Option<&str>) -> Result<PathBuf, Failure> {
    let start = Path::new(folder.unwrap_or("."));
    let start = std::fs::canonicalize(start).unwrap_or_else(|_| start.to_owned());
    let in_folder = |folder: &Path| COMPOSE_FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    start.ancestors().find_map(in_folder).ok_or_else(|| {
        Failure::usage("no Compose file is here, nor in a folder above", "-f FILE, before the verb, names one")
    })
}
