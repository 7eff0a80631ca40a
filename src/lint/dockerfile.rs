//! Dockerfiles.

mod instructions;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use self::instructions::{Instruction, read};
use super::Fault;
use super::assigned::assigned;
use super::interpolate::resolve;
use super::values::{Assignment, CUDA, NVIDIA, check, holds_uuid, said};
use crate::cuda::{Meaning, Value};
use crate::finding::{Code, Severity, quoted};
use crate::shell;

/// The faults of a Dockerfile.
pub fn dockerfile(text: &str) -> Vec<Fault> {
    let (masked, instructions) = read(text);
    let mut out = Vec::new();
    let mut arguments = Arguments::default();
    let last = stages_of_the_image(&masked, &instructions);
    let mut stage = 0;
    for instruction in &instructions {
        match instruction.keyword.as_str() {
            "FROM" => {
                stage += 1;
                arguments.next_stage();
            }
            "ARG" => arguments.read(&masked[instruction.arguments.clone()]),
            "ENV" => {
                for mut assignment in entries(&masked, instruction) {
                    let written = assignment.value.take().unwrap_or_default();
                    let resolved = resolve(&written, &|name| arguments.get(name));
                    assignment.value = resolved.text;
                    out.extend(environment(&assignment, &resolved.defaults, last.contains(&stage)));
                }
            }
            "RUN" => {
                let is_here = instruction.body.is_empty();
                let (whole, part) =
                    if is_here { (masked.as_str(), &instruction.arguments) } else { (text, &instruction.body) };
                out.extend(in_run(whole, part.clone(), instruction.start));
            }
            "CMD" | "ENTRYPOINT" => {
                let found = assigned(&masked, instruction.arguments.clone());
                out.extend(found.iter().map(|assigned| assigned.fault(instruction.start)));
            }
            "COPY" | "ADD" => {
                let found = assigned(text, instruction.body.clone());
                out.extend(found.iter().map(|assigned| assigned.fault(instruction.start)));
            }
            _ => {}
        }
    }
    out
}

/// Build arguments that have a default.
#[derive(Default)]
struct Arguments {
    /// Before the first `FROM`.
    global: BTreeMap<String, String>,
    /// In this stage.
    stage: BTreeMap<String, String>,
    has_stage: bool,
}

impl Arguments {
    fn next_stage(&mut self) {
        self.stage.clear();
        self.has_stage = true;
    }

    fn read(&mut self, text: &str) {
        for word in shell::words(text) {
            let (name, value) = match word.text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                // Named again in a stage it has the value from above.
                None => (word.text.clone(), self.global.get(&word.text).cloned()),
            };
            let Some(value) = value else { continue };
            if self.has_stage {
                self.stage.insert(name, value)
            } else {
                self.global.insert(name, value)
            };
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.stage.get(name).cloned()
    }
}

/// The numbers of the stages that the last one is built on, itself included; the first is 1.
fn stages_of_the_image(masked: &str, instructions: &[Instruction]) -> BTreeSet<usize> {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    // For each stage the one that it is built on; 0 is an image from elsewhere.
    let mut bases = vec![0];
    for instruction in instructions.iter().filter(|instruction| instruction.keyword == "FROM") {
        let words = shell::words(&masked[instruction.arguments.clone()]);
        let words = words.iter().map(|word| word.text.to_ascii_lowercase());
        let mut words = words.filter(|word| !word.starts_with("--"));
        let image = words.next().unwrap_or_default();
        bases.push(named.get(&image).copied().unwrap_or_default());
        if words.next().is_some_and(|word| word == "as") {
            named.extend(words.next().map(|name| (name, bases.len() - 1)));
        }
    }
    let last = std::iter::successors(Some(bases.len() - 1), |stage| bases.get(*stage).copied());
    last.take_while(|stage| *stage > 0).collect()
}

/// The entries of an `ENV`, with their values as written.
fn entries(masked: &str, instruction: &Instruction) -> Vec<Assignment> {
    let from = instruction.arguments.start;
    let slice = &masked[instruction.arguments.clone()];
    let words = shell::words(slice);
    let Some(first) = words.first() else { return Vec::new() };
    if !first.text.contains('=') {
        // The older form: one name, and the rest of the line.
        let value = slice[first.end..].trim();
        let unquoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        let span = from + first.start..from + slice.trim_end().len();
        let value = Some(unquoted.unwrap_or(value).to_owned());
        return vec![Assignment { name: first.text.clone(), value, span, statement: instruction.start }];
    }
    let entry = |word: &shell::Word| {
        let (name, value) = word.text.split_once('=')?;
        let span = from + word.start..from + word.end;
        Some(Assignment { name: name.to_owned(), value: Some(value.to_owned()), span, statement: instruction.start })
    };
    words.iter().filter_map(entry).collect()
}

/// An entry of the image's environment.
pub(super) fn environment(assignment: &Assignment, defaults: &[String], in_image: bool) -> Vec<Fault> {
    let mut out = check(assignment, true);
    // What a stage sets that nothing is built on, nobody gets.
    if !in_image {
        out.retain(|fault| fault.code == Code::MisspeltVariable);
        return out;
    }
    let uuid = assignment.value.as_deref().is_some_and(holds_uuid);
    match assignment.name.as_str() {
        CUDA | NVIDIA if uuid => out.push(uuid_in_image(assignment)),
        CUDA if !out.iter().any(|fault| fault.code == Code::NotACudaValue) => out.push(cuda_in_image(assignment)),
        NVIDIA if defaults.iter().any(|default| default.eq_ignore_ascii_case("all")) => {
            out.push(default_is_all(assignment));
        }
        NVIDIA if !matches!(assignment.value.as_deref(), Some("" | "void" | "none")) => {
            out.push(nvidia_in_image(assignment));
        }
        _ => {}
    }
    out
}

fn cuda_in_image(assignment: &Assignment) -> Fault {
    let count = |text: &String| match Value::parse(text).meaning {
        Meaning::Hidden => Some(0),
        Meaning::All => None,
        Meaning::List(entries) => Some(entries.len()),
    };
    let (title, gets) = match assignment.value.as_ref().and_then(count) {
        Some(0) => ("the image hides every GPU".to_owned(), "no GPU".to_owned()),
        Some(1) => ("the image hides all GPUs but one".to_owned(), "one GPU".to_owned()),
        Some(several) => (format!("the image hides all GPUs but {several}"), format!("{several} GPUs at most")),
        None => (format!("the image has {CUDA} built in"), "what was built in".to_owned()),
    };
    let text = format!(
        "Who runs it with --gpus all, or '\"device=1,3\"', gets {gets}, except on hosts with cudaview, \
         where --gpus outranks an image's default."
    );
    let fix = "delete it; without it CUDA shows every GPU that the container was given";
    assignment.fault(Code::EnvCudaVisible, Severity::Warning, said(title, text, fix))
}

fn nvidia_in_image(assignment: &Assignment) -> Fault {
    let is_all = assignment.value.as_deref() == Some("all");
    let (title, gets) =
        if is_all { ("the image asks for every GPU", "all GPUs") } else { ("the image asks for GPUs", "them") };
    let ending = if is_all { " CUDA base images set it already." } else { " Numbers are those of one host." };
    let text = format!(
        "Where NVIDIA's runtime is the default, a container of this image gets {gets} unasked. cudaview ignores it.{ending}"
    );
    let said = said(title, text, "delete it; GPUs are asked for with --gpus");
    assignment.fault(Code::EnvNvidiaVisible, Severity::Warning, said)
}

fn uuid_in_image(assignment: &Assignment) -> Fault {
    let comes = if assignment.name == CUDA { "CUDA shows no GPU" } else { "the container does not start" };
    let text = format!("A UUID is that of one card. On every other host {comes}, and on this one after a repair.");
    let said = said("the image names a GPU of one host", text, "delete it; who runs it selects with --gpus");
    assignment.fault(Code::UuidInImage, Severity::Warning, said)
}

fn default_is_all(assignment: &Assignment) -> Fault {
    let text =
        "Who builds it without the argument gets an image that asks for all GPUs, with NVIDIA's runtime unasked.";
    let said = said("the default is every GPU", text, "delete it; GPUs are asked for with --gpus");
    assignment.fault(Code::DefaultFailsOpen, Severity::Warning, said)
}

/// Files that only some shells read.
const SHELL_FILES: [&str; 4] = ["bashrc", "profile", "/etc/environment", "zshrc"];

/// Values that a `RUN` sets in vain.
pub(super) fn in_run(whole: &str, part: Range<usize>, statement: usize) -> Vec<Fault> {
    let mut out = Vec::new();
    for assigned in assigned(whole, part.clone()) {
        let rest = &whole[assigned.span.end..part.end];
        let line = rest.lines().next().unwrap_or_default();
        let into_file = line.contains('>') && SHELL_FILES.iter().any(|file| line.contains(file));
        let follows = rest.trim_matches(|c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\''));
        // With something behind it, it is for that, and for that alone.
        let in_vain = assigned.exported && follows.is_empty();
        let name = assigned.name;
        let about = if into_file {
            format!(
                "Only some shells read that file: docker exec bash shows {name}, and the image's program does not get it."
            )
        } else if in_vain {
            "Every RUN has a shell of its own: the value is gone when it ends.".to_owned()
        } else {
            continue;
        };
        out.push(Fault {
            code: Code::SetInRun,
            severity: Severity::Warning,
            span: assigned.span.clone(),
            statement,
            title: format!("{} has no effect on the image's program", quoted(&whole[assigned.span])),
            text: about,
            fix: "delete it; who runs the image selects with --gpus".to_owned(),
        });
    }
    out
}
