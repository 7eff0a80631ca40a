//! `cudaview inventory`: the GPUs of this host.

use super::cli::{Format, InventoryArgs};
use super::output::{Failure, print, print_json, style};
use crate::config::Config;
use crate::report::inventory_table;
use crate::sys::{configuration, inventory};

pub(super) fn run(arguments: &InventoryArgs) -> Result<(), Failure> {
    let inventory = if arguments.refresh {
        inventory::refresh(&inventory::Places::usual())?
    } else {
        let config = if arguments.inventory.is_some() { Config::built_in() } else { configuration::load()? };
        inventory::load(&config, arguments.inventory.as_deref())?
    };
    match arguments.format {
        Format::Json => print_json(&inventory),
        Format::Human => print(&inventory_table(&inventory, style())),
    }
}
