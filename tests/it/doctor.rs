//! `cudaview doctor` on made-up hosts below a folder, and beside a real Docker.

mod docker;
mod others;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::{Value, json};

use crate::command::{cudaview, text};
use crate::world::command::write_program;
use crate::world::host::{ALL_MODULES, MadeUp};
use crate::world::{A100X4, require};

/// A made-up host, and what `doctor` says of it.
pub(crate) struct System {
    pub(crate) host: MadeUp,
}

impl System {
    /// Four GPUs with a driver that is up, and cudaview installed; no engine, and no nodes.
    pub(crate) fn new() -> System {
        let system = System { host: MadeUp::of(A100X4) };
        for folder in ["", "usr", "usr/bin", "etc", "etc/cdi", "dev"] {
            fs::create_dir_all(system.path(folder)).unwrap();
            fs::set_permissions(system.path(folder), Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["cudaview-runtime", "cudaview-hook", "cudaview-nvml", "runc"] {
            system.program(name);
        }
        system.write("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "");
        symlink("libcuda.so.550.54.15", system.path("usr/lib/x86_64-linux-gnu/libcuda.so.1")).unwrap();
        system
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.host.path(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.host.write(name, text);
        fs::set_permissions(self.path(name), Permissions::from_mode(0o644)).unwrap();
    }

    pub(crate) fn program(&self, name: &str) {
        write_program(&self.path(&format!("usr/bin/{name}")), b"#!/bin/sh\n");
    }

    /// The driver's nodes; only root can make them.
    pub(crate) fn nodes(&self) {
        let gpus = (0..4).map(|minor| (format!("nvidia{minor}"), 195, minor));
        for (name, major, minor) in gpus.chain([("nvidiactl".to_owned(), 195, 255), ("nvidia-uvm".to_owned(), 510, 0)])
        {
            self.node(&name, major, minor);
        }
    }

    fn node(&self, name: &str, major: u32, minor: u32) {
        let path = self.path(&format!("dev/{name}"));
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), makedev(major, minor)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    }

    /// What a daemon of Docker's would say of itself to whoever asks twice.
    pub(crate) fn docker(&self, info: &Value) {
        let listener = UnixListener::bind(self.path("run/docker.sock")).unwrap();
        let answer = format!("HTTP/1.0 200 OK\r\n\r\n{info}");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut question) = (stream.unwrap(), [0; 1024]);
                let _asked = stream.read(&mut question);
                let _answered = stream.write_all(answer.as_bytes());
            }
        });
    }

    /// Exit code, stdout, stderr; in lines that are long enough for any path.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = cudaview();
        command.args(["doctor", "--root"]).arg(self.path("")).args(arguments).env("COLUMNS", "1000");
        text(&command.output().unwrap())
    }

    fn json(&self) -> Value {
        let (code, stdout, stderr) = self.run(&["--format", "json"]);
        let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
        let problems = json["errors"].as_u64().unwrap() + json["warnings"].as_u64().unwrap();
        assert_eq!(code, Some(i32::from(problems > 0)), "{json:#}");
        let root = self.path("").display().to_string();
        assert!(!stdout.contains(root.trim_end_matches('/')), "it names the folder and not the host: {stdout}");
        json
    }

    /// The status of a check and its line.
    fn check(&self, name: &str) -> (String, String) {
        let json = self.json();
        let checks = json["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {json:#}"));
        let text = |key: &str| check[key].as_str().unwrap().to_owned();
        (text("status"), text("line"))
    }

    #[track_caller]
    fn says(&self, name: &str, status: &str, line: &str) {
        let (found, said) = self.check(name);
        assert!(found == status && said.contains(line), "{name}: {found}: {said}");
    }

    /// Every file below it, with what a write would change.
    fn files(&self) -> Vec<(PathBuf, i64, i64)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.path("")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let metadata = fs::symlink_metadata(entry.path()).unwrap();
                found.push((entry.path(), metadata.ctime(), metadata.ctime_nsec()));
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }
}

#[test]
fn a_host_without_nodes_and_without_an_engine() {
    let system = System::new();
    let before = system.files();
    let (code, stdout, stderr) = system.run(&[]);
    assert_eq!(code, Some(1), "{stderr}");
    let stdout: Vec<&str> = stdout.lines().filter(|line| !line.contains("processes")).collect();
    insta::assert_snapshot!(stdout.join("\n"), @r"
    ok       driver        550.54.15: kernel module and libraries agree
    ok       GPUs          4 x NVIDIA A100-SXM4-40GB, host index = minor, no MIG
    ERROR    device nodes  /dev/nvidiactl, /dev/nvidia-uvm and 4 more are missing
             Neither CUDA nor nvidia-smi can start, neither here nor in a container.
             looked at: /dev/nvidia*, /proc/devices (the modules are loaded)
             fix: sudo nvidia-smi -L && sudo nvidia-modprobe -u -c0
    ok       inventory     4 GPUs, read from /proc/driver/nvidia
    ok       policy        no /etc/cudaview/config.toml: the defaults
    skipped  toolkit       NVIDIA's is not installed; cudaview needs none of it
    warning  CDI           no specification for nvidia.com/gpu
             podman run --device nvidia.com/gpu=1 cannot work, and cudaview has no list of the driver's files: an image without libcuda.so.1 gets the nodes alone.
             looked at: /etc/cdi, /var/run/cdi
             fix: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (package nvidia-container-toolkit-base)
    skipped  Docker        not installed
    skipped  --gpus flag   Docker is not installed
    skipped  podman        not installed
    skipped  containerd    not installed
    skipped  cgroups       not mounted
    skipped  systemd       does not run this host
    skipped  SELinux       not enabled on this host
    ");
    assert_eq!(stderr, "\n1 error, 1 warning: start at the top, one cause may have several effects\n");
    assert_eq!(system.files(), before, "something was written");
    // The same without what is well.
    let (code, stdout, _) = system.run(&["--problems"]);
    assert_eq!(code, Some(1));
    assert!(stdout.starts_with("ERROR    device nodes") && !stdout.contains("\nok"), "{stdout}");
}

#[test]
fn a_driver_that_was_updated_under_a_running_host() {
    let system = System::new();
    symlink(
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07",
        system.path("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
    )
    .unwrap();
    // A link to nowhere is no library.
    system.says("driver", "ok", "550.54.15: kernel module and libraries agree");
    system.write("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07", "");
    system.says("driver", "error", "the kernel module is 550.54.15, the libraries are 550.90.07");
}

#[test]
fn a_driver_that_is_not_loaded() {
    let system = System::new();
    fs::remove_dir_all(system.path("proc/driver")).unwrap();
    system.host.modules(&[]);
    system.says("driver", "error", "the kernel module nvidia is not loaded");
    for name in ["GPUs", "device nodes", "inventory", "CDI"] {
        assert_eq!(system.check(name).0, "skipped", "{name}");
    }
    fs::create_dir_all(system.path("sys/bus/pci/devices")).unwrap();
    system.says("driver", "error", "no GPU of NVIDIA's is on the PCI bus");
}

#[test]
fn what_only_nvml_knows_is_not_asked_for() {
    let system = System::new();
    system.host.gpu("00000000:99:00.0", 4, "GPU-????????-????-????-????-????????????", "Unknown");
    let asked = system.path("asked");
    write_program(&system.path("usr/bin/cudaview-nvml"), format!("#!/bin/sh\ntouch {}\n", asked.display()).as_bytes());
    system.says(
        "inventory",
        "error",
        "only NVML knows the GPUs: the driver gives no UUID yet to the GPU at 00000000:99:00.0",
    );
    assert!(!asked.exists());
}

#[test]
fn a_configuration_that_cannot_be_used() {
    let system = System::new();
    system.says("policy", "ok", "no /etc/cudaview/config.toml: the defaults");
    system.write("etc/cudaview/config.toml", "[reconcile]\nnarow = true\n");
    system.says("policy", "error", "failed to read the configuration \"/etc/cudaview/config.toml\"");
    system.write("etc/cudaview/config.toml", "mode = \"observe\"\n");
    system.says("policy", "warning", "observe");
    system.write("etc/cudaview/config.toml", "low_level_runtime = [\"crun\"]\n");
    system.says("policy", "error", "no low-level runtime found: looked for crun");
    system.program("crun");
    system.says("policy", "ok", "owned by root, all keys known");
    fs::set_permissions(system.path("etc/cudaview/config.toml"), Permissions::from_mode(0o666)).unwrap();
    system.says("policy", "error", "can be written by its group or by others");
    fs::remove_file(system.path("usr/bin/cudaview-hook")).unwrap();
    system.says("programs", "error", "/usr/bin/cudaview-hook is not there");
}

#[test]
fn specifications_of_cdi() {
    let system = System::new();
    let spec = |names: &[&str], library: &str| {
        let device =
            |name: &&str| json!({"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]}});
        let devices: Vec<Value> = names.iter().map(device).collect();
        let mounts = json!([{"hostPath": library, "containerPath": library}]);
        json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {"mounts": mounts}})
    };
    let put = |spec: &Value| system.write("etc/cdi/nvidia.json", &spec.to_string());
    system.says("CDI", "warning", "no specification for nvidia.com/gpu");
    let library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";
    put(&spec(&["0", "1", "2", "3", "all"], library));
    system.says("CDI", "error", "/etc/cdi/nvidia.json is out of date");
    system.write("dev/nvidiactl", "");
    system.says("CDI", "ok", "/etc/cdi/nvidia.json: 5 devices");
    put(&spec(&["0", "1", "all"], library));
    system.says("CDI", "warning", "/etc/cdi/nvidia.json has no GPUs 2 and 3");
    put(&spec(&["0", "1", "2", "3"], "/usr/lib/x86_64-linux-gnu/libcuda.so.535.1"));
    system.says("CDI", "error", "out of date");
    put(&json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": 7}));
    system.says("CDI", "error", "failed to read the CDI specification \"/etc/cdi/nvidia.json\"");
}

#[test]
fn nvidias_toolkit() {
    let system = System::new();
    system.says("toolkit", "skipped", "not installed");
    system.program("nvidia-ctk");
    system.program("nvidia-container-cli");
    system.says("toolkit", "ok", "NVIDIA's: nvidia-ctk and nvidia-container-cli");
    system.write("etc/nvidia-container-runtime/config.toml", "[nvidia-container-cli]\nno-cgroups = true\n");
    system.says("toolkit", "warning", "no-cgroups = true in /etc/nvidia-container-runtime/config.toml");
}

#[test]
fn docker_by_its_files_and_its_socket() {
    let system = System::new();
    system.says("Docker", "skipped", "not installed");
    system.program("dockerd");
    system.says("Docker", "warning", "does not answer: it does not run");
    system.says("--gpus flag", "warning", "not accepted");
    let ours = json!({"path": "/usr/bin/cudaview-runtime"});
    system.write("etc/docker/daemon.json", &json!({"runtimes": {"cudaview": ours}}).to_string());
    system
        .docker(&json!({"ServerVersion": "28.5.2", "DefaultRuntime": "runc", "Runtimes": {"runc": {"path": "runc"}}}));
    system.says("Docker", "error", "28.5.2 does not know the runtime \"cudaview\"");
    system.write("etc/docker/daemon.json", "{\"runtimes\": ");
    system.says("Docker", "error", "/etc/docker/daemon.json is no JSON: ");
    system.write("etc/docker/daemon.json", "\n");
    system.says("Docker", "error", "28.5.2 does not know cudaview");
    let hook = system.path("usr/bin/nvidia-container-runtime-hook");
    symlink("cudaview-hook", &hook).unwrap();
    system.says("--gpus flag", "ok", "accepted, by cudaview's");
    fs::remove_file(&hook).unwrap();
    symlink("nowhere/cudaview-hook", &hook).unwrap();
    system.says("--gpus flag", "error", "/usr/bin/nvidia-container-runtime-hook leads nowhere");
    fs::remove_file(&hook).unwrap();
    system.program("nvidia-container-runtime-hook");
    system.says("--gpus flag", "ok", "accepted, by /usr/bin/nvidia-container-runtime-hook");
}

#[test]
fn a_runtime_whose_program_is_gone() {
    let system = System::new();
    let runtime = json!({"runtimeType": "x", "options": {"BinaryName": "/opt/bin/cudaview-runtime"}});
    system.docker(&json!({"ServerVersion": "26.1.5", "DefaultRuntime": "cudaview", "Runtimes": {"cudaview": runtime}}));
    system.says("Docker", "error", "the runtime \"cudaview\" is /opt/bin/cudaview-runtime, which is not there");
}

/// The files that hooks/ has for these engines are found to be what they are for.
#[test]
fn podman_and_containerd_by_their_files() {
    let shipped = |name: &str| fs::read_to_string(format!("{}/hooks/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let system = System::new();
    system.says("podman", "skipped", "not installed");
    system.program("podman");
    system.says("podman", "warning", "does not know cudaview");
    system.write("usr/share/cudaview/precreate/50-cudaview.json", &shipped("precreate/50-cudaview.json"));
    system.says("podman", "warning", "does not know cudaview");
    let conf = "etc/containers/containers.conf.d/50-cudaview-precreate.conf";
    system.write(conf, &shipped("podman/precreate.conf"));
    system.says("podman", "ok", "cudaview's precreate hook");
    fs::remove_file(system.path("usr/bin/cudaview-hook")).unwrap();
    system.says("podman", "error", "names /usr/bin/cudaview-hook, which is not there");
    system.program("cudaview-hook");
    system.write("etc/containers/containers.conf.d/50-cudaview.conf", &shipped("podman/containers.conf"));
    system.says("podman", "ok", "the runtime \"cudaview\"");
    let shared = "usr/share/containers/oci/hooks.d/50-cudaview.json";
    system.write(shared, &shipped("precreate/50-cudaview.json"));
    system.says("podman", "error", "/usr/share/containers/oci/hooks.d/50-cudaview.json has a stage");
    system.write(shared, &shipped("createRuntime/50-cudaview.json"));
    system.says("podman", "ok", "the runtime \"cudaview\"");
    system.write(conf, "[engine\n");
    system.says("podman", "error", "/etc/containers/containers.conf.d/50-cudaview-precreate.conf is no TOML");

    system.says("containerd", "skipped", "not installed");
    system.program("containerd");
    system.says("containerd", "skipped", "no runtime handler");
    system.write("etc/containerd/config.toml", "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    system.write("etc/containerd/conf.d/50-cudaview.toml", &shipped("containerd/config-v3.toml"));
    system.says("containerd", "ok", "the handler \"cudaview\" is /usr/bin/cudaview-runtime");
    fs::remove_file(system.path("etc/containerd/conf.d/50-cudaview.toml")).unwrap();
    system.write("etc/containerd/config.toml", &shipped("containerd/config-v2.toml"));
    system.says("containerd", "ok", "the handler \"cudaview\" is /usr/bin/cudaview-runtime");
    system.write("etc/containerd/config.toml", "version = ");
    system.says("containerd", "error", "/etc/containerd/config.toml is no TOML");
}

#[test]
fn what_the_host_does_with_containers() {
    let system = System::new();
    system.says("cgroups", "skipped", "not mounted");
    system.write("sys/fs/cgroup/devices/devices.list", "");
    system.says("cgroups", "ok", "version 1");
    system.write("sys/fs/cgroup/cgroup.controllers", "");
    system.says("cgroups", "ok", "version 2");
    system.says("SELinux", "skipped", "not enabled");
    system.write("sys/fs/selinux/enforce", "0");
    system.says("SELinux", "ok", "permissive");
    system.write("sys/fs/selinux/enforce", "1");
    system.write("sys/fs/selinux/booleans/container_use_devices", "0 0");
    system.says("SELinux", "warning", "containers may not use devices");
    system.says("systemd", "skipped", "does not run");
    fs::create_dir_all(system.path("run/systemd/system")).unwrap();
    system.says("systemd", "ok", "GPU nodes are in the spec");
}

/// With nodes, which only root can make.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn nodes_with_the_numbers_of_another_driver() {
    require(&[]);
    let system = System::new();
    system.host.modules(&["nvidia"]);
    system.nodes();
    let uvm = system.path("dev/nvidia-uvm");
    fs::remove_file(&uvm).unwrap();
    let json = system.json();
    let check = json["checks"].as_array().unwrap().iter().find(|check| check["name"] == "device nodes").unwrap();
    assert_eq!(check["line"], "/dev/nvidia-uvm is missing");
    assert_eq!(check["lookedAt"][1], "/proc/devices (module nvidia_uvm not loaded)");
    system.host.modules(&ALL_MODULES);
    system.node("nvidia-uvm", 508, 0);
    system.says("device nodes", "error", "/dev/nvidia-uvm is device 508:0; the driver's is 510:0");
    fs::remove_file(&uvm).unwrap();
    system.node("nvidia-uvm", 510, 0);
    system.says("device nodes", "ok", "4 GPUs, nvidiactl and nvidia-uvm are there");
    fs::set_permissions(system.path("dev/nvidia2"), Permissions::from_mode(0o660)).unwrap();
    system.says("device nodes", "warning", "not everybody may open /dev/nvidia2 (mode 0660)");
}

/// A system below a folder is somebody's: what waits for a writer, does not end or leads out of it is not read.
#[test]
fn files_that_are_made_to_hold_doctor_up() {
    let system = System::new();
    let files = [
        "etc/containerd/config.toml",
        "etc/docker/daemon.json",
        "etc/containers/containers.conf",
        "etc/containers/oci/hooks.d/x.json",
        "etc/nvidia-container-runtime/config.toml",
        "etc/cudaview/config.toml",
        "etc/cdi/nvidia.yaml",
        "sys/fs/selinux/enforce",
        "sys/devices/soc0/family",
        "proc/sys/kernel/random/boot_id",
        "proc/driver/nvidia/gpus/0000:ff:00.0/information",
    ];
    for kind in ["fifo", "zero"] {
        for name in files {
            let path = system.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            drop(fs::remove_file(&path));
            match kind {
                "fifo" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
                _ => symlink("/dev/zero", &path).unwrap(),
            }
        }
        for name in ["proc/modules", "proc/devices", "proc/driver/nvidia/version"] {
            let path = system.path(name);
            fs::remove_file(&path).unwrap();
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        // It ends, and says something of each.
        assert!(system.json()["checks"].as_array().unwrap().len() > 5);
        for name in ["proc/modules", "proc/devices", "proc/driver/nvidia/version"] {
            fs::remove_file(system.path(name)).unwrap();
            fs::write(system.path(name), "").unwrap();
        }
    }
    // A link is one of that system, as its own programs follow it.
    system.program("podman");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "=").unwrap();
    let path = system.path("etc/containers/containers.conf");
    fs::remove_file(&path).unwrap();
    symlink(outside.path().join("file"), &path).unwrap();
    assert!(!system.json().to_string().contains("is no TOML"));
    system.write("etc/real.conf", "=");
    fs::remove_file(&path).unwrap();
    symlink("/etc/real.conf", &path).unwrap();
    assert!(system.json().to_string().contains("containers.conf is no TOML"));
}
