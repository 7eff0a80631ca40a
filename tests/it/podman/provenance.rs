//! Who set a variable, from podman's files.

use super::{BOTH, Expected, GPUS_1_3, Host, PRECREATE, Setup, WRAPPER};
use crate::world::CUDA_ERROR_NO_DEVICE;
use crate::world::podman::IMAGE;

/// An image that was built to have a request twice.
const TWICE: [&str; 3] = ["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin:/usr/bin", "NVIDIA_VISIBLE_DEVICES=1"];

/// However an image is written, its request grants nothing.
#[track_caller]
fn images(setup: Setup) {
    let host = Host::new(setup, "");
    let images: [(&str, &[&str]); 5] = [
        ("twice", &TWICE),
        ("blank", &["\t NVIDIA_VISIBLE_DEVICES=1"]),
        ("bare", &["NVIDIA_VISIBLE_DEVICES"]),
        ("star", &["NVIDIA_*"]),
        ("all", &["NVIDIA_VISIBLE_DEVICES=all"]),
    ];
    for (name, env) in images {
        host.podman.load(name, env);
        // Who writes an image like that has podman against them, since 5.8.
        if env.iter().any(|entry| !entry.contains('=')) && host.podman.version() >= (5, 8) {
            let ran = host.podman.run(&[], name, &["true"]).failed_with(125);
            assert!(ran.stderr.contains(&format!("invalid image env variable {:?}", env[0])), "{ran}");
            continue;
        }
        let count = host.podman.count(&[], name);
        assert_eq!((count.cuda_error, count.nodes.len()), (CUDA_ERROR_NO_DEVICE, 0), "{name}: {count:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_gives_an_image_nothing() {
    images(WRAPPER);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_gives_an_image_nothing() {
    images(PRECREATE);
}

/// A request in the environment counts where a user made it.
#[track_caller]
fn requests(setup: Setup) {
    let host = Host::new(setup, "");
    host.podman.load("twice", &TWICE);
    let check = |image: &str, request: &str, view: &[usize], value: &str| {
        let request = format!("NVIDIA_VISIBLE_DEVICES={request}");
        host.check(&["-e", &request], image, &Expected { view, nodes: view, value });
    };
    check(IMAGE, "1,3", &[1, 3], "0,1");
    check("twice", "0", &[0], "0");
    let ran = host.podman.run(&["-e", "NVIDIA_VISIBLE_DEVICES=7"], IMAGE, &["true"]).failed_with(126);
    assert!(ran.stderr.contains("cudaview: refused"), "{ran}");
    for equal in ["all", "1"] {
        let count = host.podman.count(&["-e", &format!("NVIDIA_VISIBLE_DEVICES={equal}")], "twice");
        assert_eq!(count.nodes.len(), 0, "equal to the image's is the image's: {count:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_tells_a_users_request_from_an_images() {
    requests(WRAPPER);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_tells_a_users_request_from_an_images() {
    requests(PRECREATE);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_a_user_who_repeats_the_image_is_the_image() {
    let host = Host::new(WRAPPER, "");
    host.podman.load("cvd-5", &["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=5"]);
    let equal = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=5"]].concat();
    let expected = Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" };
    host.check(&equal, "cvd-5", &expected);
    assert_eq!(host.last_audit()["provenance"], "image");
    host.podman.run(&[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=6"]].concat(), "cvd-5", &["true"]).failed_with(126);
    assert_eq!(host.last_audit()["provenance"], "user");
    // CDI's word for NVIDIA's hook is nobody's request.
    assert_eq!(host.podman.count(&GPUS_1_3, IMAGE).env["NVIDIA_VISIBLE_DEVICES"], "void");
}

/// A secret arrives after the precreate hook, and podman's copy for `exec` has it too.
#[track_caller]
fn secret(setup: Setup, view: &[usize], value: &str) {
    let host = Host::new(setup, "");
    host.podman.import("cvd-0", &["ENV CUDA_VISIBLE_DEVICES=0"]);
    let file = host.podman.path().join("secret");
    std::fs::write(&file, "3").unwrap();
    host.podman.podman(&["secret", "create", "gpus", file.to_str().unwrap()]).ok();
    let flags = [&GPUS_1_3[..], &["--secret", "gpus,type=env,target=CUDA_VISIBLE_DEVICES"]].concat();
    for image in [IMAGE, "cvd-0"] {
        let count = host.podman.count(&flags, image);
        assert_eq!(count.cuda, host.uuids_of(view), "{image}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value, "{image}: {count:?}");
    }
    if setup.runtime == "cudaview" {
        host.podman.up("one", &flags, "cvd-0");
        let count = host.podman.exec_count(&[], "one");
        host.compare(&count, &Expected { view, nodes: view, value }, "exec beside a secret");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper_sees_a_secret() {
    secret(WRAPPER, &[3], "0");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_both_doors_see_a_secret() {
    secret(BOTH, &[3], "0");
}

/// A limit: the hook has run by then, and the value stays as it is.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_alone_does_not_see_a_secret() {
    secret(PRECREATE, &[], "3");
}
