//! CDI specifications: the same one in JSON and in YAML, and what a container gets from it. A byte each chooses the form,
//! the host and the GPUs.
#![no_main]

use std::collections::BTreeSet;

use cudaview::cdi::{CdiSpec, Format, GPU_KIND, Source, inject, parse};
use cudaview::record::Variables;
use cudaview_fuzz::{choices, host, some};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([of_form, of_host, bits], text)) = choices(data) else { return };
    let form = if of_form & 1 == 0 { Format::Json } else { Format::Yaml };
    let read = parse(text, form);
    if form == Format::Json
        && let (Ok(json), Ok(yaml)) = (&read, parse(text, Format::Yaml))
    {
        assert_eq!(*json, yaml, "JSON is YAML");
    }
    let Ok(spec) = read else { return };
    check(&spec);
    if spec.kind != GPU_KIND {
        return;
    }
    let inventory = host(of_host);
    let gpus = some(&inventory, bits);
    let source = Source { file: "/etc/cdi/x".to_owned(), priority: 0, spec };
    let Ok(Some(edits)) = inject(std::slice::from_ref(&source), &inventory, &gpus) else { return };
    let minors: BTreeSet<u32> = gpus.iter().map(|device| inventory.gpu(*device).minor.0).collect();
    for number in edits.nodes.iter().filter_map(|node| node.number()) {
        assert!(number.gpu_minor().is_none_or(|minor| minors.contains(&minor.0)), "another GPU's node: {number}");
        let is_of = |device: &cudaview::inventory::Device| {
            inventory.mig(*device).is_some_and(|mig| mig.capability_nodes.iter().any(|node| node.number == number))
        };
        let all = inventory.all_devices();
        assert!(!all.iter().any(is_of) || gpus.iter().any(is_of), "another MIG device's node: {number}");
    }
    let once = |names: Vec<&str>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    assert!(once(edits.nodes.iter().map(|node| node.path.as_str()).collect()));
    assert!(once(edits.mounts.iter().map(|mount| mount.container_path.as_str()).collect()));
    let variables: Vec<&str> = edits.env.iter().filter_map(|entry| Some(entry.split_once('=')?.0)).collect();
    assert_eq!(variables.len(), edits.env.len());
    assert!(!variables.iter().any(|name| Variables::NAMES.contains(name)), "cudaview decides about these");
    assert!(once(variables));
    assert!(edits.missing.iter().all(|device| gpus.contains(device)));
});

/// What every specification that is read keeps to.
fn check(spec: &CdiSpec) {
    assert!(!spec.devices.is_empty());
    let names: BTreeSet<&str> = spec.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names.len(), spec.devices.len());
    let all = spec.devices.iter().map(|device| &device.container_edits).chain([&spec.container_edits]);
    for edits in all {
        assert!(edits.device_nodes.iter().all(|node| node.path.starts_with('/')));
        assert!(edits.hooks.iter().all(|hook| hook.path.starts_with('/')));
        assert!(edits.env.iter().all(|entry| !entry.starts_with('=') && !entry.contains('\0')));
    }
}
