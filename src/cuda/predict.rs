//! CUDA's own reading of the two variables, as far as it is known.

use std::collections::BTreeSet;

use super::{Entry, EntryKind, begun, is_mig_named, leading_digits, named};
use crate::inventory::{Device, Inventory};

/// The first driver branch that can show several MIG devices to one process.
// NVIDIA MIG User Guide, "CUDA visible devices": R570 lifts the limit of one compute instance.
const MIG_MANY_BRANCH: u32 = 570;

/// The first driver branch for which lists of abbreviated UUIDs are reported to fail.
const LONG_UUID_BRANCH: u32 = 580;

/// `CUDA_DEVICE_ORDER`, as CUDA understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOrder {
    /// `PCI_BUS_ID`: the order of `nvidia-smi`.
    Pci,
    /// `FASTEST_FIRST`, the default, and what an unknown value is taken for here.
    FastestFirst,
}

impl DeviceOrder {
    /// The order that a value of the variable asks for; `None` is unset. What white space around it does is not known.
    pub fn parse(value: Option<&str>) -> Self {
        if value == Some("PCI_BUS_ID") { DeviceOrder::Pci } else { DeviceOrder::FastestFirst }
    }
}

/// Why CUDA would start without a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaError {
    /// `CUDA_ERROR_NO_DEVICE` (100) from `cuInit`.
    NoDevice,
}

/// What CUDA would show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The devices, in the order of their ordinals.
    pub visible: Vec<Device>,
    /// Whether this is known: documented, or seen on a driver.
    pub certain: bool,
    /// The error in place of devices.
    pub error: Option<CudaError>,
    /// What is not certain and why, or what CUDA made of the value.
    pub notes: Vec<String>,
}

impl Prediction {
    fn doubt(&mut self, note: impl Into<String>) {
        self.certain = false;
        self.note(note);
    }

    fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// What CUDA itself would show to a program that can open `devices`, given the two variables (`None` is unset).
///
/// Sources: CUDA C++ Programming Guide, environment variables; NVIDIA MIG User Guide; runs on drivers 525.60.13
/// (PyTorch pull request 92315) and 550.127.05 (DataDog agent). `docs/semantics.md` lists what is known how well.
pub fn predict(inventory: &Inventory, devices: &[Device], value: Option<&str>, order: Option<&str>) -> Prediction {
    let mut out = Prediction { visible: Vec::new(), certain: true, error: None, notes: Vec::new() };
    let process = Process { inventory, devices, order: DeviceOrder::parse(order), many: shows_many(inventory) };
    let chosen = match value {
        None => {
            process.doubt_order(order, &mut out);
            process.enumerate()
        }
        Some(text) => process.choose(text, order, &mut out),
    };
    out.visible = process.show(chosen, value.is_none(), &mut out);
    if out.visible.is_empty() {
        out.error = Some(CudaError::NoDevice);
    }
    out
}

/// Whether this driver can show several MIG devices to one process. One that is not known may.
pub fn shows_many(inventory: &Inventory) -> bool {
    branch(inventory).is_none_or(|branch| branch >= MIG_MANY_BRANCH)
}

/// The driver's branch, such as 550.
fn branch(inventory: &Inventory) -> Option<u32> {
    inventory.driver_version.as_deref()?.split('.').next()?.parse().ok()
}

/// A process that CUDA starts in.
struct Process<'a> {
    inventory: &'a Inventory,
    /// What it can open, in PCI order.
    devices: &'a [Device],
    order: DeviceOrder,
    /// See [`shows_many`].
    many: bool,
}

impl Process<'_> {
    /// The list that integers index: full GPUs in device order, then the first MIG device of each GPU that has one;
    /// where a process can see several, the first of each GPU instance.
    // Observed on 8 x A100, driver 550.127.05; NVIDIA MIG User Guide for R570.
    fn enumerate(&self) -> Vec<Device> {
        let inventory = self.inventory;
        let mut gpus: Vec<Device> = self.devices.iter().copied().filter(|device| device.mig.is_none()).collect();
        gpus.retain(|device| !inventory.gpu(*device).mig_enabled);
        if self.order == DeviceOrder::FastestFirst && inventory.models_differ(&gpus) {
            // The guide says "fastest to slowest" and not how speed is measured; multiprocessors fit every report.
            gpus.sort_by_key(|device| std::cmp::Reverse(inventory.gpu(*device).multiprocessors.unwrap_or(0)));
        }
        let mut migs: Vec<Device> = self.devices.iter().copied().filter(|device| device.mig.is_some()).collect();
        if self.many {
            migs.dedup_by_key(|device| self.instance(*device));
        } else {
            migs.dedup_by_key(|device| device.gpu);
        }
        gpus.extend(migs);
        gpus
    }

    /// Which GPU instance a MIG device is a part of.
    fn instance(&self, device: Device) -> (usize, Option<u32>) {
        (device.gpu, self.inventory.mig(device).map(|mig| mig.gi))
    }

    fn choose(&self, text: &str, order: Option<&str>, out: &mut Prediction) -> Vec<Device> {
        // CUDA strips neither quotes nor words; white space before a number is strtol's.
        let mut entries: Vec<&str> = text.split(',').collect();
        if entries.last().is_some_and(|last| last.trim().is_empty()) {
            entries.pop();
        }
        let enumerated = self.enumerate();
        let mut chosen: Vec<(Device, Entry)> = Vec::new();
        for (position, raw) in entries.iter().enumerate() {
            let entry = Entry::parse(raw.trim());
            doubt_spelling(raw, &entry, position, out);
            let mixed = chosen.first().is_some_and(|(_, first)| first.index().is_some() != entry.index().is_some());
            let found = match entry.index() {
                _ if mixed => None,
                Some(index) => {
                    self.doubt_order(order, out);
                    self.doubt_index(out);
                    usize::try_from(index).ok().and_then(|index| enumerated.get(index).copied())
                }
                None => self.named(&entry, out),
            };
            let Some(device) = found else {
                out.note(format!("{:?} is not valid here and ends the list", entry.text));
                break;
            };
            chosen.push((device, entry));
        }
        self.doubt_short_uuids(&chosen, out);
        if let Some((first, second)) = first_duplicate(&chosen) {
            if first.index().is_some() && digits_of(&first.text) != digits_of(&second.text) {
                out.doubt("one number written in two ways: re-implementations disagree");
            }
            if first.kind != second.kind && first.index().is_none() {
                out.doubt("a GPU in MIG mode and its first MIG device: whether that is a repeat is not known");
            }
            out.note(format!("{:?} names a device twice, so CUDA shows none", second.text));
            return Vec::new();
        }
        chosen.into_iter().map(|(device, _)| device).collect()
    }

    fn named(&self, entry: &Entry, out: &mut Prediction) -> Option<Device> {
        if entry.text == "GPU-" && self.inventory.gpus.len() == 1 {
            out.doubt("a bare GPU- with one GPU: nothing is known");
        }
        if entry.kind == EntryKind::Mig && !self.devices.iter().any(|d| is_mig_named(self.inventory, *d, &entry.text)) {
            let found = begun(self.inventory, self.devices, &entry.text);
            if !found.is_empty() {
                out.doubt("a beginning of a MIG device's name: nothing is known of what drivers make of it");
            }
            return (found.len() == 1).then(|| found[0]);
        }
        let device = named(self.inventory, self.devices, entry)?;
        let is_parent = entry.kind == EntryKind::Gpu && device.mig.is_some();
        if is_parent && self.many && self.devices.iter().filter(|other| other.gpu == device.gpu).count() > 1 {
            out.doubt("the UUID of a GPU with several MIG devices: drivers from 570 on may show more than the first");
        }
        Some(device)
    }

    /// Where CUDA's own order decides, and models differ or are not known.
    fn doubt_order(&self, value: Option<&str>, out: &mut Prediction) {
        if self.devices.len() > 1 && value.is_some_and(|value| value.trim() != value) {
            out.doubt("white space around the value of CUDA_DEVICE_ORDER: nothing is known");
        }
        if self.order == DeviceOrder::Pci || self.devices.len() < 2 {
            return;
        }
        let is_unknown = |device: &Device| {
            let gpu = self.inventory.gpu(*device);
            gpu.name.is_empty() && gpu.multiprocessors.is_none()
        };
        if self.inventory.models_differ(self.devices) {
            out.doubt("models differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA's own order is a guess");
        } else if self.devices.iter().any(is_unknown) {
            out.doubt("models are not known and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA's own order is a guess");
        }
    }

    /// Numbers among MIG devices were observed on a driver before R570, in CUDA's default order only.
    fn doubt_index(&self, out: &mut Prediction) {
        let first_mig = self.devices.iter().position(|device| device.mig.is_some());
        let Some(first_mig) = first_mig.filter(|_| self.devices.len() > 1) else { return };
        if self.many {
            out.doubt("a number among MIG devices: how drivers from 570 on count them is not known");
        } else if self.order == DeviceOrder::Pci && self.devices[first_mig..].iter().any(|device| device.mig.is_none())
        {
            out.doubt("a number with a full GPU behind a MIG device: in the order PCI_BUS_ID nobody has looked");
        }
    }

    fn doubt_short_uuids(&self, chosen: &[(Device, Entry)], out: &mut Prediction) {
        let is_short = |(device, entry): &(Device, Entry)| {
            entry.kind == EntryKind::Gpu && entry.text != self.inventory.gpu(*device).uuid.as_str()
        };
        let is_new = branch(self.inventory).is_some_and(|branch| branch >= LONG_UUID_BRANCH);
        if chosen.len() > 1 && is_new && chosen.iter().any(is_short) {
            out.doubt("lists of abbreviated UUIDs are reported to fail on drivers from 580 on");
        }
    }

    /// Before R570 a process sees at most one MIG device, and no full GPU beside it; from then on one of each GPU
    /// instance.
    // NVIDIA MIG User Guide; PyTorch pull request 92315 (525.60.13); DataDog agent (550.127.05).
    fn show(&self, chosen: Vec<Device>, unset: bool, out: &mut Prediction) -> Vec<Device> {
        let Some(first) = chosen.iter().copied().find(|device| device.mig.is_some()) else { return chosen };
        if !self.many {
            if chosen.len() > 1 {
                out.note("a process sees at most one MIG device with drivers before 570");
            }
            return vec![first];
        }
        if chosen.len() == 1 && (!unset || self.devices.len() == 1) {
            return chosen;
        }
        out.doubt("MIG devices together with others: what drivers from 570 on show is documented in part only");
        let mut seen = BTreeSet::new();
        chosen.into_iter().filter(|device| device.mig.is_none() || seen.insert(self.instance(*device))).collect()
    }
}

/// Spellings of an entry of which nobody knows what the driver makes.
fn doubt_spelling(raw: &str, entry: &Entry, position: usize, out: &mut Prediction) {
    let is_name = matches!(entry.kind, EntryKind::Gpu | EntryKind::Mig);
    if is_name && raw.len() != entry.text.len() {
        out.doubt("white space around a UUID: re-implementations disagree");
    }
    let Some(unsigned) = entry.text.strip_prefix(['+', '-']) else {
        if entry.index().is_some_and(is_beyond) {
            out.doubt(BEYOND);
        }
        return;
    };
    let digits = leading_digits(unsigned);
    if digits.is_empty() {
        out.doubt("a sign without a number: nothing is known");
    } else if digits.parse::<u32>().map_or(true, is_beyond) {
        out.doubt(BEYOND);
    } else if position == 0 && entry.index().is_some() {
        out.doubt("a sign in the first entry: re-implementations disagree");
    }
}

const BEYOND: &str = "a number beyond 31 bits: whether the driver's parser wraps is not known";

fn is_beyond(number: u32) -> bool {
    number > i32::MAX.unsigned_abs()
}

fn first_duplicate(chosen: &[(Device, Entry)]) -> Option<(&Entry, &Entry)> {
    chosen.iter().enumerate().find_map(|(position, (device, second))| {
        let (_, first) = chosen[..position].iter().find(|(earlier, _)| earlier == device)?;
        Some((first, second))
    })
}

fn digits_of(text: &str) -> &str {
    leading_digits(text.trim_start_matches(['+', '-']))
}
