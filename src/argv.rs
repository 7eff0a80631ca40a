//! The low-level runtime's command line, read as runc and crun read it, and never changed.
//!
//! Of `exec` only the words before the container's id are looked at: a program that is started in a container may well
//! be called `create`, and its arguments may well say `--bundle`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What the engine wants, as far as it concerns us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `create` or `run`: the bundle's `config.json` is about to be used.
    Create {
        /// `--bundle`; the working directory where absent.
        bundle: Option<PathBuf>,
        /// crun's `--config`: the file that counts instead of the bundle's `config.json`.
        config: Option<PathBuf>,
    },
    /// `exec`.
    Exec {
        /// `--process FILE`; absent when the command stands in the arguments.
        process: Option<PathBuf>,
    },
    /// `update`.
    Update {
        /// `--resources FILE`; `-` is standard input.
        resources: Option<PathBuf>,
    },
    /// Anything else: passed on unread.
    Other,
}

/// A command line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The subcommand.
    pub command: Command,
    /// The container's id, for the commands that we look at.
    pub id: Option<OsString>,
    /// `--log`.
    pub log: Option<PathBuf>,
    /// `--log-format json`.
    pub log_json: bool,
    /// `--root`.
    pub root: Option<PathBuf>,
    /// `--debug`.
    pub debug: bool,
}

/// Global options that take a value, of runc and of crun.
const GLOBAL_VALUES: &[&str] =
    &["root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager", "handler"];

const CREATE_VALUES: &[&str] =
    &["bundle", "b", "console-socket", "pid-file", "preserve-fds", "config", "f", "pidfd-socket"];

const EXEC_VALUES: &[&str] = &[
    "process",
    "p",
    "console-socket",
    "pid-file",
    "preserve-fds",
    "cwd",
    "env",
    "e",
    "user",
    "u",
    "additional-gids",
    "g",
    "process-label",
    "apparmor",
    "cap",
    "c",
    "cgroup",
    "pidfd-socket",
];

const UPDATE_VALUES: &[&str] = &[
    "resources",
    "r",
    "blkio-weight",
    "cpu-period",
    "cpu-quota",
    "cpu-burst",
    "cpu-rt-period",
    "cpu-rt-runtime",
    "cpu-share",
    "cpuset-cpus",
    "cpuset-mems",
    "cpu-idle",
    "kernel-memory",
    "kernel-memory-tcp",
    "memory",
    "memory-reservation",
    "memory-swap",
    "pids-limit",
    "l3-cache-schema",
    "mem-bw-schema",
];

/// Reads a command line, the program's own name left out.
pub fn parse(args: &[OsString]) -> Invocation {
    let mut words = Words { args, position: 0 };
    let mut out =
        Invocation { command: Command::Other, id: None, log: None, log_json: false, root: None, debug: false };
    while let Some(option) = words.option(GLOBAL_VALUES) {
        match (option.name, option.value) {
            (b"root", Some(value)) => out.root = Some(value.into()),
            (b"log", Some(value)) => out.log = Some(value.into()),
            (b"log-format", Some(value)) => out.log_json = value == "json",
            (b"debug", _) => out.debug = true,
            _ => {}
        }
    }
    match words.next().map(OsStr::as_bytes) {
        Some(b"create" | b"run") => {
            let (mut bundle, mut config) = (None, None);
            out.id = words.options_anywhere(CREATE_VALUES, |name, value| match name {
                b"bundle" | b"b" => bundle = value,
                b"config" | b"f" => config = value,
                _ => {}
            });
            out.command = Command::Create { bundle, config };
        }
        Some(b"exec") => {
            let mut process = None;
            while let Some(option) = words.option(EXEC_VALUES) {
                if matches!(option.name, b"process" | b"p") {
                    process = option.value.map(PathBuf::from);
                }
            }
            out.command = Command::Exec { process };
            out.id = words.next().map(OsStr::to_owned);
        }
        Some(b"update") => {
            let mut resources = None;
            out.id = words.options_anywhere(UPDATE_VALUES, |name, value| {
                if matches!(name, b"resources" | b"r") {
                    resources = value;
                }
            });
            out.command = Command::Update { resources };
        }
        _ => {}
    }
    out
}

struct Words<'a> {
    args: &'a [OsString],
    position: usize,
}

struct OptionWord<'a> {
    name: &'a [u8],
    value: Option<&'a OsStr>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a OsStr> {
        let word = self.args.get(self.position)?;
        self.position += 1;
        Some(word)
    }

    /// The next word, if it is an option; `--` ends them. Go's reader takes one dash or two for every name; C's takes
    /// two for a name or the beginning of one, and one for a letter, which its value may follow at once.
    fn option(&mut self, with_value: &'static [&'static str]) -> Option<OptionWord<'a>> {
        let word = self.args.get(self.position)?.as_bytes();
        let (dashes, name) = match word.strip_prefix(b"--") {
            Some(name) => (2, name),
            None => (1, word.strip_prefix(b"-")?),
        };
        if name.is_empty() {
            // `-` alone is an argument; `--` ends the options.
            self.position += usize::from(word == b"--");
            return None;
        }
        self.position += 1;
        let (name, value) = match name.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&name[..equals], Some(OsStr::from_bytes(&name[equals + 1..]))),
            None => (name, None),
        };
        if let Some(known) = with_value.iter().find(|known| known.as_bytes() == name) {
            return Some(OptionWord { name: known.as_bytes(), value: value.or_else(|| self.next()) });
        }
        if dashes == 2 {
            let whole = with_value.iter().find(|known| known.as_bytes().starts_with(name));
            let value = value.or_else(|| whole.and_then(|_| self.next()));
            return Some(OptionWord { name: whole.map_or(name, |known| known.as_bytes()), value });
        }
        // Letters without a value, of run and exec, may stand before one that has one.
        let letters =
            word[1..].iter().position(|letter| !matches!(letter, b'd' | b't')).map_or(&[][..], |at| &word[1 + at..]);
        let letter = letters.get(..1).and_then(|letter| with_value.iter().find(|known| known.as_bytes() == letter));
        let Some(letter) = letter else { return Some(OptionWord { name, value }) };
        let glued = Some(OsStr::from_bytes(&letters[1..])).filter(|glued| !glued.is_empty());
        Some(OptionWord { name: letter.as_bytes(), value: glued.or_else(|| self.next()) })
    }

    /// Reads all of a subcommand that takes one argument, the container's id, and gives it.
    /// runc takes its options behind the id too; nothing there comes from an image.
    fn options_anywhere(
        &mut self,
        with_value: &'static [&'static str],
        mut take: impl FnMut(&[u8], Option<PathBuf>),
    ) -> Option<OsString> {
        let mut id = None;
        while self.position < self.args.len() {
            if let Some(option) = self.option(with_value) {
                // An empty value is no value to runc, and takes an earlier one back.
                if let Some(value) = option.value {
                    take(option.name, (!value.is_empty()).then(|| PathBuf::from(value)));
                }
            } else if let Some(word) = self.next() {
                id = id.or_else(|| Some(word.to_owned()));
            }
        }
        id
    }
}

/// The value of a long option in a hook's arguments: `--name VALUE` or `--name=VALUE`; the last one counts.
pub fn option<'a>(args: &[&'a str], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if *arg == name {
            found = args.next().copied();
        } else if let Some(value) = arg.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Invocation {
        parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn create(bundle: Option<&str>) -> Command {
        Command::Create { bundle: bundle.map(PathBuf::from), config: None }
    }

    #[test]
    fn engines_lines() {
        let docker =
            read("--root /run/r/moby --log /b/log.json --log-format json create --bundle /b --pid-file /b/init.pid c1");
        assert_eq!(docker.command, create(Some("/b")));
        assert_eq!((docker.id, docker.log, docker.log_json), (Some("c1".into()), Some("/b/log.json".into()), true));
        let exec =
            read("--root R --log L --log-format json exec --process /tmp/p --detach --pid-file F c1 create --bundle x");
        assert_eq!(exec.command, Command::Exec { process: Some("/tmp/p".into()) });
        assert_eq!(exec.id, Some("c1".into()));
        let podman = read("--log-format=json --log /l --cgroup-manager disabled create --bundle /u --pid-file /p c2");
        assert_eq!((podman.command, podman.id), (create(Some("/u")), Some("c2".into())));
        let update = read("update --resources=/var/tmp/x c3");
        assert_eq!(
            (update.command, update.id),
            (Command::Update { resources: Some("/var/tmp/x".into()) }, Some("c3".into()))
        );
    }

    #[test]
    fn words_that_only_look_like_create() {
        for line in [
            "--root create state c",
            "--log create kill c",
            "delete create",
            "state create",
            "features",
            "--version",
            "-v",
            "start create",
        ] {
            assert_eq!(read(line).command, Command::Other, "{line}");
        }
        assert_eq!(read("exec c create").command, Command::Exec { process: None });
        assert_eq!(read("--bundle=create exec c").command, Command::Exec { process: None });
        assert_eq!(read("--log x create create").id, Some("create".into()));
        assert_eq!(read("create -- --bundle").id, Some("--bundle".into()));
    }

    #[test]
    fn forms_of_an_option() {
        for line in [
            "create --bundle /b c",
            "create --bundle=/b c",
            "create -b /b c",
            "create -bundle=/b c",
            "create -b=/b c",
            "--debug --systemd-cgroup run -d -b /b c",
        ] {
            assert_eq!(read(line).command, create(Some("/b")), "{line}");
        }
        assert_eq!(read("create c").command, create(None));
        assert_eq!(read("create --bundle= c").command, create(None));
        assert_eq!(read("create -b /a --bundle /b c").command, create(Some("/b")));
        assert_eq!(read("create --bundle /a --bundle= c").command, create(None));
        assert_eq!(read("exec -p /f -t c").command, Command::Exec { process: Some("/f".into()) });
        assert_eq!(read("exec --process=/f c").command, Command::Exec { process: Some("/f".into()) });
        assert!(read("--debug create c").debug);
    }

    /// runc takes options behind the id, and crun takes beginnings of names, a letter with its value, and another file.
    /// Each of these lines starts a container, and none of them past us.
    #[test]
    fn forms_that_one_runtime_takes() {
        for line in [
            "create c --bundle /b",
            "run c --detach=false --bundle=/b",
            "create --bund /b c",
            "create --b=/b c",
            "run -b/b c",
            "run -db/b c",
            "run -db /b c",
            "--log-f json --cgroup-m cgroupfs run -b /b c",
        ] {
            let read = read(line);
            assert_eq!((read.command, read.id), (create(Some("/b")), Some("c".into())), "{line}");
        }
        for line in ["run --config /f -b /b c", "run -f /f --bundle /b c", "run --conf=/f -b/b c", "run -f/f -b /b c"] {
            let expected = Command::Create { bundle: Some("/b".into()), config: Some("/f".into()) };
            assert_eq!(read(line).command, expected, "{line}");
        }
        assert_eq!(read("update c --resources f").command, Command::Update { resources: Some("f".into()) });
        assert_eq!(read("exec c --process f").command, Command::Exec { process: None });
    }

    #[test]
    fn hook_arguments() {
        let args = ["cudaview-hook", "createRuntime", "--gpus", "all", "--root=/r"];
        assert_eq!(option(&args, "--gpus"), Some("all"));
        assert_eq!(option(&args, "--root"), Some("/r"));
        assert_eq!(option(&args, "--node"), None);
    }
}
