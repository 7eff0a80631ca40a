//! A whole typed command: `docker run …`, `podman run …`, `nerdctl run …`, `docker compose up …`.
//!
//! Read as the engines read it (Go's `pflag`), with the place of each flag in the words, so that a report can point at it.

mod flags;

use std::ops::Range;

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `docker`
    Docker,
    /// `podman`
    Podman,
    /// `nerdctl`
    Nerdctl,
}

impl Client {
    /// The name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Client::Docker => "docker",
            Client::Podman => "podman",
            Client::Nerdctl => "nerdctl",
        }
    }
}

/// A command that was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// `run` or `create`.
    Run(TypedRun),
    /// `compose up` and its like.
    Compose(TypedCompose),
}

/// `docker run …`, or `create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedRun {
    /// Whose command it is.
    pub client: Client,
    /// All words, as the shell passes them on.
    pub words: Vec<String>,
    /// Every flag behind `run`, in order.
    pub flags: Vec<Flag>,
    /// The image's place in the words; `None` where none was typed.
    pub image: Option<usize>,
    /// The places of the words behind the image: the program and its arguments.
    pub arguments: Range<usize>,
    /// The places of flags that are in no table; whether they take the next word was guessed.
    pub unknown: Vec<usize>,
}

/// `docker compose … up …`, `docker-compose`, `podman compose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedCompose {
    /// Whose command it is.
    pub client: Client,
    /// All words.
    pub words: Vec<String>,
    /// Every flag, of Compose and of `up`.
    pub flags: Vec<Flag>,
    /// `up`, `run`, `config`…; `None` where none was typed.
    pub verb: Option<usize>,
    /// The places of the words behind the verb that are no flags: services.
    pub services: Vec<usize>,
}

/// A flag that was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its long name, without dashes: `env` for `-e`. One that is in no table stands as typed.
    pub name: String,
    /// Its value: the next word, or what stands behind `=` or behind its letter. A switch has one only with `=`.
    pub value: Option<String>,
    /// The words that it takes; several letters in one word share it.
    pub words: Range<usize>,
    /// Where the flag itself begins in its first word, in bytes: past the dash for a letter among others.
    pub starts: usize,
    /// Where its value begins: the word, and the byte in that word.
    pub value_at: Option<(usize, usize)>,
}

impl Flag {
    /// Whether a switch is on: alone, or with a value that Go reads as true.
    pub fn is_on(&self) -> bool {
        // strconv.ParseBool
        self.value.as_deref().is_none_or(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }
}

/// What cannot be read as a command that starts a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommand {
    /// No words.
    #[error("no command was given")]
    Empty,
    /// It begins with something else than an engine's client.
    #[error("{0:?} is neither docker, podman nor nerdctl")]
    Client(String),
    /// `docker build`.
    #[error("{0:?} starts no container")]
    Verb(String),
    /// A flag at the end that takes a value.
    #[error("{0} needs a value")]
    NoValue(String),
}

/// Words that may stand before the client and change nothing of what it is told.
const PREFIXES: [&str; 5] = ["sudo", "env", "time", "nohup", "exec"];

/// Reads the words of a command. One word that holds the whole command is taken apart as a shell would.
///
/// # Errors
/// [`InvalidCommand`] for what starts no container.
pub fn parse(words: &[String]) -> Result<Typed, InvalidCommand> {
    let mut words = words.to_vec();
    if let [only] = words.as_slice()
        && only.contains(char::is_whitespace)
    {
        words = crate::shell::split(only).into_iter().map(|word| word.text).collect();
    }
    let before = words.iter().take_while(|word| is_prefix(word)).count();
    let Some(first) = words.get(before) else { return Err(InvalidCommand::Empty) };
    let name = first.rsplit('/').next().unwrap_or(first);
    let client = match name {
        "docker" => Client::Docker,
        "podman" => Client::Podman,
        "nerdctl" => Client::Nerdctl,
        "docker-compose" => return compose(Client::Docker, words, before + 1),
        "podman-compose" => return compose(Client::Podman, words, before + 1),
        _ => return Err(InvalidCommand::Client(first.clone())),
    };
    let mut at = before + 1;
    let global = Table { values: flags::GLOBAL_VALUES, switches: flags::GLOBAL_SWITCHES };
    let mut ignored = Vec::new();
    global.read(&words, &mut at, &mut Vec::new(), &mut ignored)?;
    if words.get(at).is_some_and(|word| word == "container") {
        at += 1;
    }
    match words.get(at).map(String::as_str) {
        Some("run" | "create") => run(client, words, at + 1),
        Some("compose") => compose(client, words, at + 1),
        Some(other) => Err(InvalidCommand::Verb(format!("{name} {other}"))),
        None => Err(InvalidCommand::Verb(name.to_owned())),
    }
}

fn is_prefix(word: &str) -> bool {
    let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    PREFIXES.contains(&word) || is_assignment || word == "-E"
}

fn run(client: Client, words: Vec<String>, mut at: usize) -> Result<Typed, InvalidCommand> {
    let table = Table { values: flags::VALUES, switches: flags::SWITCHES };
    let (mut flags, mut unknown) = (Vec::new(), Vec::new());
    table.read(&words, &mut at, &mut flags, &mut unknown)?;
    if words.get(at).is_some_and(|word| word == "--") {
        at += 1;
    }
    let image = (at < words.len()).then_some(at);
    let arguments = (at + 1).min(words.len())..words.len();
    Ok(Typed::Run(TypedRun { client, words, flags, image, arguments, unknown }))
}

fn compose(client: Client, words: Vec<String>, mut at: usize) -> Result<Typed, InvalidCommand> {
    let table = Table { values: flags::COMPOSE_VALUES, switches: flags::COMPOSE_SWITCHES };
    let (mut flags, mut unknown) = (Vec::new(), Vec::new());
    let (mut verb, mut services) = (None, Vec::new());
    // Compose takes flags behind the services as well.
    while at < words.len() {
        table.read(&words, &mut at, &mut flags, &mut unknown)?;
        if at >= words.len() {
            break;
        }
        match verb {
            None => verb = Some(at),
            Some(_) => services.push(at),
        }
        at += 1;
    }
    Ok(Typed::Compose(TypedCompose { client, words, flags, verb, services }))
}

/// The flags of one command.
struct Table {
    values: &'static [(&'static str, &'static str)],
    switches: &'static [(&'static str, &'static str)],
}

impl Table {
    /// Reads flags up to the first word that is none, or up to `--`.
    fn read(
        &self,
        words: &[String],
        at: &mut usize,
        flags: &mut Vec<Flag>,
        unknown: &mut Vec<usize>,
    ) -> Result<(), InvalidCommand> {
        while let Some(word) = words.get(*at) {
            if word == "--" || word == "-" || !word.starts_with('-') {
                return Ok(());
            }
            match word.strip_prefix("--") {
                Some(long) => self.long(words, at, long, flags, unknown)?,
                None => self.letters(words, at, flags, unknown)?,
            }
        }
        Ok(())
    }

    fn long(
        &self,
        words: &[String],
        at: &mut usize,
        long: &str,
        flags: &mut Vec<Flag>,
        unknown: &mut Vec<usize>,
    ) -> Result<(), InvalidCommand> {
        let place = *at;
        if let Some((name, value)) = long.split_once('=') {
            if !self.is_known(name) {
                unknown.push(place);
            }
            let value_at = Some((place, words[place].len() - value.len()));
            let value = Some(value.to_owned());
            flags.push(Flag { name: name.to_owned(), value, words: place..place + 1, starts: 0, value_at });
            *at += 1;
            return Ok(());
        }
        let takes_value = if self.values.iter().any(|(name, _)| *name == long) {
            true
        } else if self.switches.iter().any(|(name, _)| *name == long) {
            false
        } else {
            unknown.push(place);
            // A guess: a word that is no flag is its value, unless the image would be missing then.
            words.get(place + 1).is_some_and(|next| !next.starts_with('-')) && words.len() > place + 2
        };
        flags.push(with_next(words, at, long, 0, takes_value, &format!("--{long}"))?);
        Ok(())
    }

    /// `-it`, `-e K=V`, `-eK=V`, `-e=K=V`, `-ite K=V`.
    fn letters(
        &self,
        words: &[String],
        at: &mut usize,
        flags: &mut Vec<Flag>,
        unknown: &mut Vec<usize>,
    ) -> Result<(), InvalidCommand> {
        let place = *at;
        let word = &words[place];
        let letters: Vec<(usize, char)> = word.char_indices().skip(1).collect();
        for (position, (byte, letter)) in letters.iter().copied().enumerate() {
            let starts = if letters.len() == 1 { 0 } else { byte };
            let rest = byte + letter.len_utf8();
            if let Some(name) = named(self.values, letter) {
                if position + 1 == letters.len() {
                    flags.push(with_next(words, at, name, starts, true, &format!("-{letter}"))?);
                    return Ok(());
                }
                let from = if word[rest..].starts_with('=') { rest + 1 } else { rest };
                let (value, value_at) = (Some(word[from..].to_owned()), Some((place, from)));
                flags.push(Flag { name: name.to_owned(), value, words: place..place + 1, starts, value_at });
                break;
            }
            let switch = named(self.switches, letter);
            if switch.is_none() && !unknown.contains(&place) {
                unknown.push(place);
            }
            let name = switch.map_or_else(|| letter.to_string(), str::to_owned);
            let value = word[rest..].strip_prefix('=');
            let value_at = value.map(|_| (place, rest + 1));
            let value = value.map(str::to_owned);
            let is_last = value.is_some();
            flags.push(Flag { name, value, words: place..place + 1, starts, value_at });
            if is_last {
                break;
            }
        }
        *at += 1;
        Ok(())
    }

    fn is_known(&self, name: &str) -> bool {
        self.values.iter().chain(self.switches).any(|(known, _)| *known == name)
    }
}

/// A flag that stands alone or takes the next word.
fn with_next(
    words: &[String],
    at: &mut usize,
    name: &str,
    starts: usize,
    takes_value: bool,
    typed: &str,
) -> Result<Flag, InvalidCommand> {
    let place = *at;
    let taken = usize::from(takes_value);
    if takes_value && place + 1 >= words.len() {
        return Err(InvalidCommand::NoValue(typed.to_owned()));
    }
    *at = place + 1 + taken;
    let value = takes_value.then(|| words[place + 1].clone());
    let value_at = takes_value.then_some((place + 1, 0));
    Ok(Flag { name: name.to_owned(), value, words: place..*at, starts, value_at })
}

/// The long name of a letter.
fn named(table: &[(&'static str, &'static str)], letter: char) -> Option<&'static str> {
    let mut buffer = [0; 4];
    let letter: &str = letter.encode_utf8(&mut buffer);
    table.iter().find(|(_, short)| *short == letter).map(|(name, _)| *name)
}

impl TypedRun {
    /// The values of a flag, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.named(name).filter_map(|flag| flag.value.as_deref())
    }

    /// The flags of this name, in order.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Flag> {
        self.flags.iter().filter(move |flag| flag.name == name)
    }

    /// Whether a switch is on; of several the last counts.
    pub fn is_on(&self, name: &str) -> bool {
        self.named(name).last().is_some_and(Flag::is_on)
    }

    /// The image as typed.
    pub fn image(&self) -> Option<&str> {
        self.image.map(|at| self.words[at].as_str())
    }

    /// The program and its arguments, as typed behind the image.
    pub fn arguments(&self) -> &[String] {
        &self.words[self.arguments.clone()]
    }
}

impl TypedCompose {
    /// The values of a flag, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.flags.iter().filter(move |flag| flag.name == name).filter_map(|flag| flag.value.as_deref())
    }

    /// The services as typed.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(|at| self.words[*at].as_str())
    }
}

#[cfg(test)]
mod tests;
