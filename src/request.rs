//! What the engine was asked for: `--gpus`, CDI names, device nodes, `NVIDIA_VISIBLE_DEVICES`.

use serde::{Deserialize, Serialize};

use crate::device::{Minor, PciBusId};
use crate::inventory::{Device, Inventory};

/// Who made a selection, from the strongest proof to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `docker run --gpus`, from the engine's own record of it.
    Gpus,
    /// `--device nvidia.com/gpu=…`.
    Cdi,
    /// GPU nodes that the engine put into the spec.
    Nodes,
    /// The device plugin's mounts under `/var/run/nvidia-container-devices`.
    VolumeMounts,
    /// A `NVIDIA_VISIBLE_DEVICES` that a user set.
    User,
    /// A `NVIDIA_VISIBLE_DEVICES` that the image set, where policy honours it.
    Image,
    /// `[grant] base`.
    Policy,
    /// What an earlier door decided, from its record in the bundle.
    Record,
}

/// Which devices were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// None, on purpose (`none`, `void`, empty).
    Nothing,
    /// Every device.
    All,
    /// The first so many GPUs.
    Count(u32),
    /// By name: host index, UUID, `g:m`, MIG name, PCI address.
    Names(Vec<String>),
    /// By the minor of their nodes.
    Minors(Vec<Minor>),
}

/// One request, and how to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Who asked.
    pub source: Source,
    /// For what.
    pub selection: Selection,
}

/// What a selection comes to on a host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Resolved {
    /// The devices, in PCI order, each once.
    pub devices: Vec<Device>,
    /// What this host does not have, as it was named.
    pub unknown: Vec<String>,
}

/// A `--gpus` value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpusFlag {
    /// The GPUs.
    pub selection: Selection,
    /// `capabilities=…`, beside `gpu`.
    pub capabilities: Vec<String>,
}

/// A `--gpus` value that Docker refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGpus {
    /// `device=0,2` without the inner quotes: the `2` is read as a count.
    #[error("cannot set both Count and DeviceIDs on device request")]
    CountAndIds,
    /// A key that Docker does not know.
    #[error("unexpected key {0:?}")]
    Key(String),
    /// A count that is no number.
    #[error("count must be an integer, not {0:?}")]
    Count(String),
    /// Quotes that do not close.
    #[error("unclosed quote")]
    Quote,
}

/// Reads the value of `docker run --gpus` as the docker command does (its `opts/gpus.go`): one line of CSV.
///
/// # Errors
/// [`InvalidGpus`] for what Docker refuses.
pub fn parse_gpus(value: &str) -> Result<GpusFlag, InvalidGpus> {
    let mut count: Option<i64> = None;
    let mut ids: Vec<String> = Vec::new();
    let mut capabilities = Vec::new();
    for field in csv(value)? {
        let (key, value) = field.split_once('=').unwrap_or(("count", &field));
        match key {
            "count" => count = Some(parse_count(value)?),
            "device" => ids.extend(value.split(',').map(str::to_owned)),
            "capabilities" => capabilities.extend(value.split(',').map(str::to_owned)),
            "driver" | "options" => {}
            other => return Err(InvalidGpus::Key(other.to_owned())),
        }
    }
    let selection = match (count, ids.is_empty()) {
        (Some(_), false) => return Err(InvalidGpus::CountAndIds),
        (None, false) => Selection::Names(ids),
        (count, true) => count_selection(count.unwrap_or(1)),
    };
    Ok(GpusFlag { selection, capabilities })
}

/// The selection of a Docker `DeviceRequest`'s count: -1 is all.
pub fn count_selection(count: i64) -> Selection {
    match u32::try_from(count) {
        Ok(0) => Selection::Nothing,
        Ok(count) => Selection::Count(count),
        Err(_) => Selection::All,
    }
}

fn parse_count(value: &str) -> Result<i64, InvalidGpus> {
    if value == "all" {
        return Ok(-1);
    }
    value.parse().map_err(|_| InvalidGpus::Count(value.to_owned()))
}

/// One CSV record: fields in double quotes may hold commas, `""` in them is a quote.
fn csv(line: &str) -> Result<Vec<String>, InvalidGpus> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields[field].push('"');
            }
            '"' if quoted || fields[field].is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields[field].push(c),
        }
    }
    if quoted { Err(InvalidGpus::Quote) } else { Ok(fields) }
}

/// Reads `NVIDIA_VISIBLE_DEVICES`. Empty, `void` and `none` ask for nothing; only these exact words do.
///
/// Among other names a `void` outranks everything, and the first `all` or `none` decides.
// NVIDIA Container Toolkit, internal/config/image/devices.go
pub fn parse_visible_devices(value: &str) -> Selection {
    let names: Vec<&str> = value.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let word = names.iter().find(|name| matches!(**name, "all" | "none"));
    match word {
        _ if names.is_empty() || names.contains(&"void") => Selection::Nothing,
        Some(&"all") => Selection::All,
        Some(_) => Selection::Nothing,
        None => Selection::Names(names.into_iter().map(|name| cdi_device(name).unwrap_or(name).to_owned()).collect()),
    }
}

/// The device part of a CDI name of a GPU (`nvidia.com/gpu=1` → `1`).
pub fn cdi_device(name: &str) -> Option<&str> {
    name.strip_prefix("nvidia.com/gpu=")
}

/// The selection that a CDI device of a GPU makes. `gpu1` and `mig0:1` are what NVIDIA's generator calls devices with
/// `--device-name-strategy=type-index`.
pub fn cdi_selection(name: &str) -> Option<Selection> {
    let device = cdi_device(name)?;
    let index = ["gpu", "mig"].into_iter().find_map(|kind| device.strip_prefix(kind));
    let device = index.filter(|index| index.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(device);
    Some(if device == "all" { Selection::All } else { Selection::Names(vec![device.to_owned()]) })
}

impl Selection {
    /// What this comes to on this host.
    pub fn resolve(&self, inventory: &Inventory) -> Resolved {
        let mut out = Resolved::default();
        match self {
            Selection::Nothing => {}
            Selection::All => out.devices = inventory.all_devices(),
            Selection::Count(count) => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                out.devices = (0..count.min(inventory.gpus.len())).flat_map(|gpu| inventory.devices_of(gpu)).collect();
                if count > inventory.gpus.len() {
                    out.unknown.push(format!("a count of {count}"));
                }
            }
            Selection::Names(names) => names.iter().for_each(|name| out.add(name, resolve_name(inventory, name))),
            Selection::Minors(minors) => {
                for minor in minors {
                    let gpu = inventory.position_of_minor(*minor);
                    out.add(&format!("/dev/nvidia{minor}"), gpu.map(|gpu| inventory.devices_of(gpu)));
                }
            }
        }
        out.devices.sort_unstable();
        out.devices.dedup();
        out
    }

    /// Whether it names no particular GPU: `all`, or a count.
    pub fn is_broad(&self) -> bool {
        matches!(self, Selection::All | Selection::Count(_))
    }

    /// Whether it asks for nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Selection::Nothing
    }
}

impl Resolved {
    fn add(&mut self, name: &str, devices: Option<Vec<Device>>) {
        match devices {
            Some(devices) if !devices.is_empty() => self.devices.extend(devices),
            _ => self.unknown.push(name.to_owned()),
        }
    }
}

/// The devices that one name stands for; `None` where the host has no such device.
fn resolve_name(inventory: &Inventory, name: &str) -> Option<Vec<Device>> {
    if name == "all" {
        return Some(inventory.all_devices());
    }
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        return Some(inventory.devices_of(inventory.position_of_index(name.parse().ok()?)?));
    }
    if name.starts_with("MIG-") {
        let device = crate::cuda::named_or_begun(inventory, &inventory.all_devices(), name);
        return device.map(|device| vec![device]);
    }
    if name.starts_with("GPU-") {
        let matching = |gpu: &&usize| inventory.gpus[**gpu].uuid.as_str().starts_with(name);
        let positions: Vec<usize> = (0..inventory.gpus.len()).collect();
        let gpus: Vec<usize> = positions.iter().filter(matching).copied().collect();
        return (gpus.len() == 1).then(|| inventory.devices_of(gpus[0]));
    }
    if let Ok(address) = PciBusId::try_from(name.to_owned()) {
        let gpu = inventory.gpus.iter().position(|gpu| gpu.pci_bus_id == Some(address))?;
        return Some(inventory.devices_of(gpu));
    }
    let (gpu, mig) = name.split_once(':')?;
    let gpu = inventory.position_of_index(gpu.parse().ok()?)?;
    let wanted: u32 = mig.parse().ok()?;
    let migs = &inventory.gpus[gpu].mig;
    let mig = migs.iter().position(|mig| mig.index == Some(wanted));
    let by_position = usize::try_from(wanted).ok().filter(|m| migs.get(*m).is_some_and(|mig| mig.index.is_none()));
    mig.or(by_position).map(|mig| vec![Device { gpu, mig: Some(mig) }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn names(list: &[&str]) -> Selection {
        Selection::Names(to_owned(list))
    }

    #[test]
    fn gpus_flag_as_docker_reads_it() {
        let selection = |text| parse_gpus(text).map(|flag| flag.selection);
        assert_eq!(selection("all"), Ok(Selection::All));
        assert_eq!(selection("2"), Ok(Selection::Count(2)));
        assert_eq!(selection("0"), Ok(Selection::Nothing));
        assert_eq!(selection("-1"), Ok(Selection::All));
        assert_eq!(selection("device=1"), Ok(names(&["1"])));
        assert_eq!(selection("\"device=1,3\""), Ok(names(&["1", "3"])));
        assert_eq!(selection("device=0,2"), Err(InvalidGpus::CountAndIds));
        assert_eq!(selection("0,2"), Ok(Selection::Count(2)));
        assert_eq!(selection("capabilities=utility"), Ok(Selection::Count(1)));
        assert_eq!(selection("x=1"), Err(InvalidGpus::Key("x".to_owned())));
        assert_eq!(selection("two"), Err(InvalidGpus::Count("two".to_owned())));
        assert_eq!(selection("\"device=1"), Err(InvalidGpus::Quote));
        let both = parse_gpus("\"device=0\",\"capabilities=graphics,utility\"");
        assert_eq!(both.map(|flag| flag.capabilities), Ok(vec!["graphics".to_owned(), "utility".to_owned()]));
    }

    #[test]
    fn visible_devices_words_are_exact() {
        assert_eq!(parse_visible_devices("all"), Selection::All);
        assert_eq!(parse_visible_devices("ALL"), names(&["ALL"]));
        for all in ["0,all", "all,none", " all "] {
            assert_eq!(parse_visible_devices(all), Selection::All, "{all}");
        }
        for nothing in ["", "void", "none", ",", "all,void", "0,void", "0,none,all"] {
            assert_eq!(parse_visible_devices(nothing), Selection::Nothing);
        }
        assert_eq!(parse_visible_devices("0,,nvidia.com/gpu=1"), names(&["0", "1"]));
    }

    #[test]
    fn cdi_names_of_both_styles() {
        for (name, device) in [("0:1", "0:1"), ("mig0:1", "0:1"), ("gpu3", "3"), ("gpu", "gpu"), ("MIG-ab", "MIG-ab")] {
            assert_eq!(cdi_selection(&format!("nvidia.com/gpu={name}")), Some(names(&[device])));
        }
        assert_eq!(cdi_selection("nvidia.com/gpu=all"), Some(Selection::All));
        assert_eq!(cdi_selection("nvidia.com/mofed=all"), None);
    }

    /// NVML's index of a MIG device may have gaps, and a driver before R470.42.01 knows the older name only.
    #[test]
    fn names_of_mig_devices_are_what_the_host_says() {
        let host = |text: &str| Inventory::from_json(text.as_bytes()).expect("fixture");
        let check = |inventory: &Inventory, name: &str, uuid: Option<&str>| {
            let resolved = names(&[name]).resolve(inventory);
            let found: Vec<&str> = resolved.devices.iter().map(|device| inventory.uuid(*device)).collect();
            assert_eq!(found, uuid.into_iter().collect::<Vec<_>>(), "{name}");
        };
        let sparse = host(include_str!("../tests/data/inventories/h100mig3.json"));
        check(&sparse, "1:3", Some("MIG-0203c0de-0000-5000-8000-000000000023"));
        check(&sparse, "1:2", None);
        check(&sparse, "2", None);
        let old = host(include_str!("../tests/data/inventories/a100old2.json"));
        check(&old, "0:1", Some("MIG-GPU-c0400000-0001-4000-8000-000000001111/2/0"));
        check(&old, "MIG-GPU-c0400000-0001-4000-8000-000000001111/2/0", Some(old.uuid(old.all_devices()[1])));
        check(&old, "MIG-GPU-c0400000", None);
    }

    #[test]
    fn names_on_a_host_with_mig() {
        let text = include_str!("../tests/data/inventories/a100mig4.json");
        let inventory = Inventory::from_json(text.as_bytes()).expect("fixture");
        let check = |list: &[&str], labels: &[&str], unknown: &[&str]| {
            let resolved = names(list).resolve(&inventory);
            let found: Vec<String> = resolved.devices.iter().map(|d| inventory.host_label(*d)).collect();
            assert_eq!((found, resolved.unknown), (to_owned(labels), to_owned(unknown)), "{list:?}");
        };
        check(&["3", "1"], &["1", "3"], &[]);
        check(&["0"], &["0:0", "0:1"], &[]);
        check(&["0:1", "1"], &["0:1", "1"], &[]);
        check(&["MIG-0101c0de-0000-5000-8000-000000000011"], &["0:1"], &[]);
        check(&["MIG-GPU-a0400000-0001-4000-8000-000000001111/2/0"], &["0:1"], &[]);
        check(&["GPU-a14", "GPU-a"], &["1"], &["GPU-a"]);
        check(&["00000000:37:00.0"], &["3"], &[]);
        check(&["GPU-a0400000-0001-4000-8000-000000001111"], &["0:0", "0:1"], &[]);
        check(&["MIG-0303"], &[], &["MIG-0303"]);
        check(&["MIG-0303c0de"], &["2:3"], &[]);
        check(&["MIG-GPU-a0400000/2/0", "MIG-GPU-a2400000-0003-4002-8000-000000003333/7/0"], &["0:1", "2:6"], &[]);
        check(
            &["MIG-GPU-a0400000/3/0", "MIG-GPU-a0400000/2", "MIG-GPU-a1400000/1/0"],
            &[],
            &["MIG-GPU-a0400000/3/0", "MIG-GPU-a0400000/2", "MIG-GPU-a1400000/1/0"],
        );
        check(&["4", "0:2", "1:0", "x", ""], &[], &["4", "0:2", "1:0", "x", ""]);
    }
}
