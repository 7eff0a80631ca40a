//! `cudaview ps`: which running container holds which GPU.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::cli::{Format, PsArgs};
use super::container::seen;
use super::output::{Failure, print, print_json, style};

use crate::exit::Exit;
use crate::inventory::{Device, Inventory};
use crate::report::{AsIs, Held, Holder, Outside, ps_json, ps_table};
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
    let mut unseen: Vec<String> =
        search.looks.iter().map(|look| format!("{} ({})", look.place, look.outcome)).collect();
    let mut holders = Vec::new();
    for found in &search.found {
        match seen(found, &inventory, &config) {
            Some(is) if is.openable.is_empty() => {}
            Some(is) => holders.push(holder(found, is)),
            None => unseen.push(format!("{} (its configuration cannot be read)", found.label())),
        }
    }
    unseen.sort();
    unseen.dedup();
    // A file describes a host that is not here.
    let is_here = arguments.inventory.is_none();
    let usage = if is_here { inventory::usage(&inventory::Places::usual(&config)).ok() } else { None };
    let outside = usage.as_ref().map(|usage| outside(usage, &holders, &inventory)).unwrap_or_default();
    let held = Held { holders, outside, usage, unseen, is_root: rustix::process::geteuid().is_root() };
    match arguments.format {
        Format::Json => print_json(&ps_json(&inventory, &held)),
        Format::Human => print(&ps_table(&inventory, &held, style())),
    }
}

/// A container that can open a GPU.
fn holder(found: &Found, is: AsIs) -> Holder {
    let name = found.facts.container_name.clone().filter(|name| !name.is_empty());
    let engine = found.engine.name().to_lowercase();
    let how = if found.rootless { format!("{engine}, rootless") } else { engine };
    // An engine of root's does not tell who asked it.
    let own = || std::env::var("USER").ok().filter(|user| !user.is_empty() && found.rootless);
    let user = found.user.clone().or_else(own);
    Holder {
        name: name.unwrap_or_else(|| containers::short(&found.id).to_owned()),
        id: found.id.clone(),
        how,
        user,
        openable: is.openable,
        visible: is.visible,
        certain: is.certain,
        since: since(found.since),
    }
}

/// The processes on each GPU that are in none of the containers which hold it.
fn outside(usage: &Usage, holders: &[Holder], inventory: &Inventory) -> Vec<Outside> {
    let mut out = Vec::new();
    for device in &usage.devices {
        let is_it =
            |held: &Device| inventory.gpu(*held).uuid.as_str() == device.uuid || inventory.uuid(*held) == device.uuid;
        let holders: Vec<&Holder> = holders.iter().filter(|holder| holder.openable.iter().any(is_it)).collect();
        for pid in &device.processes {
            let running = processes::running(*pid);
            let cgroups = running.as_ref().map(|running| running.cgroups.as_str()).unwrap_or_default();
            if holders.iter().any(|holder| cgroups.contains(&holder.id)) {
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
