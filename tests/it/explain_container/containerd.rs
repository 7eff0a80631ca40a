//! containerd's containers, by `ctr` and by the calls of a kubelet. The wrapper cannot tell whose a value is there.

use std::process::Command;

use super::{Asker, answer, ask, by, held, hosts, json, looked_at, origin};
use crate::world::containerd::{Containerd, Door, GPUS_1_3};
use crate::world::cri::{Channel, container};
use crate::world::{find_program, require};

const CVD: &str = "CUDA_VISIBLE_DEVICES";
const IMAGE: &str = "box";

fn start(low_level: &str) -> Containerd {
    require(&["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crun", "jq", "nsenter", "unshare", "setpriv"]);
    Containerd::start(low_level, "")
}

fn command(containerd: &Containerd, asker: Asker) -> Command {
    let mut command = asker.command(&containerd.install.bin("cudaview"));
    command.env("CONTAINERD_ADDRESS", containerd.socket()).env("DOCKER_HOST", "unix:///nobody/listens/here");
    command
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_containerd_ctr() {
    let containerd = start("runc");
    containerd.import("default", IMAGE, &[]);
    containerd.import("default", "cvd-0", &["CUDA_VISIBLE_DEVICES=0"]);
    let ask_root = |container: &str| json(command(&containerd, Asker::Root), container, &[]);
    // Ids name cgroups too: no other test may have these.
    containerd.up(Door::Cudaview, "typed", &[&GPUS_1_3[..], &["--env", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE);
    containerd.up(Door::Cudaview, "default", &GPUS_1_3, "cvd-0");
    containerd.up(Door::Plain, "plain", &[&GPUS_1_3[..], &["--env", "CUDA_VISIBLE_DEVICES=1,3"]].concat(), IMAGE);

    let told = ask_root("typed");
    assert_eq!((&told["container"]["engine"], &told["container"]["made"]), (&"containerd".into(), &"cudaview".into()));
    // What the wrapper took it for, and what can be found out now.
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("user", Some("unknown")), vec![3]), "{told:#}");
    assert_eq!(told["provenance"][CVD], "unknown", "{told:#}");
    assert!(looked_at(&told, "/typed/config.json") && looked_at(&told, "ctr --namespace default"), "{told:#}");
    assert_eq!(told["container"]["image"], "docker.io/library/box:latest", "{told:#}");
    let told = ask_root("default");
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("image", Some("unknown")), vec![1]), "{told:#}");
    let text = answer(command(&containerd, Asker::Root), "default", &[]).stdout;
    assert!(text.contains("cudaview knew"), "{text}");
    let told = ask_root("plain");
    assert_eq!(told["container"]["made"], "without-cudaview", "{told:#}");
    let now = &told["container"]["visible"];
    assert_eq!(containerd.exec_count("plain").cuda, [now[0]["uuid"].as_str().unwrap()], "{told:#}");

    let ran = ask(command(&containerd, Asker::Stranger), "typed", &[]).failed_with(1);
    assert!(ran.stderr.contains("no container \"typed\" was found"), "{ran}");
}

/// Without its client the image is not known, and that is what is said.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_containerd_without_ctr() {
    let containerd = start("runc");
    containerd.import("default", IMAGE, &[]);
    containerd.up(Door::Cudaview, "no-client", &[&GPUS_1_3[..], &["--env", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE);
    let mut hidden = Command::new("unshare");
    let script = "mount --bind /dev/null \"$1\" && shift && exec \"$@\"";
    hidden.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(find_program("ctr"));
    hidden.arg(containerd.install.bin("cudaview"));
    hidden.env("CONTAINERD_ADDRESS", containerd.socket()).env("DOCKER_HOST", "unix:///nobody/listens/here");
    let told = json(hidden, "no-client", &[]);
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("unknown", Some("unknown")), vec![3]), "{told:#}");
    assert!(told["container"]["origins"][0]["why"].to_string().contains("ctr is not installed"), "{told:#}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn explain_containerd_cri() {
    let containerd = start("runc");
    containerd.import_for_sandboxes();
    containerd.import_for_pods(IMAGE, &[]);
    containerd.import_for_pods("cvd-0", &["CUDA_VISIBLE_DEVICES=0"]);
    let pod = containerd.pod("cudaview");
    let typed = pod.up(&container(IMAGE, &[1, 3], Channel::Devices, &["CUDA_VISIBLE_DEVICES=3"]));
    let default = pod.up(&container("cvd-0", &[1, 3], Channel::Devices, &[]));
    let told = json(command(&containerd, Asker::Root), &typed, &[]);
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("user", Some("unknown")), vec![3]), "{told:#}");
    let told = json(command(&containerd, Asker::Root), &default[..13], &[]);
    assert_eq!((origin(&told, CVD), hosts(&told["visible"])), (("image", Some("unknown")), vec![1]), "{told:#}");
    pod.end();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn ps_containerd() {
    let containerd = start("runc");
    containerd.import("default", IMAGE, &[]);
    containerd.up(Door::Cudaview, "held", &[&GPUS_1_3[..], &["--env", "CUDA_VISIBLE_DEVICES=3"]].concat(), IMAGE);
    containerd.up(Door::Plain, "held-plainly", &GPUS_1_3, IMAGE);
    let gpus = held(command(&containerd, Asker::Root), &["held", "held-plainly"]);
    assert_eq!(gpus, [vec![], vec![by("held-plainly", 0)], vec![], vec![by("held", 0), by("held-plainly", 1)]]);
}
