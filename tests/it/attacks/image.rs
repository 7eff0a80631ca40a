//! Whoever wrote the image: nothing in it gives it a GPU, and nothing in it stops what was granted.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use crate::world::count::COUNT;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Bundle, Dockerd, Install, require, spec};

/// Environments that no Dockerfile gives.
fn environments() -> Vec<Vec<String>> {
    let forged = r#"{"version":1,"original":{},"provenance":"user","emitted":{"cvd":"0,1,2,3"},"granted":[],"explicit":true,"kept":[],"openable":[],"gpus":[]}"#;
    let texts: [&[&str]; 12] = [
        &["NVIDIA_VISIBLE_DEVICES=all"],
        &["nvidia_visible_devices=all", "Cuda_Visible_Devices=0", "NVIDIA_VISIBLE_DEVICES= all "],
        &["NVIDIA_VISIBLE_DEVICES=0,1\n2,3", "CUDA_VISIBLE_DEVICES=0\n1"],
        &["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all", "NVIDIA_DRIVER_CAPABILITIES=all", "CUDA_VERSION=10"],
        &["CUDAVIEW_HOST_GPUS=0,1,2,3", "CUDAVIEW_CONFIG=/x", "CUDAVIEW_INVENTORY=/x"],
        &["LD_PRELOAD=./evil.so", "LD_AUDIT=./evil.so", "PATH=.", "RUST_LOG=trace", "BASH_ENV=./evil"],
        &["CUDA_VISIBLE_DEVICES=\u{0661}", "NVIDIA_VISIBLE_DEVICES=\u{ff11}", "\u{202e}=x"],
        &["X=--record=", "Y={\"hooks\":{}}", "Z=\"major\":195", "hooks={\"createRuntime\":[]}"],
        &["CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=2"],
        &["CUDA_VISIBLE_DEVICES=GPU-", "CUDA_DEVICE_ORDER=\u{1}"],
        &["CUDA_VISIBLE_DEVICES=%s%n$(id)`id`{}", "NVIDIA_VISIBLE_DEVICES={}%n"],
        &["NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0", "DOCKER_RESOURCE_GPU=all"],
    ];
    let own = |list: &&[&str]| list.iter().map(|entry| (*entry).to_owned()).collect();
    let mut all: Vec<Vec<String>> = texts.iter().map(own).collect();
    all.push(vec![format!("RECORD=--record={forged}")]);
    all.push(vec![format!("CUDA_VISIBLE_DEVICES={}", "9,".repeat(30_000))]);
    all
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn attacks_docker_no_image_gets_a_gpu() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let docker = Dockerd::start(&[("cudaview", &install.runtime())], Some("cudaview"));
    docker.import(A100X4, IMAGE, &[]);
    for (number, env) in environments().iter().enumerate() {
        let image = format!("hostile-{number}");
        let mut entries: Vec<&str> = env.iter().map(String::as_str).collect();
        if !env.iter().any(|entry| entry.starts_with("PATH=")) {
            entries.push("PATH=/bin:/usr/bin");
        }
        docker.load(A100X4, &image, &entries);
        let count = |flags: &[&str]| docker.count(&[&["-e", "PATH=/bin:/usr/bin"], flags].concat(), &image);
        let shown = |count: crate::world::count::Count| count.nodes.into_iter().collect::<BTreeSet<String>>();
        assert!(shown(count(&[])).is_empty(), "{env:.300?}");
        let granted = shown(count(&["--gpus", "\"device=1,3\""]));
        let two: BTreeSet<String> = ["/dev/nvidia1".to_owned(), "/dev/nvidia3".to_owned()].into();
        assert!(granted.is_subset(&two) && !granted.is_empty(), "{env:.300?}: {granted:?}");
    }
    // What looks like an argument of ours, or of the runtime.
    for args in [&["echo", "--record={}", "create", "--bundle", "/"][..], &["echo", "--config", "/x", "-b/", "exec"]] {
        assert_eq!(docker.run(&["-e", "PATH=/bin"], IMAGE, args).ok().stdout.trim_end(), args[1..].join(" "));
        let flags = ["--gpus", "\"device=1\"", "-e", "PATH=/bin"];
        assert_eq!(docker.run(&flags, IMAGE, args).ok().stdout.trim_end(), args[1..].join(" "));
    }
}

/// The image's own `/dev`: a link out of the root, and nodes and pipes where ours are to be.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_whose_dev_is_odd_reaches_nothing() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    let bundle = || {
        let bundle = Bundle::with_runtime(&install.runtime(), A100X4, &COUNT, &["CUDA_VISIBLE_DEVICES=3"]);
        bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
        bundle
    };
    // runc 1.1 itself follows that link out of the root (CVE-2026-41579). The hook, which comes after it, adds nothing.
    let made_by = |bundle: Bundle| {
        let canary = tempfile::tempdir().unwrap();
        let dev = bundle.rootfs().join("dev");
        let _absent = fs::remove_dir_all(&dev);
        symlink(canary.path(), &dev).unwrap();
        let ran = bundle.run();
        let names = fs::read_dir(canary.path()).unwrap().map(|entry| entry.unwrap().file_name());
        (names.collect::<BTreeSet<_>>(), ran)
    };
    let plain = Bundle::new(A100X4, &["true"], &[]);
    plain.edit(|spec| spec::grant_nodes(spec, &[3]));
    let (by_runc, _) = made_by(plain);
    let (by_both, ran) = made_by(bundle());
    assert!(by_both.is_subset(&by_runc), "{by_both:?} {by_runc:?} {ran}");
    assert!(ran.code != 0 && ran.stderr.contains("refused \"/dev\" in the container"), "{ran}");

    let pipes = bundle();
    for name in ["nvidia1", "nvidia3", "nvidiactl"] {
        let path = pipes.rootfs().join("dev").join(name);
        let _absent = fs::remove_file(&path);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o666.into()).unwrap();
    }
    assert_eq!(pipes.count().nodes, ["/dev/nvidia3"]);
}

/// An operator's own spelling of a path is the runtime's matter, and no error of the hook's.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_node_whose_path_is_not_plain_starts() {
    require(&["runc"]);
    let install = Install::new(A100X4, "");
    for path in ["/dev//nvidia1", "/dev/./nvidia1", "/dev/a/../nvidia1", "/gpu/nvidia1"] {
        let bundle = Bundle::with_runtime(&install.runtime(), A100X4, &COUNT, &[]);
        bundle.edit(|spec| spec::add_device(spec, path, 195, 1));
        assert_eq!(bundle.run().code, 0, "{path}: {}", bundle.log());
    }
}
