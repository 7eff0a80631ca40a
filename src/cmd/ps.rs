//! `cudaview ps`: which running container holds which GPU.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::cli::{Format, PsArgs};
use super::container::seen;
use super::output::{Failure, print, print_json, style};
use crate::config::Config;
use crate::inventory::Inventory;
use crate::report::{Held, Holder, ps_json, ps_table};
use crate::sys::containers::{self, Found, Places};
use crate::sys::{configuration, inventory};

pub(super) fn run(arguments: &PsArgs) -> Result<(), Failure> {
    let config = match &arguments.config {
        Some(file) => configuration::load_file(file)?,
        None => configuration::load()?,
    };
    let inventory = inventory::load(&config, arguments.inventory.as_deref())?;
    let search = containers::running(&Places::of_environment());
    let holders = search.found.iter().filter_map(|found| holder(found, &inventory, &config)).collect();
    let unseen = search.looks.iter().map(|look| format!("{} ({})", look.place, look.outcome)).collect();
    let held = Held { holders, unseen };
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
    let user = if found.rootless { std::env::var("USER").ok().filter(|user| !user.is_empty()) } else { None };
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

/// The hour of today, or the day.
fn since(time: Option<SystemTime>) -> (String, Option<String>) {
    let Some(time) = time.and_then(|time| Timestamp::try_from(time).ok()) else { return ("-".to_owned(), None) };
    let zone = TimeZone::system();
    let (local, now) = (time.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let form = if local.date() == now.date() { "%H:%M" } else { "%Y-%m-%d" };
    (local.strftime(form).to_string(), Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}
