//! The harness itself, where the other tests would not notice that it does nothing.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Bundle, Dockerd, Install, find_program, require};

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_install_has_programs_configuration_and_nodes() {
    require(&[]);
    let install = Install::new(A100X4, "dev_root = \"/elsewhere\"\n[reconcile]\nnarrow = false\n");

    let config = fs::read_to_string(install.config()).unwrap();
    let config: toml::Table = config.parse().unwrap();
    assert_eq!(config["inventory"].as_str(), install.inventory().to_str());
    assert_eq!(config["audit"].as_str(), install.audit().to_str());
    assert_eq!(config["low_level_runtime"].as_array().unwrap()[0].as_str(), Some("runc"));
    assert_eq!(config["dev_root"].as_str(), Some("/elsewhere"), "what the test gives counts");
    assert_eq!(config["reconcile"]["narrow"].as_bool(), Some(false));

    for file in [install.config(), install.inventory()] {
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o7777), (0, 0o644), "{}", file.display());
    }
    for (minor, number) in [(0, rustix::fs::makedev(195, 0)), (3, rustix::fs::makedev(195, 3))] {
        let node = fs::metadata(install.node(minor)).unwrap();
        assert!(node.file_type().is_char_device() && node.rdev() == number && node.mode() & 0o777 == 0o666);
    }
    assert!(!install.node(4).exists(), "the fixture has four GPUs");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_bundle_goes_through_its_life() {
    require(&["runc"]);
    let bundle = Bundle::new(A100X4, &["sh", "-c", "echo out of $WHO; echo err >&2"], &["WHO=box"]);
    bundle.create().ok();
    assert_eq!(bundle.state().unwrap()["status"], "created");
    bundle.start().ok();
    assert_eq!(bundle.output(), "out of box\n");
    bundle.delete().ok();
    assert!(bundle.state().is_none());

    let failed = Bundle::new(A100X4, &["no-such-program"], &[]);
    failed.run().failed_with(1);
    assert!(failed.log().contains("no-such-program"), "{}", failed.log());
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn dropping_a_bundle_ends_its_container() {
    require(&["runc"]);
    let bundle = Bundle::new(A100X4, &["sleep", "1000"], &[]);
    bundle.up();
    let folder = bundle.path().to_owned();
    let pid = bundle.state().unwrap()["pid"].as_i64().unwrap();
    assert!(fs::exists(format!("/proc/{pid}/root")).unwrap());
    drop(bundle);
    assert!(!folder.exists());
    assert!(!fs::exists(format!("/proc/{pid}/root")).unwrap_or(false));
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_calls_a_runtime_that_is_registered_by_path() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    let recorder = folder.path().join("recorder");
    let runc = find_program("runc");
    fs::write(&recorder, format!("#!/bin/sh\necho \"$@\" >>'{}'\nexec {} \"$@\"\n", calls.display(), runc.display()))
        .unwrap();
    fs::set_permissions(&recorder, fs::Permissions::from_mode(0o755)).unwrap();
    let creates =
        || fs::read_to_string(&calls).unwrap_or_default().lines().filter(|line| line.contains(" create ")).count();

    let mut docker = Dockerd::start(&[("cudaview", &recorder)], None);
    docker.import(A100X4, IMAGE, &["ENV WHO=image"]);
    assert_eq!(docker.run(&[], IMAGE, &["sh", "-c", "echo $WHO"]).ok().stdout, "image\n");
    assert_eq!(creates(), 0, "runc is the default");
    docker.run(&["--runtime", "cudaview"], IMAGE, &["false"]).failed_with(1);
    assert_eq!(creates(), 1);

    docker.up("one", &["--runtime", "cudaview"], IMAGE);
    docker.restart();
    assert_eq!(docker.inspect("one")["State"]["Running"], false);
    docker.docker(&["start", "one"]).ok();
    assert_eq!(creates(), 3);
    drop(docker);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_takes_an_image_that_repeats_a_variable() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let docker = Dockerd::start(&[], None);
    let env = ["CUDA_VISIBLE_DEVICES=0", "PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=1"];
    docker.load(A100X4, "hostile", &env);
    assert_eq!(docker.inspect("hostile")["Config"]["Env"], serde_json::json!(env));
    assert_eq!(docker.run(&[], "hostile", &["true"]).ok().stdout, "");
}
