//! Session 3: both flags, and an image default of 0.

use serde_json::{Value, json};

use super::terminal::screens;
use super::{as_it_is, what_if};

const BOTH: [&str; 6] =
    ["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3", "--image-env", "CUDA_VISIBLE_DEVICES=0"];

#[test]
fn both_flags() {
    let typed =
        "cudaview explain --gpus '\"device=1,3\"' -e CUDA_VISIBLE_DEVICES=1,3 --image-env CUDA_VISIBLE_DEVICES=0";
    insta::assert_snapshot!(screens(typed, || what_if(&BOTH), as_it_is));
}

/// The first hint of the screen before, tried.
#[test]
fn the_hint_tried() {
    let typed = "cudaview explain --gpus '\"device=1,3\"' --image-env CUDA_VISIBLE_DEVICES=0";
    let arguments = [BOTH[0], BOTH[1], BOTH[4], BOTH[5]];
    insta::assert_snapshot!(screens(typed, || what_if(&arguments), as_it_is));
}

/// What `jq -c '.verdict, .provenance, (.visible[] | del(.uuid)), .deviceNodes'` makes of it.
#[test]
fn for_programs() {
    let answer = crate::command::json(what_if(&BOTH).args(["--format", "json"]));
    assert_eq!(answer["verdict"], "rewritten");
    assert_eq!(answer["provenance"], json!({"CUDA_VISIBLE_DEVICES": "user"}));
    let visible: Vec<Value> = answer["visible"].as_array().unwrap().clone();
    let without_uuid = visible.into_iter().map(|mut device| {
        device.as_object_mut().unwrap().remove("uuid");
        device
    });
    let expected = [
        json!({"cudaOrdinal": 0, "containerIndex": 0, "hostIndex": 1}),
        json!({"cudaOrdinal": 1, "containerIndex": 1, "hostIndex": 3}),
    ];
    assert_eq!(without_uuid.collect::<Vec<_>>(), expected);
    assert_eq!(answer["deviceNodes"], json!(["/dev/nvidia1", "/dev/nvidia3"]));
}
