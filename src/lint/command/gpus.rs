//! The value of `--gpus`.

use super::{Cured, Edit, Words};
use crate::finding::{Code, Severity, quoted};
use crate::lint::agree::Dialect;
use crate::lint::values::{joined, said};
use crate::request::{InvalidGpus, Selection, parse_gpus};
use crate::spelling::{self, host_gpus};
use crate::typed::{Client, Flag};

/// The value that asks for these, as Docker must get it.
pub(super) fn list(numbers: &[u32]) -> String {
    match numbers {
        [only] => format!("device={only}"),
        several => format!("\"device={}\"", joined(several)),
    }
}

impl Words<'_> {
    /// What a `--gpus` asks for, with its faults; of one that Docker refuses, what was meant. `None` where nobody can tell.
    pub(super) fn gpus(&self, position: usize, flag: &Flag, found: &mut Vec<Cured>) -> Option<Selection> {
        let value = flag.value.as_deref()?;
        if self.run.client == Client::Podman {
            return self.podman(position, flag, value, found);
        }
        let plain = value.trim_matches(['"', '\'']);
        let mut report = |code, severity, texts: [String; 3], fix: Option<&[u32]>| {
            let edits = fix.map(|numbers| vec![Edit::Set(position, list(numbers))]);
            found.push(Cured { fault: self.fault(flag, code, severity, texts), edits });
        };
        let parsed = parse_gpus(value);
        let numbers = spelling::numbers(plain.trim_start_matches("device="));
        let is_list = plain.starts_with("device=") && plain.split(',').skip(1).all(|field| !field.contains('='));
        match (parsed, numbers) {
            (Err(InvalidGpus::CountAndIds), Some(numbers)) if is_list => {
                report(Code::GpusUnquotedList, Severity::Error, unquoted(plain, &numbers), Some(&numbers));
                Some(names(&numbers))
            }
            (Ok(flag), Some(numbers)) if plain.contains(',') && !is_list => {
                report(Code::GpusBareList, Severity::Error, bare(plain, &flag.selection, &numbers), Some(&numbers));
                Some(names(&numbers))
            }
            (Ok(flag), _) if flag.selection == Selection::Nothing => {
                let text = "A count of 0 gives the container no GPU, without a word.";
                let fix = "--gpus device=0 for host GPU 0; leave it out for none";
                let texts = said("0 is a count, not the number of a GPU", text, fix);
                report(Code::GpusZero, Severity::Warning, texts, Some(&[0]));
                Some(names(&[0]))
            }
            (Ok(flag), Some(numbers)) if is_range(&flag.selection) => {
                let text =
                    format!("Docker hands on {} as the name of one device, and no GPU is called so.", quoted(plain));
                let texts = said("--gpus knows no ranges", text, self.dialect.select(&numbers));
                report(Code::GpusUnreadable, Severity::Error, texts, Some(&numbers));
                Some(names(&numbers))
            }
            (Ok(flag), _) => Some(flag.selection),
            (Err(error), None) if is_list && spelling::are_gpu_names(plain.trim_start_matches("device=")) => {
                let list = plain.trim_start_matches("device=");
                let fault = self.fault(flag, Code::GpusUnquotedList, Severity::Error, unquoted_names(list, &error));
                let edit = Edit::Set(position, format!("\"device={list}\""));
                found.push(Cured { fault, edits: Some(vec![edit]) });
                Some(Selection::Names(list.split(',').map(str::to_owned).collect()))
            }
            (Err(error), numbers) => {
                let fix = match &numbers {
                    Some(numbers) if error != InvalidGpus::CountAndIds => self.dialect.select(numbers),
                    _ => "--gpus all, --gpus 2, --gpus device=1 or --gpus '\"device=1,3\"'".to_owned(),
                };
                let numbers = numbers.filter(|_| error != InvalidGpus::CountAndIds);
                let texts = said(format!("Docker cannot read {}", quoted(value)), format!("It stops: {error}."), fix);
                report(Code::GpusUnreadable, Severity::Error, texts, numbers.as_deref());
                numbers.map(|numbers| names(&numbers))
            }
        }
    }

    /// podman takes CDI names, apart by commas.
    fn podman(&self, position: usize, flag: &Flag, value: &str, found: &mut Vec<Cured>) -> Option<Selection> {
        if value == "all" {
            return Some(Selection::All);
        }
        let plain = value.trim_matches(['"', '\'']);
        let Some(list) = plain.strip_prefix("device=") else {
            return Some(Selection::Names(value.split(',').map(str::to_owned).collect()));
        };
        let text = format!("podman looks for CDI devices called nvidia.com/gpu={}.", quoted(value).trim_matches('"'));
        let numbers = spelling::numbers(list);
        let fix = numbers.as_ref().map_or_else(|| format!("--gpus {list}"), |n| Dialect::Podman.select(n));
        let texts = said("device= is Docker's form", text, format!("--gpus {list}, or {fix}"));
        let fault = self.fault(flag, Code::GpusUnreadable, Severity::Error, texts);
        found.push(Cured { fault, edits: Some(vec![Edit::Set(position, list.to_owned())]) });
        numbers.map(|numbers| names(&numbers))
    }
}

fn names(numbers: &[u32]) -> Selection {
    Selection::Names(numbers.iter().map(ToString::to_string).collect())
}

fn is_range(selection: &Selection) -> bool {
    let is_range = |name: &String| {
        name.split_once('-').is_some_and(|(first, last)| first.parse::<u32>().is_ok() && last.parse::<u32>().is_ok())
    };
    matches!(selection, Selection::Names(names) if names.iter().any(is_range))
}

/// `device=0,2`
fn unquoted(plain: &str, numbers: &[u32]) -> [String; 3] {
    let mut fields = plain.trim_start_matches("device=").split(',');
    let device = fields.next().unwrap_or_default();
    let count = fields.next_back().unwrap_or_default();
    let noun = if count == "1" { "GPU" } else { "GPUs" };
    let fix = format!("{} (the inner quotes must reach Docker)", Dialect::Docker.select(numbers));
    said(
        format!("Docker reads it as \"device {device}\" and \"{count} {noun}\""),
        "It stops with \"cannot set both Count and DeviceIDs on device request\".",
        fix,
    )
}

/// `device=GPU-1,GPU-2`
fn unquoted_names(list: &str, error: &InvalidGpus) -> [String; 3] {
    let fix = format!("--gpus '\"device={list}\"' (the inner quotes must reach Docker)");
    said("Docker reads what follows the comma as a count", format!("It stops: {error}."), fix)
}

/// `0,2`
fn bare(plain: &str, selection: &Selection, numbers: &[u32]) -> [String; 3] {
    let (count, grants) = match selection {
        Selection::Count(count) => {
            let first: Vec<u32> = (0..*count).collect();
            (*count, format!("grants the first {count}: {}", host_gpus(&first)))
        }
        _ => (0, "grants none".to_owned()),
    };
    let title = format!("{} is a count of {count}, not a list", quoted(plain));
    said(title, format!("Docker takes the last number and {grants}."), Dialect::Docker.select(numbers))
}
