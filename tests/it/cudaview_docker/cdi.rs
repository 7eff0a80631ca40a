//! `--device nvidia.com/gpu=…` (CDI), on both image stores: first the bug, then what cudaview makes of it.
//!
//! Docker has it from version 25 on. On an older one each of these tests asks for a device in this way, and ends with
//! Docker's own refusal of it.

use serde_json::{Value, json};

use super::{Host, IMAGE_CVD_0, paths};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, cdi, require};

/// The flags that name GPUs 1 and 3.
pub(super) const CDI_1_3: [&str; 4] = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];

/// Where Docker keeps its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Docker's own, which upgraded installations have.
    Graphdriver,
    /// containerd's, which new installations of Docker 29 have.
    Containerd,
}

impl Store {
    fn settings(self) -> Value {
        match self {
            Store::Graphdriver => json!({"storage-driver": "overlay2", "features": {"cdi": true}}),
            Store::Containerd => json!({"features": {"cdi": true, "containerd-snapshotter": true}}),
        }
    }
}

/// Whether Docker is new enough for it.
pub(super) fn is_known() -> bool {
    Dockerd::program_version() >= 25
}

/// The daemon's settings for the store and for devices by name, where Docker has it; the specification is written.
pub(super) fn settings(store: Store, install: &Install) -> Value {
    if !is_known() {
        return json!({"storage-driver": "overlay2"});
    }
    let specs = install.prefix().join("cdi");
    cdi::write_spec(&specs, install, A100X4);
    let mut settings = store.settings();
    settings["cdi-spec-dirs"] = json!([specs]);
    settings
}

/// A host whose Docker knows the devices by name; none where Docker is too old for it, which is made sure of.
#[track_caller]
fn host(store: Store) -> Option<Host> {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let settings = settings(store, &install);
    let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, &settings);
    let host = Host::of(docker, install);
    if !is_known() {
        let ran = host.docker.run(&CDI_1_3, IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("nvidia.com/gpu=1"), "{ran}");
        return None;
    }
    let driver = host.docker.docker(&["info", "--format", "{{.Driver}}"]).ok().stdout;
    assert_eq!(driver.trim(), if store == Store::Containerd { "overlayfs" } else { "overlay2" });
    Some(host)
}

#[track_caller]
fn check(host: &Host, more: &[&str], image: &str, view: &[usize], nodes: &[usize], value: &str) {
    let count = host.count(image, &[&CDI_1_3[..], more].concat());
    let context = format!("{image} {more:?}: {count:?}");
    assert_eq!(count.cuda_error, if view.is_empty() { CUDA_ERROR_NO_DEVICE } else { 0 }, "{context}");
    assert_eq!((&count.cuda, &count.nvml), (&host.uuids_of(view), &host.uuids_of(nodes)), "{context}");
    assert_eq!(count.nodes, paths(nodes), "{context}");
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{context}");
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "void", "{context}");
}

/// Plain runc, without cudaview.
fn the_bug(store: Store) {
    let Some(host) = host(store) else { return };
    let cuda = |image: &str, more: &[&str]| {
        let count = host.docker.count(&[&CDI_1_3[..], more].concat(), image);
        assert_eq!(count.nvml, host.uuids_of(&[1, 3]), "{more:?}");
        assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "void");
        count.cuda
    };
    assert_eq!(cuda(IMAGE, &[]), host.uuids_of(&[1, 3]));
    assert_eq!(cuda(IMAGE, &["-e", "CUDA_VISIBLE_DEVICES=1,3"]), host.uuids_of(&[3]), "one of two, and no error");
    assert_eq!(cuda(IMAGE, &["-e", "CUDA_VISIBLE_DEVICES=3,1"]), host.uuids_of(&[]), "none of two");
    assert_eq!(cuda(IMAGE_CVD_0, &[]), host.uuids_of(&[1]), "the image takes one away");
}

fn the_views(store: Store) {
    let Some(host) = host(store) else { return };
    for (value, view, nodes, emitted) in [
        ("1,3", &[1, 3][..], &[1, 3][..], "0,1"),
        ("3,1", &[3, 1], &[1, 3], "1,0"),
        ("0,1", &[1, 3], &[1, 3], "0,1"),
        ("1", &[3], &[3], "0"),
        ("all", &[1, 3], &[1, 3], "0,1"),
        ("-1", &[], &[1, 3], "-1"),
        ("", &[], &[1, 3], ""),
    ] {
        check(&host, &["-e", &format!("CUDA_VISIBLE_DEVICES={value}")], IMAGE, view, nodes, emitted);
        let record = host.last_audit();
        assert_eq!(record["source"], json!(["cdi"]), "{record}");
    }
    check(&host, &[], IMAGE, &[1, 3], &[1, 3], "0,1");
    check(&host, &["-e", "CUDA_VISIBLE_DEVICES=1"], IMAGE_CVD_0, &[3], &[3], "0");

    // The image's value yields where it is known to be the image's.
    let count = host.count(IMAGE_CVD_0, &CDI_1_3);
    let record = host.last_audit();
    assert_eq!((&record["provenance"], count.cuda), (&json!("image"), host.uuids_of(&[1, 3])), "{record}");
}

fn exec_and_life(store: Store) {
    let Some(host) = host(store) else { return };
    host.up("one", IMAGE, &[&CDI_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3,1"]].concat());
    let exec = |more: &[&str], view: &[usize], value: &str| {
        let count = host.docker.exec_count(more, "one");
        assert_eq!((&count.cuda, count.nodes), (&host.uuids_of(view), paths(&[1, 3])), "{more:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{more:?}");
        assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "void", "{more:?}");
    };
    for after in ["run", "restart", "stop", "kill"] {
        if after != "run" {
            host.docker.docker(&[after, "one"]).ok();
            host.docker.docker(&["start", "one"]).ok();
        }
        exec(&[], &[3, 1], "1,0");
        exec(&["-e", "CUDA_VISIBLE_DEVICES=1"], &[3], "1");
        exec(&["-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "1");
        exec(&["-e", "CUDA_VISIBLE_DEVICES=0"], &[1], "0");
        assert_eq!(host.docker.try_mknod("one", 0), Access::Blocked, "{after}");
        assert_eq!(host.docker.try_mknod("one", 1), Access::Openable, "{after}");
    }
    let ran = host.docker.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], "one", &["true"]);
    let ran = ran.failed_with(if host.docker.version() < 28 { 126 } else { 128 });
    let text = "CUDA_VISIBLE_DEVICES=\"2\" names none of this container's GPUs";
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains(text), "{ran}");
}

/// The nodes and the rules were Docker's; what the value leaves out is taken away again.
fn narrowed_and_refused(store: Store) {
    let Some(host) = host(store) else { return };
    host.up("narrow", IMAGE, &[&CDI_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat());
    assert_eq!(host.docker.exec_count(&[], "narrow").nodes, paths(&[3]));
    assert_eq!(host.docker.try_mknod("narrow", 1), Access::Blocked, "its rule went with its node");
    assert_eq!(host.docker.try_mknod("narrow", 3), Access::Openable);
    host.docker.docker(&["rm", "--force", "narrow"]).ok();

    let flags = [&["--runtime", "cudaview"], &CDI_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=5"]].concat();
    let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
    let text = "OCI runtime create failed: \
        cudaview: refused, CUDA_VISIBLE_DEVICES=\"5\" names none of the granted GPUs\n  \
        --device nvidia.com/gpu=1 and --device nvidia.com/gpu=3 grant host GPUs 1 and 3, which are numbers 0 and 1 inside\n  \
        -e CUDA_VISIBLE_DEVICES=\"5\" is none of these numbers, inside or on the host\n  \
        hint: for host GPUs 1 and 3, leave CUDA_VISIBLE_DEVICES out\n  \
        (more: cudaview explain override-matches-nothing)";
    host.docker.shows(&ran, text);
    assert_eq!(host.containers(), [""; 0], "--rm leaves nothing");
}

/// Each of them on each store.
macro_rules! on_both_stores {
    ($($scenario:ident: $graphdriver:ident, $containerd:ident;)*) => {$(
        #[test]
        #[ignore = "needs root and engines: sudo tests/run"]
        fn $graphdriver() {
            $scenario(Store::Graphdriver);
        }

        #[test]
        #[ignore = "needs root and engines: sudo tests/run"]
        fn $containerd() {
            $scenario(Store::Containerd);
        }
    )*};
}

on_both_stores! {
    the_bug: plain_docker_cdi_shows_the_bug, plain_docker_cdi_shows_the_bug_on_containerds_store;
    the_views: cudaview_docker_cdi_views, cudaview_docker_cdi_views_on_containerds_store;
    exec_and_life: cudaview_docker_cdi_exec_and_restart, cudaview_docker_cdi_exec_and_restart_on_containerds_store;
    narrowed_and_refused: cudaview_docker_cdi_narrows_and_refuses, cudaview_docker_cdi_narrows_and_refuses_on_containerds_store;
}
