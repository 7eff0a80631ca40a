//! `cudaview-hook`: what the OCI runtime calls before a container starts, and podman before its config is written.
//!
//! With nodes in its arguments (put there by the wrapper) it looks into the container and makes sure that each is there.
//! Under the name of NVIDIA's hook it is that hook's stand-in.
//! Nothing is printed when all went well.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cmd::failure::Failure;
use crate::cmd::{alone, precreate, stand_in};
use crate::exit::Exit;
use crate::node::DeviceNode;
use crate::sys::state::{self, State};
use crate::sys::{hygiene, report, rootfs};

/// All of the hook's work, in a healthy system a few milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Waiting for the runtime to write and close the state.
const STATE_TIME_LIMIT: Duration = Duration::from_secs(5);
/// The kernel ends the hook after this many seconds, should a system call not return.
const BACKSTOP_SECONDS: u32 = 12;

/// What `--help` prints.
pub(super) const HELP: &str = "\
cudaview-hook: the OCI hook of cudaview

usage: cudaview-hook createRuntime [--gpus=SPEC] [--dev-root=DIR]
       cudaview-hook createRuntime --root=DIR --node=PATH=MAJOR:MINOR…
                                   [--dev-root=DIR] [--record=JSON]
       cudaview-hook precreate
       cudaview-hook --version | --help

createRuntime reads the container's state from standard input.
The second form is what cudaview-runtime injects.
precreate (podman) reads the container's config from standard input and writes
the edited one to standard output.
";

/// Arguments of the `createRuntime` stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The container's root, absolute; given by the wrapper, since a state cannot be relied on for it.
    pub root: Option<PathBuf>,
    /// The nodes that the wrapper planned.
    pub nodes: Vec<DeviceNode>,
    /// Where the driver's `/dev` is on the host.
    pub dev_root: PathBuf,
    /// The grant of a hook that works alone.
    pub gpus: Option<String>,
}

impl Arguments {
    /// Reads the options, each as `--name=value` or `--name value`.
    pub fn parse(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut parsed = Self { root: None, nodes: Vec::new(), dev_root: PathBuf::from("/"), gpus: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument
                .to_str()
                .ok_or_else(|| Failure::usage(format!("argument {:?} is not UTF-8", argument.to_string_lossy())))?;
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text, None),
            };
            if !matches!(name, "--root" | "--node" | "--dev-root" | "--gpus" | "--record") {
                return Err(Failure::usage(format!("unknown argument {text:?}")));
            }
            let value = value.or_else(|| rest.next().and_then(|next| next.to_str()));
            let value = value.ok_or_else(|| Failure::usage(format!("{name} needs a value")))?;
            match name {
                "--root" => parsed.root = Some(absolute(name, value)?),
                "--dev-root" => parsed.dev_root = absolute(name, value)?,
                "--node" => parsed.nodes.push(value.parse().map_err(Failure::usage)?),
                "--gpus" => parsed.gpus = Some(value.to_owned()),
                // The record is for exec and for a second door; it travels here because an image cannot add hooks.
                _ => {}
            }
        }
        if parsed.root.is_none() && !parsed.nodes.is_empty() {
            return Err(Failure::usage("--node needs --root"));
        }
        if parsed.root.is_some() && parsed.gpus.is_some() {
            return Err(Failure::usage("--root and --gpus exclude each other"));
        }
        Ok(parsed)
    }
}

fn absolute(name: &str, value: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(value);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(Failure::usage(format!("{name} {value:?} is no absolute path")))
}

/// Runs the hook with its arguments, the name by which it was called first.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Exit {
    let is_stand_in = arguments.next().is_some_and(|name| stand_in::is_called(&name));
    let arguments: Vec<OsString> = arguments.collect();
    match dispatch(&arguments, is_stand_in) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            complain(if is_stand_in { "cudaview" } else { "cudaview-hook" }, &failure);
            failure.exit
        }
    }
}

fn dispatch(arguments: &[OsString], is_stand_in: bool) -> Result<(), Failure> {
    let deadline = Instant::now() + TIME_LIMIT;
    // Newer versions of podman start precreate hooks in the bundle; hardening leaves it.
    let directory = std::env::current_dir().ok();
    hygiene::harden().map_err(|error| Failure::new(Exit::Failed, error))?;
    let stage = arguments.first().ok_or_else(|| Failure::usage("no stage was named"))?;
    let options = arguments.get(1..).unwrap_or_default();
    match stage.to_str() {
        Some("--help" | "-h" | "help") => {
            print(if is_stand_in { stand_in::HELP } else { HELP });
            Ok(())
        }
        Some("--version" | "-V") => {
            print(concat!("cudaview-hook ", env!("CARGO_PKG_VERSION"), "\n"));
            Ok(())
        }
        Some("prestart") if is_stand_in => {
            hygiene::end_after(BACKSTOP_SECONDS);
            stand_in::prestart(options, deadline.min(Instant::now() + STATE_TIME_LIMIT))
        }
        _ if is_stand_in => Err(Failure::text_only(Exit::Usage, "this is a stand-in for NVIDIA's hook (see --help)")),
        Some("createRuntime") => {
            hygiene::end_after(BACKSTOP_SECONDS);
            create_runtime(options, deadline)
        }
        Some("precreate") => {
            hygiene::end_after(BACKSTOP_SECONDS);
            precreate(options, directory.as_deref(), deadline)
        }
        _ => Err(Failure::usage(format!("unknown stage {:?}: createRuntime or precreate", stage.to_string_lossy()))),
    }
}

fn create_runtime(options: &[OsString], deadline: Instant) -> Result<(), Failure> {
    // First of all, and whatever the options are: the runtime waits for the state to be read.
    let text = state::read(rustix::stdio::stdin(), deadline.min(Instant::now() + STATE_TIME_LIMIT));
    let arguments = Arguments::parse(options)?;
    let text = text.map_err(|error| Failure::new(Exit::BadInput, error))?;
    let state = state::parse(&text).map_err(|error| Failure::new(Exit::BadInput, error))?;
    // Before anything is decided or read: at the container's own stages this process stands in what an image made.
    if matches!(state.pid, 0 | 1) {
        return Err(rootfs::RootfsError::WrongStage { pid: state.pid }.into());
    }
    match &arguments.root {
        Some(root) => injected(root, &arguments, &state, deadline),
        None => alone(&arguments, &state, deadline),
    }
}

/// The wrapper has decided: make sure that exactly its nodes are there.
fn injected(root: &Path, arguments: &Arguments, state: &State, deadline: Instant) -> Result<(), Failure> {
    let container = rootfs::Container::new(state.pid, root)?;
    rootfs::ensure_nodes(&container, &arguments.nodes, &arguments.dev_root, deadline)?;
    Ok(())
}

/// No wrapper: decide here, from `--gpus` or the policy, and mount what was granted.
fn alone(arguments: &Arguments, state: &State, deadline: Instant) -> Result<(), Failure> {
    if let Some(warning) = alone::run(arguments, state, deadline)? {
        write_all(rustix::stdio::stderr(), format!("cudaview-hook: {warning}\n").as_bytes());
    }
    Ok(())
}

/// podman's precreate stage: config in, edited config out. Words in parentheses are for whoever reads podman's error,
/// which shows the arguments and nothing else.
fn precreate(options: &[OsString], directory: Option<&Path>, deadline: Instant) -> Result<(), Failure> {
    if let Some(unknown) = options.iter().find(|option| !option.as_encoded_bytes().starts_with(b"(")) {
        return Err(Failure::usage(format!("unknown argument {:?}", unknown.to_string_lossy())));
    }
    let config = precreate::run(directory, deadline.min(Instant::now() + STATE_TIME_LIMIT)).inspect_err(|failure| {
        // podman throws our standard error away; its own reaches the person who typed the command.
        report::to_parent(&format!("cudaview: {}", failure.text()));
    })?;
    write_all(rustix::stdio::stdout(), &config);
    Ok(())
}

/// Writes to standard output; that nobody reads it is no failure.
fn print(text: &str) {
    write_all(rustix::stdio::stdout(), text.as_bytes());
}

/// The failure on standard error. `eprintln!` would panic if nobody reads it.
fn complain(who: &str, failure: &Failure) {
    write_all(rustix::stdio::stderr(), format!("{who}: {}\n", failure.text()).as_bytes());
}

fn write_all(to: std::os::fd::BorrowedFd<'_>, mut text: &[u8]) {
    while !text.is_empty() {
        match rustix::io::write(to, text) {
            Ok(count) if count > 0 => text = text.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // Closed, full or gone: the exit code has to do.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, Exit> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        Arguments::parse(&arguments).map_err(|failure| failure.exit)
    }

    #[test]
    fn both_forms_of_an_option() {
        let node = DeviceNode::gpu(crate::device::Minor(1));
        let expected =
            Arguments { root: Some("/r".into()), nodes: vec![node.clone(), node], dev_root: "/d".into(), gpus: None };
        let joined = ["--root=/r", "--node=/dev/nvidia1=195:1", "--node", "/dev/nvidia1=195:1", "--dev-root=/d"];
        assert_eq!(parse(&joined), Ok(expected.clone()));
        let with_record = [&joined[..], &["--record={\"a\":\"b=c\"}"]].concat();
        assert_eq!(parse(&with_record), Ok(expected));
        assert_eq!(parse(&["--gpus", "all"]).map(|a| a.gpus), Ok(Some("all".to_owned())));
        assert_eq!(parse(&[]).map(|a| (a.root, a.dev_root)), Ok((None, "/".into())));
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for bad in [
            &["--root=rootfs"][..],
            &["--root"],
            &["--node=/dev/nvidia1=195:1"],
            &["--root=/r", "--node=/dev/../x=1:2"],
            &["--root=/r", "--node=/dev/nvidia1"],
            &["--root=/r", "--gpus=all"],
            &["--dev-root=x", "--root=/r"],
            &["--bogus"],
            &["createRuntime"],
        ] {
            assert_eq!(parse(bad), Err(Exit::Usage), "{bad:?}");
        }
    }
}
