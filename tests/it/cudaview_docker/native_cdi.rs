//! Specifications of the shape that NVIDIA's generator writes.
//!
//! `--gpus` on a host without NVIDIA's toolkit and with a CDI specification: cudaview makes the nodes, and gives the
//! container the driver's files and hooks of the specification. Where Docker resolves the names, cudaview narrows.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{GPUS_1_3, Host, paths};
use crate::world::cdi::{self, Generated};
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, Dockerd, Install, require};

/// A host with a specification, of which Docker knows nothing.
#[track_caller]
fn host() -> (Host, Generated) {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let folder = install.prefix().join("cdi");
    let generated = cdi::write_generated(&folder, &install, A100X4);
    let config = fs::read_to_string(install.config()).unwrap();
    install.configure(&format!("cdi_spec_dirs = [{:?}]\n{config}", folder.to_str().unwrap()));
    let docker = Dockerd::start(&[("cudaview", &install.runtime())], None);
    (Host::of(docker, install), generated)
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_native_brings_the_drivers_files() {
    let (host, generated) = host();
    let value = ["-e", "CUDA_VISIBLE_DEVICES=3"];
    let count = host.count(IMAGE, &[&GPUS_1_3[..], &value].concat());
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[3]), paths(&[3])));
    // Docker said which GPUs; the specification's `void` is not for this.
    assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], host.uuids_of(&[3]).join(","));

    host.up("one", IMAGE, &[&GPUS_1_3[..], &value].concat());
    for path in &generated.mounted {
        let ran = host.docker.exec(&[], "one", &["cat", path]).ok();
        assert_eq!(ran.stdout, format!("the host's {path}\n"));
    }
    let ran = host.docker.exec(&[], "one", &["sh", "-c", "echo x >/usr/bin/nvidia-smi"]);
    assert_ne!(ran.code, 0, "it is read-only: {ran}");
    let ran = host.docker.exec(&[], "one", &["sh", "-c", "ls -d /dev/dri/* && tr '\\0' '\\n' </proc/1/environ"]).ok();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..2], ["/dev/dri/card3", "/dev/dri/renderD131"], "GPU 3's, and no other's: {ran}");
    assert!(lines.contains(&"NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"), "{ran}");
    assert_eq!(host.docker.try_mknod("one", 1), Access::Blocked);
    assert_eq!(host.docker.try_mknod("one", 3), Access::Openable);

    let record = fs::read_to_string(&generated.hook_record).unwrap();
    let first: Vec<&str> = record.lines().take(6).collect();
    let expected = [
        "false create-symlinks --link libcuda.so.1::/usr/lib64/libcuda.so",
        "false enable-cuda-compat --host-driver-version=550.54.15",
        "false update-ldcache --folder /usr/lib64",
        "false disable-device-node-modification",
        "false update-application-profile",
        "false create-symlinks --link ../card3::/dev/dri/by-path/3-card",
    ];
    assert_eq!(first, expected);
    assert_eq!(record.lines().count(), 12, "two containers: {record}");
    let spec = host.spec_of("one");
    let hooks = spec["hooks"]["createContainer"].as_array().unwrap();
    assert!(hooks.iter().all(|hook| hook["env"] == json!(["NVIDIA_CTK_DEBUG=false"])), "{hooks:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_native_refuses_a_specification_that_cannot_be_trusted() {
    let (host, generated) = host();
    let good = fs::read_to_string(&generated.file).unwrap();
    let refused = |expected: &str| {
        let flags = [&["--runtime", "cudaview"], &GPUS_1_3[..]].concat();
        let ran = host.docker.run(&flags, IMAGE, &["true"]).failed_with(125);
        assert!(ran.stderr.contains("nvidia.yaml"), "{ran}");
        assert!(ran.stderr.contains(expected), "{ran}");
        // A container without GPUs has nothing to do with it.
        host.docker.run(&["--runtime", "cudaview"], IMAGE, &["true"]).ok();
    };
    let with = |from: &str, to: &str, expected: &str| {
        assert!(good.contains(from), "{from}: {good}");
        fs::write(&generated.file, good.replacen(from, to, 1)).unwrap();
        refused(expected);
    };
    with("mounts:", "mount:", "containerEdits.mount: unknown field `mount`");
    with("cdiVersion: 0.5.0", "cdiVersion: 9.0.0", "cdiVersion: \"9.0.0\": it is none of the versions 0.3.0 to 1.1.0");
    with("minor: 1\n", "minor: 2\n", "devices[2].containerEdits.deviceNodes: \"1\" is host GPU 1 here");
    fs::write(&generated.file, good.replace("/bin/nvidia-cdi-hook", "/bin/gone-hook")).unwrap();
    refused("/bin/gone-hook\": it is not there");
    fs::write(&generated.file, &good).unwrap();

    let other = generated.file.with_file_name("other.yaml");
    fs::write(&other, &good).unwrap();
    refused("/other.yaml: devices[0].name: \"0\" is in ");
    fs::remove_file(other).unwrap();

    fs::set_permissions(&generated.file, PermissionsExt::from_mode(0o666)).unwrap();
    refused("can be written by its group or by others");
    fs::set_permissions(&generated.file, PermissionsExt::from_mode(0o644)).unwrap();
    host.docker.run(&[&["--runtime", "cudaview"], &GPUS_1_3[..]].concat(), IMAGE, &["true"]).ok();
}

/// Docker made the nodes, those under `/dev/dri` too, and what the value leaves out is taken away again.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_cdi_takes_a_gpus_cards_with_it() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let install = Install::new(A100X4, "");
    let mut inventory: Value = serde_json::from_slice(&fs::read(install.inventory()).unwrap()).unwrap();
    for (minor, gpu) in inventory["gpus"].as_array_mut().unwrap().iter_mut().enumerate() {
        gpu["drmNodes"] = json!([{"major": 226, "minor": minor}, {"major": 226, "minor": 128 + minor}]);
    }
    fs::write(install.inventory(), inventory.to_string()).unwrap();
    let folder = install.prefix().join("cdi");
    let generated = cdi::write_generated(&folder, &install, A100X4);
    let flags = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3", "-e", "CUDA_VISIBLE_DEVICES=3"];
    if Dockerd::program_version() < 25 {
        let host = Host::of(Dockerd::start(&[("cudaview", &install.runtime())], None), install);
        let ran = host.docker.run(&[&["--runtime", "cudaview"], &flags[..]].concat(), IMAGE, &["true"]);
        assert!(ran.failed_with(125).stderr.contains("nvidia.com/gpu=1"), "Docker has it from version 25 on");
        return;
    }
    let settings = json!({"storage-driver": "overlay2", "features": {"cdi": true}, "cdi-spec-dirs": [folder]});
    let docker = Dockerd::start_with(&[("cudaview", &install.runtime())], None, &settings);
    let host = Host::of(docker, install);
    let cards = |name: &str| host.docker.exec(&[], name, &["sh", "-c", "ls -d /dev/dri/*"]).ok().stdout;

    let one = ["--device", "nvidia.com/gpu=1"];
    for (more, number) in [(&[][..], "0"), (&["-e", "CUDA_VISIBLE_DEVICES=1"], "0")] {
        let count = host.count(IMAGE, &[&one[..], more].concat());
        assert_eq!((&count.cuda, &count.nodes), (&host.uuids_of(&[1]), &paths(&[1])), "{more:?}: {count:?}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], number, "{more:?}");
    }
    host.up("one", IMAGE, &one);
    assert_eq!(cards("one"), "/dev/dri/card1\n/dev/dri/renderD129\n");
    for path in &generated.mounted {
        assert_eq!(host.docker.exec(&[], "one", &["cat", path]).ok().stdout, format!("the host's {path}\n"));
    }

    host.docker.up("plain", &flags, IMAGE);
    assert_eq!(cards("plain").lines().count(), 4, "both GPUs', without cudaview");
    host.up("narrow", IMAGE, &flags);
    assert_eq!(cards("narrow"), "/dev/dri/card3\n/dev/dri/renderD131\n");
    let count = host.docker.exec_count(&[], "narrow");
    assert_eq!((count.cuda, count.nodes), (host.uuids_of(&[3]), paths(&[3])));
    let rules = host.spec_of("narrow")["linux"]["resources"]["devices"].clone();
    let minors: Vec<u64> = rules
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["major"] == 226)
        .filter_map(|rule| rule["minor"].as_u64())
        .collect();
    assert_eq!(minors, [3, 131], "{rules}");
    for path in &generated.mounted {
        assert_eq!(host.docker.exec(&[], "narrow", &["cat", path]).ok().stdout, format!("the host's {path}\n"));
    }
}
