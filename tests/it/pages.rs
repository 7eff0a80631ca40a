//! The pages of findings: what they say that one sees is what is printed.

#![allow(clippy::expect_used, reason = "a test that cannot go on ends there")]

use std::path::Path;

use cudaview::finding::Code;

use crate::command::{cudaview, data, text};

const HEADINGS: [&str; 5] = ["You see", "Why", "Instead", "When it is right as it is", "Silence"];

fn page(code: Code) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/findings").join(format!("{}.md", code.name()));
    std::fs::read_to_string(path).expect("a page")
}

#[test]
fn every_page_has_the_five_headings() {
    for code in Code::ALL {
        let page = page(*code);
        let found: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(found, HEADINGS, "{}", code.name());
    }
}

/// The host of an `explain` in a page.
fn inventory(code: Code) -> &'static str {
    match code {
        Code::DeviceOrderChanged | Code::DeviceOrderMixed => "mixed5.json",
        Code::OneMigDevice => "a100mig4.json",
        _ => "a100x4.json",
    }
}

#[test]
fn what_one_sees_is_what_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "").expect("written");
    let mut shown = 0;
    for code in Code::ALL {
        let page = page(*code);
        let (_, see) = page.split_once("## You see\n\n").expect("a heading");
        let Some((block, _)) = see.strip_prefix("```console\n$ cudaview ").and_then(|rest| rest.split_once("\n```"))
        else {
            continue;
        };
        let (line, expected) = block.split_once('\n').expect("what is printed");
        let words: Vec<String> = cudaview::shell::split(line).into_iter().map(|word| word.text).collect();
        let mut command = cudaview();
        command.current_dir(data("lint").join("bad")).env("COLUMNS", "78").arg(&words[0]);
        if words[0] == "explain" {
            command.arg("--inventory").arg(data("inventories").join(inventory(*code))).arg("--config").arg(&config);
        }
        let (_, stdout, _) = text(&command.args(&words[1..]).output().expect("cudaview starts"));
        for part in expected.split("\n…\n") {
            assert!(stdout.contains(part), "{}:\n{part}\n--- is not in\n{stdout}", code.name());
        }
        assert!(expected.contains(code.name()), "{}", code.name());
        shown += 1;
    }
    assert!(shown > 30, "{shown}");
}

/// What the codes of lint alone are printed for, in files that the page of each names.
#[test]
fn a_page_of_lint_says_how_to_silence_it() {
    for code in Code::ALL.iter().skip_while(|code| **code != Code::EnvCudaVisible) {
        let page = page(*code);
        let (_, silence) = page.split_once("## Silence\n").expect("a heading");
        assert!(silence.contains(&format!("ignore {}", code.name())), "{}", code.name());
    }
}
