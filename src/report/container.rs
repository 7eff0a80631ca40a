//! "Where it comes from": a real container, whose each value is, and what was looked at for it.

use serde_json::{Value, json};

use super::style::Tone;
use super::{Style, Subject};
use crate::finding::{printable, quoted};
use crate::inventory::Device;
use crate::provenance::{Engine, Provenance};

/// The column beside the longest name, `NVIDIA_VISIBLE_DEVICES`.
const COLUMN: usize = 26;

/// Who had a hand in a container that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// cudaview; what was decided is what there is.
    Cudaview,
    /// cudaview, and its environment or its nodes were changed afterwards.
    ChangedAfter(AsIs),
    /// Its hook without another door: the nodes are mounted, the environment is as it was.
    HookAlone(AsIs),
    /// cudaview, which only wrote down what it would do.
    Observed(AsIs),
    /// The engine alone.
    Without(AsIs),
}

/// What a report on a container may say as a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tense {
    /// It runs.
    Sees,
    /// It ran.
    Saw,
    /// It was created, and may have run.
    WasSetUp,
    /// It never ran, or nothing says what was done.
    Would,
}

impl Tense {
    /// The verb of the first line.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Tense::Sees => "sees",
            Tense::Saw => "saw",
            Tense::WasSetUp => "was set up to see",
            Tense::Would => "would see",
        }
    }

    fn json(self) -> &'static str {
        match self {
            Tense::Sees => "sees",
            Tense::Saw => "saw",
            Tense::WasSetUp => "was-set-up",
            Tense::Would => "would",
        }
    }
}

/// What there is in a container that is not as cudaview would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsIs {
    /// What it can open.
    pub openable: Vec<Device>,
    /// What a program sees.
    pub visible: Vec<Device>,
    /// Whether that is certain.
    pub certain: bool,
}

/// Whose a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The variable.
    pub name: &'static str,
    /// Its value before cudaview.
    pub value: String,
    /// Whose it is, by what was looked at now.
    pub found: Provenance,
    /// Whose it was by what could be looked at when the container was created.
    pub recorded: Option<Provenance>,
    /// Why.
    pub why: String,
}

/// A container that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Whose it is.
    pub engine: Engine,
    /// Its id.
    pub id: String,
    /// The image as it was named.
    pub image: Option<String>,
    /// The image's id or digest.
    pub image_id: Option<String>,
    /// The runtime, by name or path.
    pub runtime: Option<String>,
    /// `running` and so on.
    pub state: Option<String>,
    /// Who had a hand in it.
    pub made: Made,
    /// Whether it is so, was so, or would be.
    pub tense: Tense,
    /// Whose each variable is.
    pub origins: Vec<Origin>,
    /// Sockets, files and clients.
    pub looked_at: Vec<String>,
    /// What else one has to know.
    pub notes: Vec<String>,
}

impl Container {
    /// What there is, where it is not what was decided.
    pub(super) fn as_is(&self) -> Option<&AsIs> {
        match &self.made {
            Made::Cudaview => None,
            Made::ChangedAfter(now) | Made::HookAlone(now) | Made::Observed(now) | Made::Without(now) => Some(now),
        }
    }
}

/// The section, heading included; nothing for a what-if.
pub(super) fn section(subject: &Subject<'_>, style: Style) -> String {
    let Some(container) = subject.container else { return String::new() };
    let mut out = "Where it comes from\n".to_owned();
    let mut row = |label: &str, text: String| out.push_str(&style.beside(&format!("  {label}"), COLUMN, &[text]));
    row("container", whose(container));
    row("image", image(container));
    for origin in &container.origins {
        row(origin.name, origin_text(origin));
    }
    out.push_str("Looked at\n");
    for place in &container.looked_at {
        // A path stays whole, whatever the width: so it can be copied.
        let lines = style.wrap(4, &printable(place));
        out.extend(lines.iter().enumerate().map(|(number, line)| format!("{:1$}{line}\n", "", 2 + 2 * number.min(1))));
    }
    for note in &container.notes {
        out.push_str(&style.tagged(0, &style.paint(Tone::Yellow, "note"), &printable(note)));
    }
    out
}

fn whose(container: &Container) -> String {
    let mut text = format!("{} of {}", brief(&container.id).trim_end_matches('…'), container.engine.name());
    if let Some(runtime) = &container.runtime {
        text.push_str(&format!(", runtime {}", plain(runtime)));
    }
    if let Some(state) = &container.state {
        text.push_str(&format!(", {}", plain(state)));
    }
    text
}

fn image(container: &Container) -> String {
    let id = container.image_id.as_deref().map(|id| brief(id.trim_start_matches("sha256:")));
    match (&container.image, id) {
        (Some(name), Some(id)) if *name != id => format!("{} ({})", quoted(name), id.trim_end_matches('…')),
        (Some(name), _) => quoted(name),
        (None, Some(id)) => id.trim_end_matches('…').to_owned(),
        (None, None) => "not known".to_owned(),
    }
}

fn origin_text(origin: &Origin) -> String {
    let found = word(origin.found);
    let mut text = format!("{found}: {} {}", quoted(&origin.value), origin.why);
    if let Some(recorded) = origin.recorded.filter(|recorded| *recorded != origin.found) {
        text.push_str(&format!("; when it was created cudaview knew it as {}", word(recorded)));
    }
    text
}

fn word(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Unset => "unset",
        Provenance::Image => "image",
        Provenance::User => "user",
        Provenance::Exec => "exec",
        Provenance::Unknown => "unknown",
    }
}

/// The members that `explain --format json` has for a container.
pub(super) fn json(container: &Container, name: Option<&str>, visible: impl Fn(&AsIs) -> Value) -> Value {
    let made = match &container.made {
        Made::Cudaview => "cudaview",
        Made::ChangedAfter(_) => "changed-after-cudaview",
        Made::HookAlone(_) => "hook-alone",
        Made::Observed(_) => "observed",
        Made::Without(_) => "without-cudaview",
    };
    let origin = |origin: &Origin| {
        json!({"variable": origin.name, "value": origin.value, "origin": origin.found,
            "originAtCreate": origin.recorded, "why": origin.why})
    };
    json!({
        "engine": container.engine,
        "id": container.id,
        "name": name,
        "image": container.image,
        "imageId": container.image_id,
        "runtime": container.runtime,
        "state": container.state,
        "made": made,
        "tense": container.tense.json(),
        "visible": container.as_is().map(visible),
        "origins": container.origins.iter().map(origin).collect::<Vec<_>>(),
        "lookedAt": container.looked_at,
        "notes": container.notes,
    })
}

/// Somebody else's word, without what a terminal would act on.
fn plain(text: &str) -> String {
    let text = printable(text);
    if text.contains(' ') { format!("{text:?}") } else { text }
}

/// A text with its ids cut to their beginning, and what podman makes of an image's digest left out.
fn brief(text: &str) -> String {
    let parts = text.split('/').map(|part| {
        let hex = part.trim_start_matches("sha256:");
        let is_id = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        match part {
            _ if is_id => format!("{}…", &hex[..12]),
            _ if part.starts_with('=') && part.len() > 20 => "=…".to_owned(),
            _ => printable(part),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_to_what_tells() {
        let id = "0123456789abcdef".repeat(4);
        let path = format!("/run/moby/{id}/config.json");
        assert_eq!(brief(&path), "/run/moby/0123456789ab…/config.json");
        assert_eq!(brief(&format!("/i/{id}/=c2hhMjU2OjAxMjM0NTY3ODlh")), "/i/0123456789ab…/=…");
        assert_eq!(brief("a\u{1b}[31m"), "a\\u{1b}[31m");
    }
}
