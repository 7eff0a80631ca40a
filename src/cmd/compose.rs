//! `cudaview explain --compose`: what the services of a Compose file will see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::cli::{ExplainArgs, Format};
use super::explain::{exec, read_limited, show};
use super::image;
use super::output::{Failure, note, print, print_json, style};
use crate::compose::{self, Service, Way, dotenv};
use crate::config::{Config, Mode};
use crate::exit::Exit;
use crate::finding::{printable, quoted};
use crate::inventory::Inventory;
use crate::plan::{Plan, plan};
use crate::record::Variables;
use crate::report::{ImageEnv, Subject, Told, explain_json, services_table};
use crate::situation::Situation;
use crate::spelling;
use crate::sys::images::Store;
use crate::sys::inventory;

/// No Compose file that people write is larger, in bytes.
const SIZE_LIMIT: usize = 1 << 20;

/// What was asked about.
pub(super) struct Asked<'a> {
    /// The Compose file.
    pub(super) file: &'a Path,
    /// The services; none for all of them.
    pub(super) services: Vec<String>,
    /// An image in place of the service's.
    pub(super) image: Option<&'a str>,
}

/// A service, and what was decided for it.
struct Decided {
    name: String,
    image: ImageEnv,
    situation: Situation,
    plan: Plan,
    told: Told,
}

pub(super) fn run(asked: &Asked<'_>, arguments: &ExplainArgs, config: &Config) -> Result<(), Failure> {
    let file = asked.file;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(""));
    let shell = |name: &str| std::env::var(name).ok();
    let of_folder = match read_dotenv(&folder.join(".env"), false, &shell)? {
        Some(entries) => entries.into_iter().collect::<BTreeMap<String, String>>(),
        None => BTreeMap::new(),
    };
    let lookup = |name: &str| shell(name).or_else(|| of_folder.get(name).cloned());
    let text = text_of(file)?;
    let services = compose::parse(&text, &lookup)
        .map_err(|error| bad(file, error.into(), "docker compose config says what Compose makes of it"))?;
    let chosen = choose(services, &asked.services, file)?;
    if asked.image.is_some() && chosen.len() > 1 {
        return Err(Failure::usage("--image is one service's, and there are several", "--service NAME chooses one"));
    }
    if config.mode == Mode::Observe {
        note("mode = \"observe\" in the configuration: it is written down and not done");
    }
    let inventory = inventory::look(config, arguments.inventory.as_deref())?;
    let mut decided = Vec::new();
    for service in &chosen {
        decided.push(decide(service, asked, folder, &lookup, &inventory, config)?);
    }
    report(&decided, arguments, &inventory, config, !asked.services.is_empty())
}

fn report(
    decided: &[Decided],
    arguments: &ExplainArgs,
    inventory: &Inventory,
    config: &Config,
    is_chosen: bool,
) -> Result<(), Failure> {
    let exec = |one: &Decided| exec(arguments, inventory, &one.situation, &one.plan, config);
    let execs: Vec<_> = decided.iter().map(exec).collect();
    let subject = |(one, exec): (&'_ Decided, &'_ Option<crate::plan::ExecPlan>)| -> Value {
        let mut out = explain_json(&subject(one, exec.as_ref(), inventory, config));
        out["service"] = json!(one.name);
        out
    };
    match (decided, arguments.format) {
        ([only], Format::Human) => show(&self::subject(only, execs[0].as_ref(), inventory, config), Format::Human),
        ([only], Format::Json) if is_chosen => print_json(&subject((only, &execs[0]))),
        (several, Format::Json) => {
            let services: Vec<Value> = several.iter().zip(&execs).map(subject).collect();
            print_json(&json!({"schemaVersion": 1, "services": services}))
        }
        (several, Format::Human) => {
            let subjects: Vec<Subject<'_>> = several
                .iter()
                .zip(&execs)
                .map(|(one, exec)| self::subject(one, exec.as_ref(), inventory, config))
                .collect();
            print(&services_table(&subjects, style()))?;
            note("why, and what to write instead: the same with --service NAME");
            Ok(())
        }
    }
}

fn subject<'a>(
    one: &'a Decided,
    exec: Option<&'a crate::plan::ExecPlan>,
    inventory: &'a Inventory,
    config: &Config,
) -> Subject<'a> {
    Subject {
        inventory,
        situation: &one.situation,
        plan: &one.plan,
        exec,
        image: &one.image,
        name: Some(&one.name),
        container: None,
        done: false,
        told: one.told,
        observe: config.mode == Mode::Observe,
        origin_unknown: "",
    }
}

fn bad(path: &Path, error: anyhow::Error, hint: &str) -> Failure {
    Failure::new(Exit::BadInput, error.context(format!("failed to read {:?}", path.display().to_string())), hint)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let read = || {
        let content = read_limited(path)?;
        anyhow::ensure!(content.len() <= SIZE_LIMIT, "it is larger than {} MiB", SIZE_LIMIT >> 20);
        String::from_utf8(content).context("not UTF-8")
    };
    read().map_err(|error| bad(path, error, "--compose takes one Compose file, in YAML"))
}

/// A file of assignments; `None` where it is not there and need not be.
fn read_dotenv(
    path: &Path,
    is_raw: bool,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Vec<(String, String)>>, Failure> {
    if !path.exists() {
        return Ok(None);
    }
    let text = text_of(path)?;
    let parsed = if is_raw { dotenv::parse_raw(&text) } else { dotenv::parse(&text, lookup) };
    parsed.map(Some).map_err(|error| bad(path, error.into(), "lines NAME=VALUE, and comments that begin with #"))
}

/// The services that are asked about, in the file's order.
fn choose(services: Vec<Service>, wanted: &[String], file: &Path) -> Result<Vec<Service>, Failure> {
    let names: Vec<String> = services.iter().map(|service| service.name.clone()).collect();
    if let Some(name) = wanted.iter().find(|name| !names.contains(name)) {
        let text = format!("no service of {:?} is called {}", file.display().to_string(), quoted(name));
        let hint = match spelling::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean --service {}?", printable(near)),
            None => format!("one of: {}", names.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", ")),
        };
        return Err(Failure::usage(text, hint));
    }
    let is_wanted = |service: &Service| wanted.is_empty() || wanted.contains(&service.name);
    Ok(services.into_iter().filter(is_wanted).collect())
}

fn decide(
    service: &Service,
    asked: &Asked<'_>,
    folder: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
    inventory: &Inventory,
    config: &Config,
) -> Result<Decided, Failure> {
    let mut files = Vec::new();
    for file in &service.env_files {
        let path = folder.join(&file.path);
        match read_dotenv(&path, file.raw, lookup)? {
            Some(entries) => files.push(entries),
            None if file.required => {
                let text = format!(
                    "env file {:?} of the service {} is not there",
                    path.display().to_string(),
                    quoted(&service.name)
                );
                return Err(Failure::new(Exit::BadInput, anyhow::anyhow!(text), "required: false, if it need not be"));
            }
            None => {}
        }
    }
    let env = service.env(&files, lookup);
    let way = |name: &str| {
        let found = env.iter().find(|(entry, _)| entry.split('=').next() == Some(name));
        found.map_or(Way::Environment, |(_, way)| *way)
    };
    let [visible_devices, device_order, nvidia, _] = Variables::NAMES;
    let told =
        Told::Compose { visible_devices: way(visible_devices), nvidia: way(nvidia), device_order: way(device_order) };
    let name = asked.image.map(str::to_owned).or_else(|| image_of(service, folder));
    let (image_env, source) = match (&name, asked.image) {
        (None, _) => (Vec::new(), None),
        (Some(name), Some(_)) => image::look(name).map(|(env, source)| (env, Some(source)))?,
        (Some(name), None) => {
            let (env, source) = image::look_if_there(name, Store::Docker);
            (env, Some(source))
        }
    };
    let what_if = service.what_if(env.iter().map(|(entry, _)| entry.clone()).collect(), image_env);
    for text in &service.notes {
        note(&format!("{}: {}", printable(&service.name), printable(text)));
    }
    if let Some(runtime) = service.runtime.as_deref().filter(|runtime| !runtime.contains("cudaview")) {
        let text = "its containers get what cudaview would give them only if that is cudaview-runtime by another name";
        note(&format!("{}: runtime: {}: {text}", printable(&service.name), printable(runtime)));
    }
    let situation = what_if.situation(inventory, config);
    let plan = plan(inventory, &situation, config);
    let image = ImageEnv { source, ..what_if.image() };
    Ok(Decided { name: service.name.clone(), image, situation, plan, told })
}

/// The image's name; Compose gives one that it builds the project's name and the service's.
fn image_of(service: &Service, folder: &Path) -> Option<String> {
    if service.image.is_some() || !service.is_built {
        return service.image.clone();
    }
    // compose-go loader, NormalizeProjectName
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| PathBuf::from(folder));
    let name = folder.file_name()?.to_str()?.to_lowercase();
    let is_kept = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let project: String = name.chars().filter(is_kept).collect();
    Some(format!("{}-{}", project.trim_start_matches(['-', '_']), service.name))
}
