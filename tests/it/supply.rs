//! What the programs are made of, as we say it and as cargo does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::text;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sbom() -> (String, Value) {
    let output = Command::new(repository().join("packaging/sbom")).output().expect("packaging/sbom starts");
    let (code, stdout, stderr) = text(&output);
    assert_eq!(code, Some(0), "{stderr}");
    let value = serde_json::from_str(&stdout).expect("JSON");
    (stdout, value)
}

/// What the programs need, dependencies of tests and build scripts left out: `NAME VERSION` and the licence.
fn tree() -> BTreeMap<(String, String), String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}"]);
    let (code, stdout, stderr) = text(&command.current_dir(repository()).output().expect("cargo starts"));
    assert_eq!(code, Some(0), "{stderr}");
    let read = |line: &str| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
        Some(((name, version), licence.to_owned()))
    };
    stdout
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| read(line).unwrap_or_else(|| panic!("{line:?}")))
        .collect()
}

#[test]
fn the_bill_of_materials_has_every_linked_package() {
    let (written, bom) = sbom();
    assert_eq!(written, sbom().0, "the same lock file gives the same text");
    assert!(!written.contains(Path::new(env!("CARGO_MANIFEST_DIR")).to_str().unwrap()), "no path of this machine");
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(repository().join("Cargo.lock")).unwrap()).unwrap();
    let checksums: BTreeMap<(&str, &str), &str> = lock["package"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|package| {
            Some(((package["name"].as_str()?, package["version"].as_str()?), package.get("checksum")?.as_str()?))
        })
        .collect();
    let word = |component: &Value, key: &str| component[key].as_str().unwrap_or_default().to_owned();
    let main = &bom["metadata"]["component"];
    let components: Vec<&Value> = bom["components"].as_array().unwrap().iter().chain([main]).collect();
    let said: BTreeMap<(String, String), String> = components
        .iter()
        .map(|component| {
            let licence = component["licenses"][0]["expression"].as_str().unwrap_or_default().to_owned();
            ((word(component, "name"), word(component, "version")), licence)
        })
        .collect();
    let linked: BTreeMap<(String, String), String> =
        tree().into_iter().map(|(package, licence)| (package, licence.replace('/', " OR "))).collect();
    assert!(linked.len() > 50, "{linked:?}");
    let differ: Vec<_> = linked.iter().filter(|one| said.get(one.0) != Some(one.1)).collect();
    assert!(differ.is_empty(), "of these something else is said: {differ:?}");
    assert_eq!(said.len(), linked.len(), "{said:?}");
    for component in components.iter().filter(|component| **component != main) {
        let (name, version) = (word(component, "name"), word(component, "version"));
        let hash = component["hashes"][0]["content"].as_str();
        assert_eq!(hash, checksums.get(&(name.as_str(), version.as_str())).copied(), "{name} {version}");
        assert!(hash.is_some_and(|hash| hash.len() == 64), "{name} {version}");
    }
    // Every reference of the graph is one of the components'.
    let known: BTreeSet<String> = components.iter().map(|component| word(component, "bom-ref")).collect();
    for edge in bom["dependencies"].as_array().unwrap() {
        let needs = edge["dependsOn"].as_array().unwrap().iter().filter_map(Value::as_str);
        for reference in needs.chain(edge["ref"].as_str()) {
            assert!(known.contains(reference), "{reference}");
        }
    }
}
