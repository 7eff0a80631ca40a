//! Runs a row through the library.

use cudaview::config::Config;
use cudaview::cuda;
use cudaview::device::Minor;
use cudaview::edits::set_env;
use cudaview::finding::Finding;
use cudaview::inventory::{Device, Inventory};
use cudaview::plan::{ExecPlan, Plan, Verdict, plan, plan_exec};
use cudaview::provenance::{Engine, EngineFacts, Provenance};
use cudaview::record::{Record, Variables};
use cudaview::request::{DeviceRequest, Selection, Source, cdi_selection, parse_gpus, parse_visible_devices};
use cudaview::situation::{HostFacts, Injection, Situation, wants_graphics};
use serde_json::{Value, json};

use super::table::Row;
use crate::brain::{Passed, World, check_laws, pass};

/// How a row does not hold; `None` where it does.
pub(crate) fn differences(row: &Row, inventory: &Inventory) -> Option<String> {
    let actual = actual(row, inventory);
    let compared: Vec<&str> = actual.iter().map(|(column, _)| *column).collect();
    let ignored = row.outputs().find(|column| !compared.contains(column));
    assert_eq!(ignored, None, "line {}: a column that nothing is compared with", row.line);
    let wrong: Vec<String> = actual
        .into_iter()
        .filter_map(|(column, is)| {
            let stated = match column {
                "value" | "order after" | "NVIDIA_VISIBLE_DEVICES after" | "trace" | "original" => {
                    row.has(column).then(|| row.value(column, inventory))?
                }
                _ => Some(plain(row.cell(column)?)),
            };
            (stated != is).then(|| format!("{column} is {is:?}, stated is {stated:?}"))
        })
        .collect();
    (!wrong.is_empty()).then(|| format!("line {} ({}): {}", row.line, row.section, wrong.join("; ")))
}

fn plain(cell: &str) -> String {
    cell.replace('`', "")
}

/// Whether the laws hold for a row on a host that it was not written for.
pub(crate) fn laws(row: &Row, inventory: &Inventory) -> Result<(), String> {
    let config = config(row, inventory);
    if row.has("shows") {
        predict(row, inventory);
        return Ok(());
    }
    if row.has("between") {
        let (_, second) = two_doors(row, inventory, &config);
        return check_laws(inventory, &second.situation, &second.plan);
    }
    let situation = situation(row, inventory, &config);
    let made = plan(inventory, &situation, &config);
    check_laws(inventory, &situation, &made)?;
    if row.has("exec -e") {
        exec(row, inventory, &situation, &made, &config);
    }
    Ok(())
}

/// What happens, by column.
fn actual(row: &Row, inventory: &Inventory) -> Vec<(&'static str, Option<String>)> {
    let config = config(row, inventory);
    if row.has("shows") {
        return predict(row, inventory);
    }
    if row.has("between") {
        let (first, second) = two_doors(row, inventory, &config);
        let mut actual = of_plan(&second.plan, inventory);
        let record = second.plan.record(inventory, &second.situation);
        actual.push(("original", record.original.visible_devices));
        assert!(first.edits.hook.is_some(), "line {}: the first door left no record", row.line);
        return actual;
    }
    let situation = situation(row, inventory, &config);
    let made = plan(inventory, &situation, &config);
    if row.has("exec -e") {
        let made = exec(row, inventory, &situation, &made, &config);
        let (process, part) = made.unwrap_or_else(|| panic!("line {}: no container to exec in", row.line));
        return of_exec(&process, &part);
    }
    of_plan(&made, inventory)
}

fn config(row: &Row, inventory: &Inventory) -> Config {
    Config::parse(&row.spans("policy", inventory).join("\n")).unwrap_or_else(|e| panic!("line {}: {e}", row.line))
}

fn labels(inventory: &Inventory, devices: &[Device]) -> String {
    let labels: Vec<String> = devices.iter().map(|device| inventory.host_label(*device)).collect();
    if labels.is_empty() { "none".to_owned() } else { labels.join(",") }
}

fn codes(findings: &[Finding]) -> String {
    let mut codes: Vec<&str> = findings.iter().map(|finding| finding.code.name()).collect();
    codes.sort_unstable();
    codes.dedup();
    if codes.is_empty() { "–".to_owned() } else { codes.join(", ") }
}

fn of_plan(plan: &Plan, inventory: &Inventory) -> Vec<(&'static str, Option<String>)> {
    let view = if plan.certain { labels(inventory, &plan.visible) } else { "uncertain".to_owned() };
    let worst = plan.findings.iter().map(|finding| finding.severity).max();
    vec![
        ("verdict", Some(plan.verdict.name().to_owned())),
        ("granted", Some(labels(inventory, &plan.grant.devices))),
        ("view", Some(view)),
        ("nodes", Some(labels(inventory, plan.openable()))),
        ("findings", Some(codes(&plan.findings))),
        ("severity", Some(worst.map_or("–", |severity| severity.tag()).to_owned())),
        ("value", plan.emitted.visible_devices.clone()),
        ("order after", plan.emitted.device_order.clone()),
        ("NVIDIA_VISIBLE_DEVICES after", plan.emitted.nvidia_visible_devices.clone()),
        ("trace", plan.emitted.host_gpus.clone()),
    ]
}

fn of_exec(plan: &ExecPlan, inventory: &Inventory) -> Vec<(&'static str, Option<String>)> {
    let after = if plan.verdict == Verdict::Refused { &plan.current } else { &plan.emitted };
    vec![
        ("verdict", Some(plan.verdict.name().to_owned())),
        ("view", Some(labels(inventory, &plan.visible))),
        ("findings", Some(codes(&plan.findings))),
        ("value", after.visible_devices.clone()),
        ("order after", after.device_order.clone()),
        ("NVIDIA_VISIBLE_DEVICES after", after.nvidia_visible_devices.clone()),
        ("trace", after.host_gpus.clone()),
    ]
}

/// The flags of a row, as an engine hands them on.
fn situation(row: &Row, inventory: &Inventory, config: &Config) -> Situation {
    let mut out = Situation::blank();
    let mut appended = None;
    for flag in row.spans("asked", inventory) {
        let (name, value) = flag.split_once(' ').unwrap_or((&flag, ""));
        let value = value.trim_matches('\'');
        match name {
            "--gpus" => {
                let flag = parse_gpus(value).unwrap_or_else(|error| panic!("line {}: {error}", row.line));
                appended = of_selection(&flag.selection);
                out.graphics |= wants_graphics(flag.capabilities.iter().map(String::as_str));
                out.requests.push(DeviceRequest { source: Source::Gpus, selection: flag.selection });
            }
            "--device" => {
                let minor = value.strip_prefix("/dev/nvidia").and_then(|minor| minor.parse().ok()).map(Minor);
                let cdi = cdi_selection(value).map(|selection| DeviceRequest { source: Source::Cdi, selection });
                let node = |minor| DeviceRequest { source: Source::Nodes, selection: Selection::Minors(vec![minor]) };
                out.requests.push(cdi.or(minor.map(node)).unwrap_or_else(|| panic!("line {}: {value}", row.line)));
                out.injection = Injection::Engine;
            }
            other => panic!("line {}: no flag {other:?}", row.line),
        }
    }
    out.runtime_named = Some(true);
    around(row, inventory, &mut out);
    let find = |name: &str| {
        let columns =
            [("-e", Provenance::User), ("of unknown origin", Provenance::Unknown), ("image ENV", Provenance::Image)];
        let found = columns.into_iter().find_map(|(c, who)| Some((row.variables(c, inventory).remove(name)?, who)));
        found.map_or((None, Provenance::Unset), |(value, who)| (Some(value), who))
    };
    (out.original.visible_devices, out.provenance) = find(Variables::NAMES[0]);
    out.original.device_order = find(Variables::NAMES[1]).0;
    (out.visible_devices_request, out.visible_devices_from) = find(Variables::NAMES[2]);
    out.original.nvidia_visible_devices = appended.or_else(|| out.visible_devices_request.clone());
    out.current = out.original.clone();
    if config.inject == cudaview::config::Inject::Nvidia {
        out.injection = Injection::Nvidia;
    }
    out
}

/// What docker puts behind the container's own `NVIDIA_VISIBLE_DEVICES`.
fn of_selection(selection: &Selection) -> Option<String> {
    match selection {
        Selection::All => Some("all".to_owned()),
        Selection::Names(names) => Some(names.join(",")),
        Selection::Count(count) => Some((0..*count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
        Selection::Nothing | Selection::Minors(_) => None,
    }
}

fn around(row: &Row, inventory: &Inventory, out: &mut Situation) {
    let words = row.cell("around").unwrap_or("–").split(", ").filter(|word| *word != "–");
    for word in words.map(plain) {
        match word.split_once(' ') {
            Some(("plugin", names)) => {
                let selection = parse_visible_devices(&names.replace('+', ","));
                out.requests.push(DeviceRequest { source: Source::VolumeMounts, selection });
            }
            _ => match word.as_str() {
                "--privileged" => out.openable_anyway = inventory.all_devices(),
                "pod sandbox" => out.sandbox = true,
                "default runtime" => out.runtime_named = Some(false),
                "NVIDIA's runtime" => (out.injection, out.injector_follows) = (Injection::Nvidia, true),
                "NVIDIA's hook" => out.injector_follows = true,
                "in mode cdi" => out.none_stops = true,
                "wide rules" => out.wide_rules = true,
                "unreadable" => out.unreadable = Some("failed to open hostconfig.json".to_owned()),
                other => panic!("line {}: nothing is known of {other:?}", row.line),
            },
        }
    }
}

/// An added process; `None` where there is no container for it.
fn exec(
    row: &Row,
    inventory: &Inventory,
    situation: &Situation,
    made: &Plan,
    config: &Config,
) -> Option<(ExecPlan, Inventory)> {
    if matches!(made.verdict, Verdict::Refused | Verdict::NotApplicable) {
        return None;
    }
    let text = serde_json::to_string(&made.record(inventory, situation)).unwrap();
    let record = Record::parse(&text).unwrap();
    let part = record.inventory();
    let own = row.variables("exec -e", inventory);
    let container = Variables::NAMES.into_iter().zip(situation.original.values());
    let container: Vec<(&str, Option<&str>)> = container.collect();
    let current = Variables::collect(|name| {
        let inherited = container.iter().find(|(known, _)| *known == name).and_then(|(_, value)| *value);
        own.get(name).map(String::as_str).or(inherited)
    });
    Some((plan_exec(&record, &part, &current, config), part))
}

fn predict(row: &Row, inventory: &Inventory) -> Vec<(&'static str, Option<String>)> {
    let open = parse_visible_devices(row.cell("open").unwrap()).resolve(inventory).devices;
    let (value, order) = (row.value("CUDA_VISIBLE_DEVICES", inventory), row.value("order", inventory));
    let shown = cuda::predict(inventory, &open, value.as_deref(), order.as_deref());
    let certain = if shown.certain { "yes" } else { "no" };
    vec![("shows", Some(labels(inventory, &shown.visible))), ("certain", Some(certain.to_owned()))]
}

/// podman's precreate and then the wrapper, with what `between` says done in between.
fn two_doors(row: &Row, inventory: &Inventory, config: &Config) -> (Passed, Passed) {
    let world = World {
        inventory: inventory.clone(),
        facts: EngineFacts::nothing_known(Engine::Podman),
        host: HostFacts::default(),
        config: config.clone(),
    };
    let first = pass(&file(row, inventory), &world);
    let mut between = first.after.clone();
    for (name, value) in row.variables("between", inventory) {
        cudaview::edits::edit_array(&mut between["process"], "env", |env| set_env(env, name, &value));
    }
    let second = pass(&between, &world);
    (first, second)
}

/// A configuration in which the engine has put the nodes that were asked for.
fn file(row: &Row, inventory: &Inventory) -> Value {
    let env: Vec<String> = ["image ENV", "of unknown origin", "-e"]
        .into_iter()
        .flat_map(|column| row.variables(column, inventory))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let asked: Vec<String> = row.spans("asked", inventory);
    let selections = asked.iter().filter_map(|flag| cdi_selection(flag.strip_prefix("--device ")?));
    let devices: Vec<Device> = selections.flat_map(|selection| selection.resolve(inventory).devices).collect();
    let minors: Vec<u32> = devices.into_iter().map(|device| inventory.gpu(device).minor.0).collect();
    let node = |minor: &u32| json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
    let rule = |minor: &u32| json!({"allow": true, "type": "c", "major": 195, "minor": minor, "access": "rw"});
    json!({
        "process": {"env": env},
        "linux": {
            "devices": minors.iter().map(node).collect::<Vec<_>>(),
            "resources": {"devices": minors.iter().map(rule).collect::<Vec<_>>()},
        },
    })
}
