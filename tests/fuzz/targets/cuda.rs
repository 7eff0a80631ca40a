//! `CUDA_VISIBLE_DEVICES`: what the rules make of a value, beside what CUDA itself would make of it.
//!
//! Three bytes choose the host, what is granted, and the order; the rest is the value.
#![no_main]

use cudaview::config::{Config, WhenUnset};
use cudaview::cuda::{EntryKind, Meaning, Value, predict};
use cudaview::plan::{Verdict, plan};
use cudaview::provenance::Provenance;
use cudaview::reconcile::View;
use cudaview::record::Variables;
use cudaview::request::{DeviceRequest, Selection, Source};
use cudaview::situation::Situation;
use cudaview_fuzz::{choices, host, some};

#[allow(dead_code)]
#[path = "../../it/brain.rs"]
mod brain;
use brain::{check_laws, is_subset};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([of_host, bits, of_order], text)) = choices(data) else { return };
    let inventory = host(of_host);
    let order = [None, Some("PCI_BUS_ID"), Some("FASTEST_FIRST"), Some(" PCI_BUS_ID")][usize::from(of_order % 4)];
    let granted = some(&inventory, bits);
    if granted.is_empty() || text.contains('\0') {
        return;
    }
    // CUDA's own reading shows what there is, each device once.
    let shown = predict(&inventory, &granted, Some(text), order);
    assert!(is_subset(&shown.visible, &granted));
    assert_eq!(shown.error.is_some(), shown.visible.is_empty());
    let mut once = shown.visible.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), shown.visible.len());

    // The lossless reading: what hides every GPU hides it in CUDA too, and no entry is lost or made up.
    let value = Value::parse(text);
    match &value.meaning {
        Meaning::Hidden | Meaning::All if !value.quoted => assert!(shown.visible.is_empty() || !shown.certain),
        Meaning::Hidden | Meaning::All => {}
        Meaning::List(entries) => {
            assert!(!entries.is_empty());
            let again: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
            let again = again.join(",");
            assert!(text.split(',').count() >= entries.len() && text.split(',').count() <= entries.len() + 1);
            // A comma alone is a list of one entry that names nothing, and an empty text is none.
            if !again.is_empty() && !again.starts_with(['"', '\'']) {
                let read = Value::parse(&again);
                assert!(
                    read.meaning == value.meaning || again.ends_with(','),
                    "{again:?} is not what it was read from"
                );
            }
        }
    }

    let names: Vec<String> = granted.iter().map(|device| inventory.uuid(*device).to_owned()).collect();
    let variables = Variables {
        visible_devices: Some(text.to_owned()),
        device_order: order.map(str::to_owned),
        ..Variables::default()
    };
    let situation = Situation {
        requests: vec![DeviceRequest { source: Source::Gpus, selection: Selection::Names(names) }],
        original: variables.clone(),
        current: variables,
        provenance: Provenance::User,
        ..Situation::blank()
    };
    let mut config = Config::built_in();
    let decided = plan(&inventory, &situation, &config);
    if let Err(broken) = check_laws(&inventory, &situation, &decided) {
        panic!("{broken}");
    }
    assert_eq!(decided.grant.devices, granted);

    // A value that is right by CUDA's own reading is what the program sees.
    let has_mig = granted.iter().any(|device| device.mig.is_some());
    if let (Meaning::List(entries), Some(reconciled)) = (&value.meaning, &decided.reconciliation)
        && !has_mig
        && !value.quoted
        && shown.certain
        && shown.visible.len() == entries.len()
        && entries.iter().all(|entry| !matches!(entry.kind, EntryKind::Index { trailing: true, .. }))
    {
        assert_eq!(reconciled.view, View::Devices(shown.visible.clone()), "{text:?} was right");
    }

    // Going through a second door with what the first one wrote changes nothing.
    if matches!(decided.verdict, Verdict::Consistent | Verdict::Rewritten) && !has_mig {
        let kept: Vec<String> = decided.kept().iter().map(|device| inventory.uuid(*device).to_owned()).collect();
        let again = Situation {
            requests: vec![DeviceRequest { source: Source::Gpus, selection: Selection::Names(kept) }],
            original: decided.emitted.clone(),
            current: decided.emitted.clone(),
            ..situation
        };
        config.reconcile.when_unset = WhenUnset::Leave;
        let second = plan(&inventory, &again, &config);
        assert_eq!(second.visible, decided.visible);
        assert_eq!(second.emitted.visible_devices, decided.emitted.visible_devices);
    }
});
