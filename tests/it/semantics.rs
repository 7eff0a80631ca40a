//! The tables of `docs/semantics.md`, row by row.
//!
//! A table is run when its first column is headed `host`. Which columns it has decides how:
//! `shows` asks CUDA's own rules, `exec -e` adds a process, `between` goes through two doors, else a container is made.

mod run;
pub(crate) mod table;

use std::collections::BTreeMap;

use crate::brain::{INVENTORIES, inventory};
use table::{Row, rows};

#[test]
fn every_row_of_the_documentation_holds() {
    let rows = rows();
    assert!(rows.len() > 150, "{} rows", rows.len());
    let wrong: Vec<String> = rows.iter().filter_map(|row| run::differences(row, &inventory(&row.host))).collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn every_rule_has_rows() {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for Row { section, .. } in rows() {
        *count.entry(section).or_default() += 1;
    }
    for rule in 1..=18 {
        let found = count.get(&format!("Rule {rule}")).copied().unwrap_or_default();
        let least = if rule == 17 { 1 } else { 2 };
        assert!(found >= least, "rule {rule} has {found} rows: {count:?}");
    }
    assert!(count.get("The grant").is_some_and(|rows| *rows > 10), "{count:?}");
}

/// What a row says holds on its own host; the laws hold on every host.
#[test]
fn every_row_keeps_the_laws_on_every_host() {
    for row in rows() {
        for (name, _) in INVENTORIES {
            if let Err(broken) = run::laws(&row, &inventory(name)) {
                panic!("line {} on {name}: {broken}", row.line);
            }
        }
    }
}
