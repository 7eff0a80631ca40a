//! `docker run --privileged`: every GPU of the host can be opened, whatever was selected.

use super::{Host, paths};
use crate::world::count::Count;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, Dockerd, Install, namespace, require, shims};

/// A host with two runtimes: `capable`, which is runc as far as a test machine's root may, and `cudaview` in front of it.
#[track_caller]
fn host() -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let capable = shims::runc_without_sys_resource(&install.prefix());
    let config = std::fs::read_to_string(install.config()).unwrap();
    install.configure(&config.replace("\"runc\"", &format!("'{}'", capable.display())));
    let runtimes = [("capable", capable.as_path()), ("cudaview", &install.runtime())];
    // Docker gives such a container the nodes that it finds in its own /dev.
    let world = namespace::gpu_nodes(&install);
    let docker = Dockerd::start_in(Some(&world), &runtimes, None, &serde_json::json!({"storage-driver": "overlay2"}));
    Host::of(docker, install)
}

#[track_caller]
fn count(host: &Host, runtime: &str, flags: &[&str]) -> Count {
    let count = host.docker.count(&[&["--runtime", runtime, "--privileged"], flags].concat(), IMAGE);
    assert_eq!((&count.nvml, &count.nodes), (&host.uuids, &paths(&[0, 1, 2, 3])), "privilege hides nothing: {flags:?}");
    count
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_privileged_ignores_the_selection() {
    let host = host();
    for (flags, view) in [
        (&["--gpus", "\"device=2,3\""][..], &[0, 1, 2, 3][..]),
        (&["--gpus", "\"device=2,3\"", "-e", "CUDA_VISIBLE_DEVICES=0"], &[0]),
        (&["--gpus", "\"device=2,3\"", "-e", "CUDA_VISIBLE_DEVICES=0,1"], &[0, 1]),
    ] {
        assert_eq!(count(&host, "capable", flags).cuda, host.uuids_of(view), "{flags:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_privileged_containers_get_numbers_among_what_is_visible() {
    let host = host();
    for (flags, view, value) in [
        (&[][..], &[2, 3][..], "2,3"),
        (&["-e", "CUDA_VISIBLE_DEVICES=0"], &[2], "2"),
        (&["-e", "CUDA_VISIBLE_DEVICES=0,1"], &[2, 3], "2,3"),
        (&["-e", "CUDA_VISIBLE_DEVICES=3,2"], &[3, 2], "3,2"),
        (&["-e", "CUDA_VISIBLE_DEVICES=-1"], &[], "-1"),
    ] {
        let count = count(&host, "cudaview", &[&["--gpus", "\"device=2,3\""], flags].concat());
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(view), value), "{flags:?}");
    }
    let record = host.last_audit();
    assert!(record["findings"].to_string().contains("cannot-narrow"), "{record}");

    host.up("one", IMAGE, &["--privileged", "--gpus", "\"device=2,3\"", "-e", "CUDA_VISIBLE_DEVICES=3,2"]);
    for (flags, view, value) in [
        (&[][..], &[3, 2][..], "3,2"),
        (&["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "3"),
        (&["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "3"),
    ] {
        let count = host.docker.exec_count(flags, "one");
        assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(view), value), "{flags:?}");
    }
    assert_eq!(host.docker.try_mknod("one", 0), Access::Openable, "it is privileged");

    // Privilege alone is no grant: such a container is left as it is.
    let count = count(&host, "cudaview", &["-e", "CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (host.uuids_of(&[1]), "1"));
}
