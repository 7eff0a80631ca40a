//! Running a program with a time limit, and what came of it.

use std::fmt;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time that any one command may take unless the test says otherwise.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a program wrote and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// The exit code; 128 plus the number for a program ended by a signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    command: String,
}

impl Ran {
    /// What came of a command that someone else ran.
    pub(crate) fn new(command: &str, code: i32, stdout: &str) -> Ran {
        Ran { code, stdout: stdout.to_owned(), stderr: String::new(), command: command.to_owned() }
    }

    /// Fails the test unless the program ended with 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.code == 0, "{self}");
        self
    }

    /// Fails the test unless the program ended with this code.
    #[track_caller]
    pub(crate) fn failed_with(self, code: i32) -> Self {
        assert!(self.code == code, "expected exit code {code}: {self}");
        self
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ran { code, stdout, stderr, command } = self;
        write!(out, "{command}\nended with {code}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---")
    }
}

/// Runs a program to its end with no standard input.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    run_limited(command, Stdio::null(), LIMIT)
}

/// Runs a program to its end with the given text as standard input.
#[track_caller]
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Ran {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    run_limited(command, file.into(), LIMIT)
}

/// Makes a program from these bytes, by way of another process.
///
/// Tests run as threads of one process under `cargo test`, and whatever one of them starts inherits for a moment what
/// the others have open: a file that this process opened for writing could not be executed then (`ETXTBSY`).
#[track_caller]
pub(crate) fn write_program(path: &Path, content: &[u8]) {
    let mut command = Command::new("sh");
    run_with_input(command.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path), content).ok();
}

/// Runs a program to its end; past the limit it is killed and the test fails.
///
/// Output goes to files and not to pipes: a container that outlives `runtime create` holds its standard output open,
/// and waiting for a pipe's end would be waiting for the container.
#[track_caller]
pub(crate) fn run_limited(command: &mut Command, stdin: Stdio, limit: Duration) -> Ran {
    run_into(command, stdin, limit, &tempfile::tempfile().unwrap(), &tempfile::tempfile().unwrap())
}

/// The same with files of the caller's for the output, which something that lives on may go on writing to.
#[track_caller]
pub(crate) fn run_into(command: &mut Command, stdin: Stdio, limit: Duration, stdout: &File, stderr: &File) -> Ran {
    command.stdin(stdin).stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap_or_else(|err| panic!("failed to start {command:?}: {err}"));

    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    let ran = Ran {
        code: status.map_or(-1, exit_code),
        stdout: text_of(stdout),
        stderr: text_of(stderr),
        command: format!("{command:?}"),
    };
    assert!(status.is_some(), "did not end within {limit:?}: {ran}");
    ran
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn text_of(file: &File) -> String {
    // The position is shared with whoever writes: it must not be moved.
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
