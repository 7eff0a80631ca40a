//! The table of engines: the same seven scenarios on every engine, by every way in which GPUs are asked for, through
//! every door, on every low-level runtime.
//!
//! Four GPUs, of which a container is given host GPUs 1 and 3. One test is one row of `docs/compat.md`, one scenario one
//! cell of it. `tests/run` collects the cells of all sets of engines, prints the table, and fails where the document
//! says something else.

mod containerd;
mod cri;
mod docker;
mod podman;

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::world::command::Ran;
use crate::world::count::{Access, COUNT, Count};
use crate::world::{A100X4, CUDA_ERROR_NO_DEVICE, uuids};

/// The image without an opinion, and the one whose `ENV` says `CUDA_VISIBLE_DEVICES=0`.
pub(crate) const PLAIN: &str = "box";
pub(crate) const WITH_DEFAULT: &str = "box-cvd-0";

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// The user's value is a number of the host's.
    HostIndex,
    /// The image brings a value, the user none.
    Image,
    /// The user hides every GPU.
    Hidden,
    /// Another process in the container.
    Exec,
    /// Another process with a value of its own.
    ExecOverride,
    /// What cannot be meant is refused, and the user reads why.
    Refused,
    /// The container is stopped and started again.
    Restart,
}

impl Scenario {
    const ALL: [Scenario; 7] = [
        Scenario::HostIndex,
        Scenario::Image,
        Scenario::Hidden,
        Scenario::Exec,
        Scenario::ExecOverride,
        Scenario::Refused,
        Scenario::Restart,
    ];

    /// The column's head.
    fn name(self) -> &'static str {
        match self {
            Scenario::HostIndex => "host index",
            Scenario::Image => "image",
            Scenario::Hidden => "-1",
            Scenario::Exec => "exec",
            Scenario::ExecOverride => "exec -e",
            Scenario::Refused => "refused",
            Scenario::Restart => "restart",
        }
    }
}

/// What names a row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// `Docker`, `podman`, `podman, rootless`, `ctr`, `CRI`.
    pub(crate) engine: &'static str,
    /// The engine's version, `28.5`: without the parts that change with a distribution's updates.
    pub(crate) version: String,
    /// How the GPUs are asked for, `--gpus` for example.
    pub(crate) selection: &'static str,
    /// `wrapper`, or `hooks`.
    pub(crate) door: &'static str,
    /// The low-level runtime with its version, `runc 1.1`.
    pub(crate) runtime: String,
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { engine, version, selection, door, runtime } = self;
        write!(out, "{engine}\t{version}\t{selection}\t{door}\t{runtime}")
    }
}

/// A container that is to have host GPUs 1 and 3.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// [`PLAIN`] or [`WITH_DEFAULT`].
    pub(crate) image: &'static str,
    /// The user's `CUDA_VISIBLE_DEVICES`.
    pub(crate) value: Option<&'a str>,
}

/// A container that must not come to be, and what its user reads.
pub(crate) struct Refusal {
    /// What came of it.
    pub(crate) ran: Ran,
    /// The engine's exit code for it.
    pub(crate) code: i32,
    /// The text.
    pub(crate) text: &'static str,
}

/// The text for `CUDA_VISIBLE_DEVICES=2` of a user.
pub(crate) const NAMES_NONE: &str = "cudaview: refused, CUDA_VISIBLE_DEVICES=\"2\" names none of the granted GPUs";

/// The text for a GPU that the host does not have, for engines that do not say whose a value is.
pub(crate) const NO_SUCH_GPU: &str = "cudaview: refused, no such GPU: \"7\"; this host has GPUs 0 to 3";

/// An engine, with one way to ask for GPUs, one door and one low-level runtime.
pub(crate) trait Engine {
    /// Its row.
    fn row(&self) -> Row;

    /// Runs a program in a new container and removes it. `None` for `plain` says that nothing without cudaview gives
    /// GPUs here, so that there is nothing to compare with.
    fn plain(&self, asked: &Asked<'_>, args: &[&str]) -> Option<Ran>;

    /// The same with cudaview.
    fn run(&self, asked: &Asked<'_>, args: &[&str]) -> Ran;

    /// A container that sleeps until it is killed.
    fn up(&self, name: &str, asked: &Asked<'_>);

    /// A further process in it, with or without a `CUDA_VISIBLE_DEVICES` of its own.
    fn exec(&self, name: &str, value: Option<&str>, args: &[&str]) -> Ran;

    /// Ends the container and starts it again.
    fn restart(&self, name: &str);

    /// A container whose `CUDA_VISIBLE_DEVICES=2` names a GPU that it was not given, or that asks for one that the host
    /// does not have.
    fn refused(&self) -> Refusal;

    /// What is shown where the image says 0 and the user nothing; an engine whose values are of unknown origin honours it.
    fn image_default(&self) -> &'static [usize] {
        &[1, 3]
    }

    /// Why a scenario does not hold here. The scenario is run all the same, and must not hold.
    fn limit(&self, _scenario: Scenario) -> Option<&'static str> {
        None
    }

    /// Whether a container's root may make device nodes, so that the device rules can be tried.
    fn may_mknod(&self) -> bool {
        true
    }
}

/// Runs all scenarios, writes down what came of each, and fails if one of them did not hold.
#[track_caller]
pub(crate) fn check(engine: &dyn Engine) {
    let row = engine.row();
    let mut failed = String::new();
    let mut lines = String::new();
    for scenario in Scenario::ALL {
        let held = catch_unwind(AssertUnwindSafe(|| play(engine, scenario))).is_ok();
        let limit = engine.limit(scenario);
        let (outcome, note) = match (held, limit) {
            (true, None) => ("passed", ""),
            (false, Some(why)) => ("limit", why),
            (true, Some(_)) => ("failed", "it holds, and is said not to"),
            (false, None) => ("failed", ""),
        };
        if outcome == "failed" {
            let _ = write!(failed, "\n  {}: {note}", scenario.name());
        }
        let _ = writeln!(lines, "{row}\t{}\t{outcome}\t{note}", scenario.name());
    }
    record(&lines);
    assert!(failed.is_empty(), "{row}{failed}");
}

/// Writes down that an engine has no such row, which the caller has made sure of.
pub(crate) fn lacking(row: &Row, why: &str) {
    record(&Scenario::ALL.iter().fold(String::new(), |mut lines, scenario| {
        let _ = writeln!(lines, "{row}\t{}\tlacking\t{why}", scenario.name());
        lines
    }));
}

/// `MAJOR.MINOR` of the first version in a text.
pub(crate) fn short_version(text: &str) -> String {
    let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let version = words.into_iter().find(number).unwrap_or_else(|| panic!("no version: {text}"));
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// A file of this row's own in the folder where `tests/run` wants the cells.
fn record(lines: &str) {
    let Some(folder) = std::env::var_os("CUDAVIEW_TEST_CELLS") else { return };
    let suite = std::env::var("CUDAVIEW_TEST_SUITE").unwrap_or_else(|_| "machine".to_owned());
    let folder = Path::new(&folder).join(suite);
    std::fs::create_dir_all(&folder).unwrap();
    let (mut file, _path): (File, _) =
        tempfile::Builder::new().prefix("row-").tempfile_in(&folder).unwrap().keep().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

#[track_caller]
fn play(engine: &dyn Engine, scenario: Scenario) {
    match scenario {
        Scenario::HostIndex => host_index(engine),
        Scenario::Image => {
            let count = Count::of(engine.run(&Asked { image: WITH_DEFAULT, value: None }, &COUNT));
            shows(&count, engine.image_default(), engine.image_default());
        }
        Scenario::Hidden => {
            let count = Count::of(engine.run(&Asked { image: PLAIN, value: Some("-1") }, &COUNT));
            shows(&count, &[], &[1, 3]);
        }
        Scenario::Exec => exec(engine),
        Scenario::ExecOverride => exec_override(engine),
        Scenario::Refused => {
            let Refusal { ran, code, text } = engine.refused();
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains(text), "{ran}");
            ran.failed_with(code);
        }
        Scenario::Restart => restart(engine),
    }
}

#[track_caller]
fn host_index(engine: &dyn Engine) {
    let asked = Asked { image: PLAIN, value: Some("3") };
    if let Some(plain) = engine.plain(&asked, &COUNT) {
        let plain = Count::of(plain);
        assert_eq!((plain.cuda_error, plain.nodes.len()), (CUDA_ERROR_NO_DEVICE, 2), "the bug is gone: {plain:?}");
    }
    shows(&Count::of(engine.run(&asked, &COUNT)), &[3], &[3]);
}

#[track_caller]
fn exec(engine: &dyn Engine) {
    engine.up("executed", &Asked { image: PLAIN, value: Some("3,1") });
    let count = Count::of(engine.exec("executed", None, &COUNT));
    shows(&count, &[3, 1], &[1, 3]);
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1,0", "{count:?}");
    for minor in 0..4 {
        let command = Access::command(minor);
        let access = Access::of(engine.exec("executed", None, &command.each_ref().map(String::as_str)));
        let granted = [1, 3].contains(&minor);
        let expected = match (engine.may_mknod(), granted) {
            (true, true) => Access::Openable,
            (true, false) => Access::Blocked,
            (false, _) => Access::NoNode,
        };
        assert_eq!(access, expected, "GPU {minor}");
    }
}

#[track_caller]
fn exec_override(engine: &dyn Engine) {
    engine.up("overridden", &Asked { image: PLAIN, value: Some("3,1") });
    for (value, view) in [("1", [3].as_slice()), ("0", &[1]), ("3", &[3]), ("-1", &[])] {
        shows(&Count::of(engine.exec("overridden", Some(value), &COUNT)), view, &[1, 3]);
    }
}

#[track_caller]
fn restart(engine: &dyn Engine) {
    engine.up("restarted", &Asked { image: PLAIN, value: Some("3,1") });
    engine.restart("restarted");
    // The environment of the container's own program, which comes from the second creation.
    let environment = engine.exec("restarted", None, &["sh", "-c", "tr '\\0' '\\n' </proc/1/environ"]).ok();
    assert!(environment.stdout.lines().any(|line| line == "CUDA_VISIBLE_DEVICES=1,0"), "{environment}");
    if engine.limit(Scenario::Exec).is_none() {
        shows(&Count::of(engine.exec("restarted", None, &COUNT)), &[3, 1], &[1, 3]);
    }
}

/// These host GPUs are CUDA's ordinals in this order, and these are there at all.
#[track_caller]
fn shows(count: &Count, view: &[usize], nodes: &[usize]) {
    let host = uuids(A100X4);
    let expected = |list: &[usize]| -> Vec<String> { list.iter().map(|gpu| host[*gpu].clone()).collect() };
    assert_eq!(count.cuda, expected(view), "{count:?}");
    assert_eq!(count.cuda_error, if view.is_empty() { CUDA_ERROR_NO_DEVICE } else { 0 }, "{count:?}");
    assert_eq!(count.nvml, expected(nodes), "{count:?}");
    let paths: Vec<String> = nodes.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
    assert_eq!(count.nodes, paths, "{count:?}");
}
