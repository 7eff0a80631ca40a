//! Together with NVIDIA's toolkit: what it does alone, and what it is handed over by cudaview.
//!
//! The toolkit is a stand-in (`tests/toolkit`), which keeps the traps of the original and writes down what it was asked for.

mod docker;
mod docker29;
mod leftovers;
mod podman;
mod runtime;
mod stand_in;

use serde_json::{Value, json};

use crate::world::bundle::Bundle;
use crate::world::command::Ran;
use crate::world::count::{COUNT, Count};
use crate::world::toolkit::{Settings, Toolkit};
use crate::world::{A100X4, Install, require, uuids};

/// The modes of NVIDIA's runtime.
const MODES: [&str; 4] = ["auto", "jit-cdi", "cdi", "legacy"];

/// Grants what anybody asks for: under runc alone nobody knows who set a variable.
const ANYBODY: &str = "[grant]\nunknown_request = \"user\"\n";

const BUILT_IN: Settings<'static> = Settings::BUILT_IN;

fn in_mode(mode: &str) -> Settings<'_> {
    Settings { mode, ..BUILT_IN }
}

/// A host with NVIDIA's toolkit, and cudaview in front of NVIDIA's runtime.
struct Host {
    inventory: &'static str,
    toolkit: Toolkit,
    install: Install,
    uuids: Vec<String>,
}

impl Host {
    #[track_caller]
    fn new(settings: Settings<'_>, config: &str) -> Host {
        Host::with_gpus(A100X4, settings, config)
    }

    #[track_caller]
    fn with_gpus(inventory: &'static str, settings: Settings<'_>, config: &str) -> Host {
        require(&["runc", "jq", "unshare"]);
        let toolkit = Toolkit::new(inventory, settings);
        let runtime = format!("low_level_runtime = ['{}']\n{config}", toolkit.runtime().display());
        let install = Install::new(inventory, &runtime);
        Host { inventory, toolkit, install, uuids: uuids(inventory) }
    }

    /// A bundle under NVIDIA's runtime alone.
    #[track_caller]
    fn plain(&self, args: &[&str], env: &[&str]) -> Bundle {
        Bundle::with_runtime(&self.toolkit.host(&self.toolkit.runtime()), self.inventory, args, env)
    }

    /// The same with cudaview in front of it.
    #[track_caller]
    fn bundle(&self, args: &[&str], env: &[&str]) -> Bundle {
        Bundle::with_runtime(&self.toolkit.host(&self.install.runtime()), self.inventory, args, env)
    }

    /// What a program sees under NVIDIA's runtime alone, and what was written down meanwhile.
    #[track_caller]
    fn count_plain(&self, env: &[&str]) -> (Count, Vec<Value>) {
        (count(&self.plain(&COUNT, env)), self.toolkit.take_record())
    }

    /// The same with cudaview in front.
    #[track_caller]
    fn count(&self, env: &[&str]) -> (Count, Vec<Value>) {
        (count(&self.bundle(&COUNT, env)), self.toolkit.take_record())
    }

    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }
}

/// The counting program as the container's own process. NVIDIA's runtime lets `run` pass, so it is not used here.
#[track_caller]
fn count(bundle: &Bundle) -> Count {
    bundle.create().ok();
    bundle.start().ok();
    Count::of(Ran::new("the container", 0, &bundle.output()))
}

/// Fails the test unless NVIDIA's runtime, or its hook where that works, was asked for exactly these devices, by one
/// entry of the variable, in a container to which nothing had been added, and gave them.
#[track_caller]
fn asked_for(record: &[Value], uuids: &[String]) {
    let context = format!("{record:#?}");
    let first = record.first().expect("it was called");
    assert_eq!(first["asked"], json!(uuids), "{context}");
    assert_eq!(first["entries"], json!([uuids.join(",")]), "{context}");
    untouched(first);
    let given: Vec<&Value> = record.iter().map(|line| &line["given"]).filter(|given| !given.is_null()).collect();
    assert_eq!(given, [&json!(uuids)], "once, and not twice: {context}");
}

/// Fails the test unless NVIDIA's toolkit was called and not asked for anything. In legacy mode its hook runs all the same.
#[track_caller]
fn not_asked(record: &[Value]) {
    assert!(!record.is_empty(), "it was not called");
    assert!(record.iter().all(|line| line["asked"].is_null() && line["given"].is_null()), "{record:#?}");
}

/// Fails the test unless the configuration had no nodes, rules or mounts beside those of every container.
#[track_caller]
fn untouched(line: &Value) {
    assert_eq!((&line["nodes"], &line["rules"], &line["mounts"]), (&json!([]), &json!(6), &json!(5)), "{line:#}");
}

/// GPU nodes by minor, as paths.
fn paths(minors: &[usize]) -> Vec<String> {
    minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect()
}
