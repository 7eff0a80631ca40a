//! What holds for every text.

use cudaview::finding::Code;
use cudaview::lint::{Fault, Kind, command, compose, dockerfile, env_file, file};
use cudaview::report::{Looked, Style, lint_command, lint_files};
use cudaview::typed::{Typed, parse};
use proptest::prelude::*;

/// Pieces that make a text look like something.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "FROM a\n",
        "ENV ",
        "ARG ",
        "RUN ",
        "CMD ",
        "COPY ",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "=",
        " ",
        "\n",
        "\\\n",
        "\"",
        "'",
        "all",
        "0,1",
        "0-2",
        "cuda:0",
        "GPU-4cf8db2d",
        "${A:-all}",
        "$",
        "<<EOF\n",
        "EOF\n",
        "# cudaview: ignore=env-cuda-visible\n",
        "services:\n",
        "  a:\n",
        "    environment:\n",
        "      - ",
        "    gpus: ",
        "    command: >\n",
        "&x ",
        "*x",
        "<<: ",
        "[",
        "]",
        "{",
        "}",
        "- ",
        ": ",
        "|",
        "ü",
        "\u{feff}",
        "\r\n",
        "\t",
        "export ",
        "docker run ",
        "--gpus ",
        "device=",
        "-e ",
        "-it",
        "--privileged ",
        "IMAGE ",
        "podman run ",
        "--",
        "99999999999",
    ];
    prop_oneof![8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)]
}

fn texts() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

fn check(text: &str, faults: &[Fault]) -> Result<(), TestCaseError> {
    for fault in faults {
        prop_assert!(text.get(fault.span.clone()).is_some(), "{fault:?}");
        prop_assert!(text.is_char_boundary(fault.statement) && fault.statement <= fault.span.start, "{fault:?}");
        prop_assert!(!fault.title.is_empty() && !fault.title.contains('\n'), "{fault:?}");
    }
    Ok(())
}

fn style(width: usize) -> Style {
    Style { width, colour: false }
}

proptest! {
    #[test]
    fn files_are_read_without_a_panic_and_places_lie_in_them(text in texts(), width in 20_usize..130) {
        let faults = dockerfile(&text);
        check(&text, &faults)?;
        lint_files(&[Looked::file("Dockerfile".to_owned(), text.clone(), faults)], style(width));
        check(&text, &env_file(&text))?;
        if let Ok(faults) = compose(&text) {
            check(&text, &faults)?;
            lint_files(&[Looked::file("a.yaml".to_owned(), text.clone(), faults)], style(width));
        }
        if let Some(kind) = Kind::of("-", &text) {
            drop(file(kind, &text));
        }
    }

    #[test]
    fn commands_are_read_without_a_panic_and_places_lie_in_them(
        words in proptest::collection::vec(proptest::collection::vec(piece(), 1..4), 0..12),
        width in 20_usize..130,
    ) {
        let words: Vec<String> =
            ["docker".to_owned(), "run".to_owned()].into_iter().chain(words.iter().map(|word| word.concat().trim().to_owned())).collect();
        if let Ok(Typed::Run(run)) = parse(&words) {
            let checked = command(&run, &|_| false);
            check(&checked.text, &checked.faults)?;
            lint_command(&checked, &[], style(width));
            // What is ignored is neither reported nor fixed.
            let silent = command(&run, &|_| true);
            prop_assert!(silent.faults.is_empty() && silent.fixed.is_none());
            let codes: Vec<Code> = checked.faults.iter().map(|fault| fault.code).collect();
            prop_assert!(checked.fixed.is_none() || !codes.is_empty());
        }
    }
}

/// Large texts, made to grow: what takes time by the square of their size would not end here.
#[test]
fn a_hostile_text_does_not_take_for_ever() {
    let many = |unit: &str| unit.repeat((1 << 17) / unit.len());
    let entries = "      - CUDA_VISIBLE_DEVICES=all\n".repeat(2_000);
    let services = |of: &str| (0..100).map(|n| format!("  s{n}: {of}\n")).collect::<Vec<_>>().concat();
    let (aliases, merges) = (services("*x"), services("{<<: *x}"));
    let compose_files = [
        format!("services:\n  a: &x\n    environment:\n{entries}{aliases}"),
        format!("services:\n  a: &x\n    environment:\n{entries}{merges}"),
        many("- "),
        many("["),
        many("a: &x\n"),
    ];
    let start = std::time::Instant::now();
    for text in compose_files {
        drop(file(Kind::Compose, &text));
    }
    for unit in [
        "FROM a AS b\n",
        "ENV CUDA_VISIBLE_DEVICES=0\n# cudaview: ignore=env-nvidia-visible\n",
        "RUN export CUDA_VISIBLE_DEVICES='",
        "ENV A=${A-",
        "RUN <<E <<E\n",
        "\\\n",
    ] {
        let text = many(unit);
        let faults = file(Kind::Dockerfile, &text).expect("a Dockerfile is always one");
        lint_files(&[Looked::file("Dockerfile".to_owned(), text, faults)], style(80));
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
