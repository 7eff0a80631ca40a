//! The bug, under plain Docker with runc, without cudaview.
//!
//! The GPU nodes come from `--device`, as NVIDIA's toolkit would add them for `--gpus '"device=1,3"'`.

use crate::world::count::Count;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE, Dockerd, Install, require, uuids};

/// An image whose author found `ENV CUDA_VISIBLE_DEVICES=0` a good idea.
const IMAGE_ENV_0: &str = "box-env-0";

struct Host {
    docker: Dockerd,
    install: Install,
    uuids: Vec<String>,
}

impl Host {
    fn new() -> Host {
        require(&["dockerd", "docker", "containerd", "runc", "jq"]);
        let docker = Dockerd::start(&[], None);
        docker.import(A100X4, IMAGE, &[]);
        Host { docker, install: Install::new(A100X4, ""), uuids: uuids(A100X4) }
    }

    /// The flags that put GPUs 1 and 3 into a container, and these after them.
    fn flags(&self, more: &[&str]) -> Vec<String> {
        let mut flags = self.install.docker_devices(&[1, 3]);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    fn count(&self, image: &str, more: &[&str]) -> Count {
        let flags = self.flags(more);
        self.docker.count(&flags.iter().map(String::as_str).collect::<Vec<_>>(), image)
    }

    fn up(&self, name: &str, image: &str, more: &[&str]) {
        let flags = self.flags(more);
        self.docker.up(name, &flags.iter().map(String::as_str).collect::<Vec<_>>(), image);
    }

    #[track_caller]
    fn check(&self, image: &str, more: &[&str], error: i64, cuda: &[usize]) {
        let count = self.count(image, more);
        let expected: Vec<&String> = cuda.iter().map(|host| &self.uuids[*host]).collect();
        assert_eq!((count.cuda_error, count.cuda.iter().collect()), (error, expected), "{image} {more:?}");
        assert_eq!(count.nvml, [self.uuids[1].clone(), self.uuids[3].clone()], "{image} {more:?}");
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_shows_the_bug() {
    let host = Host::new();
    host.docker.build(IMAGE_ENV_0, &format!("FROM {IMAGE}\nENV CUDA_VISIBLE_DEVICES=0\n"));

    let with = |value: &str, error: i64, cuda: &[usize]| {
        host.check(IMAGE, &["-e", &format!("CUDA_VISIBLE_DEVICES={value}")], error, cuda);
    };
    // What works: nothing said, or the numbers of the container.
    host.check(IMAGE, &[], 0, &[1, 3]);
    with("0,1", 0, &[1, 3]);
    // One GPU where two were asked for: the second one.
    with("1,3", 0, &[3]);
    // Another GPU than the one that was named.
    with("1", 0, &[3]);
    // No GPU at all.
    with("3", CUDA_ERROR_NO_DEVICE, &[]);
    with("3,1", CUDA_ERROR_NO_DEVICE, &[]);
    with("all", CUDA_ERROR_NO_DEVICE, &[]);
    let count = host.count(IMAGE, &["-e", "CUDA_VISIBLE_DEVICES=0,0"]);
    assert!(count.cuda_error != 0 && count.cuda.is_empty(), "{count:?}");
    // The image takes one of two GPUs away from whoever did not know of it.
    host.check(IMAGE_ENV_0, &[], 0, &[1]);
    host.check(IMAGE_ENV_0, &["-e", "CUDA_VISIBLE_DEVICES=0,1"], 0, &[1, 3]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_exec_and_health_check_see_the_same_wrong_numbers() {
    let host = Host::new();
    let health = "HEALTHCHECK --interval=1s --timeout=10s CMD gpu-count --json";
    host.docker.import(A100X4, "box-health", &[health]);
    host.up("one", "box-health", &["-e", "CUDA_VISIBLE_DEVICES=1,3"]);

    assert_eq!(host.docker.exec_count(&[], "one").cuda, [host.uuids[3].clone()]);
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=0"], "one");
    assert_eq!(count.cuda, [host.uuids[1].clone()]);
    let count = host.docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=3"], "one");
    assert_eq!((count.cuda_error, count.cuda), (CUDA_ERROR_NO_DEVICE, vec![]));
    assert_eq!(host.docker.health_count("one").cuda, [host.uuids[3].clone()]);
}

/// Docker's own part of `--gpus`, with a stand-in for NVIDIA's hook: the variable is appended and the hook is called.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_gpus_flag_reaches_the_hook_as_host_indices() {
    let host = Host::new();
    host.docker.import(A100X4, "box-nvd-all", &["ENV NVIDIA_VISIBLE_DEVICES=all"]);
    let flags = ["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3"];
    let ran = host.docker.run(&flags, "box-nvd-all", &["env"]).ok();
    assert!(ran.stdout.lines().any(|line| line == "CUDA_VISIBLE_DEVICES=1,3"), "{ran}");

    let record = host.docker.hook_record();
    assert_eq!(record.len(), 1, "{record:?}");
    assert_eq!(
        record[0]["entries"],
        serde_json::json!(["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1,3"]),
        "the image's entry stays, and the last one counts"
    );
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn plain_docker_blocks_a_gpu_that_was_not_granted() {
    let host = Host::new();
    host.up("one", IMAGE, &[]);
    assert_eq!(host.docker.try_mknod("one", 0), Access::Blocked);
    assert_eq!(host.docker.try_mknod("one", 3), Access::Openable);
}
