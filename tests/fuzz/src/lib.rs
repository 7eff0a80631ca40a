//! What the fuzz targets share: hosts, a plain reading of JSON, and a plain reading of runc's command line.

pub mod runc;
pub mod tree;

use cudaview::inventory::{Device, Inventory};

/// The hosts that targets choose from by a byte of their input.
const HOSTS: [&str; 5] = [
    include_str!("../../data/inventories/a100x4.json"),
    include_str!("../../data/inventories/a100mig4.json"),
    include_str!("../../data/inventories/mixed5.json"),
    include_str!("../../data/inventories/h100mig3.json"),
    include_str!("../../data/inventories/h100x8.json"),
];

/// A host.
pub fn host(choice: u8) -> Inventory {
    Inventory::from_json(HOSTS[usize::from(choice) % HOSTS.len()].as_bytes()).expect("a fixture")
}

/// Some of a host's devices, in PCI order: one for each bit.
pub fn some(inventory: &Inventory, bits: u8) -> Vec<Device> {
    let all = inventory.all_devices();
    all.into_iter().enumerate().filter(|(at, _)| bits & (1 << (at % 8)) != 0).map(|(_, device)| device).collect()
}

/// The first bytes of an input as choices, and the rest as text; `None` where it is none.
pub fn choices<const COUNT: usize>(data: &[u8]) -> Option<([u8; COUNT], &str)> {
    let (choices, rest) = data.split_first_chunk()?;
    Some((*choices, std::str::from_utf8(rest).ok()?))
}
