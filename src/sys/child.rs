//! Another program that is asked something: its answer, with a limit on the time and on the length.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often an ended program is looked for once its output has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// A program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It does not start.
    #[error("failed to start")]
    Start(#[source] io::Error),
    /// It did not end in time.
    #[error("no answer within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// Its output cannot be read.
    #[error("failed to read the output")]
    Read(#[from] io::Error),
}

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct Answer {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub complaint: Vec<u8>,
}

impl Answer {
    /// The first line of what it wrote to standard error, or how it ended.
    pub fn first_complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.complaint);
        let line = text.lines().next().unwrap_or_default();
        if line.is_empty() { self.status.to_string() } else { line.to_owned() }
    }
}

/// Runs a program to its end without standard input. Past the time it is killed; of longer outputs the rest is lost.
///
/// # Errors
/// [`ChildError`] where it does not start, or does not end in time.
pub fn ask(command: &mut Command, patience: Duration, limit: u64) -> Result<Answer, ChildError> {
    let deadline = Instant::now() + patience;
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(ChildError::Start)?;
    let answer = wait(&mut child, deadline, limit).map_err(|error| match error {
        ChildError::Timeout(_) => ChildError::Timeout(patience),
        other => other,
    });
    if answer.is_err() {
        // It may have ended meanwhile; either way nobody waits for its answer.
        drop(child.kill());
        drop(child.wait());
    }
    answer
}

fn wait(child: &mut Child, deadline: Instant, limit: u64) -> Result<Answer, ChildError> {
    let output = read_apart(child.stdout.take(), limit);
    let complaint = read_apart(child.stderr.take(), limit);
    let left = || deadline.saturating_duration_since(Instant::now());
    let timeout = || ChildError::Timeout(Duration::ZERO);
    let receive = |receiver: &mpsc::Receiver<io::Result<Vec<u8>>>| match receiver.recv_timeout(left()) {
        Ok(text) => Ok(text?),
        Err(RecvTimeoutError::Timeout) => Err(timeout()),
        Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
    };
    let (output, complaint) = (receive(&output)?, receive(&complaint)?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Answer { status, output, complaint });
        }
        if left().is_zero() {
            return Err(timeout());
        }
        thread::sleep(PAUSE);
    }
}

/// Reads a pipe in a thread of its own, which ends with the pipe.
fn read_apart(pipe: Option<impl Read + Send + 'static>, limit: u64) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = pipe.map_or(Ok(0), |pipe| pipe.take(limit).read_to_end(&mut text));
        // Nobody listens after a timeout.
        drop(sender.send(read.map(|_| text)));
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: u64) -> Result<Answer, ChildError> {
        ask(Command::new("sh").args(["-c", script]), Duration::from_secs(1), limit)
    }

    #[test]
    fn an_answer_has_limits() {
        let answer = shell("echo one; echo two >&2; exit 3", 100).expect("an answer");
        assert_eq!((answer.output.as_slice(), answer.status.code()), (b"one\n".as_slice(), Some(3)));
        assert_eq!(answer.first_complaint(), "two");
        assert_eq!(shell("echo one", 2).expect("an answer").output, b"on");
        assert!(matches!(shell("exec sleep 10", 100), Err(ChildError::Timeout(_))));
        let error = ask(&mut Command::new("/no/such/program"), Duration::from_secs(1), 1).expect_err("none");
        assert!(matches!(error, ChildError::Start(_)));
    }
}
