//! Hosts that are not the usual two cards.

use std::fmt::Write as _;

use super::*;
use crate::inventory::Platform;

/// `(index, minor, uuid)` of every GPU.
fn numbers(inventory: &Inventory) -> Vec<(u32, u32, &str)> {
    inventory.gpus.iter().map(|gpu| (gpu.index.0, gpu.minor.0, gpu.uuid.as_str())).collect()
}

/// Two boards of eight in two PCI domains; the driver numbered them as it found them.
#[test]
fn sixteen_gpus_are_in_the_order_of_their_addresses() {
    let gpus: Vec<(String, u32, String)> = (0..16)
        .map(|at: u32| {
            // Bus 0f comes before 10, and domain 2 before 10000: by value, not by letters.
            let domain = ["0002", "10000"][usize::try_from(at / 8).expect("small")];
            (format!("{domain}:{:02x}:00.0", 0x0c + at % 8), (at * 7 + 10) % 16, format!("GPU-{at:02}"))
        })
        .collect();
    let host = Host::new(&gpus.iter().map(|(a, minor, uuid)| (a.as_str(), *minor, uuid.as_str())).collect::<Vec<_>>());
    let inventory = host.load().expect("an inventory");
    let expected: Vec<_> = (0..16).zip(&gpus).map(|(at, (_, minor, uuid))| (at, *minor, uuid.as_str())).collect();
    assert_eq!(numbers(&inventory), expected);
    assert_eq!(inventory.gpus[8].pci_bus_id.map(|id| id.to_string()).as_deref(), Some("00010000:0c:00.0"));
    assert_eq!(inventory.gpus[0].minor.0, 10);
}

/// In a container `/proc` names every GPU of the host, and NVML counts those that can be opened.
#[test]
fn where_some_nodes_are_missing_nvml_says_which_gpus_count() {
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a"), ("0000:0f:00.0", 1, "GPU-b"), ("0000:17:00.0", 2, "GPU-c")]);
    assert_eq!(numbers(&host.load().expect("no node at all")), [(0, 0, "GPU-a"), (1, 1, "GPU-b"), (2, 2, "GPU-c")]);
    host.write("dev/nvidia1", "");
    let error = host.load().expect_err("nobody can say");
    let why = "/dev has no nvidia0 and nvidia2, and only NVML knows whether their GPUs count";
    assert_eq!(error.to_string(), format!("failed to list the GPUs of this host ({why})"));
    host.helper(&format!("echo '{ONE}'"));
    assert_eq!(numbers(&host.load().expect("NVML's answer")), [(0, 1, "GPU-b")]);
    assert_eq!(numbers(&refresh(&host.places()).expect("kept")), [(0, 1, "GPU-b")]);
    host.helper("exit 1");
    assert_eq!(numbers(&host.load().expect("cached")), [(0, 1, "GPU-b")]);
    for minor in [0, 2] {
        host.write(&format!("dev/nvidia{minor}"), "");
    }
    assert_eq!(host.load().expect("all nodes are there").source, "procfs");
    assert_eq!(without_node(&host.load().expect("all"), &host.places().dev), []);
}

/// Without one entry all others would have wrong numbers.
#[test]
fn an_entry_that_cannot_be_read_is_not_left_out() {
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a"), ("0000:17:00.0", 1, "GPU-b")]);
    host.write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Model: \t\t Unknown\n");
    let text = host.load().expect_err("nobody knows").to_string();
    assert!(text.contains("/proc/driver/nvidia/gpus/0000:07:00.0/information cannot be read"), "{text}");
    host.remove("proc/driver/nvidia/gpus/0000:07:00.0");
    assert_eq!(numbers(&host.load().expect("one GPU")), [(0, 1, "GPU-b")]);
}

/// An operator can tell the driver to leave a GPU alone; NVML does not count it.
#[test]
fn an_excluded_gpu_has_no_number() {
    for (flag, excluded) in
        [("GPU Excluded:\t Yes", true), ("Blacklisted:\t\t Yes", true), ("GPU Excluded:\t No", false)]
    {
        let host = Host::new(&[("0000:07:00.0", 0, "GPU-a"), ("0000:17:00.0", 1, "GPU-b")]);
        let file = "proc/driver/nvidia/gpus/0000:07:00.0/information";
        let text = fs::read_to_string(host.folder.path().join(file)).expect("an entry");
        host.write(file, &text.replace("GPU Excluded:\t No", flag));
        let found = host.load().expect("an inventory");
        let expected = if excluded { vec![(0, 1, "GPU-b")] } else { vec![(0, 0, "GPU-a"), (1, 1, "GPU-b")] };
        assert_eq!(numbers(&found), expected, "{flag}");
    }
}

#[test]
fn two_gpus_of_one_name_are_no_inventory() {
    for (gpus, what) in [
        ([("0000:07:00.0", 0, "GPU-a"), ("0000:17:00.0", 0, "GPU-b")], "minor 0 occurs twice"),
        ([("0000:07:00.0", 0, "GPU-a"), ("0000:17:00.0", 1, "GPU-a")], "GPU-a occurs twice"),
    ] {
        let text = Host::new(&gpus).load().expect_err("a contradiction").to_string();
        assert!(text.contains(&format!("contradicts itself: {what}")), "{text}");
    }
}

/// What is said where the driver is not there, by what is.
#[test]
fn without_a_driver_it_is_said_what_there_is() {
    let said = |host: &Host| {
        host.helper("echo 'cudaview-nvml: failed to start NVML' >&2; exit 5");
        let error = host.load().expect_err("no inventory");
        (error.to_string(), error.hint())
    };
    let host = Host::new(&[]);
    host.remove("proc/driver");
    let (text, hint) = said(&host);
    assert_eq!(text, "failed to list the GPUs of this host (the kernel module nvidia is not loaded)");
    assert!(hint.starts_with("sudo nvidia-modprobe -u -c0"), "{hint}");
    host.write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
    let (text, hint) = said(&host);
    assert_eq!(text, "failed to list the GPUs of this host (no NVIDIA GPU is on its PCI bus)");
    assert!(hint.contains("cudaview demo"), "{hint}");
    host.write("proc/modules", "nvidia 60710912 0 - Live 0x0000000000000000 (POE)\n");
    assert_eq!(said(&host).0, "failed to list the GPUs of this host (/proc/driver/nvidia names none)");
}

#[test]
fn wsl2_has_one_device_for_all() {
    let host = Host::new(&[]);
    host.remove("proc/driver");
    host.write("dev/dxg", "");
    host.helper("echo asked >&2; exit 1");
    for found in [host.load(), refresh(&host.places())] {
        let found = found.expect("an inventory");
        assert_eq!((found.platform, found.gpus.len()), (Platform::Wsl2, 0));
        let text = serde_json::to_string(&found).expect("JSON");
        assert_eq!(Inventory::from_json(text.as_bytes()).expect("it is one"), found);
    }
    assert!(!host.places().cache.exists());
    // Cards that the driver lists can be told apart.
    let host = Host::new(&[("0000:07:00.0", 0, "GPU-a")]);
    host.write("dev/dxg", "");
    assert_eq!(host.load().expect("an inventory").platform, Platform::Usual);
}

#[test]
fn tegra_is_named_as_unsupported() {
    let check = |host: &Host, sign: &str| {
        host.helper("echo asked >&2; exit 1");
        for error in [host.load().expect_err("Tegra"), refresh(&host.places()).expect_err("Tegra")] {
            let mut text = String::new();
            write!(text, "{error}").expect("text");
            assert!(text.starts_with("failed to list the GPUs of this host: it is a Tegra system ("), "{text}");
            assert!(text.contains(sign) && text.ends_with("which cudaview does not support"), "{text}");
            assert!(error.hint().contains("--runtime nvidia"), "{}", error.hint());
        }
    };
    for (file, text) in [
        ("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\n"),
        ("sys/devices/soc0/family", "Tegra\n"),
        ("sys/devices/soc0/family", "tegra234\n"),
    ] {
        let host = Host::new(&[]);
        host.write(file, text);
        check(&host, file);
        // A card beside it is as good as anywhere.
        host.add(("0005:01:00.0", 0, "GPU-a"));
        assert_eq!(host.load().expect("an inventory").gpus.len(), 1);
    }
    let host = Host::new(&[("0000:01:00.0", 0, "GPU-a")]);
    let file = "proc/driver/nvidia/gpus/0000:01:00.0/information";
    let text = fs::read_to_string(host.folder.path().join(file)).expect("an entry");
    host.write(file, &text.replace("NVIDIA A100-SXM4-40GB", "NVIDIA Thor"));
    check(&host, "NVIDIA Thor in /proc/driver/nvidia");
    let host = Host::new(&[]);
    host.write("sys/devices/soc0/family", "Snapdragon\n");
    assert!(matches!(host.load(), Err(LoadError::Helper { .. })));
}
