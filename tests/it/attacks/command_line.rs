//! No command line makes a low-level runtime start a container from a configuration that the wrapper did not look at.

mod random;

use crate::world::command::run;
use crate::world::count::{COUNT, Count};
use crate::world::{A100X4, Bundle, CgroupView, Install, find_program, require, spec, uuids};

/// `B` is the bundle, `ID` the id, `F` another configuration. Each is tried where there is no bundle.
const LINES: [&str; 26] = [
    "run --bundle B ID",
    "run --bundle=B ID",
    "run -b B ID",
    "run -b=B ID",
    "run -bB ID",
    "run -bundle B ID",
    "run -bundle=B ID",
    "run --bund B ID",
    "run --bund=B ID",
    "run --b=B ID",
    "run ID --bundle B",
    "run ID -b B",
    "run ID -b=B",
    "run --detach=false ID --bundle=B",
    "run ID --no-pivot=false --bundle B",
    "run -- ID --bundle B",
    "run --bundle /nowhere --bundle B ID",
    "run --config F --bundle B ID",
    "run --config=F --bundle B ID",
    "run --conf F -b B ID",
    "run -f F -b B ID",
    "run -fF -bB ID",
    "--log-f json run --bundle B ID",
    "--cgroup-m cgroupfs run --bundle B ID",
    "-- run --bundle B ID",
    "run --preserve-fds 0 --bundle B -- ID",
];

/// What came of a line: nothing started, or what the program saw.
fn tried(bundle: &Bundle, line: &str) -> Option<Count> {
    let elsewhere = tempfile::tempdir().unwrap();
    let other = bundle.path().join("other.json");
    std::fs::copy(bundle.config(), &other).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (bundle_path, other) = (path(bundle.path()), path(&other));
    let word = |word: &str| match word {
        "ID" => bundle.id().to_owned(),
        "-bB" => format!("-b{bundle_path}"),
        "-fF" => format!("-f{other}"),
        word => match word.rsplit_once('=').unwrap_or(("", word)) {
            ("", "B") => bundle_path.clone(),
            ("", "F") => other.clone(),
            (name, "B") => format!("{name}={bundle_path}"),
            (name, "F") => format!("{name}={other}"),
            _ => word.to_owned(),
        },
    };
    let ran = run(bundle.command().current_dir(elsewhere.path()).args(line.split(' ').map(word)));
    (ran.code == 0).then(|| Count::of(ran))
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_that_starts_was_looked_at() {
    require(&["runc", "crun"]);
    let uuids = uuids(A100X4);
    for (name, view) in [("runc", CgroupView::Machine), ("crun", CgroupView::WithoutUnified)] {
        let install = Install::new(A100X4, &format!("low_level_runtime = [\"{name}\"]\n"));
        let mut started = 0;
        for line in LINES {
            let bundle = |runtime: &std::path::Path| {
                let bundle = Bundle::with_runtime(runtime, A100X4, &COUNT, &["CUDA_VISIBLE_DEVICES=3"]).seeing(view);
                bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
                bundle
            };
            let plain = tried(&bundle(&find_program(name)), line);
            let wrapped = tried(&bundle(&install.runtime()), line);
            assert_eq!(plain.is_some(), wrapped.is_some(), "{name} {line}");
            if let (Some(plain), Some(wrapped)) = (plain, wrapped) {
                assert!(plain.cuda.is_empty(), "{name} {line}: the plain runtime has the fault");
                assert_eq!(wrapped.cuda, uuids[3..], "{name} {line}");
                started += 1;
            }
        }
        assert!(started >= 13, "{name} took only {started} of the lines");
    }
}
