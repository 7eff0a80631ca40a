//! Combinations of `--gpus`, `--device`, the image's `ENV` and `-e`.

use serde_json::json;

use super::{GPUS_1_3, Host, IMAGE_CVD_0, IMAGE_NVD_ALL, entries, paths};
use crate::world::count::Expected;
use crate::world::dockerd::IMAGE;
use crate::world::{A100X4, Access, CUDA_ERROR_NO_DEVICE};

impl Host {
    #[track_caller]
    fn check(&self, flags: &[&str], image: &str, expected: &Expected<'_>) {
        let count = self.count(image, flags);
        let context = format!("{image} {flags:?}: {count:?}");
        assert_eq!(count.cuda_error, if expected.view.is_empty() { CUDA_ERROR_NO_DEVICE } else { 0 }, "{context}");
        assert_eq!(count.cuda, self.uuids_of(expected.view), "{context}");
        assert_eq!(count.nvml, self.uuids_of(expected.nodes), "{context}");
        assert_eq!(count.nodes, paths(expected.nodes), "{context}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], expected.value, "{context}");
        let trace: Vec<String> = expected.view.iter().map(ToString::to_string).collect();
        if trace.is_empty() {
            assert_eq!(count.env.get("CUDAVIEW_HOST_GPUS"), None, "{context}");
            assert_eq!(count.env.get("CUDA_DEVICE_ORDER"), None, "{context}");
        } else {
            assert_eq!(count.env["CUDAVIEW_HOST_GPUS"], trace.join(","), "{context}");
            assert_eq!(count.env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID", "{context}");
            // Docker itself sets the variable for --gpus, and nobody does for --device.
            let kept = count.env.get("NVIDIA_VISIBLE_DEVICES").cloned();
            let has_flag = flags.contains(&"--gpus") || image == IMAGE_NVD_ALL;
            assert_eq!(kept, has_flag.then(|| self.uuids_of(expected.nodes).join(",")), "{context}");
        }
    }
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_gpus_and_a_value() {
    let host = Host::new("");
    let check = |gpus: &str, value: &str, view: &[usize], nodes: &[usize], emitted: &str| {
        let value = format!("CUDA_VISIBLE_DEVICES={value}");
        host.check(&["--gpus", gpus, "-e", &value], IMAGE, &Expected { view, nodes, value: emitted });
    };
    let two = "\"device=1,3\"";
    check(two, "0,1", &[1, 3], &[1, 3], "0,1");
    check(two, "1,3", &[1, 3], &[1, 3], "0,1");
    check(two, "3,1", &[3, 1], &[1, 3], "1,0");
    check(two, "1", &[3], &[3], "0");
    check(two, "0,1,2,3", &[1, 3], &[1, 3], "0,1");
    check("device=1", "1", &[1], &[1], "0");
    check("all", "2,3", &[2, 3], &[2, 3], "0,1");
    check("all", "3,1", &[3, 1], &[1, 3], "1,0");
    check("all", "all", &[0, 1, 2, 3], &[0, 1, 2, 3], "0,1,2,3");
    check("all", "0-2", &[0], &[0], "0");
    check("all", "-1", &[], &[0, 1, 2, 3], "-1");
    check("all", "", &[], &[0, 1, 2, 3], "");
    check("\"device=2,3\"", "0,0", &[2], &[2], "0");
    check("\"device=2,3\"", &host.uuids[3], &[3], &[3], "0");
    check(&format!("device={}", host.uuids[2]), "2", &[2], &[2], "0");
    check("2", "1,0", &[1, 0], &[0, 1], "1,0");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_images_with_an_opinion() {
    let host = Host::new("");
    let check = |gpus: &str, image: &str, value: Option<&str>, view: &[usize], emitted: &str| {
        let value = value.map(|value| format!("CUDA_VISIBLE_DEVICES={value}"));
        let flags: Vec<&str> = value.iter().flat_map(|value| ["-e", value]).collect();
        let flags = [&["--gpus", gpus], flags.as_slice()].concat();
        host.check(&flags, image, &Expected { view, nodes: view, value: emitted });
    };
    let two = "\"device=1,3\"";
    check("all", IMAGE_CVD_0, None, &[0, 1, 2, 3], "0,1,2,3");
    check(two, IMAGE_CVD_0, None, &[1, 3], "0,1");
    check(two, IMAGE_CVD_0, Some("1"), &[3], "0");
    check(two, IMAGE_NVD_ALL, None, &[1, 3], "0,1");
    check(two, IMAGE_NVD_ALL, Some("3"), &[3], "0");
    check(two, IMAGE, None, &[1, 3], "0,1");
    // A user's own request, for which the runtime has to be named.
    let user = |value: &str, view: &[usize], emitted: &str| {
        let count = host.count(IMAGE_NVD_ALL, &["-e", &format!("NVIDIA_VISIBLE_DEVICES={value}")]);
        assert_eq!((count.cuda, count.nodes), (host.uuids_of(view), paths(view)), "{value}");
        assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], emitted);
        assert_eq!(count.env["NVIDIA_VISIBLE_DEVICES"], host.uuids_of(view).join(","));
    };
    user("2,0", &[0, 2], "0,1");
    user(&host.uuids[1], &[1], "0");
}

/// The nodes and rules are the engine's here, and what the value leaves out is taken away again.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_devices_that_the_engine_put_there() {
    let host = Host::new("");
    let devices = host.install.docker_devices(&[1, 3]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let check = |value: Option<&str>, view: &[usize], nodes: &[usize], emitted: &str| {
        let value = value.map(|value| format!("CUDA_VISIBLE_DEVICES={value}"));
        let value: Vec<&str> = value.iter().flat_map(|value| ["-e", value]).collect();
        host.check(&[devices.as_slice(), &value].concat(), IMAGE, &Expected { view, nodes, value: emitted });
    };
    check(None, &[1, 3], &[1, 3], "0,1");
    check(Some("1,3"), &[1, 3], &[1, 3], "0,1");
    check(Some("3"), &[3], &[3], "0");
    check(Some("0"), &[1], &[1], "0");

    host.up("narrowed", IMAGE, &[devices.as_slice(), &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat());
    assert_eq!(host.docker.try_mknod("narrowed", 1), Access::Blocked, "its rule went with its node");
    assert_eq!(host.docker.try_mknod("narrowed", 3), Access::Openable);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_blocks_what_was_not_granted_and_what_was_narrowed_away() {
    let host = Host::new("");
    host.up("one", IMAGE_NVD_ALL, &[&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=3"]].concat());
    assert_eq!(host.docker.try_mknod("one", 0), Access::Blocked, "never granted");
    assert_eq!(host.docker.try_mknod("one", 1), Access::Blocked, "narrowed away");
    assert_eq!(host.docker.try_mknod("one", 3), Access::Openable);

    let spec = host.spec_of("one");
    let expected = format!("NVIDIA_VISIBLE_DEVICES={}", host.uuids[3]);
    assert_eq!(entries(&spec, "NVIDIA_VISIBLE_DEVICES"), [expected], "Docker had appended a second entry");
    for (name, entry) in [
        ("CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES=0"),
        ("CUDA_DEVICE_ORDER", "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        ("CUDAVIEW_HOST_GPUS", "CUDAVIEW_HOST_GPUS=3"),
    ] {
        assert_eq!(entries(&spec, name), [entry]);
    }
    assert!(!spec.to_string().contains("nvidia-container-runtime-hook"), "nothing here could run it");
    assert!(host.docker.hook_record().is_empty(), "{:?}", host.docker.hook_record());
}

/// What else is on the command line does not matter.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_other_flags_of_the_same_container() {
    let host = Host::new("");
    let check = |more: &[&str], view: &[usize], emitted: &str| {
        let flags = [&GPUS_1_3[..], more].concat();
        host.check(&flags, IMAGE, &Expected { view, nodes: view, value: emitted });
    };
    check(&["--user", "1000:1000", "--cap-drop", "ALL", "--read-only"], &[1, 3], "0,1");
    check(&["--security-opt", "no-new-privileges", "--tty", "--init"], &[1, 3], "0,1");
    check(&["--ipc", "host", "--pid", "host", "--workdir", "/tmp", "--hostname", "nvidia"], &[1, 3], "0,1");
    check(&["-e", "NVIDIA_VISIBLE_DEVICES=0"], &[1, 3], "0,1");
    check(&["-e", "CUDA_VISIBLE_DEVICES=0", "-e", "CUDA_VISIBLE_DEVICES=3"], &[3], "0");
    check(&["-e", " CUDA_VISIBLE_DEVICES=x", "-e", "CUDA_VISIBLE_DEVICES= \"1,3\" "], &[1, 3], "0,1");
    // A GPU by each way: the union is granted.
    let device = host.install.docker_devices(&[3]);
    let flags = ["--gpus", "device=1", &device[0]];
    host.check(&flags, IMAGE, &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
}

/// `CUDA_VISIBLE_DEVICES` says nothing about Vulkan, EGL or X: who asks for those keeps every granted GPU.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_graphics_keeps_the_nodes() {
    let host = Host::new("");
    host.docker.load(A100X4, "capable", &["PATH=/bin:/usr/bin", "NVIDIA_DRIVER_CAPABILITIES=all"]);
    let check = |gpus: &str, more: &[&str], image: &str, nodes: &[usize], value: &str| {
        let flags = [&["--gpus", gpus, "-e", "CUDA_VISIBLE_DEVICES=3"], more].concat();
        host.check(&flags, image, &Expected { view: &[3], nodes, value });
    };
    let two = "\"device=1,3\"";
    check("\"device=1,3\",\"capabilities=graphics,utility\"", &[], IMAGE, &[1, 3], "1");
    check(two, &["-e", "NVIDIA_DRIVER_CAPABILITIES=compute,display"], IMAGE, &[1, 3], "1");
    check(two, &["-e", "NVIDIA_DRIVER_CAPABILITIES=all"], IMAGE, &[1, 3], "1");
    check(two, &["-e", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"], IMAGE, &[3], "0");
    check(two, &[], "capable", &[3], "0");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_no_gpu_is_an_answer_too() {
    let host = Host::new("");
    for image in [IMAGE, IMAGE_NVD_ALL] {
        let count = host.count(image, &["--gpus", "0"]);
        assert_eq!((count.cuda_error, count.nodes.len()), (CUDA_ERROR_NO_DEVICE, 0), "{image}");
    }
    // Docker 28 says so itself, after the image's entry; the last one counts for NVIDIA's hook.
    let record = host.docker.hook_record().pop().unwrap();
    assert_eq!(record["entries"].as_array().unwrap().last(), Some(&json!("NVIDIA_VISIBLE_DEVICES=void")), "{record}");
}

/// Image and user say the same, and the user means it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_a_user_who_repeats_the_image() {
    let host = Host::new("");
    host.docker.load(A100X4, "usual", &["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=0"]);
    let flags = [&GPUS_1_3[..], &["-e", "CUDA_VISIBLE_DEVICES=0"]].concat();
    host.check(&flags, "usual", &Expected { view: &[1], nodes: &[1], value: "0" });
    host.check(&GPUS_1_3, "usual", &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    // Where the image has nothing but this one variable, Docker's record of the two is the same.
    host.docker.load(A100X4, "only", &["CUDA_VISIBLE_DEVICES=0"]);
    host.check(&flags, "only", &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    assert_eq!(host.last_audit()["provenance"], "image");
    host.docker.load(A100X4, "empty", &["PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES="]);
    host.check(&GPUS_1_3, "empty", &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
}

/// A rule for the whole major number lets the container make the nodes of GPUs that nobody gave it.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_says_where_it_cannot_narrow() {
    let host = Host::new("");
    let flags = [&GPUS_1_3[..], &["--device-cgroup-rule", "c 195:* rwm"]].concat();
    host.check(&flags, IMAGE, &Expected { view: &[1, 3], nodes: &[1, 3], value: "0,1" });
    let record = host.last_audit();
    let findings = record["findings"].as_array().unwrap();
    host.check(
        &["--gpus", "all", flags[2], flags[3]],
        IMAGE,
        &Expected { view: &[0, 1, 2, 3], nodes: &[0, 1, 2, 3], value: "0,1,2,3" },
    );
    assert_eq!(host.last_audit()["findings"], json!([]), "there is nothing left to narrow");
    assert!(findings.iter().any(|f| f["code"] == "cannot-narrow" && f["severity"] == "warning"), "{record}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn cudaview_docker_leaves_a_container_without_gpus_alone() {
    let host = Host::with_default("", Some("cudaview"));
    let count = host.docker.count(&["-e", "CUDA_VISIBLE_DEVICES=0"], IMAGE);
    assert_eq!((count.cuda_error, count.nodes.as_slice()), (CUDA_ERROR_NO_DEVICE, [].as_slice()));
    assert_eq!(count.env.len(), 1, "{count:?}");
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], "0");
    let ran = host.docker.run(&["-e", "A=b"], IMAGE, &["sh", "-c", "echo $A; ls -d /dev/nvidia*; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "b\n"));
    host.docker.import(A100X4, "plain", &["ENV A=c"]);
    assert_eq!(host.docker.run(&[], "plain", &["sh", "-c", "echo $A"]).ok().stdout, "c\n");
}
