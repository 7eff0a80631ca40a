//! `cudaview install` and `uninstall`: what is set up on a host on request, and taken away again.

pub(super) mod arguments;
mod engine;
mod uninstall;

use std::path::Path;

use arguments::{InstallTarget, StandInArgs, UninstallArgs, UninstallTarget};
use engine::Engine;

use super::output::{Failure, print};
use crate::exit::Exit;
use crate::sys::stand_in::{Change, Place, StandInError};

/// What follows a change that only a new start of Docker takes notice of.
const RESTART: &str = "\
then: systemctl restart docker
  Docker looks for this program once, when it starts: a reload is not enough.
  A restart stops running containers unless live-restore is set.
";

const INSTALLED: &str = "
Docker then takes --gpus, and cudaview's runtime gives the GPUs:
  docker run --runtime cudaview --gpus all IMAGE
Under another runtime such a container does not start, and says why.
";

// dockerd looks for it when it starts, and again with each container.
const UNINSTALLED: &str = "\
Docker refuses --gpus from now on, also for containers that were created with
it. Until it is restarted it says that this program is not found.
";

const ALREADY: &str = "\
nothing to do: it is there
if Docker was not restarted since: systemctl restart docker
";

const DRY_RUN: &str = "\nnothing was changed (--dry-run)\n";

pub(super) fn install(target: &InstallTarget) -> Result<(), Failure> {
    match target {
        InstallTarget::Docker(arguments) => engine::install(Engine::Docker, arguments),
        InstallTarget::Podman(arguments) => engine::install(Engine::Podman { user: arguments.user }, &arguments.engine),
        InstallTarget::Containerd(arguments) => engine::install(Engine::Containerd, arguments),
        InstallTarget::Crio(arguments) => engine::install(Engine::Crio, arguments),
        InstallTarget::GpusFlag(arguments) => print(&install_stand_in(arguments)?),
    }
}

pub(super) fn uninstall(arguments: &UninstallArgs) -> Result<Exit, Failure> {
    let (engine, arguments) = match &arguments.target {
        None => return uninstall::all(&arguments.engine),
        Some(UninstallTarget::Docker(arguments)) => (Engine::Docker, arguments),
        Some(UninstallTarget::Podman(arguments)) => (Engine::Podman { user: arguments.user }, &arguments.engine),
        Some(UninstallTarget::Containerd(arguments)) => (Engine::Containerd, arguments),
        Some(UninstallTarget::Crio(arguments)) => (Engine::Crio, arguments),
        Some(UninstallTarget::GpusFlag(arguments)) => {
            return print(&uninstall_stand_in(arguments)?).map(|()| Exit::Done);
        }
    };
    uninstall::one(engine, arguments)
}

fn install_stand_in(arguments: &StandInArgs) -> Result<String, StandInError> {
    let place = Place::look(&arguments.root)?;
    place.check_free()?;
    let target = place.target()?;
    let link = format!("{} -> {}", place.path.display(), target.display());
    let undo = undo(&arguments.root);
    if place.leads_to(&target) {
        return Ok(format!("{link}\n{ALREADY}{INSTALLED}{undo}"));
    }
    if arguments.dry_run {
        return Ok(format!("+ {link}\n{RESTART}{INSTALLED}{undo}{DRY_RUN}"));
    }
    place.install(&target)?;
    Ok(format!("+ {link}\n{RESTART}{INSTALLED}{undo}"))
}

/// The command that takes it away from the system that it was put into.
fn undo(root: &Path) -> String {
    let root = if root == Path::new("/") { String::new() } else { format!(" --root {}", root.display()) };
    format!("Undo later: cudaview uninstall gpus-flag{root}\n")
}

fn uninstall_stand_in(arguments: &StandInArgs) -> Result<String, StandInError> {
    let place = Place::look(&arguments.root)?;
    let path = place.path.display();
    if arguments.dry_run && place.is_installed() {
        return Ok(format!("- {path}\n{UNINSTALLED}{DRY_RUN}"));
    }
    match place.uninstall()? {
        Change::None => Ok(format!("nothing to do: {path} is not there\n")),
        _ => Ok(format!("- {path}\n{UNINSTALLED}")),
    }
}

impl From<StandInError> for Failure {
    fn from(error: StandInError) -> Self {
        let exit = if error.is_refusal() { Exit::Refused } else { Exit::Failed };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}
