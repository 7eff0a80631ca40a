//! `cudaview ps`: which running container holds which GPU.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::cli::{Format, PsArgs};
use super::container::seen;
use super::output::{Failure, print, print_json, style};
use crate::config::Config;
use crate::exit::Exit;
use crate::inventory::Inventory;
use crate::report::{Held, Holder, Outside, ps_json, ps_table};
use crate::sys::containers::{self, Found, Places};
use crate::sys::{configuration, inventory, processes};
use crate::usage::Usage;

pub(super) fn run(arguments: &PsArgs) -> Result<(), Failure> {
    let config = match &arguments.config {
        Some(file) => configuration::load_file(file)?,
        None => configuration::load()?,
    };
    let inventory = inventory::look(&config, arguments.inventory.as_deref())?;
    if !inventory.platform.is_usual() {
        let text = anyhow::anyhow!("failed to tell who holds which GPU: WSL2 shows one device for all of them");
        return Err(Failure::new(Exit::NoInventory, text, "nvidia-smi lists the programs that use it"));
    }
    let search = containers::running(&Places::of_environment());
    let holders = search.found.iter().filter_map(|found| holder(found, &inventory, &config)).collect();
    let mut unseen: Vec<String> =
        search.looks.iter().map(|look| format!("{} ({})", look.place, look.outcome)).collect();
    unseen.sort();
    unseen.dedup();
    // A file describes a host that is not here.
    let is_here = arguments.inventory.is_none();
    let usage = if is_here { inventory::usage(&inventory::Places::usual(&config)).ok() } else { None };
    let outside = usage.as_ref().map(|usage| outside(usage, &search.found)).unwrap_or_default();
    let held = Held { holders, outside, usage, unseen, is_root: rustix::process::geteuid().is_root() };
    match arguments.format {
        Format::Json => print_json(&ps_json(&inventory, &held)),
        Format::Human => print(&ps_table(&inventory, &held, style())),
    }
}

/// A container that can open a GPU.
fn holder(found: &Found, inventory: &Inventory, config: &Config) -> Option<Holder> {
    let is = seen(found, inventory, config).filter(|is| !is.openable.is_empty())?;
    let name = found.facts.container_name.clone().filter(|name| !name.is_empty());
    let engine = found.engine.name().to_lowercase();
    let how = if found.rootless { format!("{engine}, rootless") } else { engine };
    // An engine of root's does not tell who asked it.
    let own = || std::env::var("USER").ok().filter(|user| !user.is_empty() && found.rootless);
    let user = found.user.clone().or_else(own);
    Some(Holder {
        name: name.unwrap_or_else(|| containers::short(&found.id).to_owned()),
        id: found.id.clone(),
        how,
        user,
        openable: is.openable,
        visible: is.visible,
        certain: is.certain,
        since: since(found.since),
    })
}

/// The processes on each GPU that are in none of the containers.
fn outside(usage: &Usage, found: &[Found]) -> Vec<Outside> {
    let mut out = Vec::new();
    for device in &usage.devices {
        for pid in &device.processes {
            let running = processes::running(*pid);
            let cgroups = running.as_ref().map(|running| running.cgroups.as_str()).unwrap_or_default();
            if found.iter().any(|found| cgroups.contains(&found.id)) {
                continue;
            }
            out.push(Outside {
                uuid: device.uuid.clone(),
                pid: *pid,
                in_container: containers::in_one(cgroups),
                user: running.as_ref().map(|running| running.user.clone()),
                since: since(running.and_then(|running| running.since)),
            });
        }
    }
    out
}

/// The hour of today, or the day.
fn since(time: Option<SystemTime>) -> (String, Option<String>) {
    let Some(time) = time.and_then(|time| Timestamp::try_from(time).ok()) else { return ("-".to_owned(), None) };
    let zone = TimeZone::system();
    let (local, now) = (time.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let form = if local.date() == now.date() { "%H:%M" } else { "%Y-%m-%d" };
    (local.strftime(form).to_string(), Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}
