//! `cudaview flags`: the GPUs of this shell, as flags for a container that is started in it.

use std::ffi::OsString;

use super::cli::FlagsArgs;
use super::output::{Failure, note, print};
use crate::exit::Exit;
use crate::finding::quoted;
use crate::job::{self, Basis, Form, Shell, Unclear};
use crate::sys::{configuration, inventory, openable};

pub(super) fn run(arguments: &FlagsArgs) -> Result<(), Failure> {
    let config = match &arguments.config {
        Some(file) => configuration::load_file(file)?,
        None => configuration::load()?,
    };
    let inventory = inventory::look(&config, arguments.inventory.as_deref())?;
    if !inventory.platform.is_usual() {
        let text = anyhow::anyhow!("failed to list the GPUs of this shell: WSL2 shows one device for all of them");
        return Err(Failure::new(Exit::NoInventory, text, "there every container that asks has all: --gpus all"));
    }
    // A file describes a host that is not here.
    let openable = match &arguments.inventory {
        Some(_) => inventory.all_devices(),
        None => openable::openable(&inventory, &config.dev_root),
    };
    let variable = |name: &str| std::env::var_os(name).map(OsString::into_string);
    let text = |name: &str| match variable(name) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(raw)) => {
            let error = anyhow::anyhow!("{name}={} is not UTF-8", quoted(&raw.to_string_lossy()));
            Err(Failure::new(Exit::BadInput, error, format!("unset {name}")))
        }
    };
    let (value, order) = (text("CUDA_VISIBLE_DEVICES")?, text("CUDA_DEVICE_ORDER")?);
    let slurm = text("SLURM_STEP_GPUS")?;
    let shell = Shell {
        openable,
        visible_devices: value.as_deref(),
        device_order: order.as_deref(),
        slurm_step_gpus: slurm.as_deref(),
    };
    let own = job::own(&inventory, &shell).map_err(unclear)?;
    if own.devices.is_empty() {
        note(match own.basis {
            Basis::VisibleDevices => "CUDA_VISIBLE_DEVICES hides every GPU from this shell: no flags",
            _ => "this shell can open no GPU: no flags",
        });
        return Ok(());
    }
    let form = if arguments.device { Form::Device } else { Form::Gpus };
    print(&format!("{}\n", job::flags(&inventory, &own, form)))
}

fn unclear(error: Unclear) -> Failure {
    let hint = match &error {
        Unclear::Uncertain { .. } => "name the GPUs by UUID: nvidia-smi -L",
        Unclear::Slurm(_) => "cudaview inventory shows the GPUs of this host",
        Unclear::NoGpu(_) => "numbers count the GPUs that this shell can open, from 0",
    };
    Failure::new(Exit::BadInput, error, hint)
}
