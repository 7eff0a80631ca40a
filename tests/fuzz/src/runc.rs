//! runc's command line as its own library reads it, for `create`, `run` and `exec`.
//!
//! Go's `flag` takes one dash or two, `--name=VALUE` or `--name VALUE`, and ends at the first word that is no option or
//! behind `--`. urfave/cli hands what is left to the subcommand, and lets options stand behind the argument of every
//! subcommand but `exec`.

/// What runc does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// A container from this bundle; an empty one is the working directory.
    Create { id: String, bundle: String },
    /// A process, from this file; an empty one is none.
    Exec { id: String, process: String },
    /// Anything else, help and errors included.
    Other,
}

const GLOBAL: [&str; 5] = ["log", "log-format", "root", "criu", "rootless"];
const GLOBAL_SWITCHES: [&str; 2] = ["debug", "systemd-cgroup"];
const CREATE: [&str; 6] = ["bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"];
const CREATE_SWITCHES: [&str; 5] = ["no-pivot", "no-new-keyring", "detach", "d", "keep"];
const EXEC: [&str; 18] = [
    "console-socket",
    "pidfd-socket",
    "cwd",
    "env",
    "e",
    "user",
    "u",
    "additional-gids",
    "g",
    "process",
    "p",
    "pid-file",
    "process-label",
    "apparmor",
    "cap",
    "c",
    "preserve-fds",
    "cgroup",
];
const EXEC_SWITCHES: [&str; 5] = ["tty", "t", "detach", "d", "no-new-privs"];

/// Options read from the front of these words: their last values, and how many words they are.
fn options(words: &[String], valued: &[&str], switches: &[&str]) -> Option<(Vec<(String, String)>, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else { break };
        at += 1;
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.is_empty() {
            break;
        }
        if name.starts_with(['-', '=']) {
            return None;
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        if switches.contains(&name) {
            let value = value.unwrap_or_else(|| "true".to_owned());
            if !["true", "false", "1", "0", "t", "f", "T", "F", "TRUE", "FALSE", "True", "False"].contains(&&*value) {
                return None;
            }
        } else if valued.contains(&name) {
            let value = match value {
                Some(value) => value,
                None => {
                    at += 1;
                    words.get(at - 1)?.clone()
                }
            };
            // Read as a number.
            if name == "preserve-fds" && value.parse::<i32>().is_err() {
                return None;
            }
            found.push((name.to_owned(), value));
        } else {
            return None;
        }
    }
    Some((found, at))
}

/// The value of an option, empty where it is absent; `None` for both of its names at once, which runc refuses.
fn last(found: &[(String, String)], long: &str, short: &str) -> Option<String> {
    let of = |wanted: &str| found.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    match (of(long), of(short)) {
        (Some(_), Some(_)) => None,
        (one, other) => Some(one.or(other).unwrap_or_default()),
    }
}

/// What runc makes of these words; `None` where it refuses them.
pub fn started(words: &[String]) -> Option<Started> {
    let (_, count) = options(words, &GLOBAL, &GLOBAL_SWITCHES)?;
    let mut rest = &words[count..];
    let command = rest.first().map(String::as_str);
    rest = rest.get(1..).unwrap_or_default();
    match command {
        Some("create" | "run") => {
            let mut found = Vec::new();
            let mut arguments = Vec::new();
            while !rest.is_empty() {
                let (more, count) = options(rest, &CREATE, &CREATE_SWITCHES)?;
                found.extend(more);
                let ended = count > 0 && rest[count - 1] == "--";
                rest = &rest[count..];
                if ended {
                    arguments.extend(rest.iter().cloned());
                    break;
                }
                if let Some(word) = rest.first() {
                    arguments.push(word.clone());
                    rest = &rest[1..];
                }
            }
            let [id] = <[String; 1]>::try_from(arguments).ok()?;
            Some(Started::Create { id, bundle: last(&found, "bundle", "b")? })
        }
        Some("exec") => {
            let (found, count) = options(rest, &EXEC, &EXEC_SWITCHES)?;
            let id = rest.get(count)?.clone();
            Some(Started::Exec { id, process: last(&found, "process", "p")? })
        }
        _ => Some(Started::Other),
    }
}
