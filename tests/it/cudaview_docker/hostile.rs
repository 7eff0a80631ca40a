//! Images that pretend to be a user. None of them may decide what a user decides.

use super::{GPUS_1_3, Host, paths};
use crate::world::A100X4;

/// Values that would be refused, or would hide every GPU, if a user had typed them.
const VALUES: [&[&str]; 5] = [
    &["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=7"],
    &["CUDA_VISIBLE_DEVICES=7", "PATH=/bin:/usr/bin"],
    &["CUDA_VISIBLE_DEVICES=7", "PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=7"],
    &["CUDA_VISIBLE_DEVICES=0", "PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=7", "A=b", "A=c"],
    &["A=b", "CUDA_VISIBLE_DEVICES=-1", "PATH=/bin:/usr/bin", "A=b", "CUDA_VISIBLE_DEVICES=0"],
];

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_no_image_value_passes_for_a_users() {
    let host = Host::new("");
    for (number, env) in VALUES.iter().enumerate() {
        let image = format!("hostile-{number}");
        host.docker.load(A100X4, &image, env);
        for more in [&[][..], &["-e", "X=1"], &["-e", "A=b"], &["-e", "PATH=/bin:/usr/bin"]] {
            let count = host.count(&image, &[&GPUS_1_3[..], more].concat());
            let record = host.last_audit();
            assert_ne!(record["provenance"], "user", "{env:?} {more:?}: {record}");
            // Of the image it yields; where it cannot be told, it narrows at most, and is never refused.
            if record["provenance"] == "image" {
                assert_eq!(count.cuda, host.uuids_of(&[1, 3]), "{env:?} {more:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_no_image_request_passes_for_a_users() {
    let host = Host::with_default("", Some("cudaview"));
    let requests: [&[&str]; 4] = [
        &["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin:/usr/bin"],
        &["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin:/usr/bin", "NVIDIA_VISIBLE_DEVICES=all"],
        &["NVIDIA_VISIBLE_DEVICES=none", "PATH=/bin:/usr/bin", "NVIDIA_VISIBLE_DEVICES=all"],
        &["NVIDIA_VISIBLE_DEVICES", "A=b", "NVIDIA_VISIBLE_DEVICES=0,1", "PATH=/bin:/usr/bin", "A=c"],
    ];
    for (number, env) in requests.iter().enumerate() {
        let image = format!("hostile-{number}");
        host.docker.load(A100X4, &image, env);
        for more in [&[][..], &["-e", "X=1"], &["-e", "A=b"], &["-e", "PATH=/bin:/usr/bin"]] {
            let count = host.docker.count(more, &image);
            assert_eq!(count.nodes, paths(&[]), "{env:?} {more:?}");
            assert_eq!(count.nvml, host.uuids_of(&[]), "{env:?} {more:?}");
        }
        // And it takes nothing from a user's own choice.
        assert_eq!(host.docker.count(&GPUS_1_3, &image).nodes, paths(&[1, 3]), "{env:?}");
    }
}
