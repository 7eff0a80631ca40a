//! What a kubelet asks of containerd: pods with the runtime handler `cudaview`, and a device plugin's answers.

use super::{Expected, Host, IMAGE, IMAGE_CVD_0, UNKNOWN_IS_USER, Version};
use crate::world::containerd::KUBERNETES;
use crate::world::count::{Access, Count};
use crate::world::cri::{Channel, Pod, container};

/// The shipped runtime handler.
const CUDAVIEW: &str = "cudaview";
/// containerd's default.
const PLAIN: &str = "";

impl Host {
    /// With the images that pods run.
    #[track_caller]
    pub(super) fn for_pods(low_level: &str, config: &str) -> Host {
        let host = Host::new(low_level, config);
        host.containerd.import_for_sandboxes();
        host.containerd.import_for_pods(IMAGE, &[]);
        host.containerd.import_for_pods(IMAGE_CVD_0, &["CUDA_VISIBLE_DEVICES=0"]);
        host
    }
}

/// The bug, before anything is done about it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_containerd_cri_counts_two_ways() {
    let host = Host::for_pods("runc", "");
    let pod = host.containerd.pod(PLAIN);
    let check = |image: &str, env: &[&str], view: &[usize]| {
        let count = pod.count(&container(image, &[1, 3], Channel::Devices, env));
        assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{count:?}");
        assert_eq!(count.cuda, host.uuids_of(view), "{env:?} {image}: {count:?}");
    };
    check(IMAGE, &[], &[1, 3]);
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=1,3"], &[3]);
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=3"], &[]);
    check(IMAGE_CVD_0, &[], &[1]);
    pod.end();
    assert_eq!(host.containerd.things(), [""; 0]);
}

#[track_caller]
fn views(low_level: &str) {
    let host = Host::for_pods(low_level, "");
    let pod = host.containerd.pod(CUDAVIEW);
    let check = |image: &str, env: &[&str], expected: &Expected<'_>| {
        let count = pod.count(&container(image, &[1, 3], Channel::Devices, env));
        host.compare(&count, expected, &format!("{image} {env:?}"));
        // What the device plugin said is what there is; a value that hides GPUs leaves everything else alone.
        let left = if expected.view.is_empty() { "1,3".to_owned() } else { host.uuids_of(expected.nodes).join(",") };
        assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], left, "{count:?}");
    };
    check(IMAGE, &[], &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=1,3"], &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=3,1"], &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" });
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=3"], &Expected { view: &[3], nodes: &[3], value: "0" });
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=-1"], &Expected { view: &[], nodes: &[1, 3], value: "-1" });
    check(IMAGE_CVD_0, &[], &Expected { view: &[1], nodes: &[1], value: "0" });
    let record = host.last_audit();
    assert_eq!((&record["engine"], &record["provenance"]), (&"containerd".into(), &"unknown".into()), "{record}");
    // A container is not stopped for a value whose author is not known.
    check(IMAGE, &["CUDA_VISIBLE_DEVICES=2"], &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    let finding = &host.last_audit()["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["severity"]),
        (&"override-matches-nothing".into(), &"warning".into()),
        "{finding}"
    );
    pod.end();
    assert_eq!(host.containerd.things(), [""; 0]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_views() {
    views("runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_views_on_crun() {
    views("crun");
}

/// A sandbox holds a pod's namespaces and computes nothing: it gets no GPU, not even where the host's policy gives
/// GPUs to whoever asks for none.
#[track_caller]
fn sandbox(host: &Host) -> Pod<'_> {
    let pod = host.containerd.pod(CUDAVIEW);
    let seen = host.containerd.seen(&pod.id);
    assert_eq!(seen["annotations"]["io.kubernetes.cri.container-type"], "sandbox");
    assert_eq!(seen, host.containerd.kept(KUBERNETES, &pod.id), "what containerd wrote is what the runtime got");
    assert!(host.containerd.install.audit_records().is_empty(), "{:?}", host.last_audit());
    pod
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_sandbox_is_passed_through() {
    sandbox(&Host::for_pods("runc", ""));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_sandbox_gets_none_of_what_the_policy_gives_everybody() {
    let host = Host::for_pods("runc", "[grant]\nbase = 'all'\n");
    let pod = sandbox(&host);
    let count = pod.count(&container(IMAGE, &[], Channel::CdiDevices, &["CUDA_VISIBLE_DEVICES=3,1"]));
    host.compare(&count, &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" }, "a container of the pod");
}

/// The ways in which a kubelet hands on a device plugin's answer, beside nodes.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_grants_by_cdi_and_by_mounts() {
    let host = Host::for_pods("runc", "");
    let (plain, pod) = (host.containerd.pod(PLAIN), host.containerd.pod(CUDAVIEW));
    let env = ["CUDA_VISIBLE_DEVICES=3"];
    for channel in [Channel::CdiDevices, Channel::CdiAnnotations] {
        let count = plain.count(&container(IMAGE, &[1, 3], channel, &env));
        assert_eq!(count.cuda, [""; 0], "the bug is gone: {count:?}");
        let through = pod.count(&container(IMAGE, &[1, 3], channel, &env));
        if host.containerd.version() < Version(1, 7) {
            // 1.6 reads neither; nobody else asked for a GPU.
            assert_eq!((count.nodes.len(), through.nodes.len()), (0, 0), "{channel:?}: {through:?}");
            continue;
        }
        assert_eq!(count.nodes, ["/dev/nvidia1", "/dev/nvidia3"], "{channel:?}: {count:?}");
        host.compare(&through, &Expected { view: &[3], nodes: &[3], value: "0" }, &format!("{channel:?}"));
    }
    // The channel that a pod cannot forge; plain containerd makes nothing of it.
    let count = plain.count(&container(IMAGE, &[1, 3], Channel::Mounts, &env));
    assert_eq!(count.nodes, [""; 0]);
    let count = pod.count(&container(IMAGE, &[1, 3], Channel::Mounts, &env));
    host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "mounts");
}

/// By itself the variable is what a pod, or its image, could have said.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_ignores_a_variable_unless_it_is_told_to_trust_it() {
    let host = Host::for_pods("runc", "");
    let pod = host.containerd.pod(CUDAVIEW);
    let count = pod.count(&container(IMAGE, &[1, 3], Channel::Variable, &["CUDA_VISIBLE_DEVICES=3"]));
    assert_eq!((count.nodes.len(), count.env["CUDA_VISIBLE_DEVICES"].as_str()), (0, "3"), "{count:?}");
    let record = host.last_audit();
    assert_eq!(record["verdict"], "not-applicable");
    assert_eq!(record["findings"][0]["code"], "image-request-ignored", "{record}");
    // Nor does it widen what the device plugin's nodes grant.
    let mut config = container(IMAGE, &[3], Channel::Devices, &[]);
    config.envs[0].value = "all".to_owned();
    host.compare(&pod.count(&config), &Expected { view: &[3], nodes: &[3], value: "0" }, "all beside a node");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_grants_by_a_variable_where_it_is_told_to_trust_it() {
    let host = Host::for_pods("runc", UNKNOWN_IS_USER);
    let pod = host.containerd.pod(CUDAVIEW);
    let count = pod.count(&container(IMAGE, &[1, 3], Channel::Variable, &["CUDA_VISIBLE_DEVICES=3"]));
    host.compare(&count, &Expected { view: &[3], nodes: &[3], value: "0" }, "the variable");
    // Nodes still outrank it.
    let mut config = container(IMAGE, &[3], Channel::Devices, &[]);
    config.envs[0].value = "all".to_owned();
    host.compare(&pod.count(&config), &Expected { view: &[3], nodes: &[3], value: "0" }, "all beside a node");

    let refused = pod.start(&container(IMAGE, &[9], Channel::Variable, &[]), &["true"]).unwrap_err();
    let text = "failed to create containerd task: failed to create shim task: OCI runtime create failed: \
        cudaview: refused, no such GPU: \"9\"; this host has GPUs 0 to 3";
    assert!(refused.contains(text), "{refused}");
    assert!(refused.contains("\n  hint: cudaview inventory lists the GPUs and their names\n"), "{refused}");
}

#[track_caller]
fn exec_and_restart(low_level: &str) {
    let host = Host::for_pods(low_level, "");
    let pod = host.containerd.pod(CUDAVIEW);
    let config = container(IMAGE, &[1, 3], Channel::Devices, &["CUDA_VISIBLE_DEVICES=3,1"]);
    let expected = Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" };
    for attempt in ["the first", "the second"] {
        // A kubelet restarts a container by another one of the same name.
        let id = pod.up(&config);
        host.compare(&pod.exec_count(&id), &expected, attempt);
        for minor in 0..4 {
            let expected = if [1, 3].contains(&minor) { Access::Openable } else { Access::Blocked };
            assert_eq!(pod.try_mknod(&id, minor), expected, "{attempt}: GPU {minor}");
        }
        let own = pod.exec(&id, &["sh", "-c", "tr '\\0' '\\n' </proc/1/environ"]).ok().stdout;
        assert!(own.lines().any(|line| line == "CUDA_VISIBLE_DEVICES=1,0"), "{attempt}: {own}");
        pod.stop(&id);
        assert_eq!(pod.status(&id).exit_code, 137);
        pod.remove(&id);
    }
    pod.end();
    assert_eq!(host.containerd.things(), [""; 0]);
    host.containerd.await_no_shim();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_exec_and_restart() {
    exec_and_restart("runc");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_exec_and_restart_on_crun() {
    exec_and_restart("crun");
}

/// Two containers of one pod have GPUs of their own, each counted from 0.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_cri_containers_of_a_pod_do_not_mix() {
    let host = Host::for_pods("runc", "");
    let pod = host.containerd.pod(CUDAVIEW);
    let one = pod.up(&container(IMAGE, &[0, 2], Channel::Devices, &["CUDA_VISIBLE_DEVICES=2"]));
    let other = pod.up(&container(IMAGE, &[1, 3], Channel::Devices, &["CUDA_VISIBLE_DEVICES=3,1"]));
    let none = pod.run(&container(IMAGE, &[], Channel::Variable, &[]), &["ls", "/dev"]).ok();
    assert!(!none.stdout.contains("nvidia"), "{none}");
    host.compare(&pod.exec_count(&one), &Expected { view: &[2], nodes: &[2], value: "0" }, "one");
    host.compare(&pod.exec_count(&other), &Expected { view: &[3, 1], nodes: &[1, 3], value: "1,0" }, "the other");
    let count = Count::of(pod.exec(&one, &["sh", "-c", "CUDA_VISIBLE_DEVICES=1 gpu-count --json"]));
    assert_eq!(count.cuda, [""; 0], "what a shell sets goes to CUDA as it is");
}
