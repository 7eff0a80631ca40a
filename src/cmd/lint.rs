//! `cudaview lint`: faults in Dockerfiles, Compose files, images and typed commands.

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::Context;

use super::cli::{Format, LINT_TAKES, LintArgs};
use super::command::note_unknown;
use super::output::{Failure, aside, note, print, print_json, style};
use crate::exit::Exit;
use crate::finding::{Code, quoted};
use crate::lint::{Checked, Fault, Kind, command, env_file, file, image as check_image, silences};
use crate::report::{
    Looked, lint_command, lint_command_footer, lint_command_json, lint_files, lint_files_json, lint_footer,
};
use crate::spelling;
use crate::typed::{Typed, TypedCompose, parse};

/// The largest file that is read.
const LIMIT: u64 = 1 << 20;

/// What to type in place of a bare `lint`.
const ABOUT: &str = "cudaview lint Dockerfile compose.yaml, cudaview lint --image NAME, or a whole command behind --: \
                     cudaview lint -- docker run --gpus 1 IMAGE";

/// What stands in files.
const LINT_FILES: &str = "lint takes Dockerfiles, Compose files, and images in files";

/// Whether something was found.
pub(super) fn run(arguments: &LintArgs) -> Result<Exit, Failure> {
    let ignored: Vec<Code> = arguments.ignore.iter().map(|name| code(name)).collect::<Result<_, _>>()?;
    if arguments.files.is_empty() && arguments.command.is_empty() && arguments.image.is_empty() {
        return Err(Failure::usage("lint was not told what to look at", ABOUT));
    }
    let mut names = arguments.files.clone();
    if !arguments.command.is_empty() {
        let usage = |error| Failure::usage(anyhow::Error::new(error).to_string(), ABOUT);
        match parse(&arguments.command).map_err(usage)? {
            Typed::Run(typed) if names.is_empty() && arguments.image.is_empty() => {
                note_unknown(&typed);
                let checked = command(&typed, &|code| ignored.contains(&code));
                let env_files = typed.values("env-file").filter_map(env_file_of).collect();
                return say_command(&checked, &without(env_files, &ignored), arguments.format);
            }
            Typed::Run(_) => {
                return Err(Failure::usage("a command is looked at alone", "lint one after the other"));
            }
            Typed::Compose(typed) => names.extend(compose_files(&typed)?),
        }
    }
    let mut files = names.iter().map(|name| look(name)).collect::<Result<Vec<_>, _>>()?;
    for image in &arguments.image {
        files.push(look_at_image(image)?);
    }
    say_files(&without(files, &ignored), arguments.format)
}

fn without(mut files: Vec<Looked>, ignored: &[Code]) -> Vec<Looked> {
    for looked in &mut files {
        looked.faults.retain(|fault: &Fault| !ignored.contains(&fault.code));
    }
    files
}

/// The file of a `docker run --env-file`, where it is here.
fn env_file_of(name: &str) -> Option<Looked> {
    match read(name) {
        Ok(text) => {
            let faults = env_file(&text);
            Some(Looked::file(name.to_owned(), text, faults))
        }
        Err(error) => {
            note(&format!("--env-file {name:?} was not looked at: {error:#}"));
            None
        }
    }
}

/// The code that `--ignore` names.
fn code(name: &str) -> Result<Code, Failure> {
    if let Some(code) = Code::ALL.iter().find(|code| code.name().eq_ignore_ascii_case(name)) {
        return Ok(*code);
    }
    let hint = match nearest(name) {
        Some(near) => format!("did you mean {near}?"),
        None => "the name in brackets behind a finding, such as env-cuda-visible".to_owned(),
    };
    Err(Failure::usage(format!("no finding is called {}", quoted(name)), hint))
}

fn nearest(name: &str) -> Option<&'static str> {
    spelling::nearest(&name.to_ascii_lowercase(), Code::ALL.iter().map(|code| code.name()))
}

/// The files of `docker compose up`.
fn compose_files(typed: &TypedCompose) -> Result<Vec<String>, Failure> {
    let named: Vec<String> = typed.values("file").map(str::to_owned).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    // In the order in which Compose looks.
    let usual = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];
    match usual.into_iter().find(|name| Path::new(name).is_file()) {
        Some(name) => Ok(vec![name.to_owned()]),
        None => Err(Failure::usage("there is no Compose file here", "docker compose -f FILE up")),
    }
}

fn look_at_image(name: &str) -> Result<Looked, Failure> {
    Ok(Looked::image(name.to_owned(), check_image(&super::image::find(name)?)))
}

fn look(name: &str) -> Result<Looked, Failure> {
    if is_image(Path::new(name)) {
        return look_at_image(name);
    }
    let bad = |error: anyhow::Error, hint: &str| {
        Failure::new(Exit::BadInput, error.context(format!("failed to read {name:?}")), hint)
    };
    let text = read(name).map_err(|error| {
        let is_client = matches!(name, "docker" | "podman" | "nerdctl");
        bad(error, if is_client { LINT_TAKES } else { LINT_FILES })
    })?;
    let Some(kind) = Kind::of(name, &text) else {
        let hint = "a name with Dockerfile or Containerfile in it, or one that ends with .yaml or .yml";
        return Err(bad(anyhow::anyhow!("it is neither a Dockerfile nor a Compose file"), hint));
    };
    let faults = file(kind, &text).map_err(|error| bad(error.into(), "a Compose file is YAML"))?;
    for silence in silences(&text).iter().filter(|silence| code(&silence.code).is_err()) {
        let near = nearest(&silence.code).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        note(&format!("{name}:{}: no finding is called {}{near}", silence.line, quoted(&silence.code)));
    }
    Ok(Looked::file(name.to_owned(), text, faults))
}

/// An OCI layout or a tar file; a compressed one too, of which the reader says what to do.
fn is_image(path: &Path) -> bool {
    // Where a tar file says that it is one; the rest of it is the reader's.
    const MAGIC: (usize, &[u8]) = (257, b"ustar");
    if path.is_dir() {
        return ["oci-layout", "index.json", "manifest.json"].iter().any(|name| path.join(name).is_file());
    }
    let length = MAGIC.0 + MAGIC.1.len();
    let mut head = Vec::new();
    // Not of a pipe: what is read of it is gone.
    let mut read = || path.is_file().then(|| std::fs::File::open(path)?.take(length as u64).read_to_end(&mut head));
    let is_read = read().is_some_and(|read| read.is_ok());
    is_read && ((head.len() == length && head.ends_with(MAGIC.1)) || super::image::is_compressed(&head))
}

/// The text of a file; `-` is standard input.
fn read(name: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().take(LIMIT + 1).read_to_end(&mut bytes)?;
    } else {
        let kind = std::fs::metadata(name)?.file_type();
        anyhow::ensure!(!kind.is_dir(), "it is a folder");
        // A pipe is a shell's, <(…); one with a name can be anybody's, and nobody may ever write into it.
        let is_shells = ["/dev/fd/", "/dev/stdin", "/proc/self/fd/"].iter().any(|folder| name.starts_with(folder));
        anyhow::ensure!(kind.is_file() || (kind.is_fifo() && is_shells), "it is no regular file");
        let file = std::fs::File::open(name)?;
        file.take(LIMIT + 1).read_to_end(&mut bytes)?;
    }
    anyhow::ensure!(bytes.len() as u64 <= LIMIT, "it is larger than {} MiB", LIMIT >> 20);
    String::from_utf8(bytes).context("it is no text")
}

fn say_files(files: &[Looked], format: Format) -> Result<Exit, Failure> {
    let found = files.iter().any(|file| !file.faults.is_empty());
    match format {
        Format::Json => print_json(&lint_files_json(files))?,
        Format::Human if !found => print("nothing found\n")?,
        Format::Human => {
            print(&lint_files(files, style()))?;
            aside(&lint_footer(files, style()));
        }
    }
    Ok(if found { Exit::Failed } else { Exit::Done })
}

fn say_command(checked: &Checked, env_files: &[Looked], format: Format) -> Result<Exit, Failure> {
    let in_files = env_files.iter().any(|file| !file.faults.is_empty());
    let found = !checked.faults.is_empty() || in_files;
    match format {
        Format::Json => print_json(&lint_command_json(checked, env_files))?,
        Format::Human if !found => print("nothing found\n")?,
        Format::Human => {
            print(&lint_command(checked, env_files, style()))?;
            if checked.fixed.is_none() {
                aside(&lint_command_footer(checked, env_files, style()));
            }
        }
    }
    Ok(if found { Exit::Failed } else { Exit::Done })
}
