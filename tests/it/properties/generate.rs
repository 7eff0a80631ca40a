//! Random hosts, values, policies and situations, most of them near what really occurs.

use cudaview::config::{
    Base, BaseWord, Config, ImageDefault, ImageRequest, Inject, OnNoMatch, OrderPolicy, UnknownRequest, WhenUnset,
};
use cudaview::device::{DeviceNumber, HostIndex, Minor};
use cudaview::inventory::{CapabilityNode, Gpu, Inventory, MigDevice, Platform};
use cudaview::provenance::Provenance;
use cudaview::record::Variables;
use cudaview::request::{DeviceRequest, Selection, Source};
use cudaview::situation::{Injection, Situation};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

fn gpu_uuid(position: usize) -> String {
    // GPUs 0 and 1, 2 and 3, … share a beginning.
    format!("GPU-{:x}{position}000000-0001-4000-8000-00000000{position:04}", 10 + position / 2)
}

fn mig_uuid(position: usize, mig: usize) -> String {
    format!("MIG-{position}{mig}00c0de-0000-5000-8000-00000000{position:04}")
}

fn gpu(position: usize, index: u32, minor: u32, model: usize, migs: usize, empty_mig: bool) -> Gpu {
    let mig_device = |mig: usize| MigDevice {
        index: None,
        uuid: mig_uuid(position, mig).try_into().unwrap(),
        gi: u32::try_from(mig).unwrap() + 1,
        ci: 0,
        profile: String::new(),
        capability_nodes: vec![CapabilityNode {
            path: format!("/dev/nvidia-caps/nvidia-cap{}", position * 10 + mig),
            number: DeviceNumber { major: 240, minor: u32::try_from(position * 10 + mig).unwrap() },
        }],
    };
    Gpu {
        index: HostIndex(index),
        minor: Minor(minor),
        uuid: gpu_uuid(position).try_into().unwrap(),
        pci_bus_id: None,
        name: ["A", "B", "C"][model].to_owned(),
        multiprocessors: Some([20, 80, 80][model]),
        drm_nodes: vec![DeviceNumber { major: 226, minor: 128 + u32::try_from(position).unwrap() }],
        mig_enabled: migs > 0 || empty_mig,
        mig: (0..migs).map(mig_device).collect(),
    }
}

/// Hosts with up to eight GPUs, minors in any order, one model or several, some GPUs in MIG mode.
pub(crate) fn inventories() -> impl Strategy<Value = Inventory> {
    let size = 0..=8_usize;
    size.prop_flat_map(|size| {
        let indices = subsequence((0..10_u32).collect::<Vec<_>>(), size);
        let indices = prop_oneof![4 => Just((0..u32::try_from(size).unwrap()).collect::<Vec<_>>()), 1 => indices];
        let minors = Just((0..u32::try_from(size).unwrap()).collect::<Vec<_>>()).prop_shuffle();
        let models = prop_oneof![Just(vec![0; size]), prop::collection::vec(0..3_usize, size)];
        let migs = prop_oneof![3 => Just(vec![0; size]), 1 => prop::collection::vec(select(vec![0, 0, 1, 2, 4]), size)];
        let driver = select(vec![None, Some("535.183.01"), Some("570.86.15"), Some("580.1")]);
        (indices, minors, models, migs, driver, prop::bool::weighted(0.1))
    })
    .prop_map(|(indices, minors, models, migs, driver, empty_mig)| Inventory {
        schema_version: 1,
        driver_version: driver.map(str::to_owned),
        source: "random".to_owned(),
        platform: Platform::Usual,
        gpus: (0..indices.len())
            .map(|at| gpu(at, indices[at], minors[at], models[at], migs[at], empty_mig && at == 0))
            .collect(),
    })
}

/// Values of `CUDA_VISIBLE_DEVICES` and its like: nearly right, nearly wrong, and anything.
pub(crate) fn values() -> impl Strategy<Value = String> {
    let number = (0..10_u32).prop_map(|number| number.to_string());
    let odd = select(vec![
        "-1",
        "+1",
        "-0",
        "01",
        "1x",
        "0-2",
        " 1",
        "1 ",
        "\t0",
        "",
        "all",
        "none",
        "void",
        "NoDevFiles",
        "ALL",
        "GPU-",
        "GPU-a",
        "MIG-",
        "MIG-x",
        "4294967297",
        "x",
        "0:1",
        "nvidia.com/gpu=1",
        "gpu-a0000000",
    ])
    .prop_map(str::to_owned);
    let named = (0..8_usize, 5..40_usize).prop_map(|(position, length)| {
        let uuid = gpu_uuid(position);
        uuid[..length.min(uuid.len())].to_owned()
    });
    let mig = (0..8_usize, 0..4_usize, any::<bool>()).prop_map(|(position, mig, is_old)| {
        let old = format!("MIG-{}/{}/0", gpu_uuid(position), mig + 1);
        if is_old { old } else { mig_uuid(position, mig) }
    });
    let full = (0..8_usize).prop_map(gpu_uuid);
    let entry = prop_oneof![8 => number, 3 => odd, 1 => named, 2 => full, 2 => mig];
    let list = prop::collection::vec(entry, 1..5).prop_map(|entries| entries.join(","));
    let quoted = (list.clone(), select(vec!["\"", "'", " "])).prop_map(|(list, mark)| format!("{mark}{list}{mark}"));
    // An environment entry cannot hold a NUL.
    let anything = any::<String>().prop_map(|text| text.replace('\0', ""));
    prop_oneof![8 => list, 1 => quoted, 1 => anything]
}

pub(crate) fn selections() -> impl Strategy<Value = Selection> {
    let name = prop_oneof![
        6 => (0..9_u32).prop_map(|index| index.to_string()),
        2 => (0..8_usize).prop_map(gpu_uuid),
        1 => (0..8_usize, 0..4_usize).prop_map(|(position, mig)| mig_uuid(position, mig)),
        1 => values(),
    ];
    prop_oneof![
        1 => Just(Selection::Nothing),
        4 => Just(Selection::All),
        2 => (1..5_u32).prop_map(Selection::Count),
        6 => prop::collection::vec(name, 1..4).prop_map(Selection::Names),
        1 => prop::collection::vec((0..8_u32).prop_map(Minor), 1..4).prop_map(Selection::Minors),
    ]
}

pub(crate) fn configs() -> impl Strategy<Value = Config> {
    use {ImageDefault as D, OnNoMatch as N, OrderPolicy as O, WhenUnset as W};
    let reconcile = (
        select(vec![D::Yield, D::Narrow]),
        select(vec![W::Set, W::Leave]),
        prop::bool::weighted(0.8),
        select(vec![N::Refuse, N::Refuse, N::Grant, N::Hide]),
        select(vec![O::Pci, O::Pci, O::Leave]),
    );
    let base = prop_oneof![
        4 => Just(Base::Word(BaseWord::None)),
        1 => Just(Base::Word(BaseWord::All)),
        1 => Just(Base::Devices(vec!["0".to_owned()])),
    ];
    let image = select(vec![ImageRequest::Auto, ImageRequest::Ignore, ImageRequest::Refuse, ImageRequest::Honour]);
    let unknown = select(vec![UnknownRequest::Image, UnknownRequest::User]);
    let limit = (prop::option::weighted(0.1, 1..4_u32), prop::bool::weighted(0.1));
    let inject = select(vec![Inject::Auto, Inject::Auto, Inject::Auto, Inject::Engine, Inject::Nvidia, Inject::Native]);
    (reconcile, base, image, unknown, limit, inject, prop::bool::weighted(0.8)).prop_map(
        |(reconcile, base, image, unknown, (most, has_never), inject, trace)| {
            let mut config = Config::built_in();
            (config.reconcile.image_default, config.reconcile.when_unset) = (reconcile.0, reconcile.1);
            (config.reconcile.narrow, config.reconcile.on_no_match) = (reconcile.2, reconcile.3);
            config.reconcile.device_order = reconcile.4;
            (config.grant.base, config.grant.image_request, config.grant.unknown_request) = (base, image, unknown);
            config.limit.max_devices = most;
            config.limit.never = if has_never { vec!["1".to_owned()] } else { Vec::new() };
            (config.inject, config.trace) = (inject, trace);
            config
        },
    )
}

fn provenances() -> impl Strategy<Value = Provenance> {
    select(vec![Provenance::Image, Provenance::User, Provenance::User, Provenance::Unknown])
}

pub(crate) fn orders() -> impl Strategy<Value = Option<String>> {
    let set = prop_oneof![
        2 => Just("PCI_BUS_ID".to_owned()),
        2 => Just("FASTEST_FIRST".to_owned()),
        1 => Just("nonsense".to_owned()),
    ];
    prop::option::weighted(0.4, set)
}

/// What the rules look at, without a configuration around it.
pub(crate) fn situations() -> impl Strategy<Value = (Inventory, Situation, Config)> {
    let requests =
        prop::collection::vec((select(vec![Source::Gpus, Source::Cdi, Source::VolumeMounts]), selections()), 0..3);
    let cuda = (prop::option::weighted(0.8, values()), provenances(), orders());
    let nvidia = (prop::option::of(values()), provenances());
    let openable = select(vec![0, 0, 0, 1, 2]);
    let flags = (any::<Option<bool>>(), prop::bool::weighted(0.1), prop::bool::weighted(0.2), any::<bool>());
    let injection = select(vec![Injection::Engine, Injection::Nvidia, Injection::Native]);
    (inventories(), configs(), requests, cuda, nvidia, openable, flags, injection).prop_map(
        |(inventory, config, requests, cuda, nvidia, openable, flags, injection)| {
            let request = |(source, selection)| DeviceRequest { source, selection };
            let from = |value: &Option<String>, who| if value.is_some() { who } else { Provenance::Unset };
            let variables = Variables {
                visible_devices: cuda.0.clone(),
                device_order: cuda.2,
                nvidia_visible_devices: nvidia.0.clone(),
                host_gpus: None,
            };
            let every_other = inventory.all_devices().into_iter().filter(|device| device.gpu % 2 == 0).collect();
            let situation = Situation {
                requests: requests.into_iter().map(request).collect(),
                visible_devices_from: from(&nvidia.0, nvidia.1),
                visible_devices_request: nvidia.0,
                provenance: from(&cuda.0, cuda.1),
                original: variables.clone(),
                current: variables,
                openable_anyway: [Vec::new(), inventory.all_devices(), every_other][openable].clone(),
                runtime_named: flags.0,
                wide_rules: flags.1,
                graphics: flags.2,
                injector_follows: flags.3,
                injection,
                ..Situation::blank()
            };
            (inventory, situation, config)
        },
    )
}
