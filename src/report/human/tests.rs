use super::*;
use crate::config::Config;
use crate::inventory::Inventory;
use crate::plan::plan;
use crate::report::Told;
use crate::request::parse_gpus;
use crate::whatif::WhatIf;

/// The first session of the target look: a container that ran.
const TRAINER: &str = r#"trainer sees 2 GPUs: cuda:0 is host GPU 1, cuda:1 is host GPU 3 (rewritten)

  HOST  NAME                   UUID          GRANTED  INSIDE  PROGRAM
  0     NVIDIA A100-SXM4-40GB  GPU-a0100000  no       -       -
  1     NVIDIA A100-SXM4-40GB  GPU-a1100000  yes      0       cuda:0
  2     NVIDIA A100-SXM4-40GB  GPU-a2100000  no       -       -
  3     NVIDIA A100-SXM4-40GB  GPU-a3100000  yes      1       cuda:1
  HOST, INSIDE: the number in nvidia-smi there. PROGRAM: what CUDA calls it.

Who said what
  --gpus "device=1,3"                 grants host GPUs 1 and 3
  image NVIDIA_VISIBLE_DEVICES="all"  outranked by --gpus
  -e CUDA_VISIBLE_DEVICES="1,3"       read as host numbers: both are granted
                                      (as numbers inside, 3 does not exist)
What changed
  CUDA_VISIBLE_DEVICES    "1,3" -> 0,1
  CUDA_DEVICE_ORDER       unset -> PCI_BUS_ID
  NVIDIA_VISIBLE_DEVICES  "1,3" -> the UUIDs of host GPUs 1 and 3
  CUDAVIEW_HOST_GPUS      unset -> 1,3
  GPU nodes               /dev/nvidia1 /dev/nvidia3, as granted

Without cudaview
  1 GPU: cuda:0 is host GPU 3, and there is no cuda:1

info: host-index-override
  hint: leave -e CUDA_VISIBLE_DEVICES out, or count from 0: 0,1
  note: docker inspect goes on showing "1,3": Docker keeps what was typed
"#;

fn trainer(style: Style) -> String {
    let text = include_str!("../../../tests/data/inventories/a100x4.json");
    let inventory = Inventory::from_json(text.as_bytes()).expect("a fixture");
    let config = Config::built_in();
    let what_if = WhatIf {
        gpus: vec![parse_gpus("\"device=1,3\"").expect("a good --gpus")],
        env: vec!["CUDA_VISIBLE_DEVICES=1,3".to_owned()],
        image_env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
        ..WhatIf::default()
    };
    let situation = what_if.situation(&inventory, &config);
    let plan = plan(&inventory, &situation, &config);
    let subject = Subject {
        inventory: &inventory,
        situation: &situation,
        plan: &plan,
        exec: None,
        image: &what_if.image(),
        name: Some("trainer"),
        container: None,
        done: true,
        told: Told::Engine,
        observe: false,
        origin_unknown: "",
    };
    explain(&subject, style)
}

#[test]
fn a_container_that_ran() {
    assert_eq!(trainer(Style { width: 80, colour: false }), TRAINER);
}

#[test]
fn colours_tell_nothing_of_their_own() {
    let coloured = trainer(Style { width: 80, colour: true });
    assert!(coloured.contains("\u{1b}[32mcuda:1\u{1b}[0m"));
    let codes = ["0", "1", "2", "31", "32", "33", "36"].map(|code| format!("\u{1b}[{code}m"));
    assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), TRAINER);
}
