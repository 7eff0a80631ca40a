//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: what is written there, and what CUDA makes of it.
//!
//! [`Value::parse`] reads a value without losing anything, for the rules of `reconcile`.
//! [`predict`] is CUDA's own reading, as far as it is known; where it is not, the answer says so.

use crate::inventory::{Device, Inventory};

/// The first driver branch that can show several MIG devices to one process.
// NVIDIA MIG User Guide, "CUDA visible devices": R570 lifts the limit of one compute instance.
const MIG_MANY_BRANCH: u32 = 570;

/// The first driver branch for which lists of abbreviated UUIDs are reported to fail.
const LONG_UUID_BRANCH: u32 = 580;

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

/// As [`named`], and a beginning of a MIG UUID that is unique among these devices and at least eight characters long.
/// What CUDA makes of such a beginning is not known; who types what a table showed means that device.
pub fn named_or_begun(inventory: &Inventory, among: &[Device], text: &str) -> Option<Device> {
    let entry = Entry::parse(text);
    let exact = named(inventory, among, &entry);
    if exact.is_some() || entry.kind != EntryKind::Mig || text.len() < "MIG-".len() + 8 {
        return exact;
    }
    let begun = |device: &Device| inventory.mig(*device).is_some_and(|mig| mig.uuid.as_str().starts_with(text));
    let found: Vec<Device> = among.iter().copied().filter(begun).collect();
    (found.len() == 1).then(|| found[0])
}

/// Whether this text is the name of this MIG device, in the new or the older form.
pub fn is_mig_named(inventory: &Inventory, device: Device, text: &str) -> bool {
    let Some(mig) = inventory.mig(device) else { return false };
    mig.uuid.as_str() == text || text == format!("MIG-{}/{}/{}", inventory.gpu(device).uuid, mig.gi, mig.ci)
}

/// `CUDA_DEVICE_ORDER`, as CUDA understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOrder {
    /// `PCI_BUS_ID`: the order of `nvidia-smi`.
    Pci,
    /// `FASTEST_FIRST`, the default, and what an unknown value is taken for here.
    FastestFirst,
}

impl DeviceOrder {
    /// The order that a value of the variable asks for; `None` is unset.
    pub fn parse(value: Option<&str>) -> Self {
        if value.map(str::trim) == Some("PCI_BUS_ID") { DeviceOrder::Pci } else { DeviceOrder::FastestFirst }
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

/// What CUDA itself would show to a program that can open `devices`, given the two variables (`None` is unset).
///
/// Sources: CUDA C++ Programming Guide, environment variables; NVIDIA MIG User Guide; runs on drivers 525.60.13
/// (PyTorch pull request 92315) and 550.127.05 (DataDog agent). `docs/semantics.md` lists what is known how well.
pub fn predict(inventory: &Inventory, devices: &[Device], value: Option<&str>, order: Option<&str>) -> Prediction {
    let mut out = Prediction { visible: Vec::new(), certain: true, error: None, notes: Vec::new() };
    let enumerated = enumerate(inventory, devices, order, &mut out);
    let chosen = match value {
        None => enumerated,
        Some(text) => choose(inventory, devices, &enumerated, text, &mut out),
    };
    out.visible = one_mig_device(inventory, chosen, value.is_none(), &mut out);
    if out.visible.is_empty() {
        out.error = Some(CudaError::NoDevice);
    }
    out
}

impl Prediction {
    fn doubt(&mut self, note: impl Into<String>) {
        self.certain = false;
        self.notes.push(note.into());
    }
}

/// The list that integers index: full GPUs in device order, then the first MIG device of each GPU that has one.
// Observed on 8 x A100, driver 550.127.05.
fn enumerate(inventory: &Inventory, devices: &[Device], order: Option<&str>, out: &mut Prediction) -> Vec<Device> {
    let mut gpus: Vec<Device> = devices.iter().copied().filter(|device| device.mig.is_none()).collect();
    gpus.retain(|device| !inventory.gpu(*device).mig_enabled);
    if DeviceOrder::parse(order) == DeviceOrder::FastestFirst && inventory.models_differ(&gpus) {
        // The guide says "fastest to slowest" and not how speed is measured; multiprocessors fit every report.
        gpus.sort_by_key(|device| std::cmp::Reverse(inventory.gpu(*device).multiprocessors.unwrap_or(0)));
        out.doubt("models differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA's own order is a guess");
    }
    let mut migs: Vec<Device> = devices.iter().copied().filter(|device| device.mig.is_some()).collect();
    migs.dedup_by_key(|device| device.gpu);
    gpus.extend(migs);
    gpus
}

fn choose(
    inventory: &Inventory,
    devices: &[Device],
    enumerated: &[Device],
    text: &str,
    out: &mut Prediction,
) -> Vec<Device> {
    // CUDA strips neither quotes nor words; white space before a number is strtol's.
    let mut entries: Vec<&str> = text.split(',').collect();
    if entries.last().is_some_and(|last| last.trim().is_empty()) {
        entries.pop();
    }
    let mut chosen: Vec<(Device, Entry)> = Vec::new();
    for (position, raw) in entries.iter().enumerate() {
        let entry = Entry::parse(raw.trim());
        if position > 0 && raw.starts_with(char::is_whitespace) && entry.index().is_none() {
            out.doubt("white space before a UUID: re-implementations disagree");
        }
        let mixed = chosen.first().is_some_and(|(_, first)| first.index().is_some() != entry.index().is_some());
        let found = if mixed { None } else { lookup(inventory, devices, enumerated, &entry, position, out) };
        let Some(device) = found else {
            out.notes.push(format!("{:?} is not valid here and ends the list", entry.text));
            break;
        };
        chosen.push((device, entry));
    }
    doubt_short_uuids(inventory, &chosen, out);
    if let Some((first, second)) = first_duplicate(&chosen) {
        if first.index().is_some() && digits_of(&first.text) != digits_of(&second.text) {
            out.doubt("one number written in two ways: re-implementations disagree");
        }
        out.notes.push(format!("{:?} names a device twice, so CUDA shows none", second.text));
        return Vec::new();
    }
    chosen.into_iter().map(|(device, _)| device).collect()
}

fn lookup(
    inventory: &Inventory,
    devices: &[Device],
    enumerated: &[Device],
    entry: &Entry,
    position: usize,
    out: &mut Prediction,
) -> Option<Device> {
    let Some(index) = entry.index() else {
        if entry.text == "GPU-" && inventory.gpus.len() == 1 {
            out.doubt("a bare GPU- with one GPU: nothing is known");
        }
        return named(inventory, devices, entry);
    };
    if position == 0 && entry.text.starts_with(['+', '-']) {
        out.doubt("a sign in the first entry: re-implementations disagree");
    }
    if index > i32::MAX.unsigned_abs() {
        out.doubt("a number beyond 31 bits: whether the driver's parser wraps is not known");
    }
    enumerated.get(usize::try_from(index).ok()?).copied()
}

fn doubt_short_uuids(inventory: &Inventory, chosen: &[(Device, Entry)], out: &mut Prediction) {
    let is_short = |(device, entry): &(Device, Entry)| {
        entry.kind == EntryKind::Gpu && entry.text != inventory.gpu(*device).uuid.as_str()
    };
    if chosen.len() > 1 && branch(inventory).is_some_and(|b| b >= LONG_UUID_BRANCH) && chosen.iter().any(is_short) {
        out.doubt("lists of abbreviated UUIDs are reported to fail on drivers from 580 on");
    }
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

/// Before R570 a process sees at most one MIG device, and no full GPU beside it.
// NVIDIA MIG User Guide; PyTorch pull request 92315 (525.60.13); DataDog agent (550.127.05).
fn one_mig_device(inventory: &Inventory, chosen: Vec<Device>, unset: bool, out: &mut Prediction) -> Vec<Device> {
    let Some(first) = chosen.iter().copied().find(|device| device.mig.is_some()) else { return chosen };
    let many = branch(inventory).is_none_or(|branch| branch >= MIG_MANY_BRANCH);
    if chosen.len() == 1 && (!many || !unset) {
        return chosen;
    }
    if many {
        out.doubt("MIG devices together with others: what drivers from 570 on show is documented in part only");
        return chosen;
    }
    out.notes.push("a process sees at most one MIG device with drivers before 570".to_owned());
    vec![first]
}

/// The driver's branch, such as 550.
fn branch(inventory: &Inventory) -> Option<u32> {
    inventory.driver_version.as_deref()?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_strtol_reads_them() {
        let kind = |text| Entry::parse(text).kind;
        let index = |value, trailing| EntryKind::Index { value, trailing };
        assert_eq!(kind("3"), index(3, false));
        assert_eq!(kind("+3"), index(3, false));
        assert_eq!(kind("-0"), index(0, false));
        assert_eq!(kind("02"), index(2, false));
        assert_eq!(kind("0-2"), index(0, true));
        assert_eq!(kind("0x1"), index(0, true));
        assert_eq!(kind("1.5"), index(1, true));
        assert_eq!(kind("99999999999"), index(u32::MAX, false));
        assert_eq!(kind("-1"), EntryKind::Garbage);
        assert_eq!(kind("two"), EntryKind::Garbage);
        assert_eq!(kind(""), EntryKind::Garbage);
        assert_eq!(kind("GPU-a"), EntryKind::Gpu);
        assert_eq!(kind("gpu-a"), EntryKind::Garbage);
    }

    #[test]
    fn values_that_hide_every_gpu() {
        for text in ["", "  ", "-1", "-1,0", "-2", "none", "NONE", "void", "NoDevFiles", "nodevfiles,0", "\"\"", "'-1'"]
        {
            assert_eq!(Value::parse(text).meaning, Meaning::Hidden, "{text:?}");
        }
        for text in ["0", "-0", "0,-1", ",0", "nothing", "all"] {
            assert_ne!(Value::parse(text).meaning, Meaning::Hidden, "{text:?}");
        }
    }

    #[test]
    fn quotes_and_trailing_commas() {
        let list = |text: &str| match Value::parse(text).meaning {
            Meaning::List(entries) => entries.into_iter().map(|entry| entry.text).collect::<Vec<_>>(),
            other => panic!("{text:?} is {other:?}"),
        };
        assert_eq!(list("\"0, 1\""), ["0", "1"]);
        assert!(Value::parse("'0'").quoted);
        assert!(!Value::parse("\"0'").quoted);
        assert_eq!(list("1,"), ["1"]);
        assert_eq!(list("0,,1"), ["0", "", "1"]);
        assert_eq!(list("all,0"), ["all", "0"]);
        assert_eq!(Value::parse(" ALL ").meaning, Meaning::All);
    }
}
