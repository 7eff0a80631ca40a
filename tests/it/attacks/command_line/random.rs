//! T28: random command lines. What a low-level runtime opens of them is what the wrapper would have looked at.
//!
//! The configurations are no configurations, so that nothing is started: that one was opened shows under strace.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudaview::argv::{self, Command as Parsed};

use crate::world::command::run;
use crate::world::{find_program, require};

/// Words that a line is put together from; `@` is the folder of everything. Those of one row can stand for one another.
const GLOBAL: [&str; 14] = [
    "--root @/state",
    "--root=@/state",
    "-root @/state",
    "--log @/log",
    "--log=@/create",
    "--log-format json",
    "--log-format=text",
    "--debug",
    "--systemd-cgroup",
    "--rootless true",
    "--rootless=auto",
    "--cgroup-manager disabled",
    "--",
    "-b",
];
/// Not among them is `restore`: a restored process has the environment that it was stopped with.
const VERBS: [&str; 12] =
    ["create", "run", "create", "run", "create", "run", "exec", "state", "delete", "kill", "features", "spec"];
const LOCAL: [&str; 32] = [
    "--bundle @/a",
    "--bundle=@/a",
    "-b @/a",
    "-b=@/a",
    "-b@/a",
    "-bundle @/a",
    "-bundle=@/a",
    "--bund @/a",
    "--bundle @/b",
    "--bundle=@/b",
    "-b @/b",
    "--bundle=",
    "-b",
    "--bundle @/nowhere",
    "--config @/f.json",
    "--config=@/f.json",
    "-f @/f.json",
    "-f@/f.json",
    "--pid-file @/pid",
    "--pid-file=@/pid",
    "--pid-file create",
    "--preserve-fds 0",
    "--no-pivot",
    "--no-new-keyring",
    "--detach",
    "-d",
    "--keep",
    "--unknown",
    "--",
    "-",
    "--console-socket --bundle=@/b",
    "create",
];
const IDS: [&str; 10] = ["c1", "c1", "c1", "c1", "c1", "c1", "create", "run", "--bundle", "c1 c2"];

/// Numbers in an order that is the same in each run (a linear congruential generator; Knuth, MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }
}

fn line(numbers: &mut Numbers) -> String {
    let mut words = Vec::new();
    for _ in 0..numbers.below(3) {
        words.push(numbers.one_of(&GLOBAL));
    }
    words.push(numbers.one_of(&VERBS));
    let (before, after) = (numbers.below(4), numbers.below(3));
    for _ in 0..before {
        words.push(numbers.one_of(&LOCAL));
    }
    words.push(numbers.one_of(&IDS));
    for _ in 0..after {
        words.push(numbers.one_of(&LOCAL));
    }
    words.join(" ")
}

/// The configurations below the folder that the runtime opened.
fn opened(runtime: &Path, folder: &Path, words: &[String]) -> Vec<PathBuf> {
    let trace = folder.join("trace");
    let mut command = Command::new(find_program("strace"));
    command.args(["-f", "-qq", "-y", "-s", "300", "-e", "trace=open,openat,openat2", "-o"]).arg(&trace);
    // However it ends: hardly a line is a good one.
    drop(run(command.arg(runtime).args(words).current_dir(folder.join("cwd"))));
    let text = fs::read_to_string(trace).unwrap();
    let paths = text.lines().filter_map(|line| line.rsplit_once('<')?.1.strip_suffix('>')).map(PathBuf::from);
    paths.filter(|path| path.starts_with(folder) && path.extension().is_some_and(|end| end == "json")).collect()
}

/// What the wrapper would look at.
fn looked_at(folder: &Path, words: &[String]) -> Option<PathBuf> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let Parsed::Create { bundle, config } = argv::parse(&words).command else { return None };
    let cwd = folder.join("cwd");
    Some(match config {
        Some(config) => cwd.join(config),
        None => bundle.map_or_else(|| cwd.clone(), |bundle| cwd.join(bundle)).join("config.json"),
    })
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_thousand_random_lines() {
    require(&["runc", "crun", "strace"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    for place in ["a", "b", "cwd"] {
        fs::create_dir(path.join(place)).unwrap();
        fs::write(path.join(place).join("config.json"), "{\"ociVersion\":").unwrap();
    }
    fs::write(path.join("f.json"), "{\"ociVersion\":").unwrap();
    for name in ["runc", "crun"] {
        let runtime = find_program(name);
        let mut numbers = Numbers(28);
        let mut count = BTreeMap::new();
        for _ in 0..500 {
            let line = line(&mut numbers);
            let words: Vec<String> = line.split(' ').map(|word| word.replace('@', path.to_str().unwrap())).collect();
            let looked_at = looked_at(&path, &words);
            for opened in opened(&runtime, &path, &words) {
                assert_eq!(Some(&opened), looked_at.as_ref(), "{name} {line}: opened behind our back");
                *count.entry(opened).or_insert(0) += 1;
            }
        }
        eprintln!("{name}: {count:?}");
        assert!(count.values().sum::<i32>() >= 30, "{name} {count:?}: too few of the lines are good ones");
        assert!(count.len() >= 3, "{name} {count:?}");
    }
}
