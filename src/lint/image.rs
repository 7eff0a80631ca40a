//! Images: what they have built in, and what their history says of `RUN`, `CMD` and `ENTRYPOINT`.

use std::collections::BTreeMap;

use super::Fault;
use super::assigned::assigned;
use super::dockerfile::{environment, in_run};
use super::values::{Assignment, NVIDIA};
use crate::finding::Severity;
use crate::image::{Image, SetBy};

/// The faults of an image, in a text that is made of it: one line for each statement with a fault.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckedImage {
    /// The lines.
    pub text: String,
    /// Where each line comes from.
    pub origins: Vec<Origin>,
    /// What was found, with places in the text.
    pub faults: Vec<Fault>,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An instruction of its making: the step's number, from 1, and how many there are.
    Step(usize, usize),
    /// The image's configuration; no instruction says so, or nobody could say what the instructions were.
    Configuration,
}

/// The faults of an image.
pub fn image(image: &Image) -> CheckedImage {
    let mut found: Vec<(Origin, String, Vec<Fault>)> = variables(image);
    found.extend(programs(image));
    found.sort_by_key(|(origin, ..)| *origin);
    let mut out = CheckedImage::default();
    for (origin, line, faults) in found.into_iter().filter(|(.., faults)| !faults.is_empty()) {
        let start = out.text.len();
        out.text.push_str(&line);
        out.text.push('\n');
        out.origins.push(origin);
        out.faults.extend(faults.into_iter().map(|fault| Fault {
            span: fault.span.start + start..fault.span.end + start,
            statement: start,
            ..fault
        }));
    }
    out
}

/// Each variable with the value that a container gets.
fn variables(image: &Image) -> Vec<(Origin, String, Vec<Fault>)> {
    // The last entry of a name counts.
    let named: BTreeMap<&str, &str> = image.env.iter().filter_map(|entry| entry.split_once('=')).collect();
    let is_cuda_base = named.contains_key("NVIDIA_REQUIRE_CUDA");
    let line = |(name, value): (&str, &str)| {
        let entry = format!("{name}={value}");
        let (origin, line) = match image.set_by(name) {
            Some(SetBy::Step { number, of, instruction, .. }) => (Origin::Step(number, of), instruction),
            _ => (Origin::Configuration, entry.clone()),
        };
        // As `env` has it where the instruction was written otherwise.
        let line = line.lines().collect::<Vec<_>>().join(" ");
        let start = line.find(name).unwrap_or_default();
        let end = line.strip_suffix(" …").unwrap_or(&line).len().max(start);
        let assignment =
            Assignment { name: name.to_owned(), value: Some(value.to_owned()), span: start..end, statement: 0 };
        let mut faults = environment(&assignment, &[], true);
        if name == NVIDIA && value == "all" && is_cuda_base {
            for fault in &mut faults {
                as_of_a_base(fault);
            }
        }
        for fault in faults.iter_mut().filter(|_| origin == Origin::Configuration && image.steps.is_some()) {
            fault.text.push_str(" No step of its making sets it: it came in by a commit or an import.");
        }
        (origin, line, faults)
    };
    named.into_iter().map(line).collect()
}

/// Every CUDA base image sets it, and whoever builds on one cannot delete it there.
fn as_of_a_base(fault: &mut Fault) {
    fault.severity = Severity::Info;
    "ENV NVIDIA_VISIBLE_DEVICES=void in a Dockerfile on top; GPUs are asked for with --gpus".clone_into(&mut fault.fix);
}

/// What `RUN`s set in vain, and what the program's own command line sets.
fn programs(image: &Image) -> Vec<(Origin, String, Vec<Fault>)> {
    let steps = image.steps.as_deref().unwrap_or_default();
    let last = |keyword| steps.iter().rposition(|step| word(&step.created_by).0 == keyword);
    let commands = [last("CMD"), last("ENTRYPOINT")];
    let mut out = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let (keyword, arguments) = word(&step.created_by);
        if keyword != "RUN" && !commands.contains(&Some(at)) {
            continue;
        }
        let line = format!("{keyword} {arguments}");
        let part = keyword.len()..line.len();
        let faults = if keyword == "RUN" {
            in_run(&line, part, 0)
        } else {
            assigned(&line, part).iter().map(|assigned| assigned.fault(0)).collect()
        };
        out.push((Origin::Step(at + 1, steps.len()), line, faults));
    }
    out
}

/// The keyword of a step, and what follows it, in one line.
///
/// BuildKit writes `RUN |1 ARG=1 /bin/sh -c make # buildkit`; Docker's older builder and podman `/bin/sh -c make`, and
/// `/bin/sh -c #(nop)  CMD ["x"]` for what runs nothing.
// moby/buildkit frontend/dockerfile/dockerfile2llb, dispatchRun; moby builder/dockerfile; containers/buildah imagebuildah
fn word(created_by: &str) -> (&'static str, String) {
    const SHELL: &str = "/bin/sh -c ";
    let one_line = |text: &str| text.trim().lines().collect::<Vec<_>>().join("; ");
    let (nop, text) = match created_by.split_once("#(nop)") {
        Some((_, rest)) => (true, rest.trim()),
        None => (false, created_by.trim()),
    };
    for keyword in ["CMD", "ENTRYPOINT"] {
        if let Some(rest) = text.strip_prefix(keyword).filter(|rest| rest.starts_with([' ', '['])) {
            return (keyword, one_line(rest));
        }
    }
    let command = text.split_once(SHELL).map(|(before, command)| (before, command.trim_end_matches("# buildkit")));
    match command {
        Some((before, command))
            if !nop && (before.is_empty() || before.starts_with("RUN ") || before.starts_with('|')) =>
        {
            ("RUN", one_line(command))
        }
        _ => ("", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Step;

    fn found(env: &[&str], steps: &[&str]) -> Vec<(Origin, &'static str, String, Severity)> {
        let step = |text: &&str| Step { created_by: (*text).to_owned(), empty_layer: None };
        let env = env.iter().map(|entry| (*entry).to_owned()).collect();
        let checked = image(&Image { env, steps: Some(steps.iter().map(step).collect()) });
        let lines = crate::lint::Lines::of(&checked.text);
        let shown = |fault: &Fault| {
            let origin = checked.origins[lines.line(fault.span.start) - 1];
            (origin, fault.code.name(), checked.text[fault.span.clone()].to_owned(), fault.severity)
        };
        checked.faults.iter().map(shown).collect()
    }

    const WARNING: Severity = Severity::Warning;

    #[test]
    fn a_variable_is_found_once_and_at_its_step() {
        let cuda = |step, text: &str| (Origin::Step(step, 2), "env-cuda-visible", text.to_owned(), WARNING);
        let env = ["CUDA_VISIBLE_DEVICES=0"];
        let zero = "CUDA_VISIBLE_DEVICES=0";
        assert_eq!(found(&env, &["ENV CUDA_VISIBLE_DEVICES=0", "CMD [\"x\"]"]), [cuda(1, zero)]);
        assert_eq!(found(&env, &["RUN x", "/bin/sh -c #(nop)  ENV CUDA_VISIBLE_DEVICES=0"]), [cuda(2, zero)]);
        let quoted = "CUDA_VISIBLE_DEVICES=\"0\"";
        assert_eq!(found(&env, &["x", "/bin/sh -c #(nop) ENV A=1 CUDA_VISIBLE_DEVICES=\"0\" B=2"]), [cuda(2, quoted)]);
        // Set again, and back.
        let twice = ["ENV CUDA_VISIBLE_DEVICES=1", "ENV CUDA_VISIBLE_DEVICES=0"];
        assert_eq!(found(&env, &twice), [cuda(2, zero)]);
        let committed = (Origin::Configuration, "env-cuda-visible", zero.to_owned(), WARNING);
        assert_eq!(found(&env, &["ENV A=1", "sh"]), [committed]);
        assert_eq!(found(&["CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=", "A=CUDA_VISIBLE_DEVICES"], &[]).len(), 1);
    }

    #[test]
    fn what_a_base_image_sets_is_said_in_another_voice() {
        let env = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12"];
        let of = |env: &[&str]| found(env, &["ENV NVIDIA_VISIBLE_DEVICES=all"])[0].3;
        assert_eq!((of(&env), of(&env[..1])), (Severity::Info, WARNING));
        assert_eq!(found(&["NVIDIA_VISIBLE_DEVICES=void", env[1]], &[]), []);
    }

    #[test]
    fn programs_of_every_builder() {
        let in_run = |step: &str| found(&[], &[step]).iter().map(|found| found.1).collect::<Vec<_>>();
        for set in [
            "RUN /bin/sh -c export CUDA_VISIBLE_DEVICES=0 # buildkit",
            "RUN |2 A=1 CUDA_VISIBLE_DEVICES=3 /bin/sh -c export CUDA_VISIBLE_DEVICES=0 # buildkit",
            "|1 A=1 /bin/sh -c export CUDA_VISIBLE_DEVICES=0",
            "/bin/sh -c echo 'export CUDA_VISIBLE_DEVICES=0' >> ~/.bashrc",
        ] {
            assert_eq!(in_run(set), ["set-in-run"], "{set}");
        }
        for command in [
            "CMD [\"/bin/sh\" \"-c\" \"CUDA_VISIBLE_DEVICES=0 python x\"]",
            "/bin/sh -c #(nop)  CMD [\"/bin/sh\" \"-c\" \"CUDA_VISIBLE_DEVICES=0 python\"]",
            "/bin/sh -c #(nop) ENTRYPOINT [\"env\", \"CUDA_VISIBLE_DEVICES=0\", \"python\"]",
        ] {
            assert_eq!(in_run(command), ["set-in-command"], "{command}");
        }
        for silent in [
            "RUN |1 CUDA_VISIBLE_DEVICES=3 /bin/sh -c make # buildkit",
            "RUN /bin/sh -c CUDA_VISIBLE_DEVICES= pytest # buildkit",
            "LABEL CUDA_VISIBLE_DEVICES=5",
            "/bin/sh -c #(nop) LABEL x=/bin/sh -c export CUDA_VISIBLE_DEVICES=0",
            "COPY CMD /bin/sh -c ",
            "",
        ] {
            assert_eq!(in_run(silent), [""; 0], "{silent}");
        }
        // Replaced by a later one.
        let two = ["CMD [\"env\" \"CUDA_VISIBLE_DEVICES=0\" \"x\"]", "CMD [\"x\"]"];
        assert_eq!(found(&[], &two), []);
    }
}
