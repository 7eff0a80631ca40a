//! T37: renames on all cores, and lookups that the kernel asks to be repeated.

use std::thread::available_parallelism;

use crate::world::Stage;
use crate::world::stage::capability_nodes;

/// Folders beside the nodes are renamed on all cores; nothing about the nodes themselves changes, so all must be made.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn renames_on_all_cores_cost_no_start() {
    const ROUNDS: usize = 50;
    let nodes = capability_nodes(20);
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let stage = Stage::new("for n in a b c d e f g h; do mkdir -p $R/dev/$n/1 $R/tmp/$n; done");
    let cores = available_parallelism().unwrap().get();
    let mut attackers: Vec<_> = (0..cores)
        .map(|core| {
            let (one, other) = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")][core % 4];
            stage.beside(&format!("exec $A/exchange 60000 $R/dev/{one} $R/dev/{other} $R/tmp/{one} $R/tmp/{other}"))
        })
        .collect();
    let (mut made, mut failed) = (0, Vec::new());
    for _ in 0..ROUNDS {
        let hooked = stage.hook(&nodes);
        if hooked.ran.code == 0 {
            made += stage.inside("ls $R/dev/nvidia-caps; rm -r $R/dev/nvidia-caps").lines().count();
        } else {
            failed.push(hooked.ran.to_string());
        }
    }
    for attacker in &mut attackers {
        attacker.kill().unwrap();
        attacker.wait().unwrap();
    }
    eprintln!("T37 renames on {cores} cores: {ROUNDS} hooks, {made} nodes made, {} refused", failed.len());
    assert!(failed.is_empty() && made == ROUNDS * nodes.len(), "{made} {failed:?}");
    stage.nothing_outside();
}

/// A storm that the kernel reports: a few repeats are made, and an endless one is given up in time.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn lookups_are_repeated_and_not_for_ever() {
    let node = "/dev/nvidia-caps/nvidia-cap1=236:1";
    let stage = Stage::new("true");
    let spoiled = |when: &str| stage.traced_with(&["-e", &format!("inject=openat2:error=EAGAIN{when}")], &[node]);
    let hooked = spoiled(":when=2..6");
    assert_eq!(hooked.ran.code, 0, "{}", hooked.ran);
    let count = |calls: &str| calls.lines().filter(|line| line.contains("openat2(") && line.contains("EAGAIN")).count();
    let repeats = count(&hooked.calls);
    assert_eq!(repeats, 5, "{}", hooked.calls);
    assert_eq!(stage.inside("ls $R/dev/nvidia-caps"), "nvidia-cap1\n");
    let hooked = spoiled("");
    assert!(hooked.ran.code == 1 && hooked.ran.stderr.contains("EAGAIN"), "{}", hooked.ran);
    let given_up = count(&hooked.calls);
    eprintln!("T37 EAGAIN: {repeats} repeats succeeded, {given_up} were made before it gave up");
    assert!((1..=128).contains(&given_up), "{given_up}");
}
