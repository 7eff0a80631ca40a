//! The wrapper over plain runc, without an engine: exactly what it changes in a bundle, and what a program then sees.

mod changes;
mod disk;
mod edits;
mod exec;
mod mig;
mod narrowing;
mod runtimes;

use std::path::Path;

use serde_json::Value;

use crate::world::{A100X4, Bundle, Install, require, spec, uuids};

/// An installation, and the UUIDs of its GPUs.
struct Host {
    install: Install,
    uuids: Vec<String>,
}

impl Host {
    #[track_caller]
    fn new(config: &str) -> Host {
        require(&["runc"]);
        Host { install: Install::new(A100X4, config), uuids: uuids(A100X4) }
    }

    /// A bundle under the wrapper.
    fn bundle(&self, args: &[&str], env: &[&str]) -> Bundle {
        Bundle::with_runtime(&self.install.runtime(), A100X4, args, env)
    }

    /// The same, to which an engine gave GPUs by their nodes.
    fn granted(&self, minors: &[u32], args: &[&str], env: &[&str]) -> Bundle {
        let bundle = self.bundle(args, env);
        bundle.edit(|spec| spec::grant_nodes(spec, minors));
        bundle
    }

    fn uuids_of(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().map(|host| self.uuids[*host].clone()).collect()
    }

    /// Codes of the findings in the newest audit record.
    #[track_caller]
    fn findings(&self) -> Vec<String> {
        let record = self.install.audit_records().pop().expect("an audit record");
        record["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// The paths of all nodes in a configuration.
fn node_paths(spec: &Value) -> Vec<&str> {
    spec["linux"]["devices"].as_array().unwrap().iter().map(|node| node["path"].as_str().unwrap()).collect()
}

/// Minors of the device rules that allow single GPUs.
fn gpu_rules(spec: &Value) -> Vec<u64> {
    let rules = spec["linux"]["resources"]["devices"].as_array().unwrap();
    let gpus = rules.iter().filter(|rule| rule["major"] == 195 && rule["minor"] != 255);
    gpus.map(|rule| rule["minor"].as_u64().unwrap()).collect()
}

/// The file's content as text.
fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
