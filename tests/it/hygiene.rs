//! What our programs are as processes, looked at from outside: descriptors, environment, signals, working directory, limits,
//! and what they ask of the kernel. `T1` and so on are the tests of the threat model (docs/threat-model.md).

mod hook;
mod injected;
mod kernel;
mod release;
mod streams;
mod wrapper;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Variables with which an image, or whoever starts a program, could make it do something else.
const HOSTILE: [(&str, &str); 16] = [
    ("LD_PRELOAD", "./evil.so"),
    ("LD_AUDIT", "./evil.so"),
    ("LD_LIBRARY_PATH", "."),
    ("LD_DEBUG", "all"),
    ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
    ("GCONV_PATH", "."),
    ("LOCPATH", "."),
    ("NLSPATH", "./%N"),
    ("PATH", "."),
    ("BASH_ENV", "./evil"),
    ("RUST_BACKTRACE", "full"),
    ("RUST_LOG", "trace"),
    ("TMPDIR", "/nowhere"),
    ("HOME", "/nowhere"),
    ("CUDA_VISIBLE_DEVICES", "7"),
    ("CUDAVIEW_CONFIG", "/nowhere/config.toml"),
];

/// A program that waits for the end of its standard input.
struct Waiting {
    child: Child,
}

impl Waiting {
    /// Starts it and waits until it has become this program, and sleeps.
    #[track_caller]
    fn start(command: &mut Command, program: &Path) -> Waiting {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut waiting = Waiting { child };
        let end = Instant::now() + Duration::from_millis(4500);
        let mut asleep = 0;
        let program = program.canonicalize().unwrap();
        // More than once: a program also sleeps for a moment while it is being loaded.
        while asleep < 20 {
            assert!(waiting.child.try_wait().unwrap().is_none(), "it ended");
            assert!(Instant::now() < end, "it does not wait: {}", waiting.text("status"));
            let is_there = fs::read_link(waiting.path("exe")).is_ok_and(|exe| exe == program);
            asleep = if is_there && waiting.field("State:").starts_with('S') { asleep + 1 } else { 0 };
            sleep(Duration::from_millis(5));
        }
        waiting
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    #[track_caller]
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A line of `/proc/PID/status`.
    #[track_caller]
    fn field(&self, name: &str) -> String {
        let status = self.text("status");
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    /// A set of signals, without the C library's own two, which cannot be changed.
    #[track_caller]
    fn signals(&self, name: &str) -> u64 {
        u64::from_str_radix(&self.field(name), 16).unwrap() & !0x1_8000_0000
    }

    /// The numbers of its descriptors.
    #[track_caller]
    fn descriptors(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.path("fd")).unwrap();
        let mut numbers: Vec<u32> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Ends its standard input, and says how it ended.
    fn finish(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
