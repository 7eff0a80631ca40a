//! podman makes the nodes of CDI names, and keeps no record of them.

use super::{FIRST, FIRST_CAPS, MIG, SECOND, SECOND_CAPS, file};
use crate::world::podman::{IMAGE, Setup};
use crate::world::{CUDA_ERROR_NO_DEVICE, Install, Podman, require};

/// One MIG device by each of its names, and one of two.
#[track_caller]
fn names(setup: Setup) {
    require(&["podman", "conmon", "runc", "crun", "nsenter", "unshare", "setpriv", "newuidmap"]);
    let install = Install::new(&file(MIG), "");
    let podman = Podman::start_on(&install, setup, &file(MIG));
    let uuid = format!("nvidia.com/gpu={SECOND}");
    for name in ["nvidia.com/gpu=0:1", &uuid] {
        let count = podman.count(&["--device", name], IMAGE);
        assert_eq!(
            (count.cuda.as_slice(), count.nodes.len()),
            ([SECOND.to_owned()].as_slice(), 1),
            "{name}: {count:?}"
        );
        assert_eq!(count.capabilities, SECOND_CAPS, "{name}: {count:?}");
    }
    let value = format!("CUDA_VISIBLE_DEVICES={FIRST}");
    let both = ["--device", "nvidia.com/gpu=0:0", "--device", "nvidia.com/gpu=0:1", "-e", &value];
    podman.up("narrow", &both, IMAGE);
    let count = podman.exec_count(&[], "narrow");
    assert_eq!((count.cuda.as_slice(), count.nodes.len()), ([FIRST.to_owned()].as_slice(), 1), "{count:?}");
    assert_eq!(count.capabilities, FIRST_CAPS, "{count:?}");
    let count = podman.count(&["--device", "nvidia.com/gpu=0:1", "-e", "CUDA_VISIBLE_DEVICES=0"], IMAGE);
    assert_eq!((count.cuda, count.env["CUDA_VISIBLE_DEVICES"].as_str()), (vec![SECOND.to_owned()], SECOND));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_without_cudaview() {
    require(&["podman", "conmon", "runc"]);
    let install = Install::new(&file(MIG), "");
    let podman = Podman::start_on(&install, Setup::PLAIN, &file(MIG));
    let flags = ["--device", "nvidia.com/gpu=0:1", "-e", "CUDA_VISIBLE_DEVICES=1"];
    assert_eq!(podman.count(&flags, IMAGE).cuda_error, CUDA_ERROR_NO_DEVICE, "the host's number");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_wrapper() {
    names(Setup { runtime: "cudaview", ..Setup::PLAIN });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_precreate_and_both_doors() {
    names(Setup { precreate: true, ..Setup::PLAIN });
    names(Setup { runtime: "cudaview", precreate: true, ..Setup::PLAIN });
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_rootless() {
    names(Setup { runtime: "cudaview", rootless: true, ..Setup::PLAIN });
}
