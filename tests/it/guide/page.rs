//! The documents as they are read: fenced blocks, and in those of a terminal what is typed and what is printed.

use std::path::{Path, PathBuf};

/// A fenced block of a page.
pub(crate) struct Block {
    /// What stands behind the fence: `console`, `yaml`, or nothing.
    pub(crate) language: String,
    /// The heading of the second level above it.
    pub(crate) section: String,
    /// Its first line in the page, from 1.
    pub(crate) line: usize,
    /// How far it is set in, in a list.
    indent: usize,
    /// Its lines.
    pub(crate) text: Vec<String>,
}

/// A command that is typed in a block, and what is printed.
pub(crate) struct Step {
    /// Where it stands: `docs/guide/mig.md:12`.
    pub(crate) place: String,
    /// The command, continued lines joined, without its comment.
    pub(crate) command: String,
    /// What stands behind `  # `.
    pub(crate) comment: Option<String>,
    /// The lines below it.
    pub(crate) output: Vec<String>,
}

/// A document of the repository.
pub(crate) struct Page {
    /// Its path in the repository.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document that tells people what to type or to write.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = ["README.md", "README.zh-CN.md", "RELEASING.md", "SECURITY.md"]
        .iter()
        .map(|name| repository().join(name))
        .collect();
    let mut folders = vec![repository().join("docs"), repository().join("hooks")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| Page {
        text: std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        name: path.strip_prefix(repository()).expect("in the repository").to_str().expect("UTF-8").to_owned(),
    };
    paths.into_iter().map(read).collect()
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let (mut blocks, mut open, mut section) = (Vec::new(), None::<Block>, String::new());
        for (number, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(language)) => {
                    let (section, language) = (section.clone(), language.to_owned());
                    let indent = line.len() - line.trim_start().len();
                    open = Some(Block { language, section, line: number + 2, indent, text: Vec::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push(line.get(block.indent..).unwrap_or_default().to_owned());
                }
                (None, None) => {
                    if let Some(heading) = line.strip_prefix("## ") {
                        heading.clone_into(&mut section);
                    }
                }
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.name);
        blocks
    }

    /// What is typed in one of its blocks.
    pub(crate) fn steps(&self, block: &Block) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut is_continued = false;
        for (number, line) in block.text.iter().enumerate() {
            let place = format!("{}:{}", self.name, block.line + number);
            let typed = line.strip_prefix("$ ");
            if let (true, Some(step)) = (is_continued, steps.last_mut()) {
                is_continued = push(&mut step.command, line.trim_start());
            } else if let Some(typed) = typed {
                let mut command = String::new();
                is_continued = push(&mut command, typed);
                steps.push(Step { place, command, comment: None, output: Vec::new() });
            } else {
                let step = steps.last_mut().unwrap_or_else(|| panic!("{place}: a block of a terminal begins with $"));
                step.output.push(line.clone());
            }
        }
        for step in &mut steps {
            if let Some((command, comment)) = step.command.split_once("  # ") {
                step.comment = Some(comment.trim().to_owned());
                step.command = command.trim_end().to_owned();
            }
        }
        steps
    }

    /// What a step of a workflow in it runs of ours.
    pub(crate) fn runs(&self, block: &Block) -> Vec<Step> {
        let step = |(number, line): (usize, &String)| {
            let command = line.split_once("run: ")?.1.to_owned();
            let place = format!("{}:{}", self.name, block.line + number);
            Some(Step { place, command, comment: None, output: Vec::new() })
        };
        block.text.iter().enumerate().filter_map(step).collect()
    }

    /// The host that its answers are about: the first inventory that it names.
    pub(crate) fn host(&self) -> String {
        const FOLDER: &str = "tests/data/inventories/";
        let named = self.text.split_once(FOLDER).and_then(|(_, rest)| rest.split_once(".json"));
        let name = named.map_or("a100x4", |(name, _)| name);
        repository().join(FOLDER).join(format!("{name}.json")).to_str().expect("UTF-8").to_owned()
    }
}

/// Adds a typed line; whether another one belongs to it.
fn push(command: &mut String, line: &str) -> bool {
    let continued = line.strip_suffix('\\');
    command.push_str(continued.unwrap_or(line));
    continued.is_some()
}
