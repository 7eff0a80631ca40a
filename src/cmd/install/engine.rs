//! `cudaview install` for an engine: what is written where, and what to type then.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::arguments::InstallArgs;
use crate::cmd::container::fate;
use crate::cmd::output::{Failure, print, style};
use crate::exit::Exit;
use crate::install::{Change, Refusal, Wanted, containerd, daemon_json, dropin, observe};
use crate::report::migration;
use crate::sys::containers::{self, Places};
use crate::sys::install::{InstallError, Place, engines, program};
use crate::sys::{configuration, inventory};

/// An engine that can be told of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Docker,
    Podman { user: bool },
    Containerd,
    Crio,
}

/// A file, and what is to become of it.
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) change: Change,
    /// Other people's words in the file are kept beside it.
    pub(super) keeps: bool,
}

/// What a containerd is taken for where it does not say.
const CONTAINERD: u32 = 2;

pub(super) fn install(engine: Engine, arguments: &InstallArgs) -> Result<(), Failure> {
    let root = &whole(&arguments.root)?;
    let program = program(root)?;
    let program = program.to_str().ok_or_else(|| InstallError::NoText(program.clone()))?;
    let wanted = Wanted { program, default: arguments.default_runtime };
    let prepared = engine.prepare(root, wanted)?;
    let observe = if arguments.observe { Some(prepare_observe(root)?) } else { None };
    let mut out = String::new();
    if let Some(observe) = &observe {
        out.push_str(&shown(observe));
    }
    let is_new = prepared.change != Change::None;
    out.push_str(&shown(&prepared));
    if is_new && prepared.keeps && prepared.place.text.is_some() {
        let _ = writeln!(out, "  (as it was: {})", prepared.place.backup_path().display());
    }
    let before = prepared.place.text.as_deref().filter(|_| engine == Engine::Docker && arguments.default_runtime);
    if let Some(path) = before.and_then(daemon_json::nvidia_default) {
        let _ = writeln!(out, "  containers no longer go through NVIDIA's runtime; to keep it below cudaview,");
        let _ = writeln!(out, "  write into {}\n    low_level_runtime = [\"{path}\"]", configuration::PATH);
    }
    out.push_str(engine.then(is_new));
    if arguments.dry_run {
        if engine == Engine::Docker && root == Path::new("/") {
            out.push_str(&report(arguments.default_runtime)?);
        }
        let _ = write!(out, "\nnothing was changed (--dry-run). Undo later: {}\n", engine.undo(root));
        return print(&out);
    }
    if let Some(Prepared { place, change: Change::Write(text), .. }) = &observe {
        place.write(text)?;
    }
    if let Change::Write(text) = &prepared.change {
        if prepared.keeps {
            engine.keep(&prepared.place, root)?;
        }
        prepared.place.write(text)?;
    }
    let _ = writeln!(out, "Undo later: {}", engine.undo(root));
    print(&out)
}

impl Engine {
    /// Every one of the host's.
    pub(super) const ALL: [Engine; 4] =
        [Engine::Docker, Engine::Podman { user: false }, Engine::Containerd, Engine::Crio];

    /// The word that is typed for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Podman { .. } => "podman",
            Engine::Containerd => "containerd",
            Engine::Crio => "crio",
        }
    }

    fn prepare(self, root: &Path, wanted: Wanted<'_>) -> Result<Prepared, Failure> {
        let place = self.look(root)?;
        let text = place.text.as_deref();
        // What is the default already stays it until it is uninstalled.
        let is_default = text.is_some_and(|text| match self.reader() {
            Some(reader) => dropin::is_default(reader, text),
            None => self.is_part(&place) && containerd::is_default(text),
        });
        let wanted = Wanted { default: wanted.default || is_default, ..wanted };
        let change = match self {
            Engine::Docker => {
                docker_can_be_told(root, wanted)?;
                daemon_json::install(text, wanted)
            }
            Engine::Podman { .. } | Engine::Crio => return self.prepare_part(place, wanted),
            Engine::Containerd if self.is_part(&place) => {
                let main = Place::look(root, below(root, containerd::MAIN))?;
                let new = containerd::drop_in(main.text.as_deref().unwrap_or_default(), wanted);
                let new = new.map_err(|refusal| left(&main.path, refusal))?;
                return part(place, new, containerd::is_ours);
            }
            Engine::Containerd => containerd::install(text, version(root), wanted),
        };
        let change = change.map_err(|refusal| left(&place.path, refusal))?;
        Ok(Prepared { place, change, keeps: true })
    }

    /// A file of our own in a folder of the engine's.
    fn prepare_part(self, place: Place, wanted: Wanted<'_>) -> Result<Prepared, Failure> {
        let Some(reader) = self.reader() else { return Ok(Prepared { place, change: Change::None, keeps: false }) };
        let others = engines::parts(&self.bases(&place), &place.path);
        let paths: Vec<String> = others.iter().map(|(path, ..)| path.display().to_string()).collect();
        let others: Vec<dropin::Other<'_>> = others
            .iter()
            .zip(&paths)
            .map(|((_, text, is_later), path)| dropin::Other { path, text, is_later: *is_later })
            .collect();
        let new = dropin::text(reader, &others, wanted).map_err(|refusal| left(&place.path, refusal))?;
        part(place, new, |text| dropin::is_ours(reader, text))
    }

    pub(super) fn reader(self) -> Option<dropin::Reader> {
        match self {
            Engine::Podman { .. } => Some(dropin::Reader::Podman),
            Engine::Crio => Some(dropin::Reader::Crio),
            Engine::Docker | Engine::Containerd => None,
        }
    }

    /// The file that is changed.
    pub(super) fn look(self, root: &Path) -> Result<Place, Failure> {
        let path = match self {
            Engine::Docker => below(root, "/etc/docker/daemon.json"),
            Engine::Podman { user: true } => return Ok(Place::look_anywhere(own_folder()?.join(dropin::FILE))?),
            Engine::Podman { user: false } => below(root, "/etc/containers/containers.conf.d").join(dropin::FILE),
            Engine::Crio => below(root, "/etc/crio/crio.conf.d").join(dropin::FILE),
            Engine::Containerd => {
                let main = Place::look(root, below(root, containerd::MAIN))?;
                if !containerd::takes_drop_ins(main.text.as_deref()) {
                    return Ok(main);
                }
                below(root, containerd::DROP_IN)
            }
        };
        Ok(Place::look(root, path)?)
    }

    /// Whether it is a file of our own.
    pub(super) fn is_part(self, place: &Place) -> bool {
        match self {
            Engine::Docker => false,
            Engine::Podman { .. } | Engine::Crio => true,
            Engine::Containerd => place.path.ends_with(containerd::DROP_IN.trim_start_matches('/')),
        }
    }

    /// The main files that the engine reads, each with the folder of its parts.
    fn bases(self, place: &Place) -> Vec<(PathBuf, PathBuf)> {
        let folder = place.path.parent().unwrap_or(Path::new("/")).to_owned();
        let base = |file: PathBuf| (file.clone(), file.with_extension("conf.d"));
        let own = (folder.with_extension(""), folder.clone());
        match self {
            Engine::Podman { user: true } => {
                let system = ["/usr/share/containers/containers.conf", "/etc/containers/containers.conf"];
                system.map(PathBuf::from).map(base).into_iter().chain([own]).collect()
            }
            Engine::Podman { user: false } => {
                let root = folder.ancestors().nth(3).unwrap_or(Path::new("/"));
                vec![base(root.join("usr/share/containers/containers.conf")), own]
            }
            _ => vec![own],
        }
    }

    /// Keeps the file of before, unless that is kept already, or there was none.
    fn keep(self, place: &Place, root: &Path) -> Result<(), Failure> {
        let text = place.text.as_deref().unwrap_or_default();
        let (is_installed, is_only_ours) = match self {
            Engine::Docker => (daemon_json::is_installed(text), daemon_json::is_only_ours(text)),
            _ => (containerd::is_installed(text), containerd::is_only_ours(text, version(root))),
        };
        if !is_installed || (place.backup()?.is_none() && !is_only_ours) {
            place.keep()?;
        }
        Ok(())
    }

    fn then(self, is_new: bool) -> &'static str {
        match (self, is_new) {
            (Engine::Docker, true) => {
                "then: systemctl reload docker (running containers are not touched)\n  \
                 --gpus without NVIDIA's toolkit needs more: cudaview install gpus-flag\n"
            }
            (Engine::Containerd, true) => {
                "then: systemctl restart containerd (it reads this when it starts; running\n  containers go on)\n"
            }
            (Engine::Crio, true) => {
                "then: systemctl restart crio (it reads this when it starts; running containers\n  go on)\n"
            }
            (Engine::Podman { .. }, true) => {
                "podman reads it with its next command: podman --runtime cudaview run ...\n"
            }
            (Engine::Docker, false) => "if Docker was not reloaded since: systemctl reload docker\n",
            (Engine::Containerd, false) => "if containerd was not restarted since: systemctl restart containerd\n",
            (Engine::Crio, false) => "if CRI-O was not restarted since: systemctl restart crio\n",
            (Engine::Podman { .. }, false) => "",
        }
    }

    fn undo(self, root: &Path) -> String {
        let user = if self == (Engine::Podman { user: true }) { " --user" } else { "" };
        let root = if root == Path::new("/") { String::new() } else { format!(" --root {}", root.display()) };
        format!("cudaview uninstall {}{user}{root}", self.word())
    }
}

/// The version of containerd.
pub(super) fn version(root: &Path) -> u32 {
    engines::containerd_version(root).unwrap_or(CONTAINERD)
}

/// A folder as it is called without links and with an absolute path.
pub(super) fn whole(root: &Path) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::usage(format!("failed to use --root {root:?}: {error}"), "");
    std::fs::canonicalize(root).map_err(failed)
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

// containers.conf(5)
fn own_folder() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let base = base.ok_or_else(|| Failure::usage("failed to find your configuration: HOME is not set", ""))?;
    Ok(base.join("containers/containers.conf.d"))
}

/// A file of our own: nothing but what is ours is ever replaced.
fn part(place: Place, new: String, is_ours: impl Fn(&str) -> bool) -> Result<Prepared, Failure> {
    let change = match place.text.as_deref() {
        Some(old) if old == new => Change::None,
        Some(old) if !old.trim().is_empty() && !is_ours(old) => {
            let text = "it has more in it than cudaview's runtime".to_owned();
            let hint = "move what is yours into a file of another name".to_owned();
            return Err(left(&place.path, Refusal { text, hint }));
        }
        _ => Change::Write(new),
    };
    Ok(Prepared { place, change, keeps: false })
}

/// A daemon that was started with such flags does not start with the same in its file.
fn docker_can_be_told(root: &Path, wanted: Wanted<'_>) -> Result<(), Failure> {
    if root != Path::new("/") {
        return Ok(());
    }
    let path = below(root, "/etc/docker/daemon.json");
    if let Some(file) = engines::docker_reads_another(&path) {
        let text = format!("the Docker daemon that runs has its configuration in {file:?}");
        return Err(left(&path, Refusal { text, hint: "add the runtime there by hand".to_owned() }));
    }
    let Some(flag) = engines::docker_clashes(&path, wanted.default).into_iter().next() else { return Ok(()) };
    let text = format!("dockerd was started with {flag}, and does not start with both that and such an entry here");
    let hint = format!("move what {flag} says into daemon.json first");
    Err(left(&path, Refusal { text, hint }))
}

/// A file that is left as it is.
pub(super) fn left(path: &Path, refusal: Refusal) -> Failure {
    let hint = refusal.hint.clone();
    let text = format!("{path:?} is left as it is");
    Failure::new(Exit::Refused, anyhow::Error::new(refusal).context(text), hint)
}

fn prepare_observe(root: &Path) -> Result<Prepared, Failure> {
    let path = if root == Path::new("/") { configuration::path() } else { below(root, configuration::PATH) };
    let place = Place::look(root, path)?;
    let change = observe::install(place.text.as_deref()).map_err(|refusal| left(&place.path, refusal))?;
    Ok(Prepared { place, change, keeps: false })
}

/// The file with what goes and what comes, line by line.
pub(super) fn shown(prepared: &Prepared) -> String {
    let path = prepared.place.path.display();
    let old = prepared.place.text.as_deref().unwrap_or_default();
    let new = match &prepared.change {
        Change::None => return format!("{path}\nnothing to do: it says so already\n"),
        Change::Remove => return format!("- {path}\n"),
        Change::Write(new) => new,
    };
    let mut out = match &prepared.place.text {
        Some(_) => format!("{path}{}\n", stays(old)),
        None => format!("{path} (new)\n"),
    };
    if prepared.place.path.ends_with("daemon.json") {
        for line in daemon_json::difference(old, new) {
            let _ = writeln!(out, "  {line}");
        }
        return out;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let (removed, added) = difference(&old, &new);
    for (sign, lines) in [("-", removed), ("+", added)] {
        for line in lines.iter().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
            let _ = writeln!(out, "  {sign} {line}");
        }
    }
    out
}

/// The runtimes of Docker's that an operator may be anxious about.
fn stays(old: &str) -> String {
    match daemon_json::others(old).as_slice() {
        [] => String::new(),
        [one] => format!(" (the runtime {one:?} in it stays)"),
        all => format!(" (the {} other runtimes in it stay)", all.len()),
    }
}

/// The lines between those that are the same at the beginning and at the end.
fn difference<'a>(old: &'a [&'a str], new: &'a [&'a str]) -> (&'a [&'a str], &'a [&'a str]) {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    (old.get(..old.len() - end).unwrap_or_default(), new.get(..new.len() - end).unwrap_or_default())
}

/// What would become of the containers that are there.
fn report(default: bool) -> Result<String, Failure> {
    let config = configuration::load()?;
    let search = containers::all_of_docker(&Places::of_environment());
    if search.found.is_empty() {
        let unanswered = search.looks.first().map(|look| format!("\nNo container was looked at: {}\n", look.outcome));
        return Ok(unanswered.unwrap_or_default());
    }
    let Ok(inventory) = inventory::load(&config, None) else {
        return Ok("\nWhat changes for the containers that exist here is not known: nor are the GPUs\n".to_owned());
    };
    let mut fates = Vec::new();
    for found in &search.found {
        let name = found.facts.container_name.clone().unwrap_or_else(|| containers::short(&found.id).to_owned());
        fates.extend(fate(found, &inventory, &config, default).map(|fate| (name, fate)));
    }
    fates.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(migration(&fates, default, style()))
}

impl From<InstallError> for Failure {
    fn from(error: InstallError) -> Self {
        let exit = if matches!(error, InstallError::Link { .. }) { Exit::Refused } else { Exit::Failed };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}
