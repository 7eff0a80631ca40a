//! T4 end to end: two hundred starts of real runc while the way to the nodes is exchanged with a link out of the root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::hook_nodes::bundle::{Bundle, texts};
use crate::world::Stage;
use crate::world::mounts::mounts_below;
use crate::world::stage::capability_nodes;

/// Nodes that the hook is to make in each start: as many chances for the attacker.
const NODES: u32 = 24;
const STARTS: usize = 100;

/// How the starts ended, and what was found outside.
#[derive(Default)]
struct Tally {
    ended: BTreeMap<&'static str, usize>,
    escaped: usize,
    mounts: usize,
}

impl Tally {
    fn count(&mut self, bundle: &Bundle, canary: &std::path::Path, output: &std::process::Output) {
        let (out, err) = texts(output);
        let how = if out.ends_with("started\n") {
            "started"
        } else if err.contains("cudaview-hook:") {
            "refused by the hook"
        } else {
            "refused by the runtime"
        };
        *self.ended.entry(how).or_default() += 1;
        // Only a hook makes nodes of these names.
        self.escaped += names(canary).iter().filter(|name| name.contains("nvidia")).count();
        self.mounts += mounts_below(&bundle.path("")).len();
    }

    fn print(&self, who: &str, start: Instant) {
        eprintln!(
            "T4 {who}: {:?}, {} outside the root, {} mounts left, {:.1} s",
            self.ended,
            self.escaped,
            self.mounts,
            start.elapsed().as_secs_f64()
        );
    }
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A bundle whose `/dev/nvidia-caps` is exchanged with a link to the canary while the hooks run.
fn attacked_inside() -> (Bundle, PathBuf) {
    let mut bundle = Bundle::new();
    let canary = bundle.path("canary");
    fs::create_dir(&canary).unwrap();
    bundle.before(&format!(
        "mkdir $R/dev/nvidia-caps && ln -s {canary} $R/dev/x && \
         {exchange} 400 $R/dev/nvidia-caps $R/dev/x </dev/null >/dev/null 2>&1 &",
        canary = canary.display(),
        exchange = Stage::attacker("exchange").display(),
    ));
    (bundle, canary)
}

/// Half of the two hundred: the attacker is in the container's `/dev`.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn two_hundred_starts_with_an_attacker_inside() {
    let nodes = capability_nodes(NODES);
    let options: Vec<&str> = nodes.iter().flat_map(|node| ["--node", node.as_str()]).collect();
    let (mut tally, begin) = (Tally::default(), Instant::now());
    for _ in 0..STARTS {
        let (mut bundle, canary) = attacked_inside();
        bundle.hook(&options);
        let output = bundle.run(&["runc"]);
        tally.count(&bundle, &canary, &output);
    }
    tally.print("runc, an attacker inside", begin);
    assert_eq!((tally.escaped, tally.mounts), (0, 0));
    assert!(tally.ended["refused by the hook"] > 5, "no race took place");
}

/// The other half: a sibling exchanges the image's `/dev` itself, from before the runtime starts. An old runtime may be
/// led astray with its own nodes; the hook adds nothing to that.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn two_hundred_starts_with_an_attacker_outside() {
    let nodes = capability_nodes(NODES);
    let options: Vec<&str> = nodes.iter().flat_map(|node| ["--node", node.as_str()]).collect();
    let (mut tally, begin) = (Tally::default(), Instant::now());
    for _ in 0..STARTS {
        let mut bundle = Bundle::new();
        let canary = bundle.path("canary");
        fs::create_dir(&canary).unwrap();
        symlink(&canary, bundle.path("rootfs/x")).unwrap();
        bundle.hook(&options);
        let mut attacker = exchange(&bundle, "20000");
        let output = bundle.run(&["runc"]);
        attacker.kill().unwrap();
        attacker.wait().unwrap();
        tally.count(&bundle, &canary, &output);
    }
    tally.print("runc, an attacker outside", begin);
    assert_eq!((tally.escaped, tally.mounts), (0, 0));
}

fn exchange(bundle: &Bundle, milliseconds: &str) -> Child {
    let mut attacker = Command::new(Stage::attacker("exchange"));
    attacker.arg(milliseconds).args([bundle.path("rootfs/dev"), bundle.path("rootfs/x")]);
    attacker.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// What the two tests above would show of a hook that resolves a path and then uses it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_naive_hook_is_caught_under_runc() {
    let (mut tally, begin) = (Tally::default(), Instant::now());
    for _ in 0..60 {
        let (mut bundle, canary) = attacked_inside();
        let mut args = vec!["naive-hook".to_owned(), bundle.path("rootfs").display().to_string()];
        args.extend((1..=NODES).map(|number| format!("/dev/nvidia-caps/nvidia-cap{number}")));
        let hook = json!({"path": Stage::attacker("naive-hook"), "args": args, "env": ["PATH=/bin"], "timeout": 20});
        bundle.push("/hooks/createRuntime", hook);
        let output = bundle.run(&["runc"]);
        tally.count(&bundle, &canary, &output);
        if tally.escaped > 0 {
            break;
        }
    }
    tally.print("runc, a naive hook", begin);
    assert!(tally.escaped > 0, "these tests would not see an escape");
}
