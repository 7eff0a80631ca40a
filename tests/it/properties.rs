//! Laws that hold for every input, tried on random ones.

mod files;
mod generate;
mod million;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cudaview::config::{ImageRequest, UnknownRequest};
use cudaview::cuda::{self, Value as CudaValue};
use cudaview::node::DeviceNode;
use cudaview::plan::{Verdict, plan};
use cudaview::provenance::{Engine, EngineFacts, Provenance};
use cudaview::reconcile::View;
use cudaview::record::{Record, Variables};
use cudaview::request::{parse_gpus, parse_visible_devices};
use cudaview::spec::{Spec, is_our_hook};
use cudaview::{argv, inventory::Inventory};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::brain::{World, check_laws, is_subset, pass};
use files::Case;

/// Runs a property, more often where `CUDAVIEW_PROPERTY_FACTOR` says so; nothing is written into the tree.
fn check<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let factor = std::env::var("CUDAVIEW_PROPERTY_FACTOR").map_or(1, |factor| factor.parse().expect("a number"));
    let cases = cases * factor;
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() };
    if let Err(error) = TestRunner::new(config).run(strategy, property) {
        panic!("{error}");
    }
}

/// Turns a broken law into a failed case.
fn law(result: Result<(), String>) -> Result<(), TestCaseError> {
    result.map_err(TestCaseError::fail)
}

#[test]
fn view_in_kept_in_granted() {
    check(1500, &generate::situations(), |(inventory, situation, config)| {
        let decided = plan(&inventory, &situation, &config);
        law(check_laws(&inventory, &situation, &decided))
    });
}

#[test]
fn the_environment_never_widens() {
    let image = (generate::situations(), generate::values(), generate::values(), any::<bool>());
    check(1000, &image, |((inventory, mut situation, mut config), value, request, is_image)| {
        // The two policies that trust what an image wrote are the operator's choice.
        if config.grant.image_request == ImageRequest::Honour {
            config.grant.image_request = ImageRequest::Ignore;
        }
        config.grant.unknown_request = UnknownRequest::Image;
        let from = if is_image { Provenance::Image } else { Provenance::Unknown };
        if !matches!(situation.visible_devices_from, Provenance::User) {
            situation.visible_devices_request = None;
            situation.visible_devices_from = Provenance::Unset;
        }
        let before = plan(&inventory, &situation, &config).grant;
        if situation.visible_devices_from == Provenance::Unset {
            situation.visible_devices_request = Some(request.clone());
            situation.visible_devices_from = from;
            situation.current.nvidia_visible_devices = Some(request.clone());
        }
        situation.original = Variables {
            visible_devices: Some(value),
            device_order: Some("FASTEST_FIRST".to_owned()),
            nvidia_visible_devices: situation.current.nvidia_visible_devices.clone(),
            host_gpus: Some(request),
        };
        situation.provenance = from;
        let after = plan(&inventory, &situation, &config).grant;
        // An image's request can get a container refused, and never gets it a device.
        if after.refused {
            prop_assert!(after.devices.is_empty());
        } else {
            prop_assert_eq!(&after.devices, &before.devices);
        }
        Ok(())
    });
}

#[test]
fn an_entry_in_the_file_never_adds_a_device() {
    check(500, &(files::cases(), generate::values(), 0..4_usize), |(mut case, value, name)| {
        if case.world.config.grant.image_request == ImageRequest::Honour {
            case.world.config.grant.image_request = ImageRequest::Ignore;
        }
        case.world.config.grant.unknown_request = UnknownRequest::Image;
        let before = pass(&case.config, &case.world);
        let mut with = case.config.clone();
        let entry = json!(format!("{}={value}", Variables::NAMES[name]));
        cudaview::edits::edit_array(&mut with["process"], "env", |env| env.push(entry));
        let after = pass(&with, &case.world);
        prop_assert!(is_subset(&after.plan.grant.devices, &before.plan.grant.devices));
        let entitled = [before.plan.grant.devices, before.situation.openable_anyway].concat();
        prop_assert!(is_subset(after.plan.openable(), &entitled));
        Ok(())
    });
}

#[test]
fn applying_twice_is_applying_once() {
    check(800, &files::cases(), |case| {
        let once = pass(&case.config, &case.world);
        let twice = pass(&once.after, &World { host: files::mounts_of(&case, &once), ..case.world.clone() });
        // Where nothing was granted there is no record, and a swarm's variable that said so is gone by the second door.
        let is_forgotten = once.plan.verdict == Verdict::NotApplicable && !once.edits.unset_env.is_empty();
        if once.plan.verdict != Verdict::Refused && once.plan.openable() == once.plan.kept() && !is_forgotten {
            prop_assert_ne!(twice.plan.verdict, Verdict::Refused);
            law(same(&once.after, &twice.after))?;
        }
        Ok(())
    });
}

#[test]
fn a_second_door_that_knows_more_changes_nothing() {
    check(500, &files::cases(), |case| {
        let blind = EngineFacts::nothing_known(Engine::Podman);
        let once = pass(&case.config, &World { facts: blind, ..case.world.clone() });
        let has_record = once.edits.hook.is_some();
        let twice = pass(&once.after, &World { host: files::mounts_of(&case, &once), ..case.world.clone() });
        if has_record && once.plan.openable() == once.plan.kept() {
            law(same(&once.after, &twice.after))?;
        }
        Ok(())
    });
}

#[test]
fn only_what_was_planned_changes() {
    check(800, &files::cases(), |case| {
        let passed = pass(&case.config, &case.world);
        law(untouched(&case, &passed.after, &passed.edits))?;
        let written = cudaview::edits::write(&mut case.config.clone(), &passed.edits).unwrap();
        prop_assert_eq!(String::from_utf8(written).unwrap(), passed.after.to_string(), "written as it was applied");
        match passed.plan.verdict {
            Verdict::Refused => {
                let mut forced = case.config.clone();
                cudaview::edits::apply(&mut forced, &passed.edits);
                prop_assert_eq!(&forced, &case.config, "a refused plan has no edits");
            }
            Verdict::NotApplicable => {
                let is_void = |(name, value): &(&str, String)| *name == Variables::NAMES[2] && value == "void";
                prop_assert!(passed.edits.env.iter().all(is_void));
                prop_assert!(passed.edits.env.is_empty() || passed.situation.injector_follows);
            }
            Verdict::Consistent | Verdict::Rewritten => {
                for (name, value) in Variables::NAMES.into_iter().zip(passed.plan.emitted.values()) {
                    let expected: Vec<String> = value.iter().map(|value| format!("{name}={value}")).collect();
                    prop_assert_eq!(entries(&passed.after, name), expected);
                }
            }
        }
        Ok(())
    });
}

/// Whether two configurations are equal; else where they are not.
fn same(one: &Value, two: &Value) -> Result<(), String> {
    let (one_text, two_text) = (one.to_string(), two.to_string());
    if one_text == two_text {
        return Ok(());
    }
    let places = ["/process/env", "/linux", "/mounts", "/hooks"];
    let differ = places.into_iter().filter(|place| one.pointer(place) != two.pointer(place));
    let show = |config: &Value, place| config.pointer(place).map(Value::to_string);
    let lines = differ.map(|place| format!("{place}\n 1: {:?}\n 2: {:?}", show(one, place), show(two, place)));
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// The entries of a variable.
fn entries(config: &Value, name: &str) -> Vec<String> {
    let env = config.pointer("/process/env").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_name = |entry: &String| entry.split_once('=').is_some_and(|(key, _)| key == name);
    env.iter().map(|entry| entry.as_str().unwrap().to_owned()).filter(is_name).collect()
}

/// Whether everything outside the planned places is byte for byte what it was.
fn untouched(case: &Case, after: &Value, edits: &cudaview::edits::ContainerEdits) -> Result<(), String> {
    const PLACES: [&str; 6] = [
        "/process/env",
        "/linux/devices",
        "/linux/resources/devices",
        "/mounts",
        "/hooks/prestart",
        "/hooks/createRuntime",
    ];
    let outside = |config: &Value| {
        let mut config = config.clone();
        for place in PLACES {
            let (parent, key) = place.rsplit_once('/').unwrap();
            if let Some(parent) = config.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.shift_remove(key);
            }
        }
        // Objects that had to be made, or that now hold nothing else.
        for made in ["/linux/resources", "/linux", "/hooks", "/process"] {
            let (parent, key) = made.rsplit_once('/').unwrap();
            let is_empty = |v: &Value| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty);
            if let Some(parent) = config.pointer_mut(parent).and_then(Value::as_object_mut)
                && parent.get(key).is_some_and(is_empty)
            {
                parent.shift_remove(key);
            }
        }
        config.to_string()
    };
    if outside(&case.config) != outside(after) {
        return Err(format!("outside the plan: {} became {}", outside(&case.config), outside(after)));
    }
    for place in PLACES {
        let items = |config: &Value| config.pointer(place).and_then(Value::as_array).cloned().unwrap_or_default();
        let (before, after) = (items(&case.config), items(after));
        let is_planned = |item: &Value| match place {
            "/process/env" => {
                let name = item.as_str().unwrap().split_once('=').unwrap().0.to_owned();
                edits.env.iter().any(|(planned, _)| *planned == name) || edits.unset_env.contains(&name)
            }
            "/mounts" => edits.withhold_mounts.iter().any(|position| items(&case.config)[*position] == *item),
            "/linux/devices" | "/linux/resources/devices" => {
                let mended = edits.mend.iter().map(|node| node.number).filter(|_| place == "/linux/devices");
                let mut planned = edits.withhold.iter().copied().chain(mended);
                planned.any(|n| item["major"] == n.major && item["minor"] == n.minor)
            }
            _ => is_our_hook(item) || (edits.remove_nvidia_hook && cudaview::spec::is_nvidia_hook(item)),
        };
        let kept: Vec<&Value> = before.iter().filter(|item| !is_planned(item)).collect();
        let mut rest = after.iter();
        if let Some(lost) = kept.into_iter().find(|kept| !rest.any(|item| item == *kept)) {
            return Err(format!("{place} lost {lost}, or its order, with {edits:#?}"));
        }
    }
    Ok(())
}

#[test]
fn what_exec_gets_is_within_what_the_container_has() {
    let orders = prop::option::of(prop::sample::select(vec!["PCI_BUS_ID", "FASTEST_FIRST"]));
    let inputs = (generate::situations(), prop::option::of(generate::values()), orders);
    check(800, &inputs, |((inventory, situation, config), value, order)| {
        let created = plan(&inventory, &situation, &config);
        if matches!(created.verdict, Verdict::Refused | Verdict::NotApplicable) {
            return Ok(());
        }
        let record = created.record(&inventory, &situation);
        let read = Record::parse(&serde_json::to_string(&record).unwrap());
        prop_assert_eq!(read.as_ref(), Some(&record));
        let part = record.inventory();
        let current = Variables {
            visible_devices: value.or_else(|| situation.original.visible_devices.clone()),
            device_order: order.map(str::to_owned).or_else(|| situation.original.device_order.clone()),
            ..situation.original.clone()
        };
        let exec = cudaview::plan::plan_exec(&record, &part, &current, &config);
        let names = |devices: &[cudaview::inventory::Device], inventory: &Inventory| -> BTreeSet<String> {
            devices.iter().map(|device| inventory.uuid(*device).to_owned()).collect()
        };
        let decided = exec.reconciliation.as_ref();
        if let Some((view, openable)) = decided.and_then(|decided| match &decided.view {
            View::Devices(view) => Some((view, &decided.openable)),
            View::Hidden | View::AsWritten => None,
        }) {
            prop_assert!(names(view, &part).is_subset(&names(created.kept(), &inventory)));
            let values = (exec.emitted.visible_devices.as_deref(), exec.emitted.device_order.as_deref());
            let shown = cuda::predict(&part, openable, values.0, values.1);
            let has_mig = openable.iter().any(|device| device.mig.is_some());
            if shown.certain && !has_mig {
                prop_assert_eq!(&shown.visible, view);
            }
        }
        if current == situation.original {
            prop_assert_eq!(exec.emitted, created.emitted, "an exec without own values gets the container's");
        }
        Ok(())
    });
}

#[test]
fn parsers_take_anything() {
    let words = prop::sample::select(vec![
        "create",
        "run",
        "exec",
        "update",
        "--bundle",
        "-b",
        "--process",
        "-p",
        "--log",
        "--",
        "-",
        "--root=",
        "=",
        "",
    ]);
    let word = prop_oneof![words.prop_map(|word| word.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..6),];
    check(2000, &prop::collection::vec(word, 0..8), |words| {
        let args: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        let read = argv::parse(&args);
        prop_assert!(read.id.is_none_or(|id| args.contains(&id)));
        Ok(())
    });
    let text = prop_oneof![any::<String>(), generate::values(), "[-a-z0-9=,:./\"' ]{0,30}"];
    check(2000, &(text, generate::inventories()), |(text, inventory)| {
        let _ = (CudaValue::parse(&text), parse_gpus(&text), Record::parse(&text), text.parse::<DeviceNode>());
        let asked = parse_visible_devices(&text).resolve(&inventory);
        prop_assert!(is_subset(&asked.devices, &inventory.all_devices()));
        let all = inventory.all_devices();
        for order in [None, Some("PCI_BUS_ID"), Some(text.as_str())] {
            let shown = cuda::predict(&inventory, &all, Some(&text), order);
            prop_assert!(is_subset(&shown.visible, &all));
            prop_assert_eq!(shown.error.is_some(), shown.visible.is_empty());
        }
        Ok(())
    });
}

#[test]
fn any_json_is_a_configuration_or_an_error() {
    check(500, &files::broken_configs(), |config| {
        let world = files::plain_world();
        if let Ok(spec) = Spec::new(&config) {
            let _ = (spec.nodes(), spec.rules(), spec.mounts(), spec.record(), spec.our_hooks(), spec.root_path());
            let passed = pass(&config, &world);
            prop_assert!(Spec::new(&passed.after).is_ok());
        }
        Ok(())
    });
}
