//! What `install` and `uninstall` take.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(in crate::cmd) enum InstallTarget {
    /// A runtime in daemon.json: docker run --runtime cudaview
    Docker(InstallArgs),
    /// A runtime in containers.conf.d: podman --runtime cudaview run
    Podman(PodmanInstallArgs),
    /// A handler in config.toml, or beside it: Kubernetes' runtimeClassName
    Containerd(InstallArgs),
    /// A handler in crio.conf.d: Kubernetes' runtimeClassName
    Crio(InstallArgs),
    /// What makes Docker take --gpus where NVIDIA's toolkit is not installed
    #[command(after_help = GPUS_FLAG_AFTER)]
    GpusFlag(StandInArgs),
}

#[derive(Debug, Subcommand)]
pub(in crate::cmd) enum UninstallTarget {
    /// The runtime in daemon.json
    Docker(UninstallEngineArgs),
    /// The file in containers.conf.d
    Podman(PodmanUninstallArgs),
    /// The handler in config.toml, or the file beside it
    Containerd(UninstallEngineArgs),
    /// The file in crio.conf.d
    Crio(UninstallEngineArgs),
    /// The link for --gpus
    #[command(after_help = GPUS_FLAG_AFTER)]
    GpusFlag(StandInArgs),
}

pub(in crate::cmd) const INSTALL_AFTER: &str = "\
Examples:
  sudo cudaview install docker --dry-run
  sudo cudaview install docker
  cudaview install podman --user

A file that is there keeps its order, its comments and its spaces; the one of
before stays beside it until uninstall. What is not understood is left alone,
with 3. Nothing is restarted: what to type is said.";

pub(in crate::cmd) const UNINSTALL_AFTER: &str = "\
Examples:
  sudo cudaview uninstall docker --dry-run
  sudo cudaview uninstall --all --check

While containers depend on the runtime it ends with 3, names them, and changes
nothing. --check only names them, and ends with 1 where there are any: a
package asks so before it is removed.";

const GPUS_FLAG_AFTER: &str = "\
Docker takes --gpus only where it finds nvidia-container-runtime-hook when it
starts. This is a link of that name in /usr/bin to cudaview-hook. It gives no
GPUs: cudaview's runtime does. A container that is started with --gpus under
another runtime fails, and says why.

install ends with 3 where that name, nvidia-cdi-hook or amd-container-runtime is
another program's, and changes nothing. uninstall removes cudaview's link only.";

#[derive(Debug, Args)]
pub(in crate::cmd) struct StandInArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(in crate::cmd) dry_run: bool,
    /// The system below DIR in place of this one
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    pub(in crate::cmd) root: PathBuf,
}

#[derive(Debug, Args)]
pub(in crate::cmd) struct InstallArgs {
    /// Say what would be done and what would change for the containers that exist, and do nothing
    #[arg(long)]
    pub(in crate::cmd) dry_run: bool,
    /// Make it the runtime of containers for which none is named
    #[arg(long)]
    pub(in crate::cmd) default_runtime: bool,
    /// Decide and write it down, and change no container: mode = "observe" in cudaview's config.toml
    #[arg(long)]
    pub(in crate::cmd) observe: bool,
    /// The system below DIR in place of this one
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    pub(in crate::cmd) root: PathBuf,
}

#[derive(Debug, Args)]
pub(in crate::cmd) struct PodmanInstallArgs {
    #[command(flatten)]
    pub(in crate::cmd) engine: InstallArgs,
    /// For your own containers alone; needs no root
    #[arg(long, conflicts_with_all = ["root", "observe"])]
    pub(in crate::cmd) user: bool,
}

#[derive(Debug, Args)]
pub(in crate::cmd) struct UninstallArgs {
    /// Everything that install has set up
    #[arg(long, required = true)]
    pub(in crate::cmd) all: bool,
    #[command(flatten)]
    pub(in crate::cmd) engine: UninstallEngineArgs,
    #[command(subcommand)]
    pub(in crate::cmd) target: Option<UninstallTarget>,
}

#[derive(Debug, Args)]
pub(in crate::cmd) struct UninstallEngineArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(in crate::cmd) dry_run: bool,
    /// Only name the containers that depend on the runtime; ends with 1 where there are any
    #[arg(long)]
    pub(in crate::cmd) check: bool,
    /// Even where containers depend on the runtime: they cannot be started any more
    #[arg(long)]
    pub(in crate::cmd) force: bool,
    /// The system below DIR in place of this one
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    pub(in crate::cmd) root: PathBuf,
}

#[derive(Debug, Args)]
pub(in crate::cmd) struct PodmanUninstallArgs {
    #[command(flatten)]
    pub(in crate::cmd) engine: UninstallEngineArgs,
    /// For your own containers alone; needs no root
    #[arg(long, conflicts_with = "root")]
    pub(in crate::cmd) user: bool,
}
