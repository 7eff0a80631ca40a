//! Rule 9: what a container loses, and where it cannot lose it.

use serde_json::json;

use super::{Host, gpu_rules, node_paths};
use crate::world::spec::{add_device, push};
use crate::world::{Access, Bundle, CgroupView, spec};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_gpu_that_was_narrowed_away_cannot_be_opened() {
    for view in [CgroupView::Machine, CgroupView::OnlyV2] {
        let host = Host::new("");
        let bundle = host.granted(&[0, 1, 3], &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=3,0"]).seeing(view);
        bundle.up();
        assert_eq!(
            (node_paths(&bundle.spec())[..2].to_vec(), gpu_rules(&bundle.spec())),
            (vec!["/dev/nvidia0", "/dev/nvidia3"], vec![0, 3])
        );
        assert_eq!(bundle.try_mknod(1), Access::Blocked, "{view:?}");
        assert_eq!(bundle.try_mknod(2), Access::Blocked, "{view:?}");
        assert_eq!(bundle.try_mknod(3), Access::Openable, "{view:?}");
        let count = bundle.exec_count(&[]);
        assert_eq!((count.cuda, count.nvml), (host.uuids_of(&[3, 0]), host.uuids_of(&[0, 3])), "{view:?}");
        assert!(host.findings().contains(&"withheld".to_owned()));
    }
}

/// What `--privileged` makes of a specification: every device, and a rule that allows everything.
fn privileged(host: &Host, args: &[&str], env: &[&str]) -> Bundle {
    let bundle = host.bundle(args, env);
    bundle.edit(|spec| {
        spec::grant_nodes(spec, &[0, 1, 2, 3]);
        spec["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
    });
    bundle
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn privileged_containers_get_numbers_among_what_is_visible() {
    let host = Host::new("[grant]\nbase = [\"2\", \"3\"]\n");
    for (env, value, view) in [
        (&[][..], "2,3", &[2, 3][..]),
        (&["CUDA_VISIBLE_DEVICES=0"], "2", &[2]),
        (&["CUDA_VISIBLE_DEVICES=3"], "3", &[3]),
        (&["CUDA_VISIBLE_DEVICES=1,0"], "3,2", &[3, 2]),
    ] {
        let bundle = privileged(&host, &["gpu-count", "--json"], env);
        let count = bundle.count();
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(view), value), "{env:?}");
        assert_eq!(count.nvml, host.uuids, "all of them can be opened");
        assert!(host.findings().contains(&"cannot-narrow".to_owned()), "{:?}", host.findings());
    }
    let bundle = privileged(&host, &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1"]);
    bundle.up();
    let count = bundle.exec_count(&[]);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "3"));
}

/// Privilege alone is no grant.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn privileged_containers_that_nobody_gave_gpus_stay_as_they_are() {
    let host = Host::new("");
    let bundle = privileged(&host, &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=1"]);
    let before = bundle.spec();
    let count = bundle.count();
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1]), "1"));
    assert_eq!(bundle.spec(), before);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_rule_for_all_gpus_keeps_them_openable() {
    let host = Host::new("");
    let bundle = host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]);
    bundle.edit(|spec| {
        let rule = json!({"allow": true, "type": "c", "major": 195, "access": "rwm"});
        push(&mut spec["linux"]["resources"]["devices"], rule);
    });
    let count = bundle.count();
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "1"));
    assert_eq!(count.nvml, host.uuids_of(&[1, 3]), "its number counts among what can be opened");
    assert!(host.findings().contains(&"cannot-narrow".to_owned()), "{:?}", host.findings());
    assert_eq!(host.install.audit_records()[0]["visible"], json!(["3"]));
}

/// A later rule that denies binds again.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_rule_that_denies_after_it_counts() {
    let host = Host::new("");
    let bundle = host.bundle(&["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]);
    bundle.edit(|spec| {
        let rules = &mut spec["linux"]["resources"]["devices"];
        push(rules, json!({"allow": true, "type": "c", "major": 195, "access": "rw"}));
        push(rules, json!({"allow": false, "type": "c", "major": 195, "access": "rw"}));
        spec::grant_nodes(spec, &[1, 3]);
    });
    let count = bundle.count();
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "0"));
    assert_eq!(count.nvml, host.uuids_of(&[3]));
}

/// An engine that cannot make nodes binds those of the host.
/// `--device /dev/nvidia1:/dev/nvidia1:r`: who gave less than reading and writing meant it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_rule_that_allows_less_is_not_widened() {
    let host = Host::new("");
    let bundle = host.granted(&[1], &["gpu-count", "--try-open", "/dev/nvidia1"], &[]);
    bundle.edit(|spec| {
        for rule in spec["linux"]["resources"]["devices"].as_array_mut().unwrap() {
            if rule["major"] == 195 && rule["minor"] == 1 {
                rule["access"] = json!("r");
            }
        }
    });
    let before = bundle.spec()["linux"]["resources"]["devices"].clone();
    assert_eq!(bundle.run().ok().stdout.trim(), "open: EPERM");
    assert_eq!(bundle.spec()["linux"]["resources"]["devices"], before);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn bind_mounts_of_gpu_nodes_go_too() {
    let host = Host::new("");
    let bundle = host.bundle(&["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=1"]);
    bundle.edit(|spec| {
        for minor in [1, 3] {
            let path = format!("/dev/nvidia{minor}");
            add_device(spec, &path, 195, minor);
            let source = host.install.node(minor);
            push(
                &mut spec["mounts"],
                json!({"destination": path, "type": "bind", "source": source, "options": ["bind", "rw", "nosuid"]}),
            );
        }
        spec["linux"]["devices"] = json!([]);
    });
    let mounts = bundle.spec()["mounts"].as_array().unwrap().len();
    let count = bundle.count();
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[3]), vec!["/dev/nvidia3".to_owned()]));
    let spec = bundle.spec();
    assert_eq!(spec["mounts"].as_array().unwrap().len(), mounts - 1);
    assert_eq!(gpu_rules(&spec), [3]);
    assert!(!spec["mounts"].to_string().contains("/dev/nvidia1"));
}

/// By number and not by path: an engine may call the node what it likes.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nodes_are_known_by_their_numbers() {
    let host = Host::new("");
    let bundle = host.bundle(&["ls", "/dev"], &["CUDA_VISIBLE_DEVICES=1"]);
    bundle.edit(|spec| {
        add_device(spec, "/dev/first", 195, 1);
        add_device(spec, "/dev/second", 195, 3);
        add_device(spec, "/dev/nvidia0", 1, 5);
    });
    let ran = bundle.run().ok();
    let names: Vec<&str> = ran.stdout.lines().collect();
    assert!(names.contains(&"second") && !names.contains(&"first"), "{ran}");
    assert!(names.contains(&"nvidia0"), "not a GPU, whatever its name: {ran}");
    assert_eq!(host.install.audit_records()[0]["kept"], json!(["3"]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn without_narrowing_the_nodes_stay() {
    let host = Host::new("[reconcile]\nnarrow = false\n");
    let count = host.granted(&[1, 3], &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=3"]).count();
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "1"));
    assert_eq!(count.nvml, host.uuids_of(&[1, 3]));
}
