//! crun, and what is passed on.

use serde_json::json;

use super::{GPU1, names_none, past_a_bait};
use crate::sandbox::{Sandbox, gpu_spec};
use crate::world::Stage;

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cve_2025_24965_no_file_of_ours_is_made_in_a_root() {
    let stage = Stage::new("ln -s $F/canary/new $R/.krun_config.json; ln -s $F/canary/new $R/config.json");
    let list = "cd $R; find . | sort";
    let before = stage.inside(list);
    assert_eq!(stage.hook(&[GPU1]).ran.code, 0);
    assert_eq!(stage.inside(list), before.replace("./etc\n", "./dev/nvidia1\n./etc\n"));
    stage.nothing_outside();
    let (_, hooked) = past_a_bait("ln -s $F/canary/new $R/.cudaview; ln -s $F/canary/new $R/record.json");
    names_none(&hooked, &["krun", "config.json", ".cudaview", "record"]);
}

/// Every kind of capability set, and one that nobody knows.
#[test]
fn cve_2022_27650_capabilities_are_passed_on_as_they_are() {
    let sandbox = Sandbox::new("");
    let mut spec = gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]);
    let capabilities = json!({
        "bounding": ["CAP_KILL", "CAP_FUTURE"], "effective": [], "inheritable": [], "permitted": ["CAP_KILL"],
        "ambient": [], "x-unknown": ["CAP_KILL", "CAP_KILL"],
    });
    spec["process"]["capabilities"] = capabilities.clone();
    sandbox.write_spec(&spec);
    sandbox.create().ok();
    let edited = sandbox.spec();
    assert_ne!(edited["process"]["env"], spec["process"]["env"], "nothing was edited");
    assert_eq!(edited["process"]["capabilities"].to_string(), capabilities.to_string());
}

/// A user is the runtime's to read; what it does not know, or reads in another way, stays as it was.
#[test]
fn cve_2026_30892_a_user_is_passed_on_as_it_is() {
    for user in [
        json!({"uid": 1000, "gid": 1000, "umask": 63, "additionalGids": [5, 5, 4_294_967_295_u32]}),
        json!({"uid": 0, "gid": 0, "username": "root:x:0"}),
        json!({"uid": 4_294_967_294_u32, "gid": 7, "x": {"y": [1, null]}}),
        json!({"gid": 7}),
    ] {
        let sandbox = Sandbox::new("");
        let mut spec = gpu_spec(&["CUDA_VISIBLE_DEVICES=3"]);
        spec["process"]["user"] = user.clone();
        sandbox.write_spec(&spec);
        sandbox.create().ok();
        let edited = sandbox.spec();
        assert_ne!(edited["process"]["env"], spec["process"]["env"], "nothing was edited");
        assert_eq!(edited["process"]["user"].to_string(), user.to_string());
    }
}
