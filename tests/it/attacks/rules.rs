//! Device rules mean to us what they mean to a real runtime.

use cudaview::device::DeviceNumber;
use cudaview::spec::{Spec, allowed};
use serde_json::{Value, json};

use crate::world::count::Access;
use crate::world::{A100X4, Bundle, CgroupView, find_program, only_cgroup_v2, require};

const GPU1: DeviceNumber = DeviceNumber { major: 195, minor: 1 };

/// Lists of rules, each to stand behind "deny all".
fn lists() -> Vec<Value> {
    let c = |allow: bool, minor: Value, access: &str| json!({"allow": allow, "type": "c", "major": 195, "minor": minor, "access": access});
    let gpu = c(true, json!(1), "rw");
    vec![
        json!([]),
        json!([gpu]),
        json!([c(true, Value::Null, "rw")]),
        json!([{"allow": true, "type": "c", "minor": 1, "access": "rw"}]),
        json!([{"allow": true, "type": "c", "access": "rwm"}]),
        json!([c(true, json!(7), "rw")]),
        json!([c(true, json!(1), "r")]),
        json!([c(true, json!(1), "w")]),
        json!([c(true, json!(1), "r"), c(true, json!(1), "w")]),
        json!([c(true, json!(1), "r"), c(true, Value::Null, "w")]),
        json!([{"allow": true, "type": "b", "major": 195, "minor": 1, "access": "rw"}]),
        json!([{"type": "c", "major": 195, "minor": 1, "access": "rw"}]),
        json!([{"allow": true, "type": "a", "major": 195, "minor": 7, "access": "rwm"}]),
        json!([{"allow": true, "type": "a", "access": "r"}]),
        json!([{"allow": true, "access": "rwm"}]),
        json!([gpu, {"allow": false, "type": "a", "major": 1, "minor": 2, "access": "r"}, {"allow": true, "type": "c", "access": "m"}]),
        json!([gpu, c(false, Value::Null, "rw")]),
        json!([gpu, c(false, json!(1), "rw")]),
        json!([gpu, c(false, json!(1), "r")]),
        json!([{"allow": true, "access": "rwm"}, c(false, Value::Null, "rw")]),
        json!([{"allow": true, "access": "rwm"}, c(false, json!(1), "rw"), gpu]),
        json!([{"allow": true, "access": "rwm"}, c(false, json!(7), "rw")]),
    ]
}

/// Lists that crun reads otherwise on cgroup version 2 than on version 1, and than runc on either. Its program takes
/// the last rule that alone covers all of what is wanted, and heeds numbers and access of a rule for all types.
/// No engine is known to write any of them.
const CRUN_V2_DIFFERS: &[usize] = &[8, 12, 13, 15, 16, 18];

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn rules_mean_what_runtimes_make_of_them() {
    require(&["runc", "crun"]);
    let views = [("runc", CgroupView::Machine), ("runc", CgroupView::OnlyV2), ("crun", CgroupView::WithoutUnified)];
    for (name, view) in views {
        let mut differing = Vec::new();
        for (number, list) in lists().into_iter().enumerate() {
            let command = Access::command(1);
            let command = command.each_ref().map(String::as_str);
            let bundle = Bundle::with_runtime(&find_program(name), A100X4, &command, &[]).seeing(view);
            bundle.edit(|spec| {
                let mut rules =
                    vec![json!({"allow": false, "access": "rwm"}), json!({"allow": true, "type": "c", "access": "m"})];
                rules.extend(list.as_array().unwrap().iter().cloned());
                spec["linux"]["resources"]["devices"] = rules.into();
            });
            let spec = bundle.spec();
            let expected = allowed(Spec::new(&spec).unwrap().rules(), GPU1);
            let ran = bundle.run();
            if (Access::of(ran) == Access::Openable) != expected {
                differing.push(number);
            }
        }
        let known = if name == "crun" && only_cgroup_v2() { CRUN_V2_DIFFERS } else { &[] };
        assert_eq!(differing, known, "{name} {view:?}: {}", Value::from(lists()));
    }
}
