//! `cudaview predict`: what CUDA itself would show, before any rewrite.

use super::cli::{Format, PredictArgs};
use super::output::{Failure, print, print_json, style};
use crate::cuda;
use crate::exit::Exit;
use crate::report::{predict_json, predict_text};
use crate::sys::{configuration, inventory};

pub(super) fn run(arguments: &PredictArgs) -> Result<(), Failure> {
    let inventory = match &arguments.inventory {
        Some(_) => inventory::look(&crate::config::Config::built_in(), arguments.inventory.as_deref())?,
        None => inventory::look(&configuration::load()?, None)?,
    };
    if !inventory.platform.is_usual() {
        let text = anyhow::anyhow!("failed to list the GPUs of this host: WSL2 shows one device for all of them");
        let hint = "there CUDA counts as nvidia-smi does; for another host, cudaview predict --inventory FILE";
        return Err(Failure::new(Exit::NoInventory, text, hint));
    }
    let value = arguments.cuda_visible_devices.as_deref();
    let prediction = cuda::predict(&inventory, &inventory.all_devices(), value, arguments.cuda_device_order.as_deref());
    match arguments.format {
        Format::Json => print_json(&predict_json(&inventory, &prediction)),
        Format::Human => print(&predict_text(&inventory, &prediction, style())),
    }
}
