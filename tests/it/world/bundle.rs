//! A container of a low-level runtime, without an engine above it.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use serde_json::Value;
use tempfile::TempDir;

use super::command::{LIMIT, Ran, run, run_into};
use super::count::{Access, COUNT, Count};
use super::{cgroup, find_program, mounts, rootfs, spec};

/// runc, about once in a hundred runs on a busy machine, when it copies itself; nothing of the container exists yet.
pub(crate) const RUNC_LOST_A_RACE: &str = "could not ensure we are a cloned binary: Device or resource busy";

/// Which of the machine's cgroup hierarchies the runtime sees; this decides how device rules are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupView {
    /// What the machine has.
    Machine,
    /// Only version 2: device rules are a BPF program, which is attached before any hook runs.
    OnlyV2,
    /// Version 1 without the version 2 mount beside it, which crun 1.8 does not take.
    WithoutUnified,
}

impl CgroupView {
    /// A shell script that makes the view in a mount namespace of its own and becomes its arguments.
    fn script(self) -> Option<&'static str> {
        match self {
            CgroupView::Machine => None,
            CgroupView::OnlyV2 => {
                Some("mount -t tmpfs none /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"")
            }
            CgroupView::WithoutUnified => Some(
                "! mountpoint -q /sys/fs/cgroup/unified || mount -t tmpfs none /sys/fs/cgroup/unified; exec \"$@\"",
            ),
        }
    }
}

/// A bundle and the runtime's own state folder. The container is removed with it.
pub(crate) struct Bundle {
    /// Always there until it is dropped.
    folder: Option<TempDir>,
    runtime: PathBuf,
    view: CgroupView,
    id: String,
    /// The engine's own copy of the process.
    engine_process: Value,
}

impl Bundle {
    /// A bundle for plain runc over the root file system of an inventory fixture's machine.
    ///
    /// The root is an overlay, so the container may write what it likes.
    #[track_caller]
    pub(crate) fn new(inventory_name: &str, args: &[&str], env: &[&str]) -> Bundle {
        Bundle::with_runtime(&find_program("runc"), inventory_name, args, env)
    }

    /// The same for another runtime, cudaview's wrapper for example.
    #[track_caller]
    pub(crate) fn with_runtime(runtime: &Path, inventory_name: &str, args: &[&str], env: &[&str]) -> Bundle {
        let lower = rootfs(inventory_name);
        let folder = tempfile::Builder::new().prefix("bundle").tempdir().unwrap();
        let id = folder.path().file_name().unwrap().to_str().unwrap().replace('.', "");
        for name in ["rootfs", "upper", "work", "state"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        mount_overlay(&lower, folder.path());
        let spec = spec::template(args, env, &format!("{}/{id}", cgroup()));
        let engine_process = spec["process"].clone();
        let bundle =
            Bundle { folder: Some(folder), runtime: runtime.to_owned(), view: CgroupView::Machine, id, engine_process };
        bundle.write_spec(&spec);
        bundle
    }

    /// The same container where the runtime sees other cgroups. To be called before anything is run.
    pub(crate) fn seeing(mut self, view: CgroupView) -> Bundle {
        self.view = view;
        self
    }

    /// The bundle's folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// The container's id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The container's root file system, as the host sees it.
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path().join("rootfs")
    }

    /// The container's specification.
    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("config.json")
    }

    /// The specification as it now is.
    pub(crate) fn spec(&self) -> Value {
        serde_json::from_slice(&fs::read(self.config()).unwrap()).unwrap()
    }

    /// Replaces the specification; the engine's own copy of the process, which `exec` uses, stays what it was.
    pub(crate) fn write_spec(&self, spec: &Value) {
        fs::write(self.config(), serde_json::to_vec(spec).unwrap()).unwrap();
    }

    /// Changes the specification.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut spec = self.spec();
        change(&mut spec);
        self.write_spec(&spec);
    }

    /// The runtime with its global options, as an engine calls it; the subcommand is to follow.
    pub(crate) fn command(&self) -> Command {
        let mut command = match self.view.script() {
            None => Command::new(&self.runtime),
            Some(script) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "slave", "sh", "-c", script, "sh"]).arg(&self.runtime);
                command
            }
        };
        command.arg("--root").arg(self.path().join("state"));
        command.arg("--log").arg(self.log_file()).args(["--log-format", "json"]);
        command.current_dir(self.path());
        command
    }

    /// What the runtime wrote to its `--log` file.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// `run`: the whole life of the container.
    #[track_caller]
    pub(crate) fn run(&self) -> Ran {
        self.retried(|command| {
            command.args(["run", "--bundle"]).arg(self.path()).arg(&self.id);
            run(command)
        })
    }

    /// Runs the counting program as the container's own process, and says what it saw.
    #[track_caller]
    pub(crate) fn count(&self) -> Count {
        Count::of(self.run())
    }

    /// `create`: what the container will write can be read with [`Bundle::output`].
    #[track_caller]
    pub(crate) fn create(&self) -> Ran {
        self.retried(|command| {
            command.args(["create", "--bundle"]).arg(self.path());
            command.arg("--pid-file").arg(self.path().join("init.pid")).arg(&self.id);
            let stdout = output_file(&self.path().join("stdout"));
            let stderr = output_file(&self.path().join("stderr"));
            run_into(command, Stdio::null(), LIMIT, &stdout, &stderr)
        })
    }

    /// `start`.
    #[track_caller]
    pub(crate) fn start(&self) -> Ran {
        run(self.command().args(["start", &self.id]))
    }

    /// `create` and `start`, both without an error.
    #[track_caller]
    pub(crate) fn up(&self) {
        self.create().ok();
        self.start().ok();
    }

    /// `exec`, as an engine does it: a process file with the environment that the engine knows, which is the one from
    /// before any rewriting, and with these variables put over it.
    #[track_caller]
    pub(crate) fn exec(&self, args: &[&str], env: &[&str]) -> Ran {
        let mut process = self.engine_process.clone();
        process["args"] = args.into();
        let entries = process["env"].as_array_mut().unwrap();
        for variable in env {
            set_variable(entries, variable);
        }
        self.retried(|command| {
            let mut file = tempfile::Builder::new().prefix("process").tempfile_in(self.path()).unwrap();
            serde_json::to_writer(&mut file, &process).unwrap();
            command.arg("exec").arg("--process").arg(file.path()).arg(&self.id);
            run(command)
        })
    }

    /// The counting program through `exec`.
    #[track_caller]
    pub(crate) fn exec_count(&self, env: &[&str]) -> Count {
        Count::of(self.exec(&COUNT, env))
    }

    /// Makes a GPU's node in the running container and opens it.
    #[track_caller]
    pub(crate) fn try_mknod(&self, minor: u32) -> Access {
        let command = Access::command(minor);
        Access::of(self.exec(&command.each_ref().map(String::as_str), &[]))
    }

    /// `kill`.
    #[track_caller]
    pub(crate) fn kill(&self, signal: &str) -> Ran {
        run(self.command().args(["kill", &self.id, signal]))
    }

    /// `delete --force`.
    #[track_caller]
    pub(crate) fn delete(&self) -> Ran {
        run(self.command().args(["delete", "--force", &self.id]))
    }

    /// `state`, where the runtime knows the container.
    #[track_caller]
    pub(crate) fn state(&self) -> Option<Value> {
        let ran = run(self.command().args(["state", &self.id]));
        (ran.code == 0)
            .then(|| serde_json::from_str(&ran.stdout).unwrap_or_else(|err| panic!("not JSON ({err}): {ran}")))
    }

    /// Waits until the container's process has ended, and gives what it wrote to its standard output.
    #[track_caller]
    pub(crate) fn output(&self) -> String {
        let end = Instant::now() + LIMIT;
        while self.state().is_some_and(|state| state["status"] != "stopped") {
            assert!(Instant::now() < end, "container {} did not end", self.id);
            sleep(Duration::from_millis(20));
        }
        fs::read_to_string(self.path().join("stdout")).unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.path().join("log.json")
    }

    #[track_caller]
    fn retried(&self, attempt: impl Fn(&mut Command) -> Ran) -> Ran {
        for _ in 0..5 {
            let ran = attempt(&mut self.command());
            if !ran.stderr.contains(RUNC_LOST_A_RACE) {
                return ran;
            }
            let _cleaned = run(self.command().args(["delete", "--force", &self.id]));
        }
        panic!("runc could not copy itself five times in a row");
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _output = self.command().args(["delete", "--force", &self.id]).stdin(Stdio::null()).output();
        if let Some(folder) = self.folder.take() {
            mounts::remove(folder);
        }
    }
}

fn output_file(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

fn mount_overlay(lower: &Path, folder: &Path) {
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        folder.join("upper").display(),
        folder.join("work").display()
    );
    let options = CString::new(options).unwrap();
    mount("overlay", folder.join("rootfs"), "overlay", MountFlags::empty(), options.as_c_str())
        .unwrap_or_else(|err| panic!("failed to mount an overlay over {}: {err}", lower.display()));
}

/// Sets a variable in place, or appends it, as Docker does (moby `ReplaceOrAppendEnvValues`).
fn set_variable(env: &mut Vec<Value>, variable: &str) {
    let (key, _value) = variable.split_once('=').expect("K=V");
    let same =
        |entry: &&mut Value| entry.as_str().is_some_and(|entry| entry.split_once('=').is_some_and(|(k, _)| k == key));
    match env.iter_mut().find(same) {
        Some(entry) => *entry = variable.into(),
        None => env.push(variable.into()),
    }
}
