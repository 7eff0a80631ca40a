//! An image that asks for all GPUs, as every CUDA base image does, and a user who did not.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{GPUS_1_3, Host, IMAGE_NVD_ALL, paths};
use crate::world::command::write_program;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, CUDA_ERROR_NO_DEVICE, Dockerd, Install, find_program, require};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_as_default_runtime_an_images_request_gives_nothing() {
    let host = Host::with_default("", Some("cudaview"));
    let count = host.docker.count(&[], IMAGE_NVD_ALL);
    assert_eq!((count.cuda_error, count.nodes.as_slice()), (CUDA_ERROR_NO_DEVICE, [].as_slice()));
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], "all", "nobody runs who would act on it");
    assert_eq!(count.env.len(), 1, "{count:?}");
    let record = host.last_audit();
    assert_eq!(record["verdict"], "not-applicable");
    assert_eq!(record["findings"][0]["code"], "image-request-ignored");
    assert_eq!(record["findings"][0]["severity"], "info");

    let count = host.docker.count(&GPUS_1_3, IMAGE_NVD_ALL);
    assert_eq!(count.nodes, paths(&[1, 3]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_named_for_the_container_an_images_request_is_refused() {
    let host = Host::new("");
    let ran = host.docker.run(&["--runtime", "cudaview"], IMAGE_NVD_ALL, &["true"]).failed_with(125);
    assert!(ran.stderr.contains("cudaview: "), "{ran}");
    assert!(ran.stderr.contains("--gpus all"), "the flag to type: {ran}");
    assert_eq!(host.last_audit()["findings"][0]["code"], "image-request-ignored");
    assert_eq!(host.last_audit()["verdict"], "refused");
    // A user who says that none is wanted is heard.
    let count = host.count(IMAGE_NVD_ALL, &["-e", "NVIDIA_VISIBLE_DEVICES=none"]);
    assert!(count.nodes.is_empty(), "{count:?}");
    let count = host.count(IMAGE_NVD_ALL, &["-e", "NVIDIA_VISIBLE_DEVICES=void"]);
    assert!(count.nodes.is_empty(), "{count:?}");
    assert_eq!(host.containers(), [""; 0]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_policies_for_an_images_request() {
    let host = Host::new("[grant]\nimage_request = \"ignore\"\n");
    assert!(host.count(IMAGE_NVD_ALL, &[]).nodes.is_empty());
    let write = |grant: &str| {
        let text = fs::read_to_string(host.install.config()).unwrap();
        let (head, _) = text.split_once("[grant]").unwrap();
        host.install.configure(&format!("{head}[grant]\n{grant}\n"));
    };
    write("image_request = \"honour\"");
    assert_eq!(host.count(IMAGE_NVD_ALL, &[]).nodes, paths(&[0, 1, 2, 3]));
    write("base = [\"2\"]");
    let count = host.count(IMAGE_NVD_ALL, &[]);
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[2]), paths(&[2])));
    assert_eq!(host.count(IMAGE, &[]).nodes, paths(&[2]), "also where nobody mentions a GPU");
}

/// A stand-in for NVIDIA's runtime, which writes down what it would act on and then is runc.
fn nvidia_runtime(folder: &Path) -> PathBuf {
    let path = folder.join("nvidia-container-runtime");
    let script = format!(
        r#"#!/bin/sh
bundle=
previous=
for word; do
    [ "$previous" != --bundle ] || bundle=$word
    previous=$word
done
if [ -n "$bundle" ]; then
    '{jq}' -c '[.process.env[] | select(startswith("NVIDIA_VISIBLE_DEVICES="))]' "$bundle/config.json" >>"$0.record"
fi
exec '{runc}' "$@"
"#,
        jq = find_program("jq").display(),
        runc = find_program("runc").display(),
    );
    write_program(&path, script.as_bytes());
    path
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_nvidias_runtime_after_us_sees_what_was_granted() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let folder = tempfile::tempdir().unwrap();
    let runtime = nvidia_runtime(folder.path());
    let record = || -> Vec<Value> {
        let text = fs::read_to_string(folder.path().join("nvidia-container-runtime.record")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let install = Install::new(A100X4, &format!("low_level_runtime = ['{}']\n", runtime.display()));
    let docker = Dockerd::start(&[("cudaview", &install.runtime())], Some("cudaview"));
    let host = Host::of(docker, install);

    let before = record().len();
    let seen = |flags: &[&str], image: &str| {
        host.docker.run(flags, image, &["true"]).ok();
        record().pop().unwrap()
    };
    assert_eq!(seen(&[], IMAGE_NVD_ALL), json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    assert_eq!(seen(&[], IMAGE), json!([]), "nobody asked");
    assert_eq!(
        seen(&["-e", "NVIDIA_VISIBLE_DEVICES=none"], IMAGE_NVD_ALL),
        json!(["NVIDIA_VISIBLE_DEVICES=none"]),
        "none asks for no GPU and stays"
    );
    let two = format!("NVIDIA_VISIBLE_DEVICES={}", host.uuids_of(&[1, 3]).join(","));
    assert_eq!(seen(&GPUS_1_3, IMAGE_NVD_ALL), json!([two]));
    assert_eq!(seen(&GPUS_1_3, IMAGE), json!([two]));
    let narrowed = seen(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE_NVD_ALL);
    assert_eq!(narrowed, json!([format!("NVIDIA_VISIBLE_DEVICES={}", host.uuids[3])]));
    assert_eq!(record().len(), before + 6);
}

/// The stand-in for NVIDIA's hook, which Docker puts into the specification for `--gpus`.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_nvidias_hook_after_us_sees_what_was_granted() {
    let host = Host::new("inject = \"nvidia\"\n");
    let run = |flags: &[&str]| {
        host.docker.run(&[&["--runtime", "cudaview"], flags].concat(), IMAGE_NVD_ALL, &["true"]).ok();
        host.docker.hook_record().pop().unwrap()["entries"].clone()
    };
    let two = format!("NVIDIA_VISIBLE_DEVICES={}", host.uuids_of(&[1, 3]).join(","));
    assert_eq!(run(&GPUS_1_3), json!([two]));
    let narrowed = run(&["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2"]);
    assert_eq!(narrowed, json!([format!("NVIDIA_VISIBLE_DEVICES={}", host.uuids[2])]));
}
