//! `cudaview uninstall` for an engine, and for all of them.

use std::path::Path;

use super::arguments::UninstallEngineArgs;
use super::engine::{Engine, Prepared, left, shown, version, whole};
use crate::cmd::output::{Failure, print};
use crate::exit::Exit;
use crate::install::{Change, Refusal, containerd, daemon_json, dropin};
use crate::sys::install::dependents::{self, Dependent};
use crate::sys::stand_in;

pub(super) fn one(engine: Engine, arguments: &UninstallEngineArgs) -> Result<Exit, Failure> {
    let root = &whole(&arguments.root)?;
    let dependents = engine.dependents(root);
    if arguments.check {
        return check(&dependents);
    }
    let prepared = engine.prepare_removal(root)?;
    if prepared.change == Change::None {
        print(&format!("nothing to do: {} has no cudaview in it\n", prepared.place.path.display()))?;
        return Ok(Exit::Done);
    }
    refuse(&dependents, arguments.force)?;
    print(&remove(engine, &prepared, arguments.dry_run)?)?;
    end(arguments.dry_run)
}

/// Everything that `install` can set up for the host.
pub(super) fn all(arguments: &UninstallEngineArgs) -> Result<Exit, Failure> {
    let root = &whole(&arguments.root)?;
    let mut dependents: Vec<Dependent> = Engine::ALL.iter().flat_map(|engine| engine.dependents(root)).collect();
    dependents.sort();
    dependents.dedup();
    if arguments.check {
        return check(&dependents);
    }
    // Whatever is in the way of one is known before any other is changed.
    let mut prepared = Vec::new();
    for engine in Engine::ALL {
        let one = engine.prepare_removal(root)?;
        if one.change != Change::None {
            prepared.push((engine, one));
        }
    }
    let link = stand_in::Place::look(root).ok().filter(stand_in::Place::is_installed);
    if prepared.is_empty() && link.is_none() {
        print("nothing to do: no engine here knows cudaview\n")?;
        return Ok(Exit::Done);
    }
    refuse(&dependents, arguments.force)?;
    for (engine, one) in &prepared {
        print(&remove(*engine, one, arguments.dry_run)?)?;
    }
    if let Some(link) = link {
        if !arguments.dry_run {
            link.uninstall()?;
        }
        print(&format!("- {}\n", link.path.display()))?;
    }
    end(arguments.dry_run)
}

fn end(dry_run: bool) -> Result<Exit, Failure> {
    if dry_run {
        print("\nnothing was changed (--dry-run)\n")?;
    }
    Ok(Exit::Done)
}

/// Names the containers that depend on the runtime: for people, and for a package's scripts.
fn check(dependents: &[Dependent]) -> Result<Exit, Failure> {
    if dependents.is_empty() {
        print("no container depends on cudaview's runtime\n")?;
        return Ok(Exit::Done);
    }
    let line = |one: &Dependent| format!("{}\t{}\t{}", one.engine.to_lowercase(), one.name, one.id);
    let lines: Vec<String> = dependents.iter().map(line).collect();
    print(&format!("{}\n", lines.join("\n")))?;
    Ok(Exit::Failed)
}

/// How many containers are named in one line.
const NAMED: usize = 10;

fn refuse(dependents: &[Dependent], force: bool) -> Result<(), Failure> {
    if dependents.is_empty() || force {
        return Ok(());
    }
    let mut names: Vec<&str> = dependents.iter().map(|one| one.name.as_str()).take(NAMED).collect();
    if dependents.len() > NAMED {
        names.push("...");
    }
    let text = match dependents.len() {
        1 => format!("a container depends on cudaview's runtime: {}", names.join(", ")),
        count => format!("{count} containers depend on cudaview's runtime: {}", names.join(", ")),
    };
    let hint = "remove them first; with --force they stay, and cannot be started any more";
    Err(Failure::new(Exit::Refused, anyhow::anyhow!(text), hint))
}

fn remove(engine: Engine, prepared: &Prepared, dry_run: bool) -> Result<String, Failure> {
    let place = &prepared.place;
    if !dry_run {
        if let Change::Write(text) = &prepared.change {
            place.write(text)?;
        }
        if prepared.keeps {
            place.forget()?;
        }
        if prepared.change == Change::Remove {
            place.remove()?;
        }
    }
    Ok(format!("{}{}", shown(prepared), engine.then_forget()))
}

impl Engine {
    fn dependents(self, root: &Path) -> Vec<Dependent> {
        match self {
            Engine::Docker => dependents::docker(root),
            Engine::Podman { .. } => dependents::podman(root),
            Engine::Containerd => dependents::containerd(root),
            Engine::Crio => dependents::crio(root),
        }
    }

    fn prepare_removal(self, root: &Path) -> Result<Prepared, Failure> {
        let place = self.look(root)?;
        let text = place.text.as_deref();
        if self.is_part(&place) {
            let is_ours = |text: &str| match self.reader() {
                Some(reader) => dropin::is_ours(reader, text),
                None => containerd::is_ours(text),
            };
            let change = match text {
                None => Change::None,
                Some(text) if is_ours(text) => Change::Remove,
                Some(_) => {
                    let text = "it has more in it than cudaview's runtime".to_owned();
                    let hint = "take cudaview's lines out by hand".to_owned();
                    return Err(left(&place.path, Refusal { text, hint }));
                }
            };
            return Ok(Prepared { place, change, keeps: false });
        }
        let backup = place.backup()?;
        let change = match self {
            Engine::Docker => daemon_json::uninstall(text, backup.as_deref()),
            // Asked only where there is something to take out.
            _ if text.is_some_and(containerd::is_installed) => {
                containerd::uninstall(text, version(root), backup.as_deref())
            }
            _ => Ok(Change::None),
        };
        let change = change.map_err(|refusal| left(&place.path, refusal))?;
        Ok(Prepared { place, change, keeps: true })
    }

    fn then_forget(self) -> &'static str {
        match self {
            Engine::Docker => "then: systemctl reload docker (running containers are not touched)\n",
            Engine::Containerd => "then: systemctl restart containerd (running containers go on)\n",
            Engine::Crio => "then: systemctl restart crio (running containers go on)\n",
            Engine::Podman { .. } => "podman reads it with its next command\n",
        }
    }
}
