//! Values and requests that are refused: what the person at the terminal reads, and what is left.

use std::fs;

use super::{GPUS_1_3, Host};
use crate::world::command::write_program;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Dockerd, Install, require};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_refuses_a_value_that_names_no_granted_gpu() {
    let host = Host::new("");
    let ran =
        host.docker.run(&["--runtime", "cudaview", "--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"], IMAGE, &["true"]);
    let ran = ran.failed_with(125);
    let text = "OCI runtime create failed: \
        cudaview: refused, CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs\n  \
        --gpus 1 is a count: it grants host GPU 0, which is number 0 inside\n  \
        -e CUDA_VISIBLE_DEVICES=\"1\" is neither that number nor that host GPU\n  \
        hint: for host GPU 1, --gpus device=1 and no CUDA_VISIBLE_DEVICES\n  \
        hint: for host GPU 0, --gpus 1 and no CUDA_VISIBLE_DEVICES\n  \
        (more: cudaview explain override-matches-nothing)";
    host.docker.shows(&ran, text);
    assert_eq!(host.containers(), [""; 0], "--rm leaves nothing");
    let record = host.last_audit();
    assert_eq!(record["verdict"], "refused");
    assert_eq!(record["before"]["cvd"], "1");
    assert_eq!(record["granted"], serde_json::json!(["0"]));
    assert_eq!(record["visible"], serde_json::json!([]));
    assert_eq!(record["findings"][0]["code"], "override-matches-nothing");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_refusal_leaves_a_container_as_created() {
    let host = Host::new("");
    let flags = ["run", "--name", "left", "--network", "none", "--restart", "always", "--runtime", "cudaview"];
    let ran = host.docker.docker(&[&flags[..], &GPUS_1_3, &["-e", "CUDA_VISIBLE_DEVICES=5", IMAGE, "true"]].concat());
    let ran = ran.failed_with(125);
    assert!(
        ran.stderr.contains("cudaview: refused, CUDA_VISIBLE_DEVICES=\"5\" names none of the granted GPUs"),
        "{ran}"
    );
    assert_eq!(host.containers(), ["left Created"]);
    assert_eq!(host.docker.docker(&["logs", "left"]).ok().stdout, "");
    let error = host.docker.inspect("left")["State"]["Error"].as_str().unwrap().to_owned();
    assert!(error.contains("names none of the granted GPUs"), "{error}");
    host.docker.docker(&["rm", "left"]).ok();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_refuses_an_exec_that_names_no_gpu_of_the_container() {
    let host = Host::new("");
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
    // The container is none the worse for it.
    assert_eq!(host.docker.exec_count(&[], "trainer").cuda, host.uuids_of(&[1, 3]));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_refuses_a_gpu_that_the_host_does_not_have() {
    let host = Host::new("");
    for gpus in ["device=4", "5", "device=GPU-b"] {
        let ran = host.docker.run(&["--runtime", "cudaview", "--gpus", gpus], IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("this host has "), "{ran}");
        assert!(ran.stderr.contains("hint: "), "{ran}");
        assert_eq!(host.last_audit()["findings"][0]["code"], "unknown-device");
    }
    assert_eq!(host.containers(), [""; 0]);
}

/// With NVIDIA's hook in the specification Docker must have a record of the request; where it cannot be read, nobody
/// knows how many GPUs were meant.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_refuses_where_dockers_record_cannot_be_read() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let script = install.bin("without-record");
    write_program(
        &script,
        format!(
            r#"#!/bin/sh
# Takes Docker's record away for as long as the wrapper runs.
for id; do :; done
file=$(cat "$0.data")/containers/$id/hostconfig.json
case " $* " in *" create "*) ;; *) exec '{runtime}' "$@" ;; esac
cp -p "$file" "$file.kept" && sh -c "$(cat "$0.how")" sh "$file" || exit 99
'{runtime}' "$@"
code=$?
mv "$file.kept" "$file"
exit $code
"#,
            runtime = install.runtime().display()
        )
        .as_bytes(),
    );
    let docker = Dockerd::start(&[("cudaview", &install.runtime()), ("without-record", &script)], None);
    fs::write(script.with_extension("data"), docker.data_root().to_str().unwrap()).unwrap();
    let host = Host::of(docker, install);
    for (how, reason) in [
        ("rm \"$1\"", "ENOENT"),
        ("chmod 666 \"$1\"", "can be written by its group or by others"),
        ("echo '{' >\"$1\"", "EOF"),
    ] {
        fs::write(script.with_extension("how"), how).unwrap();
        let flags = [&["--runtime", "without-record"], &GPUS_1_3[..]].concat();
        let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("cudaview: "), "{ran}");
        assert!(ran.stderr.contains("hostconfig.json") && ran.stderr.contains(reason), "{how}: {ran}");
        assert!(ran.stderr.contains("hint: "), "{ran}");
        // Without the hook nothing shows that GPUs were asked for.
        host.docker.run(&["--runtime", "without-record"], IMAGE, &["true"]).ok();
    }
    assert_eq!(host.containers(), [""; 0]);
}
