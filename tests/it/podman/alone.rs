//! The createRuntime hook of `hooks.d`, without another door: it mounts what its arguments or the policy grant.

use serde_json::{Value, json};

use super::{ALONE, BOTH, GPUS_1_3, Host, PLAIN, PRECREATE, Setup, WRAPPER};
use crate::world::podman::IMAGE;
use crate::world::{Access, CUDA_ERROR_NO_DEVICE, only_cgroup_v2};

const ON_CRUN: Setup = Setup { runtime: "crun", ..ALONE };

/// Rules for GPUs 1 and 3 and the control nodes, and for no other.
const COVERING: [&str; 8] = [
    "--device-cgroup-rule",
    "c 195:1 rw",
    "--device-cgroup-rule",
    "c 195:3 rw",
    "--device-cgroup-rule",
    "c 195:255 rw",
    "--device-cgroup-rule",
    "c 510:0 rw",
];

/// What podman says of a hook that ended with 3: crun throws the hook's own words away.
fn said(setup: Setup, words: &[&str]) -> Vec<String> {
    if setup.runtime == "crun" {
        return vec!["error executing hook `".to_owned(), "/cudaview-hook` (exit code: 3)".to_owned()];
    }
    let of_runc = ["error running ", "exit status 3", "cudaview-hook: refused, "];
    of_runc.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

/// Without rules of podman's: version 1 of cgroups takes them from the hook, version 2 does not.
#[track_caller]
fn by_itself(setup: Setup) {
    let host = Host::new(setup, "");
    if only_cgroup_v2() {
        let ran = host.podman.run(&[], IMAGE, &["true"]).failed_with(126);
        let words = [
            "a createRuntime hook cannot allow /dev/nvidia-uvm /dev/nvidia1 /dev/nvidia3 /dev/nvidiactl on cgroup v2",
            "hint: use cudaview-runtime as the runtime",
            "or under podman the precreate hook",
        ];
        for text in said(setup, &words) {
            assert!(ran.stderr.contains(&text), "{text}: {ran}");
        }
        assert_eq!(host.last_audit()["verdict"], "refused");
        assert_eq!(host.podman.containers(), [""; 0], "what did not start is gone");
        return;
    }
    shows(&host, &[], &[1, 3]);
    host.podman.up("one", &["--cap-add", "MKNOD"], IMAGE);
    let access = [0, 1, 3].map(|minor| host.podman.try_mknod("one", minor));
    assert_eq!(access, [Access::Blocked, Access::Openable, Access::Openable]);
}

/// A program in the container has these GPUs, in this order, and no node of another.
#[track_caller]
fn shows(host: &Host, flags: &[&str], view: &[usize]) {
    let count = host.podman.count(flags, IMAGE);
    assert_eq!(count.cuda, host.uuids_of(view), "{flags:?}: {count:?}");
    assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{flags:?}: {count:?}");
    assert_eq!(count.nvml, host.uuids_of(&[1, 3]), "{flags:?}: {count:?}");
}

/// With rules that cover what it grants it works everywhere, and makes the nodes that are not there.
#[track_caller]
fn under_rules(setup: Setup) {
    let host = Host::new(setup, "");
    shows(&host, &COVERING, &[1, 3]);
    shows(&host, &GPUS_1_3, &[1, 3]);
    shows(&host, &[&COVERING[..], &["--user", "1000:1000", "--read-only"]].concat(), &[1, 3]);
    for (name, flags) in [("one", &GPUS_1_3[..]), ("two", &COVERING)] {
        host.podman.up(name, &[flags, &["--cap-add", "MKNOD"]].concat(), IMAGE);
        let access = [0, 1, 3].map(|minor| host.podman.try_mknod(name, minor));
        assert_eq!(access, [Access::Blocked, Access::Openable, Access::Openable], "{flags:?}");
    }
    let count = host.podman.exec_count(&[], "one");
    assert_eq!(count.cuda, host.uuids_of(&[1, 3]), "{count:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_alone_on_runc() {
    by_itself(ALONE);
    under_rules(ALONE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_alone_on_crun() {
    by_itself(ON_CRUN);
    under_rules(ON_CRUN);
}

/// It cannot rewrite the environment: the numbers stay wrong, the record says what is seen, and by policy it refuses.
#[track_caller]
fn environment(setup: Setup) {
    let host = Host::new(setup, "");
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat();
    shows(&host, &flags, &[3]);
    let record = host.last_audit();
    let told = [&record["door"], &record["verdict"], &record["visible"]];
    assert_eq!(told, [&json!("hook"), &json!("consistent"), &json!(["3"])], "{record}");
    assert_eq!(record["findings"][0]["code"], "unfixable-env", "{record}");
    shows(&host, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,0"]].concat(), &[3, 1]);

    let config = std::fs::read_to_string(host.install.config()).unwrap();
    host.install.configure(&format!("{config}\n[hook]\non_unfixable_env = \"refuse\"\n"));
    let ran = host.podman.run(&flags, IMAGE, &["true"]).failed_with(126);
    let words = [
        "CUDA_VISIBLE_DEVICES=\"1,3\" cannot be rewritten by a createRuntime hook",
        "the program will see host GPU 3, not host GPUs 1 and 3",
    ];
    for text in said(setup, &words) {
        assert!(ran.stderr.contains(&text), "{text}: {ran}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_alone_cannot_rewrite_on_runc() {
    environment(ALONE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_alone_cannot_rewrite_on_crun() {
    environment(ON_CRUN);
}

/// The file as it is shipped grants nothing of its own: the selection decides, or the policy does.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_as_shipped() {
    let host = Host::new(Setup { create_runtime: Some(&[]), ..PLAIN }, "");
    let count = host.podman.count(&[], IMAGE);
    assert_eq!((count.cuda_error, count.nodes.len()), (CUDA_ERROR_NO_DEVICE, 0), "{count:?}");
    shows(&host, &GPUS_1_3, &[1, 3]);
    let config = std::fs::read_to_string(host.install.config()).unwrap();
    host.install.configure(&format!("{config}\n[grant]\nbase = [\"1\", \"3\"]\n"));
    shows(&host, &COVERING, &[1, 3]);
}

/// What a limit withholds and podman has put in already, this hook cannot take away.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_alone_keeps_to_a_limit() {
    let host = Host::new(Setup { create_runtime: Some(&[]), ..PLAIN }, "[limit]\nnever = [\"0\"]\n");
    let both = ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"];
    let ran = host.podman.run(&both, IMAGE, &["true"]).failed_with(126);
    assert!(ran.stderr.contains("cudaview-hook: refused, [limit] withholds host GPU 0, and"), "{ran}");
    assert_eq!(host.last_audit()["verdict"], "refused");
    shows(&host, &GPUS_1_3, &[1, 3]);
    let config = std::fs::read_to_string(host.install.config()).unwrap();
    host.install.configure(&format!("{config}\n[grant]\nbase = [\"0\", \"1\", \"3\"]\n"));
    shows(&host, &COVERING, &[1, 3]);
}

/// Beside another door the hook of `hooks.d` leaves to it what it has decided.
#[track_caller]
fn beside(setup: Setup) {
    let host = Host::new(Setup { create_runtime: Some(&[]), ..setup }, "");
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat();
    let count = host.podman.count(&flags, IMAGE);
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[3]), vec!["/dev/nvidia3".to_owned()]));
    let doors: Vec<Value> = host.install.audit_records().iter().map(|record| record["door"].clone()).collect();
    assert!(!doors.contains(&json!("hook")), "{doors:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_hook_beside_another_door() {
    for setup in [WRAPPER, PRECREATE, BOTH] {
        beside(setup);
    }
}
