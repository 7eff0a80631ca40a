//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: what is written there, and what CUDA makes of it.
//!
//! [`Value::parse`] reads a value without losing anything, for the rules of `reconcile`.
//! [`predict()`] is CUDA's own reading, as far as it is known; where it is not, the answer says so.

mod predict;

pub use predict::{CudaError, DeviceOrder, Prediction, predict, shows_many};

use crate::inventory::{Device, Inventory};

/// What an entry of the list is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A number as C's `strtol` reads it: sign, digits, the rest ignored. Saturates at `u32::MAX`.
    Index {
        /// The number.
        value: u32,
        /// Whether characters after it were ignored.
        trailing: bool,
    },
    /// `GPU-…`: a UUID or the beginning of one.
    Gpu,
    /// `MIG-…`: a UUID, or the older `MIG-GPU-…/gi/ci`.
    Mig,
    /// Nothing that names a device; a negative number is one of these.
    Garbage,
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written, without white space around it.
    pub text: String,
    /// What it is.
    pub kind: EntryKind,
}

/// The words that hide every GPU when they come first; CUDA knows no words, so any other word does it too,
/// but these are written on purpose. `NoDevFiles` is Slurm's (2013 to 2019).
const HIDING_WORDS: [&str; 3] = ["none", "void", "nodevfiles"];

/// What a value means before any device is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Empty, or its first entry hides every GPU.
    Hidden,
    /// The word `all`, which CUDA does not know.
    All,
    /// A list of entries; an empty last one has been dropped.
    List(Vec<Entry>),
}

/// A `CUDA_VISIBLE_DEVICES` that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// What it says.
    pub meaning: Meaning,
    /// Whether quotes stood around it: an env file keeps them, and CUDA trips over them.
    pub quoted: bool,
}

impl Value {
    /// Reads a value. Every text is a value; nonsense becomes [`EntryKind::Garbage`].
    pub fn parse(text: &str) -> Self {
        let trimmed = text.trim();
        let unquoted = strip_matching_quotes(trimmed);
        let quoted = unquoted.is_some();
        let text = unquoted.unwrap_or(trimmed).trim();
        let mut entries: Vec<&str> = text.split(',').map(str::trim).collect();
        if entries.len() > 1 && entries.last() == Some(&"") {
            entries.pop();
        }
        let first = entries[0];
        let meaning = if text.is_empty() || hides(first) {
            Meaning::Hidden
        } else if entries.len() == 1 && first.eq_ignore_ascii_case("all") {
            Meaning::All
        } else {
            Meaning::List(entries.into_iter().map(Entry::parse).collect())
        };
        Self { meaning, quoted }
    }
}

fn hides(first: &str) -> bool {
    let negative = first.strip_prefix('-').is_some_and(|rest| {
        let digits = leading_digits(rest);
        !digits.is_empty() && digits.bytes().any(|digit| digit != b'0')
    });
    negative || HIDING_WORDS.iter().any(|word| first.eq_ignore_ascii_case(word))
}

fn strip_matching_quotes(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn leading_digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

impl Entry {
    fn parse(text: &str) -> Self {
        let kind = if text.starts_with("GPU-") {
            EntryKind::Gpu
        } else if text.starts_with("MIG-") {
            EntryKind::Mig
        } else {
            index(text).unwrap_or(EntryKind::Garbage)
        };
        Self { text: text.to_owned(), kind }
    }

    /// The number, if it is one.
    pub fn index(&self) -> Option<u32> {
        match self.kind {
            EntryKind::Index { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// C's `strtol` in base 10, for one entry: `None` for a text without digits and for a negative number.
fn index(text: &str) -> Option<EntryKind> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = leading_digits(unsigned);
    if digits.is_empty() {
        return None;
    }
    let value = digits.parse::<u32>().unwrap_or(u32::MAX);
    (!negative || value == 0).then_some(EntryKind::Index { value, trailing: digits.len() < unsigned.len() })
}

/// The device that a `GPU-…` or `MIG-…` entry names among these, if it names exactly one GPU.
/// A GPU in MIG mode stands for its first MIG device, as in CUDA.
// Observed on driver 550.127.05: the UUID of a MIG parent shows its first MIG device.
pub fn named(inventory: &Inventory, among: &[Device], entry: &Entry) -> Option<Device> {
    match entry.kind {
        EntryKind::Mig => among.iter().copied().find(|device| is_mig_named(inventory, *device, &entry.text)),
        EntryKind::Gpu if entry.text.len() > "GPU-".len() => {
            let mut gpus: Vec<Device> =
                among.iter().copied().filter(|d| inventory.gpu(*d).uuid.as_str().starts_with(&entry.text)).collect();
            gpus.dedup_by_key(|device| device.gpu);
            (gpus.len() == 1).then(|| gpus[0])
        }
        _ => None,
    }
}

/// As [`named`], and a beginning of a MIG device's name that is unique among these devices and not too short.
/// What CUDA makes of such a beginning is not known; who types what a table showed means that device.
pub fn named_or_begun(inventory: &Inventory, among: &[Device], text: &str) -> Option<Device> {
    let entry = Entry::parse(text);
    let exact = named(inventory, among, &entry);
    let least = if text.starts_with("MIG-GPU-") { "MIG-GPU-".len() } else { "MIG-".len() } + 8;
    if exact.is_some() || entry.kind != EntryKind::Mig || text.len() < least {
        return exact;
    }
    let found = begun(inventory, among, text);
    (found.len() == 1).then(|| found[0])
}

/// The MIG devices whose UUID begins so, or whose older name it is but for the rest of the GPU's UUID.
fn begun(inventory: &Inventory, among: &[Device], text: &str) -> Vec<Device> {
    let older = |device: &Device| {
        let (gpu, gi, ci) = split_older(text)?;
        let mig = inventory.mig(*device)?;
        Some(inventory.gpu(*device).uuid.as_str().starts_with(gpu) && (gi, ci) == (mig.gi, mig.ci))
    };
    let begins = |device: &Device| inventory.mig(*device).is_some_and(|mig| mig.uuid.as_str().starts_with(text));
    among.iter().copied().filter(|device| begins(device) || older(device) == Some(true)).collect()
}

/// `MIG-GPU-…/gi/ci`: the beginning of a GPU's UUID, GPU instance, compute instance.
fn split_older(text: &str) -> Option<(&str, u32, u32)> {
    let mut parts = text.strip_prefix("MIG-").filter(|rest| rest.starts_with("GPU-"))?.split('/');
    let found = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(found)
}

/// Whether this text is the name of this MIG device, in the new or the older form.
pub fn is_mig_named(inventory: &Inventory, device: Device, text: &str) -> bool {
    let Some(mig) = inventory.mig(device) else { return false };
    mig.uuid.as_str() == text || text == format!("MIG-{}/{}/{}", inventory.gpu(device).uuid, mig.gi, mig.ci)
}

#[cfg(test)]
mod tests;
