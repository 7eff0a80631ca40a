//! The rows of `ctr`. Nobody can tell there who set a variable, so an image's value counts like a user's and neither is
//! refused.

use std::process::Command;

use super::{
    Asked, Engine, NAMES_NONE, NO_SUCH_GPU, PLAIN, Refusal, Row, Scenario, WITH_DEFAULT, check, lacking, short_version,
};
use crate::world::command::{Ran, run};
use crate::world::containerd::{Containerd, Door, Version};
use crate::world::{find_program, require};

/// Why a create is never refused for a value.
pub(super) const UNKNOWN: &str =
    "containerd keeps no files that say whose value it is, so the container gets what it was granted, and a warning";

/// The configuration of rows in which the variable asks for GPUs.
pub(super) const UNKNOWN_IS_USER: &str = "[grant]\nunknown_request = 'user'\n";

/// How GPUs 1 and 3 are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selection {
    Device,
    Cdi,
    Variable,
}

struct Ctr {
    containerd: Containerd,
    low_level: &'static str,
    selection: Selection,
}

impl Ctr {
    #[track_caller]
    fn new(low_level: &'static str, selection: Selection) -> Ctr {
        let containerd = start(low_level, if selection == Selection::Variable { UNKNOWN_IS_USER } else { "" });
        containerd.import("default", PLAIN, &[]);
        containerd.import("default", WITH_DEFAULT, &["CUDA_VISIBLE_DEVICES=0"]);
        Ctr { containerd, low_level, selection }
    }

    fn flags(&self, asked: &Asked<'_>) -> Vec<String> {
        let devices: &[&str] = match self.selection {
            Selection::Device => &["/dev/nvidia1", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"],
            Selection::Cdi => &["nvidia.com/gpu=1", "nvidia.com/gpu=3"],
            Selection::Variable => &[],
        };
        let mut flags: Vec<String> =
            devices.iter().flat_map(|device| ["--device", device]).map(str::to_owned).collect();
        if self.selection == Selection::Variable {
            flags.extend(["--env", "NVIDIA_VISIBLE_DEVICES=1,3"].map(str::to_owned));
        }
        if let Some(value) = asked.value {
            flags.extend(["--env".to_owned(), format!("CUDA_VISIBLE_DEVICES={value}")]);
        }
        flags
    }

    #[track_caller]
    fn run_by(&self, door: Door, asked: &Asked<'_>, args: &[&str]) -> Ran {
        let flags = self.flags(asked);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.containerd.run(door, &flags, asked.image, args)
    }
}

/// containerd over this low-level runtime.
#[track_caller]
pub(super) fn start(low_level: &str, config: &str) -> Containerd {
    require(&["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun", "jq", "nsenter", "unshare"]);
    Containerd::start(low_level, config)
}

/// `runc 1.1`, or `crun 1.8`.
pub(super) fn runtime(low_level: &str) -> String {
    format!("{low_level} {}", short_version(&run(Command::new(find_program(low_level)).arg("--version")).stdout))
}

/// `2.1`.
pub(super) fn version(containerd: &Containerd) -> String {
    let Version(major, minor) = containerd.version();
    format!("{major}.{minor}")
}

/// A shell that sets the variable for a further process, where the engine cannot.
pub(super) fn by_shell(value: Option<&str>, args: &[&str]) -> Vec<String> {
    let set =
        value.map(|value| ["sh".to_owned(), "-c".to_owned(), format!("CUDA_VISIBLE_DEVICES={value} exec \"$@\"")]);
    let first = set.into_iter().flatten().chain(value.map(|_| "sh".to_owned()));
    first.chain(args.iter().map(|word| (*word).to_owned())).collect()
}

impl Engine for Ctr {
    fn row(&self) -> Row {
        Row {
            engine: "ctr",
            version: version(&self.containerd),
            selection: match self.selection {
                Selection::Device => "`--device /dev/nvidiaN`",
                Selection::Cdi => "CDI",
                Selection::Variable => "`NVIDIA_VISIBLE_DEVICES`, `unknown_request = \"user\"`",
            },
            door: "wrapper",
            runtime: runtime(self.low_level),
        }
    }

    fn plain(&self, asked: &Asked<'_>, args: &[&str]) -> Option<Ran> {
        (self.selection != Selection::Variable).then(|| self.run_by(Door::Plain, asked, args))
    }

    fn run(&self, asked: &Asked<'_>, args: &[&str]) -> Ran {
        self.run_by(Door::Cudaview, asked, args)
    }

    fn up(&self, name: &str, asked: &Asked<'_>) {
        let flags = self.flags(asked);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.containerd.up(Door::Cudaview, name, &flags, asked.image);
    }

    fn exec(&self, name: &str, value: Option<&str>, args: &[&str]) -> Ran {
        let args = by_shell(value, args);
        self.containerd.exec(name, &args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn restart(&self, name: &str) {
        self.containerd.restart(name);
    }

    fn refused(&self) -> Refusal {
        if self.selection == Selection::Variable {
            let ran = self.containerd.run(Door::Cudaview, &["--env", "NVIDIA_VISIBLE_DEVICES=7"], PLAIN, &["true"]);
            return Refusal { ran, code: 1, text: NO_SUCH_GPU };
        }
        Refusal { ran: self.run(&Asked { image: PLAIN, value: Some("2") }, &["true"]), code: 1, text: NAMES_NONE }
    }

    fn image_default(&self) -> &'static [usize] {
        &[1]
    }

    fn limit(&self, scenario: Scenario) -> Option<&'static str> {
        match scenario {
            Scenario::ExecOverride => Some("`ctr task exec` sets no variables; what a shell inside sets goes to CUDA"),
            Scenario::Refused => (self.selection != Selection::Variable).then_some(UNKNOWN),
            _ => None,
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_device() {
    check(&Ctr::new("runc", Selection::Device));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_device_on_crun() {
    check(&Ctr::new("crun", Selection::Device));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_variable() {
    check(&Ctr::new("runc", Selection::Variable));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_ctr_cdi() {
    let engine = Ctr::new("runc", Selection::Cdi);
    if engine.containerd.version() < Version(2, 0) {
        // It takes the name for a path.
        let ran = engine.run(&Asked { image: PLAIN, value: None }, &["true"]).failed_with(1);
        assert!(ran.stderr.contains("nvidia.com/gpu=1"), "{ran}");
        lacking(&engine.row(), "`ctr` has it from version 2 on");
        return;
    }
    check(&engine);
}
