//! Inventories: what one says survives its own JSON, and every device has one name and one number.
#![no_main]

use cudaview::cuda::predict;
use cudaview::device::PciBusId;
use cudaview::inventory::Inventory;
use cudaview::request::Selection;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = PciBusId::try_from(text.to_owned())
    {
        assert_eq!(PciBusId::try_from(address.to_string()), Ok(address));
    }
    let Ok(inventory) = Inventory::from_json(data) else { return };
    let again = serde_json::to_vec(&inventory).expect("plain data");
    assert_eq!(Inventory::from_json(&again).expect("its own text"), inventory);

    let all = inventory.all_devices();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
    assert!(inventory.gpus.windows(2).all(|pair| pair[0].index < pair[1].index), "in the order of their indices");
    for device in &all {
        let uuid = inventory.uuid(*device);
        assert_eq!(inventory.by_uuid(uuid), Some(*device));
        // It goes into an environment and onto a terminal.
        assert!(uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/')), "{uuid:?}");
        let _ = (inventory.short_uuid(*device), inventory.host_label(*device));
    }
    for gpu in &inventory.gpus {
        let by_index = Selection::Names(vec![gpu.index.to_string()]).resolve(&inventory);
        let by_minor = Selection::Minors(vec![gpu.minor]).resolve(&inventory);
        assert_eq!(by_index.devices, by_minor.devices, "one GPU by both of its numbers");
    }
    let _ = inventory.host_names(&all);
    for order in [None, Some("PCI_BUS_ID")] {
        let shown = predict(&inventory, &all, None, order);
        assert!(shown.visible.iter().all(|device| all.contains(device)));
        assert!(!shown.visible.is_empty() || all.is_empty(), "unset hides nothing");
    }
});
