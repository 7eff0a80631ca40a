//! Session 2: a refused run.
//!
//! That engines pass the text on whole is shown beside them: `cudaview_docker::refused`, `podman::refused`.

use std::fs::{self, File};
use std::process::Command;

use serde_json::{Value, json};

use super::first_run::{log, of_today};
use super::terminal::screens;
use super::{as_it_is, what_if};
use crate::sandbox::Sandbox;
use crate::world::spec::{grant_nodes, template};

const ID: &str = "5f0c2c6c1b0e9a7d43be8f21c07f6a95d1e2384b6c7f90a1b2c3d4e5f6071829";

/// A container of podman's with host GPU 0, whose `CUDA_VISIBLE_DEVICES=1` is not its image's; where its bundle is.
fn sad_euler(sandbox: &Sandbox) -> String {
    let bundle = format!("storage/overlay-containers/{ID}/userdata");
    fs::create_dir_all(sandbox.path(&bundle)).unwrap();
    let list = json!([{"id": ID, "names": ["sad_euler"], "image": "", "layer": "x"}]);
    sandbox.write("storage/overlay-containers/containers.json", list.to_string());
    let mut spec = template(&["true"], &["CUDA_VISIBLE_DEVICES=1"], "/sandbox");
    grant_nodes(&mut spec, &[0]);
    spec["annotations"] = json!({"io.container.manager": "libpod"});
    spec["linux"]["cgroupsPath"] = json!(format!("/libpod-{ID}"));
    sandbox.write(&format!("{bundle}/config.json"), spec.to_string());
    bundle
}

/// What goes through an engine has the same lines for everybody, even where a terminal is at the other end.
#[track_caller]
fn same_for_everybody(sandbox: &Sandbox, typed: &str, make: impl Fn() -> Command) -> String {
    let folder = sandbox.path("").display().to_string();
    let shown = screens(typed, make, |seen| seen.replace(&folder, "/"));
    let (head, variants) = shown.split_once("\n===== ").unwrap();
    let mut texts = variants.split("\n===== ").map(|variant| variant.split_once('\n').unwrap().1);
    let text = texts.next().unwrap();
    assert_eq!(texts.filter(|other| *other == text).count(), 3, "{shown}");
    format!("{head}\n===== 80 and 120 columns, in colour and without =====\n{text}")
}

#[test]
fn by_the_wrapper() {
    let sandbox = Sandbox::new("");
    let bundle = sad_euler(&sandbox);
    let create = || {
        let mut command = sandbox.command();
        command.args(["create", "--bundle"]).arg(sandbox.path(&bundle)).arg(ID).env_remove("NO_COLOR");
        command
    };
    insta::assert_snapshot!(same_for_everybody(&sandbox, "cudaview-runtime ... create ...", create));
    assert_eq!(sandbox.started(), [""; 0], "the low-level runtime");
    // The engine reads the same in its log.
    let logged: Value = serde_json::from_str(sandbox.log().lines().last().unwrap()).unwrap();
    assert!(logged["msg"].as_str().unwrap().starts_with("cudaview: refused, CUDA_VISIBLE_DEVICES=\"1\" names none"));
    let records = fs::read_to_string(sandbox.path("audit.jsonl")).unwrap();
    let record: Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
    let facts = [&record["name"], &record["engine"], &record["verdict"], &record["provenance"], &record["before"]];
    assert_eq!(facts, [&json!("sad_euler"), &json!("podman"), &json!("refused"), &json!("user"), &json!({"cvd": "1"})]);
}

/// podman throws this away, and prints the hook's arguments.
#[test]
fn by_precreate() {
    let sandbox = Sandbox::new("");
    let bundle = sad_euler(&sandbox);
    let precreate = || {
        let mut command = Command::new(sandbox.path("prefix/bin/cudaview-hook"));
        command.args(["precreate", "(the reason: above, or in the audit record)"]);
        command.current_dir(sandbox.path(&bundle)).env_remove("NO_COLOR");
        command.stdin(File::open(sandbox.path(&bundle).join("config.json")).unwrap());
        command
    };
    insta::assert_snapshot!(same_for_everybody(&sandbox, "cudaview-hook precreate ...", precreate));
}

#[test]
fn the_newest_record() {
    let typed = "cudaview log -n 1";
    insta::assert_snapshot!(of_today(|trail| screens(typed, || log(trail, &["-n", "1"]), as_it_is)));
}

/// The same without a container, where one may try things out.
#[test]
fn what_if_it_is_tried() {
    let arguments = ["--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"];
    let typed = "cudaview explain --gpus 1 -e CUDA_VISIBLE_DEVICES=1";
    insta::assert_snapshot!(screens(typed, || what_if(&arguments), as_it_is));
}

/// A process that is added to session 1's container.
#[test]
fn what_if_a_process_is_added() {
    let arguments =
        ["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3", "--exec-env", "CUDA_VISIBLE_DEVICES=2"];
    let typed =
        "cudaview explain --gpus '\"device=1,3\"' -e CUDA_VISIBLE_DEVICES=1,3 --exec-env CUDA_VISIBLE_DEVICES=2";
    insta::assert_snapshot!(screens(typed, || what_if(&arguments), as_it_is));
}
