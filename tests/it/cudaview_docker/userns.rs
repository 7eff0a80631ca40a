//! Docker with `userns-remap`: root in a container is nobody on the host.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use super::cdi::{self, CDI_1_3, Store};
use super::{GPUS_1_3, Host, IMAGE_CVD_0, paths};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, namespace, require};

/// The user whose subordinate ids containers get; the daemon alone sees it.
const USER: &str = "cudaview-remap";

/// The first of these ids.
const FIRST: u32 = 100_000;

#[track_caller]
fn host() -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let mut settings = cdi::settings(Store::Graphdriver, &install);
    settings["userns-remap"] = json!(USER);
    // In a user namespace nodes cannot be made: runc binds the host's, from the path at which the container gets it.
    let world = namespace::gpu_nodes(&install) + &namespace::subordinate_user(USER, FIRST);
    let docker = Dockerd::start_in(Some(&world), &[("cudaview", &install.runtime())], None, &settings);
    Host::of(docker, install)
}

/// Each way of selecting GPUs 1 and 3 that this Docker has.
fn selections() -> Vec<&'static [&'static str]> {
    if cdi::is_known() { vec![&GPUS_1_3, &CDI_1_3] } else { vec![&GPUS_1_3] }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_with_remapped_users_shows_the_bug() {
    let host = host();
    let devices = ["--device", "/dev/nvidia1", "--device", "/dev/nvidia3"];
    for (value, view) in [("1,3", &[3][..]), ("3,1", &[]), ("0,1", &[1, 3])] {
        let count =
            host.docker.count(&[&devices[..], &["-e", &format!("CUDA_VISIBLE_DEVICES={value}")]].concat(), IMAGE);
        assert_eq!((count.cuda, count.nvml), (host.uuids_of(view), host.uuids_of(&[1, 3])), "{value}");
    }
    // It is what it says: root inside is an ordinary user outside, and cannot make nodes.
    host.docker.up("one", &[], IMAGE);
    let pid = host.docker.inspect("one")["State"]["Pid"].clone();
    let owner = |pid: &Value| std::fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    assert_eq!(owner(&pid), FIRST);
    assert_eq!(host.docker.try_mknod("one", 0), Access::NoNode);
}

/// A limit that the README names: a driver whose nodes are not in the host's `/dev`.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_with_remapped_users_takes_nodes_from_dev_only() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let settings = json!({"storage-driver": "overlay2", "userns-remap": USER});
    let world = namespace::subordinate_user(USER, FIRST);
    let docker = Dockerd::start_in(Some(&world), &[], None, &settings);
    docker.import(A100X4, IMAGE, &[]);
    let device = install.docker_devices(&[1]).swap_remove(0);
    let ran = docker.run(&[&device], IMAGE, &["true"]);
    // runc 1.3 writes `mount src=/dev/nvidia1`.
    let texts = ["error creating device nodes: mount ", "/dev/nvidia1", "no such file or directory"];
    assert!(ran.code != 0 && texts.iter().all(|text| ran.stderr.contains(text)), "{ran}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_with_remapped_users_views() {
    let host = host();
    for selection in selections() {
        for (value, view, nodes, emitted) in [
            ("1,3", &[1, 3][..], &[1, 3][..], "0,1"),
            ("3,1", &[3, 1], &[1, 3], "1,0"),
            ("1", &[3], &[3], "0"),
            ("-1", &[], &[1, 3], "-1"),
        ] {
            let value = format!("CUDA_VISIBLE_DEVICES={value}");
            let flags = [selection, &["-e", &value]].concat();
            let count = host.count(IMAGE, &flags);
            assert_eq!(count.cuda_error, if view.is_empty() { CUDA_ERROR_NO_DEVICE } else { 0 }, "{flags:?}");
            assert_eq!((count.cuda, count.nvml), (host.uuids_of(view), host.uuids_of(nodes)), "{flags:?}");
            assert_eq!((count.nodes, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (paths(nodes), emitted), "{flags:?}");
        }
        // The engine's files are found below the folder that such a daemon keeps them in.
        assert_eq!(host.count(IMAGE_CVD_0, selection).cuda, host.uuids_of(&[1, 3]), "the image's value yields");
        assert_eq!(host.last_audit()["provenance"], "image");
        // Not root inside either.
        let count = host.count(IMAGE, &[selection, &["--user", "1000:1000"]].concat());
        assert_eq!((count.cuda, count.nvml), (host.uuids_of(&[1, 3]), host.uuids_of(&[1, 3])), "{selection:?}");
    }
    assert!(host.count(IMAGE, &[]).nodes.is_empty());
    let flags = ["--runtime", "cudaview", "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"];
    let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
    assert!(
        ran.stderr.contains("cudaview: refused, CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs"),
        "{ran}"
    );
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_with_remapped_users_exec_and_restart() {
    let host = host();
    for (number, selection) in selections().into_iter().enumerate() {
        let name = format!("trainer-{number}");
        host.up(&name, IMAGE, &[selection, &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
        for after in ["run", "restart", "kill"] {
            if after != "run" {
                host.docker.docker(&[after, &name]).ok();
                host.docker.docker(&["start", &name]).ok();
            }
            for (more, view, value) in [
                (&[][..], &[3, 1][..], "1,0"),
                (&["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "1"),
                (&["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "1"),
                (&["--user", "1000:1000"], &[3, 1], "1,0"),
            ] {
                let count = host.docker.exec_count(more, &name);
                assert_eq!((count.cuda, count.nodes), (host.uuids_of(view), paths(&[1, 3])), "{selection:?} {more:?}");
                assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{selection:?} {more:?} {after}");
            }
            assert_eq!(host.docker.try_mknod(&name, 0), Access::NoNode, "{after}");
        }
        // The nodes are the host's, with its mode, and nobody's inside.
        let ran = host.docker.exec(&[], &name, &["stat", "-c", "%n %t:%T %a", "/dev/nvidia1", "/dev/nvidia3"]).ok();
        assert_eq!(ran.stdout, "/dev/nvidia1 c3:1 666\n/dev/nvidia3 c3:3 666\n", "{selection:?}");
        let ran = host.docker.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], &name, &["true"]);
        let ran = ran.failed_with(if host.docker.version() < 28 { 126 } else { 128 });
        let text = "CUDA_VISIBLE_DEVICES=\"2\" names none of this container's GPUs";
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(text), "{ran}");
        host.docker.docker(&["rm", "--force", &name]).ok();
    }
}
