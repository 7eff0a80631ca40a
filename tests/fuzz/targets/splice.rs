//! `config.json`: what is edited is what was planned, as a plain editor would do it, and the rest stays byte for byte.
//! Two bytes choose the host and what else is known; the rest is the file.
#![no_main]

use cudaview::config::{Base, BaseWord, Config};
use cudaview::device::DeviceNumber;
use cudaview::edits::{ContainerEdits, apply};
use cudaview::plan::Verdict;
use cudaview::provenance::{DockerDeviceRequest, Engine, EngineFacts, Requests};
use cudaview::situation::HostFacts;
use cudaview::spec::{Spec, has_gpu_sign, record_in};
use cudaview::unambiguous;
use cudaview_fuzz::host;
use cudaview_fuzz::tree::{self, Tree};
use serde_json::Value;

#[allow(dead_code)]
#[path = "../../it/brain.rs"]
mod brain;
use brain::{World, check_laws, pass};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&[of_host, of_world], text)) = data.split_first_chunk() else { return };
    let _ = has_gpu_sign(text);
    let plain = tree::read(text);
    let Ok(value) = unambiguous::parse(text) else { return };
    let plain = plain.expect("what one reader takes, the other takes");
    assert!(!plain.has_repeats(), "a member is there twice");
    assert!(same(&plain, &value), "the two readings differ");
    let Ok(spec) = Spec::new(&value) else { return };
    let _ = (spec.nodes(), spec.rules(), spec.mounts(), spec.our_hooks(), spec.root_path(), spec.is_sandbox());

    let world = world(of_host, of_world);
    let once = pass(&value, &world);
    if let Err(broken) = check_laws(&world.inventory, &once.situation, &once.plan) {
        panic!("{broken}");
    }
    let written = once.after.to_string();
    let after = tree::read(written.as_bytes()).expect("JSON");
    assert!(same(&after, &once.after));
    assert_eq!(unambiguous::parse(written.as_bytes()).expect("our own text").to_string(), written);
    if once.plan.verdict == Verdict::Refused {
        assert_eq!(once.after, value, "a refused container's file stays");
        let mut forced = value.clone();
        apply(&mut forced, &once.edits);
        assert_eq!(forced, value);
        return;
    }
    assert_eq!(outside(&plain), outside(&after), "outside of what was planned");
    edited_plainly(&plain, &after, &once.edits);
    // No runtime takes a hook whose members have other types, and `exec` finds no record beside one.
    if once.edits.hook.is_some() && hooks_are_typed(&once.after) {
        assert_eq!(record_in(written.as_bytes()), Spec::new(&once.after).expect("a file").record());
    }
    // A node of a GPU that the host does not have, which an engine would not make: the second door takes the record for
    // an older container's, and decides anew.
    let is_known = |number: DeviceNumber| {
        number.gpu_minor().is_none_or(|minor| world.inventory.position_of_minor(minor).is_some())
    };
    let are_known = spec.nodes().iter().all(|node| is_known(node.number));
    // No process has such a variable, so nothing runs; by that character a record tells its own words from values.
    let has_nul = value.pointer("/process/env").is_some_and(|env| env.to_string().contains("\\u0000"));
    if once.plan.openable() == once.plan.kept() && are_known && !has_nul {
        let twice = pass(&once.after, &world);
        assert_ne!(twice.plan.verdict, Verdict::Refused);
        assert_eq!(twice.after.to_string(), written, "applying twice is applying once");
    }
});

fn hooks_are_typed(value: &Value) -> bool {
    let are_texts =
        |args: &Value| args.is_null() || args.as_array().is_some_and(|args| args.iter().all(Value::is_string));
    let is_typed = |hook: &Value| {
        let path = hook.get("path");
        path.is_none_or(Value::is_string) && hook.get("args").is_none_or(are_texts)
    };
    value.pointer("/hooks/createRuntime").and_then(Value::as_array).is_some_and(|hooks| hooks.iter().all(is_typed))
}

fn world(of_host: u8, choice: u8) -> World {
    let inventory = host(of_host);
    let mut config = Config::built_in();
    if choice & 1 != 0 {
        config.grant.base = Base::Word(BaseWord::All);
    }
    let ids = if choice & 4 == 0 { Vec::new() } else { vec!["1".to_owned(), "0".to_owned()] };
    let count = if ids.is_empty() { -1 } else { 0 };
    let capabilities = vec![vec!["gpu".to_owned()]];
    let facts = if choice & 2 == 0 {
        EngineFacts::nothing_known(Engine::Unknown)
    } else {
        let request = DockerDeviceRequest { driver: String::new(), count, device_ids: ids, capabilities };
        EngineFacts { device_requests: Requests::Known(vec![request]), ..EngineFacts::nothing_known(Engine::Docker) }
    };
    let host = HostFacts {
        nvidia_runtime: choice & 8 != 0,
        nvidia_cli: choice & 16 != 0,
        rootless: choice & 32 != 0,
        ..HostFacts::default()
    };
    World { inventory, facts, host, config }
}

/// Whether the two are one value, numbers as they are written and members in their order.
fn same(tree: &Tree, value: &Value) -> bool {
    match (tree, value) {
        (Tree::Null, Value::Null) => true,
        (Tree::Bool(one), Value::Bool(other)) => one == other,
        (Tree::Number(one), Value::Number(other)) => same_number(one, &other.to_string()),
        (Tree::Text(one), Value::String(other)) => one == other,
        (Tree::List(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Tree::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.map(|(a, b)| a.0 == *b.0 && same(&a.1, b.1)).all(|is| is)
        }
        _ => false,
    }
}

/// serde_json writes `1E5` as `1e+5`: another spelling of the same digits.
fn same_number(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.replace('E', "e").replace("e+", "e");
    plain(one) == plain(other)
}

const PLACES: [&[&str]; 7] = [
    &["process", "env"],
    &["linux", "devices"],
    &["linux", "resources", "devices"],
    &["mounts"],
    &["hooks", "prestart"],
    &["hooks", "createRuntime"],
    &["annotations"],
];

/// Everything else.
fn outside(tree: &Tree) -> Option<Tree> {
    PLACES.iter().try_fold(tree.clone(), |tree, place| tree.without(place)).map(spelled)
}

/// With every number in one spelling.
fn spelled(tree: Tree) -> Tree {
    match tree {
        Tree::Number(text) => Tree::Number(text.replace('E', "e").replace("e+", "e")),
        Tree::List(items) => Tree::List(items.into_iter().map(spelled).collect()),
        Tree::Object(members) => {
            Tree::Object(members.into_iter().map(|(name, value)| (name, spelled(value))).collect())
        }
        other => other,
    }
}

/// The lists, edited by hand as the edits say.
fn edited_plainly(before: &Tree, after: &Tree, edits: &ContainerEdits) {
    let items = |tree: &Tree, place: &[&str]| -> Vec<Tree> {
        tree.at(place).map(|list| list.items().iter().cloned().map(spelled).collect()).unwrap_or_default()
    };
    // Variables: one entry each, where the first one was.
    let mut env: Vec<Tree> = Vec::new();
    let mut set: Vec<&str> = Vec::new();
    for entry in items(before, PLACES[0]) {
        let name = entry.text().and_then(|text| text.split_once('=')).map(|(name, _)| name.to_owned());
        let name = name.expect("an entry");
        match edits.env.iter().find(|(planned, _)| *planned == name) {
            _ if edits.unset_env.contains(&name) => {}
            Some((planned, _)) if set.contains(planned) => {}
            Some((planned, value)) => {
                set.push(planned);
                env.push(Tree::Text(format!("{planned}={value}")));
            }
            None => env.push(entry),
        }
    }
    let new = edits.env.iter().filter(|(planned, _)| !set.contains(planned));
    env.extend(new.map(|(planned, value)| Tree::Text(format!("{planned}={value}"))));
    assert_eq!(items(after, PLACES[0]), env, "the environment");

    let number = |tree: &Tree, name: &str| match tree.get(name) {
        Some(Tree::Number(text)) => text.parse::<u32>().ok(),
        _ => None,
    };
    let is_gone = |tree: &Tree| {
        let both = number(tree, "major").zip(number(tree, "minor"));
        let is_block = tree.get("type").and_then(Tree::text) == Some("b");
        !is_block
            && both.is_some_and(|(major, minor)| edits.withhold.iter().any(|n| (n.major, n.minor) == (major, minor)))
    };
    let allows = |tree: &Tree| tree.get("allow") == Some(&Tree::Bool(true));
    // Runtimes read a rule without a type, or for all types, as one about every device: it stays.
    let is_typed = |tree: &Tree| {
        tree.get("type").and_then(Tree::text).is_some_and(|kind| !kind.is_empty() && !kind.starts_with('a'))
    };
    let rules = items(before, PLACES[2]).into_iter();
    let rules: Vec<Tree> = rules.filter(|rule| !(allows(rule) && is_typed(rule) && is_gone(rule))).collect();
    let found = items(after, PLACES[2]);
    assert_eq!(found.len(), rules.len() + edits.allow.len(), "as many rules as planned");
    assert_eq!(found[..rules.len()], rules, "the rules that were there");
    let nodes: Vec<Tree> = items(before, PLACES[1]).into_iter().filter(|node| !is_gone(node)).collect();
    let found = items(after, PLACES[1]);
    assert_eq!(found.len(), nodes.len() + edits.device_nodes.len(), "as many nodes as planned");
    if edits.mend.is_empty() {
        assert_eq!(found[..nodes.len()], nodes, "the nodes that were there");
    }
    let mounts = items(before, PLACES[3]).into_iter().enumerate();
    let mounts: Vec<Tree> =
        mounts.filter(|(at, _)| !edits.withhold_mounts.contains(at)).map(|(_, mount)| mount).collect();
    let found = items(after, PLACES[3]);
    assert_eq!(found.len(), mounts.len() + edits.device_mounts.len(), "as many mounts as planned");
    assert_eq!(found[..mounts.len()], mounts, "the mounts that were there");
}
