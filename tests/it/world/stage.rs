//! A container that is being created, as a createRuntime hook finds it, without a runtime.
//!
//! A process in a mount namespace of its own, with a root and a `/dev` that are tmpfs. It is made in a few milliseconds,
//! and the hook can be started in any way that a test wants.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::artifacts::attackers;
use super::command::{Ran, run, run_into};
use super::{find_program, require};

const HOOK: &str = env!("CARGO_BIN_EXE_cudaview-hook");

/// The waiting process; its namespace goes with it.
pub(crate) struct Stage {
    folder: TempDir,
    process: Child,
}

/// How the hook ended, how long it took, and its system calls where they were recorded.
pub(crate) struct Hooked {
    pub(crate) ran: Ran,
    pub(crate) took: Duration,
    pub(crate) calls: String,
}

impl Hooked {
    /// The calls from the moment on at which the hook had joined the container.
    #[track_caller]
    pub(crate) fn calls_inside(&self) -> &str {
        let at = self.calls.find("setns(").unwrap_or_else(|| panic!("it joined nothing: {}", self.calls));
        &self.calls[at..]
    }

    /// Fails the test unless the hook refused, with this text in its message and in less than a second.
    #[track_caller]
    pub(crate) fn refused(&self, text: &str) {
        assert!(self.ran.code == 1 && self.ran.stderr.contains(text), "not refused with {text:?}: {}", self.ran);
        assert!(self.took < Duration::from_secs(1), "{:?}: {}", self.took, self.ran);
    }
}

impl Stage {
    /// A shell script prepares it from inside the namespace: `$R` is the root, `$F` the folder that the root lies in,
    /// and `$A` has the attack programs.
    #[track_caller]
    pub(crate) fn new(script: &str) -> Stage {
        require(&["unshare", "nsenter", "mount"]);
        let folder = tempfile::Builder::new().prefix("stage").tempdir().unwrap();
        fs::create_dir(folder.path().join("rootfs")).unwrap();
        fs::create_dir(folder.path().join("canary")).unwrap();
        let script = format!(
            "set -eu; mount -t tmpfs -o mode=755 root $R; mkdir $R/dev $R/proc $R/tmp $R/etc; \
             mount -t tmpfs -o mode=755,nosuid dev $R/dev; {script}\necho ready; read -r end || true"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c", &script]);
        command.env("R", folder.path().join("rootfs")).env("F", folder.path()).env("A", attackers());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        let read = process.stdout.take().unwrap().read_exact(&mut ready);
        assert!(read.is_ok() && ready == *b"ready\n", "the script failed: {script}");
        Stage { folder, process }
    }

    /// The container's root.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("rootfs")
    }

    /// A folder outside the root in which nothing may appear.
    pub(crate) fn canary(&self) -> PathBuf {
        self.folder.path().join("canary")
    }

    /// Fails the test unless the folder outside is still empty.
    #[track_caller]
    pub(crate) fn nothing_outside(&self) {
        let names: Vec<_> = fs::read_dir(self.canary()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.is_empty(), "outside the root: {names:?}");
    }

    /// What a script prints that runs in the container's mount namespace.
    #[track_caller]
    pub(crate) fn inside(&self, script: &str) -> String {
        let mut command = Command::new("nsenter");
        command.arg("--mount").arg("-t").arg(self.process.id().to_string()).args(["sh", "-c", script]);
        command.env("R", self.root()).env("F", self.folder.path()).env("A", attackers());
        run(&mut command).ok().stdout
    }

    /// Starts a script in the container's mount namespace and does not wait for it.
    pub(crate) fn beside(&self, script: &str) -> Child {
        let mut command = Command::new("nsenter");
        command.arg("--mount").arg("-t").arg(self.process.id().to_string()).args(["sh", "-c", script]);
        command.env("R", self.root()).env("F", self.folder.path()).env("A", attackers());
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Runs the hook for these nodes.
    #[track_caller]
    pub(crate) fn hook(&self, nodes: &[&str]) -> Hooked {
        self.hook_under(&[], nodes)
    }

    /// Runs the hook for these nodes, and records its system calls.
    #[track_caller]
    pub(crate) fn traced(&self, nodes: &[&str]) -> Hooked {
        self.traced_with(&[], nodes)
    }

    /// The same with further options of strace.
    #[track_caller]
    pub(crate) fn traced_with(&self, options: &[&str], nodes: &[&str]) -> Hooked {
        let calls = self.folder.path().join("calls");
        let strace = find_program("strace");
        let words = [&[strace.to_str().unwrap(), "-f", "-s", "4096", "-o", calls.to_str().unwrap()][..], options];
        let hooked = self.hook_under(&words.concat(), nodes);
        Hooked { calls: fs::read_to_string(calls).unwrap(), ..hooked }
    }

    /// Runs the hook with further arguments.
    #[track_caller]
    pub(crate) fn hook_with(&self, arguments: &[&str], nodes: &[&str]) -> Hooked {
        self.start(&[], arguments, nodes)
    }

    /// Runs the hook by way of another program.
    #[track_caller]
    pub(crate) fn hook_under(&self, words: &[&str], nodes: &[&str]) -> Hooked {
        self.start(words, &[], nodes)
    }

    #[track_caller]
    fn start(&self, words: &[&str], arguments: &[&str], nodes: &[&str]) -> Hooked {
        let state = self.folder.path().join("state.json");
        let pid = self.process.id();
        fs::write(&state, format!("{{\"id\":\"stage\",\"pid\":{pid},\"bundle\":\"/\"}}")).unwrap();
        let mut line: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        line.extend([HOOK.to_owned(), "createRuntime".to_owned(), format!("--root={}", self.root().display())]);
        line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        line.extend(nodes.iter().map(|node| format!("--node={node}")));
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        let output = |name: &str| {
            let file = self.folder.path().join(name);
            File::options().read(true).write(true).create(true).truncate(true).open(file).unwrap()
        };
        let begin = Instant::now();
        let stdin = Stdio::from(File::open(&state).unwrap());
        let limit = Duration::from_secs(30);
        let ran = run_into(&mut command, stdin, limit, &output("stdout"), &output("stderr"));
        Hooked { ran, took: begin.elapsed(), calls: String::new() }
    }

    /// The command line of an attack program.
    pub(crate) fn attacker(name: &str) -> PathBuf {
        attackers().join(name)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// So many nodes of capabilities, as `--node` takes them.
pub(crate) fn capability_nodes(count: u32) -> Vec<String> {
    (1..=count).map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor}=236:{minor}")).collect()
}

/// Whether a folder has anything in it.
#[track_caller]
pub(crate) fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}
