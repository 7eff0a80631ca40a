//! What an image has built in, and which step of its making set it.
//!
//! An image's configuration keeps its `history`: one entry for each instruction. Builders write an `ENV` there in their
//! own ways, and what came in otherwise (`docker commit --change`, `docker import --change`) stands in no entry.

use serde_json::Value;

/// An image, as far as `explain` looks at one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Image {
    /// Its `ENV`.
    pub env: Vec<String>,
    /// The steps of its making, the oldest first; `None` where nobody could say.
    pub steps: Option<Vec<Step>>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Step {
    /// The instruction, as the builder wrote it.
    pub created_by: String,
    /// Whether it made no layer; `None` where that is not known.
    pub empty_layer: Option<bool>,
}

/// Who set a variable of an image's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// An instruction.
    Step {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// The number of layers below it, and how many there are.
        layers: Option<(usize, usize)>,
        /// The part of it that sets this variable: `ENV NAME=VALUE`.
        instruction: String,
    },
    /// None of this many steps says so.
    NoStep(usize),
    /// Nobody could say what the steps were.
    Unknown,
}

/// The steps in an image's configuration; none where it has none. Nothing is decided by them.
pub fn steps(configuration: &[u8]) -> Vec<Step> {
    let value: Value = serde_json::from_slice(configuration).unwrap_or_default();
    let entries = value["history"].as_array().into_iter().flatten();
    let step = |entry: &Value| Step {
        created_by: entry["created_by"].as_str().unwrap_or_default().to_owned(),
        empty_layer: Some(entry["empty_layer"].as_bool().unwrap_or_default()),
    };
    entries.map(step).collect()
}

/// The steps in Docker's answer about an image's history, which has the newest first. It says no more of a layer than its
/// size, so layers are counted only where there are as many with a size as the image has.
// moby api/types/image, HistoryResponseItem
pub fn steps_of_docker(history: &Value, layers: Option<usize>) -> Vec<Step> {
    let entries: Vec<&Value> = history.as_array().into_iter().flatten().rev().collect();
    let is_empty = |entry: &Value| entry["Size"].as_i64() == Some(0);
    let is_known = Some(entries.iter().filter(|entry| !is_empty(entry)).count()) == layers;
    let step = |entry: &&Value| Step {
        created_by: entry["CreatedBy"].as_str().unwrap_or_default().to_owned(),
        empty_layer: is_known.then(|| is_empty(entry)),
    };
    entries.iter().map(step).collect()
}

impl Image {
    /// The value that it gives a variable; the last entry counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        crate::whatif::last(&self.env, name).flatten()
    }

    /// Which step gave a variable the value that it has; `None` where it has none.
    pub fn set_by(&self, name: &str) -> Option<SetBy> {
        let value = self.value(name)?;
        let Some(steps) = &self.steps else { return Some(SetBy::Unknown) };
        let of = steps.len();
        let setting = |step: &Step| assigned(env_instruction(&step.created_by)?, name, value);
        // Only the last one can have made it what it is; another value came in by a way that leaves no trace.
        let last = steps.iter().enumerate().rev().find_map(|(at, step)| Some((at, setting(step)?)));
        Some(match last {
            Some((at, Assigned { instruction, agrees: true })) => {
                SetBy::Step { number: at + 1, of, layers: layers_below(steps, at), instruction }
            }
            _ => SetBy::NoStep(of),
        })
    }
}

fn layers_below(steps: &[Step], at: usize) -> Option<(usize, usize)> {
    let made: Option<Vec<bool>> = steps.iter().map(|step| step.empty_layer.map(|empty| !empty)).collect();
    let made = made?;
    let count = |steps: &[bool]| steps.iter().filter(|made| **made).count();
    Some((count(made.get(..at)?), count(&made)))
}

/// What follows `ENV` in an instruction.
///
/// BuildKit writes `ENV A=1 B=2`; Docker's older builder `/bin/sh -c #(nop)  ENV A=1 B=2`, both without the quotes of the
/// Dockerfile; podman `/bin/sh -c #(nop) ENV A="1"`, as the Dockerfile has it.
// moby/buildkit frontend/dockerfile/dockerfile2llb, dispatchEnv; moby builder/dockerfile; containers/buildah imagebuildah
fn env_instruction(created_by: &str) -> Option<&str> {
    let text = created_by.split_once("#(nop)").map_or(created_by, |(_, rest)| rest).trim();
    let (word, rest) = text.split_once(char::is_whitespace)?;
    word.eq_ignore_ascii_case("ENV").then(|| rest.trim())
}

struct Assigned {
    instruction: String,
    /// It can have given the variable the value that it has.
    agrees: bool,
}

/// Whether the assignments of an `ENV` set this variable, and to what it is.
fn assigned(text: &str, name: &str, value: &str) -> Option<Assigned> {
    let more = |before: bool, after: bool, set: &str| {
        format!("ENV {}{set}{}", if before { "… " } else { "" }, if after { " …" } else { "" })
    };
    // As it stands, without quotes: a value may hold blanks.
    let plain = format!("{name}={value}");
    let found = text.rmatch_indices(&plain).find(|(at, _)| {
        let end = text.get(at + plain.len()..).unwrap_or_default();
        let before = text.get(..*at).unwrap_or_default();
        let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        is_blank(before.chars().next_back()) && is_blank(end.chars().next())
    });
    if let Some((at, _)) = found {
        let instruction = more(at > 0, at + plain.len() < text.len(), &plain);
        return Some(Assigned { instruction, agrees: true });
    }
    let words = words(text);
    let is_pairs = words.first().is_some_and(|word| word.contains('='));
    if !is_pairs {
        // `ENV NAME VALUE`
        let (first, rest) = text.split_once(char::is_whitespace)?;
        let agrees = rest.trim() == value || unquoted(rest.trim()) == value || rest.contains('$');
        return (first == name).then(|| Assigned { instruction: format!("ENV {name} {}", rest.trim()), agrees });
    }
    let at = words.iter().rposition(|word| word.split_once('=').is_some_and(|(key, _)| key == name))?;
    let word = words.get(at)?;
    let given = unquoted(word.split_once('=')?.1);
    // podman writes variables down as the Dockerfile has them.
    let agrees = given == value || given.contains('$');
    Some(Assigned { instruction: more(at > 0, at + 1 < words.len(), word), agrees })
}

/// The words of a Dockerfile's line: blanks in quotes and behind a backslash belong to a word.
fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let (mut word, mut quote, mut escaped) = (String::new(), None, false);
    for c in text.chars() {
        if c.is_whitespace() && quote.is_none() && !escaped {
            if !word.is_empty() {
                out.push(std::mem::take(&mut word));
            }
            continue;
        }
        match quote {
            _ if escaped => escaped = false,
            Some('\'') if c == '\\' => {}
            _ if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        out.push(word);
    }
    out
}

/// A word without its quotes and backslashes.
fn unquoted(word: &str) -> String {
    let (mut out, mut quote, mut escaped) = (String::new(), None, false);
    for c in word.chars() {
        match quote {
            _ if escaped => {
                escaped = false;
                out.push(c);
            }
            Some('\'') if c == '\\' => out.push(c),
            _ if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "CUDA_VISIBLE_DEVICES";

    fn image(value: &str, steps: &[&str]) -> Image {
        let step = |text: &&str| Step { created_by: (*text).to_owned(), empty_layer: None };
        Image {
            env: vec!["PATH=/bin".to_owned(), format!("{NAME}={value}")],
            steps: Some(steps.iter().map(step).collect()),
        }
    }

    #[track_caller]
    fn check(value: &str, steps: &[&str], expect: Option<(usize, &str)>) {
        let found = match image(value, steps).set_by(NAME) {
            Some(SetBy::Step { number, instruction, .. }) => Some((number, instruction)),
            Some(SetBy::NoStep(_)) => None,
            Some(SetBy::Unknown) | None => panic!("it has a value, and steps"),
        };
        assert_eq!(found, expect.map(|(number, text)| (number, text.to_owned())), "{value:?} {steps:?}");
    }

    #[test]
    fn builders_write_an_env_in_their_own_ways() {
        check("0", &["RUN x", "ENV CUDA_VISIBLE_DEVICES=0"], Some((2, "ENV CUDA_VISIBLE_DEVICES=0")));
        check("0", &["/bin/sh -c #(nop)  ENV CUDA_VISIBLE_DEVICES=0"], Some((1, "ENV CUDA_VISIBLE_DEVICES=0")));
        check("0", &["/bin/sh -c #(nop) ENV CUDA_VISIBLE_DEVICES=\"0\""], Some((1, "ENV CUDA_VISIBLE_DEVICES=\"0\"")));
        check("0 1", &["ENV CUDA_VISIBLE_DEVICES=0 1"], Some((1, "ENV CUDA_VISIBLE_DEVICES=0 1")));
        check("0", &["ENV A=x y CUDA_VISIBLE_DEVICES=0 B=1"], Some((1, "ENV … CUDA_VISIBLE_DEVICES=0 …")));
        check("0,1", &["|x #(nop) ENV CUDA_VISIBLE_DEVICES   0,1"], Some((1, "ENV CUDA_VISIBLE_DEVICES 0,1")));
        check("2", &["#(nop) ENV CUDA_VISIBLE_DEVICES=${N}"], Some((1, "ENV CUDA_VISIBLE_DEVICES=${N}")));
        check("", &["ENV CUDA_VISIBLE_DEVICES="], Some((1, "ENV CUDA_VISIBLE_DEVICES=")));
        let two = ["ENV CUDA_VISIBLE_DEVICES=0", "ENV A=1", "ENV CUDA_VISIBLE_DEVICES=0", "CMD x"];
        check("0", &two, Some((3, "ENV CUDA_VISIBLE_DEVICES=0")));
    }

    #[test]
    fn what_stands_in_no_step_is_not_said_of_one() {
        check("0", &[], None);
        check("0", &["", "sleep 1000"], None);
        // A commit changed it afterwards.
        check("1", &["ENV CUDA_VISIBLE_DEVICES=0", "sh"], None);
        check("0", &["ENV CUDA_VISIBLE_DEVICES=0", "ENV CUDA_VISIBLE_DEVICES=2"], None);
        for other in [
            "RUN ENV CUDA_VISIBLE_DEVICES=0",
            "ONBUILD ENV CUDA_VISIBLE_DEVICES=0",
            "ENV XCUDA_VISIBLE_DEVICES=0",
            "ENV CUDA_VISIBLE_DEVICES_X=0",
            "ENV CUDA_VISIBLE_DEVICES=01",
            "ENV A=\"1 CUDA_VISIBLE_DEVICES=1\"",
            "ENV",
            "ENV \\",
            "ENV \"",
        ] {
            check("0", &[other], None);
        }
    }

    #[test]
    fn layers_are_counted_where_they_are_known() {
        let configuration = br#"{"history": [{"created_by": "ADD x"}, {"created_by": "ENV A=1", "empty_layer": true},
            {"created_by": "RUN y"}, 7, {"created_by": 5}]}"#;
        let made = Image { env: vec!["A=1".to_owned()], steps: Some(steps(configuration)) };
        let Some(SetBy::Step { number, of, layers, .. }) = made.set_by("A") else { panic!("{made:?}") };
        assert_eq!((number, of, layers), (2, 5, Some((1, 4))));
        assert_eq!((steps(b"{"), steps(b"[]"), steps(br#"{"history": {}}"#)), (vec![], vec![], vec![]));

        let history = serde_json::json!([{"CreatedBy": "ENV A=1", "Size": 0}, {"CreatedBy": "ADD x", "Size": 7}]);
        let of =
            |layers| Image { env: vec!["A=1".to_owned()], steps: Some(steps_of_docker(&history, layers)) }.set_by("A");
        let expect = |layers| SetBy::Step { number: 2, of: 2, layers, instruction: "ENV A=1".to_owned() };
        assert_eq!(
            (of(Some(1)), of(Some(2)), of(None)),
            (Some(expect(Some((1, 1)))), Some(expect(None)), Some(expect(None)))
        );
    }
}
