//! MIG devices in real containers: every row of rule 15 of `docs/semantics.md`, and what its table has no column for.
//!
//! The counting program shows a MIG device where its GPU's node and both of its capability nodes can be opened, as the
//! driver does.

mod docker;
mod podman;
mod runc;

use cudaview::inventory::{Device, Inventory};

use crate::brain;
use crate::semantics::table::{Row, rows};
use crate::world::CUDA_ERROR_NO_DEVICE;
use crate::world::count::Count;

/// Two MIG devices on GPU 0, seven on GPU 2, and two whole GPUs; driver 550.
const MIG: &str = "a100mig4";

/// The parent of the first two.
const PARENT: &str = "GPU-a0400000-0001-4000-8000-000000001111";
/// Host `0:0`: GPU instance 1.
const FIRST: &str = "MIG-0100c0de-0000-5000-8000-000000000010";
/// Host `0:1`: GPU instance 2.
const SECOND: &str = "MIG-0101c0de-0000-5000-8000-000000000011";

/// The capability nodes of [`FIRST`].
const FIRST_CAPS: [&str; 2] = ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"];
/// The capability nodes of [`SECOND`].
const SECOND_CAPS: [&str; 2] = ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"];
/// The major number of capability nodes on the simulated hosts.
const CAPS_MAJOR: u32 = 509;

/// The file of an inventory.
fn file(host: &str) -> String {
    format!("{host}.json")
}

/// The rows of rule 15 on this host.
fn rows_of(host: &str) -> Vec<Row> {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.section == "Rule 15" && row.host == host).collect();
    assert!(rows.len() > 3, "{} rows on {host}", rows.len());
    rows
}

/// The devices that a cell names.
fn devices(inventory: &Inventory, cell: &str) -> Vec<Device> {
    let all = inventory.all_devices();
    let labels = cell.split(',').filter(|label| *label != "none");
    labels.map(|label| *all.iter().find(|device| inventory.host_label(**device) == label).expect(label)).collect()
}

/// The capability nodes of these devices, each once, by number.
fn capabilities(inventory: &Inventory, devices: &[Device]) -> Vec<String> {
    let migs = devices.iter().filter_map(|device| inventory.mig(*device));
    let mut nodes: Vec<(u32, String)> =
        migs.flat_map(|mig| &mig.capability_nodes).map(|node| (node.number.minor, node.path.clone())).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.into_iter().map(|(_, path)| path).collect()
}

/// Fails the test unless a program in the container saw what the row says.
#[track_caller]
fn check(row: &Row, inventory: &Inventory, count: &Count) {
    let context = format!("line {}: {count:?}", row.line);
    let kept = devices(inventory, row.cell("nodes").unwrap());
    let mut minors: Vec<u32> = kept.iter().map(|device| inventory.gpu(*device).minor.0).collect();
    minors.sort_unstable();
    minors.dedup();
    let nodes: Vec<String> = minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
    assert_eq!(count.nodes, nodes, "{context}");
    assert_eq!(count.capabilities, capabilities(inventory, &kept), "{context}");
    assert_eq!(count.env.get("CUDA_VISIBLE_DEVICES"), row.value("value", inventory).as_ref(), "{context}");

    // What a driver calls a MIG device that has no UUID is its GPU's UUID.
    let uuid = |device: &Device| match inventory.uuid(*device) {
        name if name.contains('/') => inventory.gpu(*device).uuid.to_string(),
        name => name.to_owned(),
    };
    match row.cell("view").unwrap() {
        "none" => assert_eq!((count.cuda_error, count.cuda.len()), (CUDA_ERROR_NO_DEVICE, 0), "{context}"),
        "uncertain" => {
            let kept: Vec<String> = kept.iter().map(uuid).collect();
            assert!(!count.cuda.is_empty() && count.cuda.iter().all(|uuid| kept.contains(uuid)), "{context}");
        }
        view => {
            let view: Vec<String> = devices(inventory, view).iter().map(uuid).collect();
            assert_eq!(count.cuda, view, "{context}");
        }
    }
}

/// The inventory of a host.
fn inventory(host: &str) -> Inventory {
    brain::inventory(host)
}
