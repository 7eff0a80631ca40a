//! Hosts as they are found: by `/proc` and `/dev` alone, without an inventory file.

use std::fs;

use serde_json::{Value, json};

use crate::world::command::{Ran, run};
use crate::world::count::{COUNT, Count};
use crate::world::dockerd::IMAGE;
use crate::world::host::{MadeUp, ask_the_host};
use crate::world::{A100X4, Bundle, Dockerd, Install, artifacts, require, uuids};

/// Sixteen GPUs in three PCI domains, whose minors are in no order.
const SIXTEEN: &str = "h100x16.json";

const NO_INVENTORY: i32 = 5;
const REFUSED: i32 = 3;

/// The nodes of these GPUs of the host with sixteen, as `/dev` lists them: by minor.
fn nodes_of_sixteen(hosts: &[usize]) -> Vec<String> {
    let text = fs::read(crate::world::inventory(SIXTEEN)).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    let mut minors: Vec<u64> = hosts.iter().map(|host| value["gpus"][host]["minor"].as_u64().unwrap()).collect();
    minors.sort_unstable();
    minors.into_iter().map(|minor| format!("/dev/nvidia{minor}")).collect()
}

/// An install on a host with a fixture's nodes, which is to find its GPUs itself.
#[track_caller]
fn install(inventory_name: &str, config: &str) -> Install {
    require(&["runc", "unshare"]);
    let install = Install::new(inventory_name, config);
    ask_the_host(&install, "");
    install
}

/// What a container with this grant sees.
#[track_caller]
fn count(host: &MadeUp, install: &Install, inventory_name: &str, env: &[&str], more: &str) -> Count {
    Bundle::with_runtime(&host.runtime(install, more), inventory_name, &COUNT, env).count()
}

fn inventory(host: &MadeUp, install: &Install, more: &str) -> Ran {
    run(host.command(&install.bin("cudaview"), more).args(["inventory", "--format", "json"]))
}

/// `(index, minor, UUID)` of what `cudaview inventory` prints.
fn numbers(ran: &Ran) -> Vec<(u64, u64, String)> {
    let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let number = |gpu: &Value, name: &str| gpu[name].as_u64().unwrap();
    let gpus = value["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| (number(gpu, "index"), number(gpu, "minor"), gpu["uuid"].as_str().unwrap().to_owned())).collect()
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn sixteen_gpus_have_the_numbers_of_their_addresses() {
    let host = MadeUp::of(SIXTEEN);
    let install = install(SIXTEEN, "[grant]\nbase = [\"10\", \"2\", \"13\"]\n");
    let ran = inventory(&host, &install, "").ok();
    let all = uuids(SIXTEEN);
    let found: Vec<(u64, String)> = numbers(&ran).into_iter().map(|(index, _, uuid)| (index, uuid)).collect();
    assert_eq!(found, (0..).zip(all.clone()).collect::<Vec<_>>());
    assert_eq!(ran.stderr, "");

    let seen = count(&host, &install, SIXTEEN, &["CUDA_VISIBLE_DEVICES=10,2"], "");
    assert_eq!(seen.cuda, [all[10].clone(), all[2].clone()]);
    assert_eq!(seen.nvml, [all[2].clone(), all[10].clone()]);
    assert_eq!(seen.nodes, nodes_of_sixteen(&[2, 10]));
    assert_eq!((seen.env["CUDA_VISIBLE_DEVICES"].as_str(), seen.env["CUDAVIEW_HOST_GPUS"].as_str()), ("1,0", "10,2"));
    let seen = count(&host, &install, SIXTEEN, &[], "");
    assert_eq!(seen.cuda, [all[2].clone(), all[10].clone(), all[13].clone()]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_counts_sixteen_gpus_of_a_host_as_nvidia_smi_does() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let host = MadeUp::of(SIXTEEN);
    let install = install(SIXTEEN, "");
    let settings = json!({"storage-driver": "overlay2"});
    let runtimes = [("cudaview", install.runtime())];
    let runtimes: Vec<_> = runtimes.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let docker = Dockerd::start_in(Some(&host.script()), &runtimes, None, &settings);
    docker.import(SIXTEEN, IMAGE, &[]);
    let all = uuids(SIXTEEN);
    let flags = |gpus: &'static str, value: &'static str| ["--runtime", "cudaview", "--gpus", gpus, "-e", value];
    // Plain: these three GPUs by their nodes, and host numbers that mean nothing inside.
    let devices = install.docker_devices(&[4, 12, 7]);
    let plain: Vec<&str> = devices.iter().map(String::as_str).chain(["-e", "CUDA_VISIBLE_DEVICES=15,10"]).collect();
    let seen = docker.count(&plain, IMAGE);
    assert_eq!((seen.cuda.len(), seen.nodes), (0, nodes_of_sixteen(&[10, 2, 15])));

    let seen = docker.count(&flags("\"device=10,2,15\"", "CUDA_VISIBLE_DEVICES=15,10"), IMAGE);
    assert_eq!(seen.cuda, [all[15].clone(), all[10].clone()]);
    assert_eq!(seen.nodes, nodes_of_sixteen(&[10, 15]));
    let seen = docker.count(&flags("all", "CUDA_VISIBLE_DEVICES=10"), IMAGE);
    assert_eq!((seen.cuda, seen.nodes), (vec![all[10].clone()], nodes_of_sixteen(&[10])));
    let name = format!("\"device={}\"", all[11]);
    docker.up("one", &["--runtime", "cudaview", "--gpus", &name], IMAGE);
    let seen = docker.exec_count(&["-e", "CUDA_VISIBLE_DEVICES=11"], "one");
    assert_eq!((seen.cuda, seen.nodes), (vec![all[11].clone()], nodes_of_sixteen(&[11])));
    let ran = docker.run(&["--runtime", "cudaview", "--gpus", "device=16"], IMAGE, &["true"]).failed_with(125);
    assert!(ran.stderr.contains("this host has GPUs 0 to 15"), "{ran}");
}

/// NVML counts it still, and has nothing more to say of it.
#[test]
fn a_gpu_that_fell_off_the_bus_costs_the_others_nothing() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cudaview-nvml"));
    command.env("LD_LIBRARY_PATH", artifacts::doubles()).env("GPU_DOUBLE_NO_NODES", "1");
    command.env("GPU_DOUBLE_INVENTORY", crate::world::inventory(SIXTEEN)).env("GPU_DOUBLE_LOST", "3");
    let found: Vec<(u64, String)> =
        numbers(&run(&mut command).ok()).into_iter().map(|(index, _, uuid)| (index, uuid)).collect();
    let mut expected: Vec<(u64, String)> = (0..).zip(uuids(SIXTEEN)).collect();
    expected.remove(3);
    assert_eq!(found, expected);
}

/// In a container `/proc` names every GPU of the machine, `/dev` has what the container was given, and NVML counts that.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_container_in_a_container_counts_what_it_can_open() {
    let host = MadeUp::of(A100X4);
    let install = install(A100X4, "[grant]\nbase = [\"0\", \"1\"]\n");
    for minor in [0, 2] {
        fs::remove_file(install.node(minor)).unwrap();
    }
    let ran = inventory(&host, &install, "").failed_with(NO_INVENTORY);
    let said = "/dev has no nvidia0 and nvidia2, and only NVML knows whether their GPUs count";
    assert!(ran.stderr.replace("\n          ", " ").contains(said), "{ran}");

    let nvml = MadeUp::nvml(A100X4, &install);
    let all = uuids(A100X4);
    let ran = inventory(&host, &install, &nvml).ok();
    assert_eq!(numbers(&ran), [(0, 1, all[1].clone()), (1, 3, all[3].clone())]);
    let seen = count(&host, &install, A100X4, &["CUDA_VISIBLE_DEVICES=1,0"], &nvml);
    assert_eq!(seen.cuda, [all[3].clone(), all[1].clone()]);
    assert_eq!(seen.nodes, ["/dev/nvidia1", "/dev/nvidia3"]);
    // NVML was asked once: without it the same is known.
    let seen = count(&host, &install, A100X4, &["CUDA_VISIBLE_DEVICES=1"], "");
    assert_eq!((seen.cuda, seen.nodes), (vec![all[3].clone()], vec!["/dev/nvidia3".to_owned()]));
}

/// Whoever only asks changes nothing, where NVML has to be asked too: its answer is kept by the wrapper, or on request.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_question_leaves_no_cache() {
    let host = MadeUp::of(A100X4);
    let install = install(A100X4, "");
    fs::remove_file(install.node(2)).unwrap();
    let nvml = MadeUp::nvml(A100X4, &install);
    for arguments in [
        &["explain", "--gpus", "all"][..],
        &["explain", "--", "docker", "run", "--gpus", "all", "x"],
        &["ps"],
        &["flags"],
        &["predict"],
        &["inventory"],
    ] {
        let ran = run(host.command(&install.bin("cudaview"), &nvml).args(arguments).env("CUDA_VISIBLE_DEVICES", "1"));
        assert!(!ran.stderr.contains("failed"), "{ran}");
        assert_eq!(fs::read_dir(host.path("run")).unwrap().count(), 0, "{arguments:?}");
    }
    run(host.command(&install.bin("cudaview"), &nvml).args(["inventory", "--refresh"])).ok();
    assert!(host.path("run/inventory.json").exists());
}

/// A GPU that nobody has used since the driver was loaded has no UUID in `/proc`.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_gpu_that_the_driver_does_not_name_yet() {
    let host = MadeUp::of(A100X4);
    let text = fs::read(crate::world::inventory(A100X4)).unwrap();
    let address = serde_json::from_slice::<Value>(&text).unwrap()["gpus"][2]["pciBusId"].as_str().unwrap().to_owned();
    host.gpu(&address, 2, "GPU-????????-????-????-????-????????????", "Unknown");
    let install = install(A100X4, "[grant]\nbase = [\"2\", \"3\"]\n");
    let bundle = |more: &str| Bundle::with_runtime(&host.runtime(&install, more), A100X4, &COUNT, &[]);
    let ran = bundle("").run().failed_with(NO_INVENTORY);
    let said = format!("the driver gives no UUID yet to the GPU at {address}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].contains(&said), "{ran}");
    assert!(lines[1].starts_with("  hint: turn persistence mode on"), "{ran}");
    assert_eq!(lines.len(), 2, "{ran}");

    let nvml = MadeUp::nvml(A100X4, &install);
    let all = uuids(A100X4);
    assert_eq!(bundle(&nvml).count().cuda, all[2..]);
    assert_eq!(bundle("").count().cuda, all[2..], "the answer was kept");
    // Whoever owns the file, or could put another in its place, would say which GPU is which.
    for name in ["run/inventory.json", "run"] {
        std::os::unix::fs::chown(host.path(name), Some(1000), None).unwrap();
        bundle("").run().failed_with(NO_INVENTORY);
        std::os::unix::fs::chown(host.path(name), Some(0), None).unwrap();
        assert_eq!(bundle("").count().cuda, all[2..], "{name}");
    }
    // Another boot.
    host.write("boot_id", "6e8e6a5e-0000-4000-8000-000000000001\n");
    let boot = format!("mount --bind '{}' /proc/sys/kernel/random/boot_id", host.path("boot_id").display());
    bundle(&boot).run().failed_with(NO_INVENTORY);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn modules_and_nodes_that_are_missing_are_named() {
    let host = MadeUp::of(A100X4);
    let install = install(A100X4, "[grant]\nbase = [\"1\"]\n");
    let refused = |said: &str| {
        let bundle = Bundle::with_runtime(&host.runtime(&install, ""), A100X4, &COUNT, &[]);
        let ran = bundle.run().failed_with(NO_INVENTORY);
        assert!(ran.stderr.contains(said), "{ran}");
        assert!(bundle.log().contains(&said.replace('"', "\\\"")), "{}", bundle.log());
        // The same where somebody asks; the GPUs are known all the same.
        let ran = inventory(&host, &install, "").ok();
        assert_eq!(numbers(&ran).len(), 4);
        assert!(ran.stderr.replace("\n      ", " ").contains(said), "{ran}");
    };
    let dev = install.dev_root().join("dev");
    fs::remove_file(dev.join("nvidia-uvm")).unwrap();
    host.modules(&["nvidia", "nvidia_modeset"]);
    let uvm = format!("{:?} is missing: the kernel module nvidia_uvm is not loaded", dev.join("nvidia-uvm"));
    refused(&uvm);
    host.modules(&["nvidia", "nvidia_uvm"]);
    refused("the driver is loaded (nvidia and nvidia_uvm), and its nodes have not been made");
    fs::remove_file(dev.join("nvidiactl")).unwrap();
    host.modules(&[]);
    refused("are missing: the kernel modules nvidia and nvidia_uvm are not loaded (loaded: none)");
    for minor in 0..4 {
        fs::remove_file(install.node(minor)).unwrap();
    }
    let ran = inventory(&host, &install, "").ok();
    assert!(ran.stderr.contains("nvidia3 are missing") && ran.stderr.contains("nvidia-modprobe -c0"), "{ran}");
}

/// The driver was never loaded.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_host_without_the_driver() {
    let host = MadeUp::empty();
    let install = install(A100X4, "[grant]\nbase = [\"1\"]\n");
    let sys = host.path("sys");
    host.write("sys/0000:07:00.0/vendor", "0x10de\n");
    host.write("sys/0000:07:00.0/class", "0x030200\n");
    let bus = format!("mount --bind '{}' /sys/bus/pci/devices", sys.display());
    for (more, said) in [("", "no NVIDIA GPU is on its PCI bus"), (&bus, "the kernel module nvidia is not loaded")] {
        let ran = inventory(&host, &install, more).failed_with(NO_INVENTORY);
        assert!(ran.stderr.replace("\n          ", " ").contains(said), "{ran}");
        let bundle = Bundle::with_runtime(&host.runtime(&install, more), A100X4, &COUNT, &[]);
        let ran = bundle.run().failed_with(NO_INVENTORY);
        assert!(ran.stderr.contains(said), "{ran}");
    }
}

/// The device of WSL2, in the folder of an install; its number is nobody's here.
fn make_dxg(install: &Install) {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let path = install.dev_root().join("dev/dxg");
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(10, 63)).unwrap();
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn wsl2_is_passed_through_with_its_numbers() {
    let host = MadeUp::empty();
    let install = install(A100X4, "[grant]\nbase = [\"1\"]\n");
    make_dxg(&install);
    let ran = inventory(&host, &install, "").ok();
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&found["platform"], &found["gpus"]), (&json!("wsl2"), &json!([])));
    assert_eq!(ran.stderr, "", "nothing is missing");

    let env = ["CUDA_VISIBLE_DEVICES=3,1", "NVIDIA_VISIBLE_DEVICES=all"];
    let program = ["sh", "-c", "ls /dev/dxg /dev/nvidia* 2>/dev/null; env | grep _VISIBLE_ | sort"];
    let bundle = Bundle::with_runtime(&host.runtime(&install, ""), A100X4, &program, &env);
    // Nobody brought the device.
    let ran = bundle.run().failed_with(REFUSED);
    assert!(ran.stderr.contains("on WSL2 cudaview gives no container its GPU"), "{ran}");
    assert!(ran.stderr.lines().count() <= 6, "{ran}");

    bundle.edit(|spec| crate::world::spec::add_device(spec, "/dev/dxg", 10, 63));
    let before = bundle.spec();
    let ran = bundle.run().ok();
    assert_eq!(ran.stdout, "/dev/dxg\nCUDA_VISIBLE_DEVICES=3,1\nNVIDIA_VISIBLE_DEVICES=all\n");
    assert_eq!(bundle.spec(), before, "not a byte was changed");
    let record = install.audit_records().pop().unwrap();
    assert_eq!(
        (&record["verdict"], &record["findings"][0]["code"]),
        (&json!("not-applicable"), &json!("no-selection"))
    );

    let explain = |arguments: &[&str]| {
        let ran = run(host.command(&install.bin("cudaview"), "").arg("explain").args(arguments)).ok();
        (ran.stdout, ran.stderr)
    };
    let (text, _) = explain(&["--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=1"]);
    assert!(text.starts_with("every GPU of this WSL2 host: none can be chosen"), "{text}");
    assert!(text.contains("warning: no-selection") && text.contains("\"1\" stays"), "{text}");
    let ran = run(host.command(&install.bin("cudaview"), "").arg("predict")).failed_with(NO_INVENTORY);
    assert!(ran.stderr.contains("WSL2"), "{ran}");
}

/// Docker's flag means NVIDIA's toolkit there, which runs after us and gets what was typed.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn docker_on_wsl2_leaves_everything_to_nvidias_toolkit() {
    require(&["dockerd", "docker", "containerd", "runc", "jq"]);
    let host = MadeUp::empty();
    let install = install(A100X4, "");
    make_dxg(&install);
    let settings = json!({"storage-driver": "overlay2"});
    let docker = Dockerd::start_in(Some(&host.script()), &[("cudaview", &install.runtime())], None, &settings);
    docker.import(A100X4, IMAGE, &[]);
    let flags = ["--runtime", "cudaview", "--gpus", "device=1", "-e", "CUDA_VISIBLE_DEVICES=3,1"];
    let ran = docker.run(&flags, IMAGE, &["true"]).failed_with(125);
    assert!(ran.stderr.contains("on WSL2 cudaview gives no container its GPU"), "{ran}");
    assert!(docker.hook_record().is_empty());

    ask_the_host(&install, "inject = \"nvidia\"\n");
    docker.up("one", &flags, IMAGE);
    assert_eq!(docker.hook_record().len(), 1, "NVIDIA's hook is called");
    let of_first =
        docker.exec(&[], "one", &["sh", "-c", "tr '\\0' '\\n' </proc/1/environ | grep _VISIBLE_ | sort"]).ok();
    assert_eq!(of_first.stdout, "CUDA_VISIBLE_DEVICES=3,1\nNVIDIA_VISIBLE_DEVICES=1\n");
    let added = docker.exec(&["-e", "CUDA_VISIBLE_DEVICES=2"], "one", &["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]).ok();
    assert_eq!(added.stdout, "2\n");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn tegra_is_refused_by_name() {
    let host = MadeUp::empty();
    let install = install(A100X4, "");
    host.write("nv_tegra_release", "# R36 (release), REVISION: 4.3\n");
    let tegra = format!("mount -t tmpfs none /etc\ncp '{}' /etc", host.path("nv_tegra_release").display());
    for command in [&["inventory"][..], &["inventory", "--refresh"], &["explain", "--gpus", "all"]] {
        let ran = run(host.command(&install.bin("cudaview"), &tegra).args(command)).failed_with(NO_INVENTORY);
        let text = ran.stderr.replace("\n          ", " ");
        let said = "it is a Tegra system (/etc/nv_tegra_release), which cudaview does not support";
        assert!(text.contains(said), "{command:?}: {ran}");
    }
    // Without a GPU a container starts as everywhere.
    let bundle = Bundle::with_runtime(&host.runtime(&install, &tegra), A100X4, &["echo", "started"], &[]);
    assert_eq!(bundle.run().ok().stdout, "started\n");
    ask_the_host(&install, "[grant]\nbase = \"all\"\n");
    let ran = bundle.run().failed_with(NO_INVENTORY);
    assert!(ran.stderr.contains("it is a Tegra system"), "{ran}");
}
