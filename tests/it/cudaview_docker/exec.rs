//! `docker exec` and health checks: Docker sends its own copy of the environment, with the value that was typed.

use super::{GPUS_1_3, Host};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, CUDA_ERROR_NO_DEVICE};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_sees_the_containers_numbers() {
    let host = Host::new("");
    host.up("one", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=1,3"]].concat());
    let with = |flags: &[&str]| host.docker.exec_count(flags, "one");

    let count = with(&[]);
    assert_eq!((count.cuda, count.nvml), (host.uuids_of(&[1, 3]), host.uuids_of(&[1, 3])));
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "0,1");
    assert_eq!(count.env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], "1,3");
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], host.uuids_of(&[1, 3]).join(","));

    let with_value = |value: &str, view: &[usize], emitted: &str| {
        let count = with(&["-e", &format!("CUDA_VISIBLE_DEVICES={value}")]);
        assert_eq!(count.cuda, host.uuids_of(view), "{value}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted, "{value}");
        let trace: Vec<String> = view.iter().map(ToString::to_string).collect();
        assert_eq!(count.env.get("CUDAVIEW_HOST_GPUS").cloned().unwrap_or_default(), trace.join(","), "{value}");
        assert_eq!(count.nvml, host.uuids_of(&[1, 3]), "exec changes no node");
        count
    };
    with_value("1", &[3], "1");
    with_value("0", &[1], "0");
    with_value("1,0", &[3, 1], "1,0");
    // Only a host number can be meant.
    with_value("3", &[3], "1");
    with_value("all", &[1, 3], "0,1");
    assert_eq!(with_value("", &[], "").cuda_error, CUDA_ERROR_NO_DEVICE);
    assert_eq!(with_value("-1", &[], "-1").cuda_error, CUDA_ERROR_NO_DEVICE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_counts_among_what_was_kept() {
    let host = Host::new("");
    host.up("one", IMAGE, &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2,3"]);
    let count = host.docker.exec_count(&[], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[2, 3]), "0,1"));
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[3]), "1"));
    // 0 was narrowed away: it is a number inside now.
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=0"], "one");
    assert_eq!(count.cuda, host.uuids_of(&[2]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_exec_without_a_value_of_the_containers_own() {
    let host = Host::new("");
    host.up("one", IMAGE, &GPUS_1_3);
    let count = host.docker.exec_count(&[], "one");
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1, 3]), "0,1"));
    host.up("hidden", IMAGE, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=-1"]].concat());
    let count = host.docker.exec_count(&[], "hidden");
    assert_eq!((count.cuda_error, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (CUDA_ERROR_NO_DEVICE, "-1"));
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "hidden");
    assert_eq!(count.cuda, host.uuids_of(&[3]));
    // A container that nobody gave a GPU.
    host.up("plain", IMAGE, &[]);
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=1"], "plain");
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1");
    assert_eq!(count.env.len(), 1, "{count:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_health_check_sees_the_containers_numbers() {
    let host = Host::new("");
    host.docker.import(A100X4, "health", &["HEALTHCHECK --interval=1s --timeout=10s CMD gpu-count --json"]);
    host.up("one", "health", &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    let count = host.docker.health_count("one");
    assert_eq!(count.cuda, host.uuids_of(&[3, 1]));
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "1,0");
}
