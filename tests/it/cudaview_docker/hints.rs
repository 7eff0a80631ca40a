//! The flags that `explain` hints at, typed at a real Docker: each shape of a flag at least once.

use std::collections::BTreeSet;

use super::Host;
use crate::command::{cudaview, data, text};
use crate::hints::followed::{promised, typed};
use crate::world::dockerd::IMAGE;

/// What was asked, by arguments of `explain`.
const ASKED: [&[&str]; 7] = [
    &["--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=3"],
    &["--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=3,2"],
    &["--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=3"],
    &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=GPU-00000001"],
    &["--device", "/dev/nvidia1", "-e", "CUDA_VISIBLE_DEVICES=3,2"],
    &["-e", "NVIDIA_VISIBLE_DEVICES=1", "-e", "CUDA_VISIBLE_DEVICES=3,2"],
    &["-e", "CUDA_VISIBLE_DEVICES=1-3"],
];

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_takes_the_flags_of_hints() {
    let host = Host::new("");
    let mut shapes = BTreeSet::new();
    for arguments in ASKED {
        let mut command = cudaview();
        command.args(["explain", "--inventory"]).arg(data("inventories/a100x4.json")).env("COLUMNS", "1000");
        let (_, stdout, stderr) = text(&command.args(arguments).output().expect("cudaview starts"));
        for hint in stdout.lines().filter_map(|line| line.trim().strip_prefix("hint: ")) {
            for flags in typed(hint) {
                let all = (0..4).collect();
                let Some(hosts) =
                    promised(&flags, hint).or_else(|| flags.words.contains(&"all".to_owned()).then_some(all))
                else {
                    continue;
                };
                let hosts: Vec<usize> = hosts.into_iter().map(|host| usize::try_from(host).expect("small")).collect();
                // The world's nodes are not in /dev.
                let is_of_nodes = flags.words.iter().any(|word| word.starts_with("/dev/"));
                let minors: Vec<u32> = hosts.iter().map(|host| u32::try_from(*host).expect("small")).collect();
                let nodes = host.install.docker_devices(&minors);
                let words = if is_of_nodes { &nodes } else { &flags.words };
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let count = host.count(IMAGE, &words);
                assert_eq!(count.cuda, host.uuids_of(&hosts), "{hint}: {words:?}: {count:?}");
                shapes.insert(flags.words.join(" ").replace(|c: char| c.is_ascii_digit(), ""));
            }
        }
        assert_eq!(stderr, "");
    }
    // all, a count, one device, several, nodes, the variable
    assert!(shapes.len() >= 7, "{shapes:?}");
}
