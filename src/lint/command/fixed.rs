//! The command with its fixes.

use std::ops::Range;

use crate::typed::TypedRun;

/// What a fix does; flags by their position among the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lint) enum Edit {
    /// Leave the flag out.
    Remove(usize),
    /// Give it another value.
    Set(usize, String),
    /// Put words behind it.
    Behind(usize, Vec<String>),
    /// Move these words before the image.
    BeforeImage(Range<usize>),
}

/// The words after the edits; of several edits of a flag, leaving it out counts, and then the first.
pub(super) fn apply(run: &TypedRun, edits: &[Edit]) -> Vec<String> {
    let mut words: Vec<Vec<String>> = run.words.iter().map(|word| vec![word.clone()]).collect();
    let is_removed = |flag: usize| edits.contains(&Edit::Remove(flag));
    let mut set: Vec<usize> = Vec::new();
    let mut behind: Vec<(usize, Vec<String>)> = Vec::new();
    for edit in edits {
        match edit {
            Edit::Remove(flag) => {
                let Some(flag) = run.flags.get(*flag) else { continue };
                for place in flag.words.clone() {
                    words[place].clear();
                }
                // The letters before it stay.
                if flag.starts > 1 {
                    words[flag.words.start].push(run.words[flag.words.start][..flag.starts].to_owned());
                }
            }
            Edit::Set(flag, value) => {
                if is_removed(*flag) || set.contains(flag) {
                    continue;
                }
                set.push(*flag);
                if let Some((word, byte)) = run.flags.get(*flag).and_then(|flag| flag.value_at) {
                    words[word] = vec![format!("{}{value}", &run.words[word][..byte])];
                }
            }
            Edit::Behind(flag, more) => {
                if let Some(flag) = run.flags.get(*flag) {
                    behind.push((flag.words.end - 1, more.clone()));
                }
            }
            Edit::BeforeImage(range) => {
                let Some(image) = run.image else { continue };
                let moved: Vec<String> = range.clone().flat_map(|place| std::mem::take(&mut words[place])).collect();
                words[image].splice(0..0, moved);
            }
        }
    }
    for (place, more) in behind {
        words[place].extend(more);
    }
    words.concat()
}
