//! `cudaview demo`: three what-ifs over a server that is not there.

use super::output::{Failure, print, style};
use crate::config::Config;
use crate::exit::Exit;
use crate::inventory::Inventory;
use crate::plan::plan;
use crate::report::{Subject, Told, explain};
use crate::request::parse_gpus;
use crate::whatif::WhatIf;

/// The server: four A100.
const SERVER: &str = include_str!("../../tests/data/inventories/a100x4.json");

/// One what-if.
struct Scene {
    title: &'static str,
    gpus: &'static str,
    env: Option<&'static str>,
    image_env: Option<&'static str>,
}

const SCENES: [Scene; 3] = [
    Scene {
        title: "1. Host numbers given to both flags",
        gpus: "\"device=1,3\"",
        env: Some("CUDA_VISIBLE_DEVICES=1,3"),
        image_env: None,
    },
    Scene {
        title: "2. An image that has CUDA_VISIBLE_DEVICES=0 built in",
        gpus: "all",
        env: None,
        image_env: Some("CUDA_VISIBLE_DEVICES=0"),
    },
    Scene {
        title: "3. A count that was meant as a number: refused, and not left to run on the CPU",
        gpus: "1",
        env: Some("CUDA_VISIBLE_DEVICES=1"),
        image_env: None,
    },
];

pub(super) fn run() -> Result<(), Failure> {
    let bug = |error: anyhow::Error| Failure::new(Exit::Bug, error, "");
    let inventory = Inventory::from_json(SERVER.as_bytes()).map_err(|error| bug(error.into()))?;
    let mut out = "Three what-ifs over a server with four A100 (built in; nothing is run)\n".to_owned();
    for scene in &SCENES {
        let gpus = parse_gpus(scene.gpus).map_err(|error| bug(error.into()))?;
        let what_if = WhatIf {
            gpus: vec![gpus],
            env: scene.env.iter().map(ToString::to_string).collect(),
            image_env: scene.image_env.iter().map(ToString::to_string).collect(),
            ..WhatIf::default()
        };
        let (title, command) = (scene.title, command(scene));
        out = format!("{out}\n{title}\n$ {command}\n{}", report(&what_if, &inventory));
    }
    out.push_str("\nYour own: cudaview explain, with the flags of docker run\n");
    print(&out)
}

/// The command that shows the same, as one would type it.
fn command(scene: &Scene) -> String {
    let gpus = if scene.gpus.contains('"') { format!("'{}'", scene.gpus) } else { scene.gpus.to_owned() };
    let env = scene.env.map(|entry| format!(" -e {entry}")).unwrap_or_default();
    let image_env = scene.image_env.map(|entry| format!(" --image-env {entry}")).unwrap_or_default();
    format!("cudaview explain --gpus {gpus}{env}{image_env}")
}

fn report(what_if: &WhatIf, inventory: &Inventory) -> String {
    let config = Config::built_in();
    let situation = what_if.situation(inventory, &config);
    let plan = plan(inventory, &situation, &config);
    let image = what_if.image();
    let subject = Subject {
        inventory,
        situation: &situation,
        plan: &plan,
        exec: None,
        image: &image,
        name: None,
        container: None,
        done: false,
        told: Told::Flags,
        observe: false,
        origin_unknown: "",
    };
    explain(&subject, style())
}
