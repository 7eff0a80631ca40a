//! podman's rows.

use std::process::Command;

use super::{Asked, Engine, NAMES_NONE, PLAIN, Refusal, Row, Scenario, WITH_DEFAULT, check, lacking, short_version};
use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::podman::Setup;
use crate::world::{A100X4, Install, Podman, find_program, require};

/// How GPUs 1 and 3 are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selection {
    Cdi,
    Gpus,
    Device,
    Variable,
}

/// What makes podman call cudaview.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Wrapper,
    Hooks,
}

/// A way to run containers: who asks for GPUs how, and which programs are in between.
#[derive(Clone, Copy)]
struct Way {
    selection: Selection,
    door: Door,
    runtime: &'static str,
    rootless: bool,
}

const WAY: Way = Way { selection: Selection::Cdi, door: Door::Wrapper, runtime: "runc", rootless: false };

struct Rows {
    podman: Podman,
    /// In use as long as podman is.
    _install: Install,
    way: Way,
}

impl Rows {
    #[track_caller]
    fn new(way: Way) -> Rows {
        require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
        let install = Install::new(A100X4, &format!("low_level_runtime = [\"{}\"]", way.runtime));
        let hooks = way.door == Door::Hooks;
        let setup = Setup {
            runtime: if hooks { way.runtime } else { "cudaview" },
            precreate: hooks,
            create_runtime: hooks.then_some(&[]),
            rootless: way.rootless,
        };
        let podman = Podman::start(&install, setup);
        podman.import(WITH_DEFAULT, &["ENV CUDA_VISIBLE_DEVICES=0"]);
        Rows { podman, _install: install, way }
    }

    fn flags(&self, asked: &Asked<'_>) -> Vec<String> {
        let selection: &[&str] = match self.way.selection {
            Selection::Cdi => &["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"],
            Selection::Gpus => &["--gpus", "1,3"],
            Selection::Device => &["--device", "/dev/nvidia1", "--device", "/dev/nvidia3"],
            Selection::Variable => &["-e", "NVIDIA_VISIBLE_DEVICES=1,3"],
        };
        let mut flags: Vec<String> = selection.iter().map(|&flag| flag.to_owned()).collect();
        flags.extend(["--cap-add", "MKNOD"].map(str::to_owned));
        if let Some(value) = asked.value {
            flags.extend(["-e".to_owned(), format!("CUDA_VISIBLE_DEVICES={value}")]);
        }
        flags
    }

    fn row_of(way: Way) -> Row {
        let version = |program: &str| short_version(&run(Command::new(find_program(program)).arg("--version")).stdout);
        Row {
            engine: if way.rootless { "podman, rootless" } else { "podman" },
            version: version("podman"),
            selection: match way.selection {
                Selection::Cdi => "CDI",
                Selection::Gpus => "`--gpus`",
                Selection::Device => "`--device /dev/nvidiaN`",
                Selection::Variable => "`NVIDIA_VISIBLE_DEVICES`",
            },
            door: match way.door {
                Door::Wrapper => "wrapper",
                Door::Hooks => "hooks",
            },
            runtime: format!("{} {}", way.runtime, version(way.runtime)),
        }
    }
}

impl Engine for Rows {
    fn row(&self) -> Row {
        Rows::row_of(self.way)
    }

    fn plain(&self, asked: &Asked<'_>, args: &[&str]) -> Option<Ran> {
        // No hook of NVIDIA's is there for the variable.
        let engine_makes_nodes = self.way.selection != Selection::Variable;
        engine_makes_nodes.then(|| {
            let flags = self.flags(asked);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            self.podman.plainly(self.way.runtime, &flags, asked.image, args)
        })
    }

    fn run(&self, asked: &Asked<'_>, args: &[&str]) -> Ran {
        let flags = self.flags(asked);
        self.podman.run(&flags.iter().map(String::as_str).collect::<Vec<_>>(), asked.image, args)
    }

    fn up(&self, name: &str, asked: &Asked<'_>) {
        let flags = self.flags(asked);
        self.podman.up(name, &flags.iter().map(String::as_str).collect::<Vec<_>>(), asked.image);
    }

    fn exec(&self, name: &str, value: Option<&str>, args: &[&str]) -> Ran {
        let value = value.map(|value| format!("CUDA_VISIBLE_DEVICES={value}"));
        let flags: Vec<&str> = value.iter().flat_map(|value| ["-e", value]).collect();
        self.podman.exec(&flags, name, args)
    }

    fn restart(&self, name: &str) {
        self.podman.podman(&["restart", "--time", "0", name]).ok();
    }

    fn refused(&self) -> Refusal {
        let asked = Asked { image: PLAIN, value: Some("2") };
        Refusal { ran: self.run(&asked, &["true"]), code: 126, text: NAMES_NONE }
    }

    fn limit(&self, scenario: Scenario) -> Option<&'static str> {
        let executes = matches!(scenario, Scenario::Exec | Scenario::ExecOverride);
        (self.way.door == Door::Hooks && executes)
            .then_some("podman's precreate hook does not reach `podman exec`, which gets the values that were typed")
    }

    fn may_mknod(&self) -> bool {
        !self.way.rootless
    }
}

/// The rows of one way on both low-level runtimes.
#[track_caller]
fn on_both(way: Way) {
    for runtime in ["runc", "crun"] {
        let rows = Rows::new(Way { runtime, ..way });
        check(&rows);
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_cdi() {
    on_both(WAY);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_cdi_by_hooks() {
    on_both(Way { door: Door::Hooks, ..WAY });
}

#[track_caller]
fn by_gpus(way: Way) {
    let way = Way { selection: Selection::Gpus, ..way };
    let rows = Rows::new(way);
    if rows.podman.version() >= (5, 0) {
        return check(&rows);
    }
    // It takes the flag and does nothing: there is no trace of it in what a runtime or a hook is given.
    let count = Count::of(rows.run(&Asked { image: PLAIN, value: None }, &COUNT));
    assert_eq!((count.nodes, count.cuda), (Vec::new(), Vec::new()));
    lacking(&rows.row(), "podman takes `--gpus` and ignores it before version 5");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_gpus() {
    by_gpus(WAY);
    by_gpus(Way { runtime: "crun", ..WAY });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_gpus_by_hooks() {
    by_gpus(Way { door: Door::Hooks, runtime: "crun", ..WAY });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_device() {
    check(&Rows::new(Way { selection: Selection::Device, ..WAY }));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_variable() {
    check(&Rows::new(Way { selection: Selection::Variable, ..WAY }));
}

#[track_caller]
fn rootless(way: Way) {
    let rows = Rows::new(Way { rootless: true, ..way });
    check(&rows);
    assert_eq!(rows.podman.strays(), [""; 0], "files outside the user's own directories");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_cdi() {
    rootless(WAY);
    rootless(Way { runtime: "crun", ..WAY });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_cdi_by_hooks() {
    rootless(Way { door: Door::Hooks, ..WAY });
    rootless(Way { door: Door::Hooks, runtime: "crun", ..WAY });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless_device() {
    rootless(Way { selection: Selection::Device, ..WAY });
}
