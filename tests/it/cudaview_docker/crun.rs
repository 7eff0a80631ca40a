//! crun as the low-level runtime: first the bug, then what cudaview makes of it.

use serde_json::json;

use super::cdi::{self, CDI_1_3, Store};
use super::{GPUS_1_3, Host, IMAGE_CVD_0, paths};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, require, shims};

/// A host with two runtimes: `crun`, and `cudaview` in front of it.
#[track_caller]
fn host() -> Host {
    require(&["dockerd", "docker", "containerd", "runc", "crun", "jq"]);
    let install = Install::new(A100X4, "");
    let crun = shims::crun(&install.prefix());
    let config = std::fs::read_to_string(install.config()).unwrap();
    install.configure(&config.replace("\"runc\"", &format!("'{}'", crun.display())));
    let runtimes = [("crun", crun.as_path()), ("cudaview", &install.runtime())];
    let docker = Dockerd::start_with(&runtimes, None, &cdi::settings(Store::Graphdriver, &install));
    Host::of(docker, install)
}

/// Each way of selecting GPUs 1 and 3 that this Docker has, `--gpus` first.
fn selections() -> Vec<&'static [&'static str]> {
    if cdi::is_known() { vec![&GPUS_1_3, &CDI_1_3] } else { vec![&GPUS_1_3] }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_with_crun_shows_the_bug() {
    let host = host();
    let devices = host.install.docker_devices(&[1, 3]);
    let mut selections = vec![devices.iter().map(String::as_str).collect::<Vec<_>>()];
    if cdi::is_known() {
        selections.push(CDI_1_3.to_vec());
    }
    for selection in selections {
        for (value, view) in [("1,3", &[3][..]), ("3,1", &[]), ("1", &[3]), ("0,1", &[1, 3])] {
            let value = format!("CUDA_VISIBLE_DEVICES={value}");
            let flags = [&["--runtime", "crun"], &selection[..], &["-e", &value]].concat();
            let count = host.docker.count(&flags, IMAGE);
            assert_eq!((count.cuda, count.nvml), (host.uuids_of(view), host.uuids_of(&[1, 3])), "{flags:?}");
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_with_crun_views() {
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
        assert_eq!(host.count(IMAGE_CVD_0, selection).cuda, host.uuids_of(&[1, 3]), "the image's value yields");
        assert_eq!(host.last_audit()["provenance"], "image");
    }
    assert!(host.count(IMAGE, &[]).nodes.is_empty());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_with_crun_exec_and_restart() {
    let host = host();
    for (number, selection) in selections().into_iter().enumerate() {
        let name = format!("trainer-{number}");
        host.up(&name, IMAGE, &[selection, &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
        let exec = |more: &[&str], view: &[usize], value: &str| {
            let count = host.docker.exec_count(more, &name);
            assert_eq!((count.cuda, count.nodes), (host.uuids_of(view), paths(&[1, 3])), "{selection:?} {more:?}");
            assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{selection:?} {more:?}");
        };
        for after in ["run", "restart", "kill"] {
            if after != "run" {
                host.docker.docker(&[after, &name]).ok();
                host.docker.docker(&["start", &name]).ok();
            }
            exec(&[], &[3, 1], "1,0");
            exec(&["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "1");
            exec(&["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "1");
            assert_eq!(host.docker.try_mknod(&name, 0), Access::Blocked, "{selection:?} {after}");
            assert_eq!(host.docker.try_mknod(&name, 3), Access::Openable, "{selection:?} {after}");
        }
        host.docker.docker(&["rm", "--force", &name]).ok();
        // Narrowed: the engine's node and rule are taken back.
        host.up(&name, IMAGE, &[selection, &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat());
        assert_eq!(host.docker.exec_count(&[], &name).nodes, paths(&[3]));
        assert_eq!(host.docker.try_mknod(&name, 1), Access::Blocked, "{selection:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_with_crun_shows_why_it_refuses() {
    let host = host();
    let flags = ["--runtime", "cudaview", "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"];
    let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
    let text = "OCI runtime create failed: \
        cudaview: refused, CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs\n  \
        --gpus 1 is a count: it grants host GPU 0, which is number 0 inside\n  \
        -e CUDA_VISIBLE_DEVICES=\"1\" is neither that number nor that host GPU\n  \
        hint: for host GPU 1, --gpus device=1 and no CUDA_VISIBLE_DEVICES\n  \
        hint: for host GPU 0, --gpus 1 and no CUDA_VISIBLE_DEVICES\n  \
        (more: cudaview explain override-matches-nothing)";
    host.docker.shows(&ran, text);
    assert_eq!(host.containers(), [""; 0], "--rm leaves nothing");
    assert_eq!(host.last_audit()["granted"], json!(["0"]));

    host.up("trainer", IMAGE, &GPUS_1_3);
    let ran = host.docker.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], "trainer", &["true"]);
    let ran = ran.failed_with(if host.docker.version() < 28 { 126 } else { 128 });
    let text = "OCI runtime exec failed: \
        cudaview: refused, CUDA_VISIBLE_DEVICES=\"2\" names none of this container's GPUs\n  \
        inside, number 0 is host GPU 1 and number 1 is host GPU 3\n  \
        hint: -e CUDA_VISIBLE_DEVICES=0 or -e CUDA_VISIBLE_DEVICES=1\n  \
        hint: for host GPU 2, start a container with --gpus device=2\n  \
        (more: cudaview explain override-matches-nothing)";
    host.docker.shows(&ran, text);
    // What crun itself refuses is shown as crun says it.
    let said = |runtime: &str| {
        let flags = [&["--runtime", runtime], &GPUS_1_3[..]].concat();
        let ran = host.docker.run(&flags, IMAGE, &["no-such-program"]).failed_with(125);
        // Docker 20.10 goes on about its own troubles, or does not.
        ran.stderr.lines().next().unwrap_or_default().to_owned()
    };
    let plain = said("crun");
    assert!(plain.contains("executable file `no-such-program` not found in $PATH"), "{plain}");
    assert_eq!(said("cudaview"), plain);
}
