//! `cudaview inventory`: the GPUs of this host.

use super::cli::{Format, InventoryArgs};
use super::output::{Failure, hint, note, print, print_json, style};
use crate::config::Config;
use crate::device::Minor;
use crate::inventory::{Inventory, list};
use crate::report::inventory_table;
use crate::sys::{configuration, driver, inventory};

pub(super) fn run(arguments: &InventoryArgs) -> Result<(), Failure> {
    let config = if arguments.inventory.is_some() { Config::built_in() } else { configuration::load()? };
    let places = inventory::Places::usual(&config);
    let found = if arguments.refresh {
        inventory::refresh(&places)?
    } else {
        inventory::look(&config, arguments.inventory.as_deref())?
    };
    let is_of_host = arguments.refresh || (arguments.inventory.is_none() && config.inventory.is_none());
    if is_of_host && found.platform.is_usual() {
        say_what_is_missing(&found, &places, &config);
    }
    match arguments.format {
        Format::Json => print_json(&found),
        Format::Human => print(&inventory_table(&found, style())),
    }
}

/// What keeps containers from opening the GPUs that there are.
fn say_what_is_missing(found: &Inventory, places: &inventory::Places, config: &Config) {
    if let Some(missing) = driver::missing(&places.proc, &places.dev) {
        note(&missing.to_string());
        hint(&missing.hint(&config.dev_root));
    }
    let without = inventory::without_node(found, &places.dev);
    if let [first, ..] = without.as_slice() {
        let name = |minor: &Minor| places.dev.join(format!("nvidia{minor}")).display().to_string();
        let are = if without.len() == 1 { "is" } else { "are" };
        note(&format!("{} {are} missing", list(&without.iter().map(name).collect::<Vec<_>>())));
        hint(&format!("sudo nvidia-modprobe -c{first} makes the first; in a container, it was not given that GPU"));
    }
}
