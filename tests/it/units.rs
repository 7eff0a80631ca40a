//! The units of systemd and the rules of udev in `packaging`: what they name exists, and they start when they should.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{cudaview, text};
use crate::world::command::run;
use crate::world::{repository, require};

const SERVICE: &str = "cudaview-inventory.service";
const PATH: &str = "cudaview-inventory.path";

fn file(name: &str) -> String {
    fs::read_to_string(repository().join("packaging").join(name)).unwrap()
}

/// The lines `KEY=VALUE` of a unit, by `[SECTION] KEY`.
fn unit(name: &str) -> BTreeMap<String, Vec<String>> {
    let mut section = String::new();
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in file(&format!("systemd/{name}")).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            line.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{name}: {line}"));
        out.entry(format!("{section} {key}")).or_default().push(value.to_owned());
    }
    out
}

#[test]
fn the_service_does_what_the_command_line_can() {
    let service = unit(SERVICE);
    let [command] = service["[Service] ExecStart"].as_slice() else { panic!("{service:?}") };
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[0], "/usr/bin/cudaview", "where the README installs it");
    // A wrong word would be a usage error.
    let (code, _, stderr) = text(&cudaview().args(&words[1..]).arg("--help").output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let (code, _, stderr) = text(&cudaview().args(&words[1..]).arg("--inventory=x").output().unwrap());
    assert!(code == Some(2) && stderr.contains("--refresh"), "{stderr}");
    // The cache is in it, and it outlives the service.
    let key = |name: &str| service[&format!("[Service] {name}")].concat();
    let folder = format!("/run/{}", key("RuntimeDirectory"));
    assert_eq!(Path::new(cudaview::sys::inventory::CACHE).parent(), Some(Path::new(&folder)));
    assert_eq!((key("RuntimeDirectoryMode"), key("RuntimeDirectoryPreserve")), ("0755".to_owned(), "yes".to_owned()));
    // Longer than the program that asks NVML may take.
    assert!(key("TimeoutStartSec").parse::<u32>().unwrap() > 5);
}

#[test]
fn the_path_unit_starts_the_service_and_watches_no_node() {
    let path = unit(PATH);
    assert_eq!(path["[Path] Unit"], [SERVICE]);
    let watched = &path["[Path] PathChanged"];
    assert!(watched.contains(&"/usr/bin/cudaview-nvml".to_owned()) && watched.len() > 2, "{watched:?}");
    for file in watched {
        // Whoever closes a node that was open for writing has "changed" it, NVML for one: it would start itself.
        let is_loop = ["/dev", "/proc", "/sys", "/run"].iter().any(|folder| Path::new(file).starts_with(folder));
        assert!(file.starts_with('/') && !is_loop, "{file}");
    }
    let all = path.keys().filter(|key| key.starts_with("[Path]"));
    assert_eq!(all.collect::<Vec<_>>(), ["[Path] PathChanged", "[Path] Unit"], "PathExists would start it forever");
    for (name, unit) in [(SERVICE, unit(SERVICE)), (PATH, path)] {
        assert_eq!(unit["[Install] WantedBy"], ["multi-user.target"], "{name}");
    }
}

/// The part of udev's language that the rules use: what the rules would run at an event.
fn runs(event: &[(&str, &str)]) -> Vec<String> {
    let get = |name: &str| event.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
    let rules = file("udev/70-cudaview-inventory.rules");
    let rules: Vec<&str> = rules.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut out = Vec::new();
    let mut goto: Option<String> = None;
    for rule in rules {
        let parts: Vec<(&str, &str, &str)> = rule.split(", ").map(part).collect();
        if let Some(label) = &goto {
            if parts != [("LABEL", "=", label.as_str())] {
                continue;
            }
            goto = None;
        }
        let is_match = |(key, operator, pattern): &(&str, &str, &str)| {
            let name = key.strip_prefix("ENV{").map_or(*key, |name| name.trim_end_matches('}'));
            *operator != "==" || pattern.split('|').any(|pattern| is_like(pattern, get(name)))
        };
        if !parts.iter().all(is_match) {
            continue;
        }
        for (key, operator, value) in parts.into_iter().filter(|(_, operator, _)| *operator != "==") {
            match (key, operator) {
                ("GOTO", "=") => goto = Some(value.to_owned()),
                ("LABEL", "=") => {}
                ("RUN", "+=") => out.push(value.to_owned()),
                other => panic!("{rule}: {other:?}"),
            }
        }
    }
    assert_eq!(goto, None, "a label that is not there");
    out
}

/// `KEY`, its operator, and its value.
fn part(text: &str) -> (&str, &str, &str) {
    let (left, value) = text.split_once('"').unwrap_or_else(|| panic!("no value: {text}"));
    let operator = ["==", "+=", "="].into_iter().find(|operator| left.ends_with(operator));
    let operator = operator.unwrap_or_else(|| panic!("no operator: {text}"));
    let value = value.strip_suffix('"').unwrap_or_else(|| panic!("no end: {text}"));
    (left.strip_suffix(operator).unwrap(), operator, value)
}

/// A pattern of the shell with nothing but a star at its end.
fn is_like(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start))
}

#[test]
fn the_rules_start_the_service_for_gpus_and_the_driver_alone() {
    let refresh = vec![format!("/usr/bin/systemctl --no-block start {SERVICE}")];
    let pci = |action: &'static str, id: &'static str, class: &'static str| {
        // As the kernel has it (drivers/pci/pci-driver.c, pci_uevent).
        runs(&[
            ("ACTION", action),
            ("SUBSYSTEM", "pci"),
            ("PCI_ID", id),
            ("PCI_CLASS", class),
            ("KERNEL", "0000:07:00.0"),
        ])
    };
    for action in ["add", "remove", "bind", "unbind"] {
        assert_eq!(pci(action, "10DE:20B0", "30200"), refresh, "{action}");
        assert_eq!(pci(action, "10DE:2204", "30000"), refresh, "{action}");
    }
    assert!(pci("change", "10DE:20B0", "30200").is_empty());
    assert!(pci("bind", "10DE:1AEF", "40300").is_empty(), "a card's sound");
    assert!(pci("bind", "10DE:22A3", "68000").is_empty(), "a switch");
    assert!(pci("bind", "8086:9BC8", "30000").is_empty(), "another maker's");
    let module = |action: &'static str, name: &'static str| {
        runs(&[("ACTION", action), ("SUBSYSTEM", "module"), ("KERNEL", name)])
    };
    for name in ["nvidia", "nvidia_uvm", "nvidia_modeset"] {
        assert_eq!((module("add", name), module("remove", name)), (refresh.clone(), refresh.clone()), "{name}");
    }
    assert!(module("add", "nvidia_drm").is_empty() && module("add", "nouveau").is_empty());
    assert!(runs(&[("ACTION", "add"), ("SUBSYSTEM", "net"), ("KERNEL", "eth0")]).is_empty());
}

/// By systemd itself, which needs not run for that.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn systemd_has_nothing_to_say_against_the_units() {
    require(&["systemd-analyze"]);
    let folder = tempfile::tempdir().unwrap();
    let verify = |change: (&str, &str)| {
        for name in [SERVICE, PATH] {
            // It looks for the program.
            let text = file(&format!("systemd/{name}")).replace("=/usr/bin/cudaview ", "=/bin/true ");
            fs::write(folder.path().join(name), text.replace(change.0, change.1)).unwrap();
        }
        let mut command = Command::new("systemd-analyze");
        run(command.args(["verify", "--man=no"]).args([SERVICE, PATH].map(|name| folder.path().join(name))))
    };
    let ran = verify(("", "")).ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    // It does look.
    let ran = verify(("TimeoutStartSec", "TimoutStartSec"));
    assert!(ran.stderr.contains("Unknown key"), "{ran}");
    assert_ne!(verify(("Type=oneshot", "Type=no-such")).stderr, "");
}
