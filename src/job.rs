//! The GPUs of a shell, as the flags that give a container the same ones.
//!
//! A job of a scheduler has its GPUs by a device cgroup, by `CUDA_VISIBLE_DEVICES`, or by both; a container that is
//! started in it has neither, since the engine's daemon starts it.

use crate::cuda::{self, Value};
use crate::inventory::{Device, Inventory};

/// What a shell has to say about its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shell<'a> {
    /// The devices that a program started here can open, in PCI order.
    pub openable: Vec<Device>,
    /// `CUDA_VISIBLE_DEVICES`
    pub visible_devices: Option<&'a str>,
    /// `CUDA_DEVICE_ORDER`
    pub device_order: Option<&'a str>,
    /// `SLURM_STEP_GPUS`: numbers on the host, whatever the step can open.
    // slurm, srun(1), "OUTPUT ENVIRONMENT VARIABLES"
    pub slurm_step_gpus: Option<&'a str>,
}

/// By what the GPUs of a shell were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Its `CUDA_VISIBLE_DEVICES`.
    VisibleDevices,
    /// Slurm's `SLURM_STEP_GPUS`.
    SlurmStep,
    /// What it can open.
    Openable,
    /// Nothing limits it.
    Everything,
}

/// The GPUs of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The devices, in the order of `cuda:0`, `cuda:1`, …
    pub devices: Vec<Device>,
    /// How they were found.
    pub basis: Basis,
}

/// Why the GPUs of a shell cannot be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// What CUDA makes of the value depends on what is not known.
    #[error("it is not certain which GPUs CUDA_VISIBLE_DEVICES={value:?} means here: {reason}")]
    Uncertain {
        /// The value.
        value: String,
        /// What is not known.
        reason: String,
    },
    /// A number that no GPU of the host has.
    #[error("SLURM_STEP_GPUS={0:?} does not name GPUs of this host")]
    Slurm(String),
    /// The value names no GPU, and was not meant to.
    #[error("CUDA_VISIBLE_DEVICES={0:?} shows no GPU here")]
    NoGpu(String),
}

/// The GPUs that a CUDA program would see in this shell.
///
/// # Errors
/// [`Unclear`] rather than flags that might name somebody else's GPU.
pub fn own(inventory: &Inventory, shell: &Shell<'_>) -> Result<Own, Unclear> {
    let all = inventory.all_devices();
    if let Some(value) = shell.visible_devices {
        if Value::parse(value).meaning == cuda::Meaning::Hidden {
            return Ok(Own { devices: Vec::new(), basis: Basis::VisibleDevices });
        }
        let seen = cuda::predict(inventory, &shell.openable, Some(value), shell.device_order);
        if !seen.certain {
            let reason = seen.notes.first().cloned().unwrap_or_default();
            return Err(Unclear::Uncertain { value: value.to_owned(), reason });
        }
        if seen.visible.is_empty() {
            return Err(Unclear::NoGpu(value.to_owned()));
        }
        return Ok(Own { devices: seen.visible, basis: Basis::VisibleDevices });
    }
    let is_limited = shell.openable.len() < all.len();
    if let (Some(text), false) = (shell.slurm_step_gpus, is_limited) {
        let position = |entry: &str| inventory.position_of_index(entry.trim().parse().ok()?);
        let gpus: Option<Vec<usize>> = text.split(',').map(position).collect();
        let gpus = gpus.ok_or_else(|| Unclear::Slurm(text.to_owned()))?;
        let mut devices: Vec<Device> = Vec::new();
        for device in gpus.into_iter().flat_map(|gpu| inventory.devices_of(gpu)) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        return Ok(Own { devices, basis: Basis::SlurmStep });
    }
    let basis = if is_limited { Basis::Openable } else { Basis::Everything };
    Ok(Own { devices: shell.openable.clone(), basis })
}

/// How a container is told which GPUs it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Docker's `--gpus`.
    Gpus,
    /// CDI names, for podman and Docker.
    Device,
}

/// The words to put behind `docker run`, separated by spaces; empty for no GPU.
///
/// For a command substitution, whose quotes the shell leaves alone: the inner quotes of `--gpus` reach Docker as they are.
pub fn flags(inventory: &Inventory, own: &Own, form: Form) -> String {
    let mut devices = own.devices.clone();
    devices.sort_unstable();
    devices.dedup();
    if devices.is_empty() {
        return String::new();
    }
    // A MIG device has a number by position on its GPU, which another one gets when it is made anew.
    let name = |device: &Device| match device.mig {
        None => inventory.host_label(*device),
        Some(_) => inventory.uuid(*device).to_owned(),
    };
    let names: Vec<String> = devices.iter().map(name).collect();
    let selection = match form {
        Form::Gpus if names.len() == 1 => format!("--gpus device={}", names[0]),
        Form::Gpus => format!("--gpus \"device={}\"", names.join(",")),
        Form::Device => {
            let words: Vec<String> = names.iter().map(|name| format!("--device nvidia.com/gpu={name}")).collect();
            words.join(" ")
        }
    };
    if devices == own.devices {
        return selection;
    }
    // A selection has no order; names mean the same to every CUDA.
    let order: Vec<&str> = own.devices.iter().map(|device| inventory.uuid(*device)).collect();
    format!("{selection} -e CUDA_VISIBLE_DEVICES={}", order.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(text: &[u8]) -> Inventory {
        Inventory::from_json(text).expect("a fixture")
    }

    const A100X4: &[u8] = include_bytes!("../tests/data/inventories/a100x4.json");
    const A100MIG4: &[u8] = include_bytes!("../tests/data/inventories/a100mig4.json");

    #[test]
    fn the_same_gpus() {
        let inventory = inventory(A100X4);
        let gpus = |numbers: &[usize]| numbers.iter().map(|gpu| Device { gpu: *gpu, mig: None }).collect::<Vec<_>>();
        let some = [1, 3].as_slice();
        let all = [0, 1, 2, 3].as_slice();
        let uuid = |gpu: usize| inventory.gpus[gpu].uuid.as_str().to_owned();
        let ordered = format!("--gpus \"device=1,3\" -e CUDA_VISIBLE_DEVICES={},{}", uuid(3), uuid(1));
        for (openable, value, slurm, expected) in [
            (all, None, None, "--gpus \"device=0,1,2,3\""),
            (some, None, None, "--gpus \"device=1,3\""),
            // Numbers count what the shell can open.
            (some, Some("0,1"), None, "--gpus \"device=1,3\""),
            (some, Some("1"), None, "--gpus device=3"),
            (some, Some("1,0"), None, &ordered),
            (all, Some("3,1"), None, &ordered),
            (all, Some("1"), Some("3"), "--gpus device=1"),
            (all, None, Some("3,1"), &ordered),
            (all, None, Some("2"), "--gpus device=2"),
            // CUDA would show no device for a list with a repeat.
            (all, None, Some("2,2"), "--gpus device=2"),
            (all, None, Some("3,1,3"), &ordered),
            // A cgroup holds whatever the variable says.
            (some, None, Some("0,2"), "--gpus \"device=1,3\""),
            (all, Some(""), None, ""),
            (all, Some("-1"), Some("3"), ""),
            (&[], None, None, ""),
            (all, Some(&uuid(2)), None, "--gpus device=2"),
        ] {
            let shell =
                Shell { openable: gpus(openable), visible_devices: value, slurm_step_gpus: slurm, device_order: None };
            let own = own(&inventory, &shell).expect("clear");
            assert_eq!(flags(&inventory, &own, Form::Gpus), expected, "{shell:?}");
        }
    }

    #[test]
    fn what_is_not_clear_names_nothing() {
        let all = inventory(A100X4);
        let shell = |value, slurm| Shell {
            openable: all.all_devices(),
            visible_devices: value,
            slurm_step_gpus: slurm,
            device_order: None,
        };
        assert_eq!(own(&all, &shell(Some("7"), None)), Err(Unclear::NoGpu("7".to_owned())));
        assert_eq!(own(&all, &shell(None, Some("7"))), Err(Unclear::Slurm("7".to_owned())));
        assert_eq!(own(&all, &shell(None, Some(""))), Err(Unclear::Slurm(String::new())));
    }

    #[test]
    fn mig_devices_go_by_their_names() {
        let inventory = inventory(A100MIG4);
        let device = inventory.all_devices().into_iter().find(|device| device.mig.is_some()).expect("a MIG device");
        let own = Own { devices: vec![device], basis: Basis::Openable };
        let expected = format!("--device nvidia.com/gpu={}", inventory.uuid(device));
        assert_eq!(flags(&inventory, &own, Form::Device), expected);
    }
}
