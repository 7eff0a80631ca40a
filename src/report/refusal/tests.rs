use super::*;
use crate::config::Config;
use crate::plan::{Verdict, plan, plan_exec};
use crate::provenance::Provenance;
use crate::request::{DeviceRequest, parse_gpus};
use crate::whatif::WhatIf;

fn server() -> Inventory {
    let text = include_str!("../../../tests/data/inventories/a100x4.json");
    Inventory::from_json(text.as_bytes()).expect("a fixture")
}

fn of(what_if: &WhatIf, change: impl FnOnce(&mut Situation)) -> String {
    let (inventory, config) = (server(), Config::built_in());
    let mut situation = what_if.situation(&inventory, &config);
    change(&mut situation);
    let plan = plan(&inventory, &situation, &config);
    assert_eq!(plan.verdict, Verdict::Refused);
    let text = refusal(&plan, &situation, &inventory);
    check_form(&text);
    text
}

fn check_form(text: &str) {
    assert!(text.starts_with("cudaview: refused"), "{text}");
    assert!(text.lines().count() <= 6, "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("  (more: ") && line.ends_with(')')), "{text}");
    for (unwanted, _) in UNWANTED {
        assert!(!text.to_lowercase().contains(unwanted), "{text}");
    }
}

fn gpus(spec: &str, value: &str) -> WhatIf {
    WhatIf {
        gpus: vec![parse_gpus(spec).expect("a good --gpus")],
        env: vec![format!("CUDA_VISIBLE_DEVICES={value}")],
        ..WhatIf::default()
    }
}

#[test]
fn a_count_that_was_meant_as_a_number() {
    insta::assert_snapshot!(of(&gpus("1", "1"), |_| {}), @r#"
    cudaview: refused, CUDA_VISIBLE_DEVICES="1" names none of the granted GPUs
      --gpus 1 is a count: it grants host GPU 0, which is number 0 inside
      -e CUDA_VISIBLE_DEVICES="1" is neither that number nor that host GPU
      hint: for host GPU 1, --gpus device=1 and no CUDA_VISIBLE_DEVICES
      hint: for host GPU 0, --gpus 1 and no CUDA_VISIBLE_DEVICES
      (more: cudaview explain override-matches-nothing)
    "#);
}

#[test]
fn a_list() {
    insta::assert_snapshot!(of(&gpus("\"device=1,3\"", "5"), |_| {}), @r#"
    cudaview: refused, CUDA_VISIBLE_DEVICES="5" names none of the granted GPUs
      --gpus "device=1,3" grants host GPUs 1 and 3, which are numbers 0 and 1 inside
      -e CUDA_VISIBLE_DEVICES="5" is none of these numbers, inside or on the host
      hint: for host GPUs 1 and 3, --gpus '"device=1,3"' and no CUDA_VISIBLE_DEVICES
      (more: cudaview explain override-matches-nothing)
    "#);
    insta::assert_snapshot!(of(&gpus("all", "GPU-a"), |_| {}), @r#"
    cudaview: refused, CUDA_VISIBLE_DEVICES="GPU-a" names none of the granted GPUs
      --gpus all grants host GPUs 0 to 3, which are numbers 0 to 3 inside
      -e CUDA_VISIBLE_DEVICES="GPU-a" does not name exactly one of these GPUs
      hint: for host GPUs 0 to 3, --gpus all and no CUDA_VISIBLE_DEVICES
      (more: cudaview explain override-matches-nothing)
    "#);
}

#[test]
fn podman_by_device() {
    let what_if = WhatIf {
        devices: vec!["nvidia.com/gpu=0".to_owned()],
        env: vec!["CUDA_VISIBLE_DEVICES=1".to_owned()],
        ..WhatIf::default()
    };
    let text = of(&what_if, |_| {});
    insta::assert_snapshot!(text, @r#"
    cudaview: refused, CUDA_VISIBLE_DEVICES="1" names none of the granted GPUs
      --device nvidia.com/gpu=0 grants host GPU 0, which is number 0 inside
      -e CUDA_VISIBLE_DEVICES="1" is neither that number nor that host GPU
      hint: for host GPU 1, --device nvidia.com/gpu=1 and no CUDA_VISIBLE_DEVICES
      hint: for host GPU 0, leave CUDA_VISIBLE_DEVICES out
      (more: cudaview explain override-matches-nothing)
    "#);
    // podman resolves the name before we see it: only the node is left.
    let nodes = of(&what_if, |situation| {
        let selection = Selection::Minors(vec![crate::device::Minor(0)]);
        situation.requests = vec![DeviceRequest { source: Source::Nodes, selection }];
    });
    assert_eq!(nodes, text);
}

#[test]
fn before_any_value_is_looked_at() {
    insta::assert_snapshot!(of(&gpus("device=7", "0"), |_| {}), @r#"
    cudaview: refused, no such GPU: "7"; this host has GPUs 0 to 3
      asked for by --gpus device=7
      hint: cudaview inventory lists the GPUs and their names
      (more: cudaview explain unknown-device)
    "#);
    let image = WhatIf { image_env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()], ..WhatIf::default() };
    insta::assert_snapshot!(of(&image, |_| {}), @r#"
    cudaview: refused, the image asks for GPUs (NVIDIA_VISIBLE_DEVICES="all"), and nobody else does
      hint: to give it GPUs, --gpus all; to run without, leave --runtime out
      (more: cudaview explain image-request-ignored)
    "#);
    let unreadable = |situation: &mut Situation| {
        situation.unreadable = Some("/var/lib/docker: Permission denied\nNo such file or directory".to_owned());
    };
    insta::assert_snapshot!(of(&WhatIf::default(), unreadable), @r#"
    cudaview: refused, the engine's record of the GPU request cannot be read: /var/lib/docker: access refused it does not exist
      hint: see that cudaview-runtime runs as root, and that the engine's data directory is where it was
      (more: cudaview explain request-unreadable)
    "#);
}

#[test]
fn a_value_cannot_add_lines_or_words() {
    let text = of(&gpus("1", "x\nno such file or directory"), |_| {});
    assert!(text.lines().next().is_some_and(|line| line.contains("x\\nit does not exist")), "{text}");
}

#[test]
fn exec_counts_inside() {
    let (inventory, config) = (server(), Config::built_in());
    let situation = gpus("\"device=1,3\"", "1,3").situation(&inventory, &config);
    let record = plan(&inventory, &situation, &config).record(&inventory, &situation);
    let current = WhatIf::exec_variables(&situation.original, &["CUDA_VISIBLE_DEVICES=2".to_owned()]);
    let exec = plan_exec(&record, &record.inventory(), &current, &config);
    assert_eq!((exec.verdict, exec.provenance), (Verdict::Refused, Provenance::Exec));
    let text = exec_refusal(&exec, &record, &record.inventory());
    check_form(&text);
    insta::assert_snapshot!(text, @r#"
    cudaview: refused, CUDA_VISIBLE_DEVICES="2" names none of this container's GPUs
      inside, number 0 is host GPU 1 and number 1 is host GPU 3
      hint: -e CUDA_VISIBLE_DEVICES=0 or -e CUDA_VISIBLE_DEVICES=1
      hint: for host GPU 2, start a container with --gpus device=2
      (more: cudaview explain override-matches-nothing)
    "#);
}

/// podman 4.3 takes `--gpus` and ignores it, so the hint names the flag that the container was made with.
#[test]
fn exec_in_a_container_of_podmans() {
    let (inventory, config) = (server(), Config::built_in());
    let what_if = WhatIf { devices: vec!["nvidia.com/gpu=1".to_owned()], ..WhatIf::default() };
    let mut situation = what_if.situation(&inventory, &config);
    for source in [Source::Cdi, Source::Nodes] {
        for request in &mut situation.requests {
            request.source = source;
        }
        let record = plan(&inventory, &situation, &config).record(&inventory, &situation);
        let record = Record::parse(&serde_json::to_string(&record).expect("JSON")).expect("a record");
        let current = WhatIf::exec_variables(&situation.original, &["CUDA_VISIBLE_DEVICES=2".to_owned()]);
        let exec = plan_exec(&record, &record.inventory(), &current, &config);
        let text = exec_refusal(&exec, &record, &record.inventory());
        let hint = "  hint: for host GPU 2, start a container with --device nvidia.com/gpu=2\n";
        assert!(text.contains(hint), "{text}");
    }
}
