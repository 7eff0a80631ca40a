//! `--gpus`, `NVIDIA_VISIBLE_DEVICES` and CDI names: what they come to on a host. A byte chooses the host.
#![no_main]

use cudaview::request::{Selection, cdi_device, cdi_selection, parse_gpus, parse_visible_devices};
use cudaview_fuzz::{choices, host};

/// What a selection comes to, after its own laws.
fn resolved(selection: &Selection, inventory: &cudaview::inventory::Inventory) -> Vec<cudaview::inventory::Device> {
    let found = selection.resolve(inventory);
    let all = inventory.all_devices();
    assert!(found.devices.iter().all(|device| all.contains(device)), "only what the host has");
    assert!(found.devices.windows(2).all(|pair| pair[0] < pair[1]), "in PCI order, each once");
    match selection {
        Selection::Nothing => assert!(found.devices.is_empty() && found.unknown.is_empty()),
        Selection::All => assert_eq!(found.devices, all),
        Selection::Count(count) => {
            let gpus = inventory.gpus.len();
            let count = usize::try_from(*count).unwrap();
            assert_eq!(found.unknown.is_empty(), count <= gpus);
            assert!(found.devices.iter().all(|device| device.gpu < count));
        }
        Selection::Names(names) => {
            // A name never takes away what another one gives, and never gives more than alone.
            let alone = |name: &String| Selection::Names(vec![name.clone()]).resolve(inventory);
            let mut parts: Vec<_> = names.iter().flat_map(|name| alone(name).devices).collect();
            parts.sort_unstable();
            parts.dedup();
            assert_eq!(parts, found.devices);
            assert!(names.iter().all(|name| alone(name).devices.is_empty() == found.unknown.contains(name)));
        }
        Selection::Minors(_) => {}
    }
    found.devices
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([of_host], text)) = choices(data) else { return };
    let inventory = host(of_host);

    if let Ok(flag) = parse_gpus(text) {
        resolved(&flag.selection, &inventory);
        // What Docker takes is what its own quoting makes of it.
        if !text.contains('"')
            && let Some(ids) = text.strip_prefix("device=")
            && !ids.contains(',')
        {
            assert_eq!(flag.selection, Selection::Names(vec![ids.to_owned()]));
        }
        let quoted = format!("\"{}\"", text.replace('"', "\"\""));
        if !text.contains([',', '"']) {
            assert_eq!(parse_gpus(&quoted).map(|flag| flag.selection), Ok(flag.selection));
        }
    }

    let selection = parse_visible_devices(text);
    let devices = resolved(&selection, &inventory);
    // The plain reading of the toolkit's documentation.
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() || names.contains(&"void") {
        assert_eq!(selection, Selection::Nothing);
    }
    match &selection {
        Selection::Nothing => assert!(names.is_empty() || names.iter().any(|name| matches!(*name, "void" | "none"))),
        Selection::All => assert!(names.contains(&"all")),
        Selection::Names(read) => {
            assert_eq!(read.len(), names.len());
            assert!(read.iter().zip(&names).all(|(read, name)| read == cdi_device(name).unwrap_or(name)));
            // A longer list never has fewer devices.
            let longer = resolved(&parse_visible_devices(&format!("{text},0")), &inventory);
            assert!(devices.iter().all(|device| longer.contains(device)));
        }
        Selection::Count(_) | Selection::Minors(_) => panic!("the variable has neither"),
    }

    let named = cdi_selection(text);
    assert_eq!(named.is_some(), text.starts_with("nvidia.com/gpu="));
    if let Some(selection) = named {
        resolved(&selection, &inventory);
    }
});
