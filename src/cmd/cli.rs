//! The command line of `cudaview`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use super::install::arguments::{INSTALL_AFTER, InstallTarget, UNINSTALL_AFTER, UninstallArgs};
use super::output::{Failure, print, report, style};
use super::{demo, doctor, explain, install, inventory, job, lint, log, manual, predict, ps};
use crate::exit::Exit;
use crate::spelling;

/// What `cudaview` without arguments prints.
const SCREEN: &str = "\
cudaview: which GPUs does a container's program see, and who decided it

Put cudaview explain -- in front of a docker or podman command:
  cudaview explain -- docker run --gpus '\"device=1,3\"' IMAGE
or ask about a container, an image or a Compose file:
  cudaview explain --container NAME

  explain    what the program will see, who decided it, what to type instead
  lint       faults in Dockerfiles, Compose files, images, docker run lines
  doctor     why there is no GPU, the wrong one, or one too few
  ps         who holds which GPU
  log        what was changed or refused, newest last
  flags      the GPUs of this shell, as flags for docker run
  inventory  the GPUs of this host, and their names and numbers
  predict    what CUDA alone would show
  demo       three what-ifs over a server that is not there
  install    tell Docker, podman, containerd or CRI-O about cudaview

Inside a container GPUs are numbered from 0, in the order of the host.
More: cudaview help COMMAND
";

const MORE: &str = "More: man cudaview, man cudaview-runtime, man cudaview-hook";

/// Which GPUs does a container's program see, and who decided it
#[derive(Debug, Parser)]
#[command(name = "cudaview", version, max_term_width = 80, disable_help_flag = false, after_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What the program will see, who decided it, what to type instead
    #[command(after_help = EXPLAIN_AFTER, override_usage = EXPLAIN_USAGE)]
    Explain(Box<ExplainArgs>),
    /// Faults in Dockerfiles, Compose files, images, docker run lines
    #[command(after_help = LINT_AFTER, override_usage = LINT_USAGE)]
    Lint(LintArgs),
    /// The GPUs of this host, and their names and numbers
    #[command(after_help = INVENTORY_AFTER)]
    Inventory(InventoryArgs),
    /// What CUDA alone would show, before any rewrite
    #[command(after_help = PREDICT_AFTER)]
    Predict(PredictArgs),
    /// Why there is no GPU, the wrong one, or one too few
    #[command(after_help = DOCTOR_AFTER)]
    Doctor(DoctorArgs),
    /// Who holds which GPU
    #[command(after_help = PS_AFTER)]
    Ps(PsArgs),
    /// What was changed or refused, newest last
    #[command(after_help = LOG_AFTER)]
    Log(LogArgs),
    /// The GPUs of this shell, as flags for docker run
    #[command(after_help = FLAGS_AFTER)]
    Flags(FlagsArgs),
    /// Three what-ifs over a server that is not there; needs no root, no engine and no GPU
    Demo,
    /// What makes a shell complete cudaview's commands
    #[command(after_help = COMPLETION_AFTER)]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Manual {
        /// Into this folder
        folder: PathBuf,
    },
    /// Tell Docker, podman, containerd or CRI-O about cudaview
    #[command(arg_required_else_help = false, after_help = INSTALL_AFTER)]
    Install {
        #[command(subcommand)]
        target: InstallTarget,
    },
    /// Take away what install has set up
    #[command(arg_required_else_help = false, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = UNINSTALL_AFTER)]
    Uninstall(UninstallArgs),
}

const EXPLAIN_USAGE: &str = "\
cudaview explain [OPTIONS]
       cudaview explain [OPTIONS] -- docker run …
       cudaview explain --container ID|NAME
       cudaview explain --compose FILE [--service NAME]
       cudaview explain CODE";

/// What `explain` takes, for whoever put a whole `docker run` behind it.
pub(super) const EXPLAIN_TAKES: &str = "a whole command goes behind two dashes: cudaview explain -- docker run …; \
                                        without them explain takes --gpus, --device, -e, --env-file and --privileged";

const EXPLAIN_AFTER: &str = "\
Examples:
  cudaview explain --gpus all --image-env CUDA_VISIBLE_DEVICES=0
  cudaview explain --device nvidia.com/gpu=1 -e CUDA_VISIBLE_DEVICES=1
  cudaview explain --gpus device=1 --exec-env CUDA_VISIBLE_DEVICES=0
  cudaview explain --gpus all --image pytorch-cuda:v2.6
  cudaview explain -- docker run --rm --gpus all -e CUDA_VISIBLE_DEVICES=1 IMAGE
  cudaview explain --compose compose.yaml --service trainer
  cudaview explain --container trainer
  cudaview explain host-index-override

-- takes docker, podman or nerdctl run, or docker compose up, and looks the
image up itself; where it is not there the report says so.

--image takes a name in the store of Docker, podman or (for root) containerd,
an OCI layout (a folder or a tar file), or what docker save wrote; of several
in one file, FILE:NAME. The report names the step of its making that set each
variable. Nothing is pulled, started or unpacked.

--compose reads one file with its .env and env_file, as Compose does; variables
of your shell count. Several services are a table, --service one report.

--container asks Docker's socket ($DOCKER_HOST), podman's storage and
containerd's state ($CONTAINERD_ADDRESS), and only reads. Whoever may talk to
Docker, or owns a rootless container, needs no root; root sees in the bundle
what was really done. A container that is gone is looked up in the audit trail.

CODE is the name of a finding, as a report shows it; its page is printed.
It ends with 0 whatever it explains; the verdict stands in the first line.";

/// What `lint` takes, for whoever left the dashes out.
pub(super) const LINT_TAKES: &str = "a whole command stands behind --: cudaview lint -- docker run ...";

const LINT_USAGE: &str = "\
cudaview lint [OPTIONS] FILE...
       cudaview lint [OPTIONS] --image IMAGE
       cudaview lint [OPTIONS] -- docker run ...";

const LINT_AFTER: &str = "\
Examples:
  cudaview lint Dockerfile compose.yaml
  cudaview lint -- docker run --gpus device=0,2 IMAGE
  cudaview lint --image pytorch-cuda:v2.6
  cudaview lint --format json Dockerfile

It needs no root and no GPU, and no engine but for an image in its store: an OCI
layout and what docker save wrote are files. FILE may be - for standard input;
what it is is told by its name, or by what is in it. A whole command of docker,
podman or nerdctl stands behind --, as it would be typed.

A comment silences a finding in the line below it, or in its own line in YAML:
  # cudaview: ignore=CODE
  # cudaview: ignore-file=CODE   (in the whole file)
cudaview explain CODE prints what a finding means.
It ends with 1 when something was found, with 0 when nothing was.";

const INVENTORY_AFTER: &str = "\
Sources, the first that answers: --inventory, the file that config.toml names,
/proc/driver/nvidia, the cache in /run/cudaview, NVML.";

const PS_AFTER: &str = "\
A container holds the GPUs that it can open, whether cudaview gave them or not.
Whoever may talk to Docker, or owns a rootless container, sees those without
root. A GPU with a dash may still be in use by what cannot be seen from here.";

const COMPLETION_AFTER: &str = "\
Examples:
  cudaview completion bash >/etc/bash_completion.d/cudaview
  source <(cudaview completion zsh)";

const LOG_AFTER: &str = "\
Examples:
  cudaview log -n 1 --findings
  cudaview log --follow
  cudaview log -n 1000 --format json | jq 'select(.verdict == \"refused\")'

A record is written for each container that got GPUs, was refused, or had a
request ignored, where the configuration's audit says: the journal, or
/var/log/cudaview/audit.jsonl on a host without one.";

const DOCTOR_AFTER: &str = "\
The checks stand in the order of causes: the first problem can be the reason
for those below it. Each says what follows from it, what was looked at, and
what to type. Nothing is changed, started or loaded; NVML is not asked.

Without root it leaves out what only root may see, and says so.
--container compares what was decided for it with what is there; nothing in it
is run, and its processes are not joined.
It ends with 0 where there is no problem, and with 1 where there is one.";

const FLAGS_AFTER: &str = "\
Examples, in a job of a scheduler:
  docker run --runtime cudaview $(cudaview flags) IMAGE
  podman run $(cudaview flags --device) IMAGE

The GPUs are those that a CUDA program started here would see: by this shell's
CUDA_VISIBLE_DEVICES, else by SLURM_STEP_GPUS where no cgroup limits it, else
all that its cgroup lets it open. Each node is opened once to find that out.
Where this is not certain nothing is printed, and it ends with 4.";

const PREDICT_AFTER: &str = "\
Examples:
  cudaview predict --cuda-visible-devices 0,0
  cudaview predict --cuda-visible-devices -1 --format json

Without --cuda-visible-devices the variable counts as unset.";

/// How a report is written. The JSON is for programs, and its form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Human,
    Json,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Print the page of a finding, such as host-index-override
    // A list, so that a command or an image in its place can be told what to leave out.
    #[arg(value_name = "CODE", hide = true)]
    pub(super) words: Vec<String>,
    #[command(flatten)]
    pub(super) what_if: WhatIfArgs,
    /// Take the container from DIR/config.json instead
    #[arg(long, value_name = "DIR")]
    pub(super) bundle: Option<PathBuf>,
    /// Take a container of Docker, podman or containerd, by name or id
    #[arg(long, value_name = "ID|NAME")]
    pub(super) container: Option<String>,
    /// Take ENV from an image: a name in an engine's store, an OCI layout, a docker save archive
    #[arg(long, value_name = "REF|PATH")]
    pub(super) image: Option<String>,
    /// Take containers from the services of a Compose file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bundle", "container"])]
    pub(super) compose: Option<PathBuf>,
    /// One service of the Compose file
    #[arg(long, value_name = "NAME", requires = "compose")]
    pub(super) service: Vec<String>,
    /// An entry of docker exec -e; asks about a process that is added
    #[arg(long, value_name = "K=V")]
    pub(super) exec_env: Vec<String>,
    /// The host's GPUs, as cudaview inventory --format json prints them
    #[arg(long, value_name = "FILE")]
    pub(super) inventory: Option<PathBuf>,
    /// A configuration in place of /etc/cudaview/config.toml
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(super) struct WhatIfArgs {
    /// As docker run --gpus: all, 2, device=1, '"device=1,3"'
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    pub(super) gpus: Vec<String>,
    /// As --device: nvidia.com/gpu=1, nvidia.com/gpu=all, /dev/nvidia1
    #[arg(long, value_name = "NAME")]
    pub(super) device: Vec<String>,
    /// As -e; a bare K unsets
    #[arg(short, long, value_name = "K=V")]
    pub(super) env: Vec<String>,
    /// As docker run --env-file: lines K=V, which count as -e
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Vec<PathBuf>,
    /// An entry of the image's ENV
    #[arg(long, value_name = "K=V")]
    pub(super) image_env: Vec<String>,
    /// An entry of unknown origin: -e or ENV
    #[arg(long, value_name = "K=V")]
    pub(super) unknown_env: Vec<String>,
    /// As docker run --privileged
    #[arg(long)]
    pub(super) privileged: bool,
    /// cudaview is the engine's default runtime, not named with --runtime
    #[arg(long)]
    pub(super) default_runtime: bool,
}

#[derive(Debug, Args)]
pub(super) struct LintArgs {
    /// Dockerfiles, Containerfiles, Compose files, and images in files
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<String>,
    /// An image of Docker's, podman's or containerd's, or one in a file; may be repeated
    #[arg(long, value_name = "IMAGE")]
    pub(super) image: Vec<String>,
    /// A whole command
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(super) command: Vec<String>,
    /// A finding that nobody wants to hear of; may be repeated
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(super) ignore: Vec<String>,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct InventoryArgs {
    /// A file in place of this host
    #[arg(long, value_name = "FILE", conflicts_with = "refresh")]
    pub(super) inventory: Option<PathBuf>,
    /// Ask NVML and keep the answer in /run/cudaview; needs root
    #[arg(long)]
    pub(super) refresh: bool,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    /// The host's GPUs, as cudaview inventory --format json prints them
    #[arg(long, value_name = "FILE")]
    pub(super) inventory: Option<PathBuf>,
    /// CUDA_VISIBLE_DEVICES
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    pub(super) cuda_visible_devices: Option<String>,
    /// CUDA_DEVICE_ORDER
    #[arg(long, value_name = "O")]
    pub(super) cuda_device_order: Option<String>,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct PsArgs {
    /// The host's GPUs, as cudaview inventory --format json prints them
    #[arg(long, value_name = "FILE")]
    pub(super) inventory: Option<PathBuf>,
    /// A configuration in place of /etc/cudaview/config.toml
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// The newest N records
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 20)]
    pub(super) lines: usize,
    /// Go on with what is written from now on
    #[arg(short, long)]
    pub(super) follow: bool,
    /// What was found, and what to type instead, below each line
    #[arg(long)]
    pub(super) findings: bool,
    /// A configuration in place of /etc/cudaview/config.toml
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// How to write it; json is a record a line, as in docs/audit.md
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Show the problems alone
    #[arg(long)]
    pub(super) problems: bool,
    /// Look into a running container, from outside: its nodes, its device rules, its variables
    #[arg(long, value_name = "ID|NAME", conflicts_with = "root")]
    pub(super) container: Option<String>,
    /// The system below DIR in place of this one
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    pub(super) root: PathBuf,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct FlagsArgs {
    /// CDI names for --device, as podman takes them, in place of --gpus
    #[arg(long)]
    pub(super) device: bool,
    /// The host's GPUs, as cudaview inventory --format json prints them
    #[arg(long, value_name = "FILE")]
    pub(super) inventory: Option<PathBuf>,
    /// A configuration in place of /etc/cudaview/config.toml
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// Runs the command that the arguments name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let done = match Cli::try_parse_from(&arguments) {
        Ok(cli) => run(cli),
        Err(error) => {
            let command = arguments.get(1).and_then(|command| command.to_str()).unwrap_or_default();
            wrong_arguments(&error, command).map(|()| Exit::Done)
        }
    };
    let exit = match done {
        Ok(exit) => exit,
        Err(failure) => report(&failure),
    };
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    let done = match cli.command {
        Some(Command::Lint(arguments)) => return lint::run(&arguments),
        Some(Command::Doctor(arguments)) => return doctor::run(&arguments),
        Some(Command::Uninstall(arguments)) => return install::uninstall(&arguments),
        None => print(&style().screen(SCREEN)),
        Some(Command::Explain(arguments)) => explain::run(&arguments),
        Some(Command::Inventory(arguments)) => inventory::run(&arguments),
        Some(Command::Predict(arguments)) => predict::run(&arguments),
        Some(Command::Completion { shell }) => manual::completion(shell, &Cli::command()),
        Some(Command::Manual { folder }) => manual::pages(&folder, Cli::command()),
        Some(Command::Ps(arguments)) => ps::run(&arguments),
        Some(Command::Log(arguments)) => log::run(&arguments),
        Some(Command::Flags(arguments)) => job::run(&arguments),
        Some(Command::Demo) => demo::run(),
        Some(Command::Install { target }) => install::install(&target),
    };
    done.map(|()| Exit::Done)
}

/// clap's answer in the house's form: one line, one hint.
fn wrong_arguments(error: &clap::Error, command: &str) -> Result<(), Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return print(&error.to_string());
    }
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let is_said = |line: &&&str| {
        !["tip:", "[possible", "For more"].iter().any(|start| line.starts_with(start)) && !line.is_empty()
    };
    let message = lines.iter().filter(is_said).copied().collect::<Vec<_>>().join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
    let tip = lines.iter().find_map(|line| line.strip_prefix("tip: ")).map(str::to_owned);
    let possible = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => Some(format!("one of: {}", values.join(", "))),
        _ => None,
    };
    let takes = match command {
        "explain" => Some(EXPLAIN_TAKES),
        "lint" => Some(LINT_TAKES),
        _ => None,
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument && !is_misspelt(error);
    let takes = takes.filter(|_| is_unknown).map(str::to_owned);
    let hint = takes.or(tip).or(possible).unwrap_or_else(|| "cudaview --help, or cudaview help COMMAND".to_owned());
    Err(Failure::new(Exit::Usage, anyhow::anyhow!(message), hint))
}

/// Whether a flag is but a letter or two away from one that there is.
fn is_misspelt(error: &clap::Error) -> bool {
    match (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg)) {
        (Some(ContextValue::String(typed)), Some(ContextValue::String(near))) => {
            typed.starts_with("--") && spelling::distance(typed, near) <= 2
        }
        _ => false,
    }
}
