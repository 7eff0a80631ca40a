//! What would become of the containers that are there, were they started with cudaview.

use super::Style;
use crate::finding::{printable, quoted};

/// What would become of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its program sees what it sees now, by the same numbers.
    Same,
    /// Its `CUDA_VISIBLE_DEVICES` would be written anew.
    Renumbered {
        /// What was typed, or is in the image.
        typed: String,
        /// What its program would get.
        given: String,
    },
    /// It would not start, for this reason.
    Refused(String),
    /// It has GPUs that nobody but its image asked for, and would have none.
    Lost,
}

/// The part of `install --dry-run` that says what breaks for whom; empty without containers.
pub fn migration(containers: &[(String, Fate)], default: bool, style: Style) -> String {
    if containers.is_empty() {
        return String::new();
    }
    let these = match containers.len() {
        1 => "If the container that exists here was started with cudaview".to_owned(),
        count => format!("If the {count} containers that exist here were started with cudaview"),
    };
    let same = containers.iter().filter(|(_, fate)| *fate == Fate::Same).count();
    let mut out = format!("\n{these}\n");
    let mut line = |count: usize, text: &str| {
        for (number, part) in style.wrap(6, text).iter().enumerate() {
            let left = if number == 0 { format!("{count:4}  ") } else { " ".repeat(6) };
            out.push_str(&format!("{left}{part}\n"));
        }
    };
    if same > 0 {
        line(same, "nothing changes");
    }
    let mut groups: [Vec<String>; 3] = Default::default();
    for (name, fate) in containers {
        let name = printable(name);
        match fate {
            Fate::Same => {}
            Fate::Renumbered { typed, given } => groups[0].push(format!("{name} {} -> {given}", quoted(typed))),
            Fate::Refused(why) => groups[1].push(format!("{name} ({why})")),
            Fate::Lost => groups[2].push(name),
        }
    }
    let [renumbered, refused, lost] = groups;
    if !renumbered.is_empty() {
        line(renumbered.len(), &format!("CUDA_VISIBLE_DEVICES is renumbered: {}", renumbered.join(", ")));
    }
    if !refused.is_empty() {
        line(refused.len(), &format!("refused: {}", refused.join(", ")));
    }
    if !lost.is_empty() {
        let (asks, them) = if lost.len() == 1 { ("asks", "it") } else { ("ask", "them") };
        let text = format!(
            "no GPU any more: {} {asks} only through the image's ENV. Start {them} with --gpus, or set \
             image_request = \"honour\" in /etc/cudaview/config.toml",
            lost.join(", ")
        );
        line(lost.len(), &text);
    }
    if !default {
        out.push_str(
            "Only for containers started with --runtime cudaview; add --default-runtime to\nmake it all of them. ",
        );
    }
    out.push_str("Each one's story: cudaview explain --container NAME\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_is_counted_and_those_that_change_are_named() {
        let style = Style { width: 80, colour: false };
        let one = |name: &str, fate: Fate| (name.to_owned(), fate);
        let containers = [
            one("a", Fate::Same),
            one("b", Fate::Same),
            one("trainer", Fate::Renumbered { typed: "1,3".to_owned(), given: "0,1".to_owned() }),
            one("eval", Fate::Refused("its CUDA_VISIBLE_DEVICES names no GPU that it is given".to_owned())),
            one("tts", Fate::Lost),
        ];
        insta::assert_snapshot!(migration(&containers, false, style), @r#"

        If the 5 containers that exist here were started with cudaview
           2  nothing changes
           1  CUDA_VISIBLE_DEVICES is renumbered: trainer "1,3" -> 0,1
           1  refused: eval (its CUDA_VISIBLE_DEVICES names no GPU that it is given)
           1  no GPU any more: tts asks only through the image's ENV. Start it with
              --gpus, or set image_request = "honour" in /etc/cudaview/config.toml
        Only for containers started with --runtime cudaview; add --default-runtime to
        make it all of them. Each one's story: cudaview explain --container NAME
        "#);
        assert_eq!(migration(&[], true, style), "");
        let all = migration(&containers[..1], true, style);
        assert!(all.contains("If the container that exists here was") && !all.contains("Only for"), "{all}");
    }
}
