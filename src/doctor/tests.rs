//! Rows: a host on which all is well, one thing changed, and what is said about it.

use super::*;
use crate::config::{Config, Inject, Mode};
use crate::device::DeviceNumber;
use crate::inventory::Inventory;
use crate::report::{Style, doctor, doctor_json, doctor_summary};

const A100X4: &[u8] = include_bytes!("../../tests/data/inventories/a100x4.json");
const MIXED5: &[u8] = include_bytes!("../../tests/data/inventories/mixed5.json");
const A100MIG4: &[u8] = include_bytes!("../../tests/data/inventories/a100mig4.json");

fn inventory(text: &[u8]) -> Inventory {
    let inventory = Inventory::from_json(text).expect("a fixture");
    Inventory { source: "procfs".to_owned(), ..inventory }
}

fn node(name: &str, module: &'static str, major: u32, minor: u32) -> Node {
    let number = DeviceNumber { major, minor };
    let state = NodeState::There(number, 0o666);
    Node { path: format!("/dev/{name}"), module, state, expected: Some(number) }
}

fn runtime(path: &str) -> Runtime {
    Runtime { name: "cudaview".to_owned(), path: path.to_owned(), problem: None }
}

fn broken(path: &str) -> Runtime {
    Runtime { problem: Some("is not there".to_owned()), ..runtime(path) }
}

fn trouble() -> Trouble {
    Trouble { text: "it is broken".to_owned(), fix: "mend it".to_owned() }
}

const WRAPPER: &str = "/usr/bin/cudaview-runtime";

/// Session 5's host, with everything in order, asked by root.
fn well() -> Facts {
    let gpus = (0..4).map(|minor| node(&format!("nvidia{minor}"), "nvidia", 195, minor));
    let control = [node("nvidiactl", "nvidia", 195, 255), node("nvidia-uvm", "nvidia_uvm", 510, 0)];
    let program = |name: &str| Program { path: format!("/usr/bin/{name}"), problem: None };
    Facts {
        driver: Driver {
            modules: ["nvidia", "nvidia_uvm"].map(str::to_owned).to_vec(),
            version: Some("550.54.15".to_owned()),
            libraries: vec!["550.54.15".to_owned()],
            gpus_on_bus: Some(4),
            nouveau: false,
            wsl2: false,
        },
        nodes: control.into_iter().chain(gpus).collect(),
        inventory: Ok(inventory(A100X4)),
        policy: File { path: "/etc/cudaview/config.toml".to_owned(), exists: true, trouble: None },
        config: Config::built_in(),
        low_level_runtime: Ok("/usr/bin/runc".to_owned()),
        programs: ["cudaview-runtime", "cudaview-hook", "cudaview-nvml"].map(program).to_vec(),
        toolkit: Toolkit {
            programs: vec!["/usr/bin/nvidia-ctk".to_owned()],
            no_cgroups: false,
            file: "/etc/nvidia-container-runtime/config.toml".to_owned(),
        },
        cdi: Cdi {
            folders: ["/etc/cdi", "/var/run/cdi"].map(str::to_owned).to_vec(),
            files: vec![CdiFile {
                path: "/etc/cdi/nvidia.yaml".to_owned(),
                devices: ["0", "1", "2", "3", "all"].map(str::to_owned).to_vec(),
                missing: Vec::new(),
            }],
            trouble: None,
        },
        docker: Docker {
            presence: Presence::Answers,
            socket: "/var/run/docker.sock".to_owned(),
            version: "28.5.2".to_owned(),
            runtimes: vec![runtime(WRAPPER), Runtime { name: "runc".to_owned(), ..runtime("runc") }],
            default_runtime: "runc".to_owned(),
            rootless: false,
            live_restore: false,
            cgroup_driver: "systemd".to_owned(),
            file: File { path: "/etc/docker/daemon.json".to_owned(), exists: true, trouble: None },
            file_is_denied: false,
            in_file: vec![runtime(WRAPPER)],
            reload: "sudo systemctl reload docker".to_owned(),
            restart: "sudo systemctl restart docker".to_owned(),
            start: "sudo systemctl start docker".to_owned(),
        },
        gpus_flag: GpusFlag::Ours {
            path: "/usr/bin/nvidia-container-runtime-hook".to_owned(),
            is_newer_than_daemon: Some(false),
        },
        podman: Podman {
            installed: true,
            files: vec!["/etc/containers/containers.conf.d/50-cudaview.conf".to_owned()],
            runtimes: vec![runtime(WRAPPER)],
            ..Podman::default()
        },
        containerd: Containerd {
            installed: true,
            files: vec!["/etc/containerd/config.toml".to_owned()],
            handlers: vec![runtime(WRAPPER)],
            is_changed: Some(false),
            trouble: None,
        },
        systemd: true,
        cgroup_version: 2,
        selinux: SeLinux::Absent,
        processes: Some(Vec::new()),
    }
}

/// Session 5's host as its user finds it.
fn session() -> Facts {
    let mut facts = well();
    facts.driver.modules = vec!["nvidia".to_owned()];
    facts.nodes[1].state = NodeState::Missing;
    facts.cdi.files.clear();
    facts.docker.runtimes.remove(0);
    facts.processes = None;
    facts
}

fn text(checks: &[Check], width: usize, colour: bool) -> String {
    doctor(checks, false, Style { width, colour })
}

#[test]
fn nothing_is_wrong_where_all_is_well() {
    let checks = examine(&well());
    assert_eq!(doctor(&checks, true, Style { width: 80, colour: false }), "");
    assert_eq!(doctor_summary(&checks), "no problems (14 checks, 1 skipped)");
}

/// Beside the target look: rows for NVIDIA's toolkit, containerd and the cgroups; what the driver's files come from; no
/// version of podman, which nobody tells without starting it. Wider, and in colour: in `tests/it/sessions`.
#[test]
fn the_screen_of_session_5() {
    let checks = examine(&session());
    insta::assert_snapshot!(text(&checks, 80, false), @r#"
    ok       driver        550.54.15: kernel module and libraries agree
    ok       GPUs          4 x NVIDIA A100-SXM4-40GB, host index = minor, no MIG
    ERROR    device nodes  /dev/nvidia-uvm is missing
             CUDA cannot start in any container; nvidia-smi works without it.
             looked at: /dev/nvidia*, /proc/devices (module nvidia_uvm not loaded)
             fix: sudo nvidia-modprobe -u -c0
    ok       inventory     4 GPUs, read from /proc/driver/nvidia
    ok       policy        /etc/cudaview/config.toml: owned by root, all keys known
    ok       toolkit       NVIDIA's: nvidia-ctk
    warning  CDI           no specification for nvidia.com/gpu
             podman run --device nvidia.com/gpu=1 cannot work, and cudaview has no
             list of the driver's files: an image without libcuda.so.1 gets the
             nodes alone.
             looked at: /etc/cdi, /var/run/cdi
             fix: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
    ERROR    Docker        28.5.2 does not know the runtime "cudaview"
             /etc/docker/daemon.json has it; the daemon has not read that yet.
             looked at: /etc/docker/daemon.json, docker info
             fix: sudo systemctl reload docker (running containers stay up)
    ok       --gpus flag   accepted, by cudaview's nvidia-container-runtime-hook
    ok       podman        the runtime "cudaview"; --device goes through CDI
    ok       containerd    the handler "cudaview" is /usr/bin/cudaview-runtime
    ok       cgroups       version 2: device rules are in force before hooks run
    ok       systemd       GPU nodes are in the spec: daemon-reload leaves them
    skipped  SELinux       not enabled on this host
    skipped  processes     needs root: sudo cudaview doctor
    "#);
    assert_eq!(doctor_summary(&checks), "2 errors, 1 warning: start at the top, one cause may have several effects");
    let coloured = doctor(&checks[..3], true, Style { width: 80, colour: true });
    assert!(
        coloured.starts_with("\u{1b}[31mERROR\u{1b}[0m    device nodes  /dev/nvidia-uvm is missing\n"),
        "{coloured:?}"
    );
    assert!(coloured.ends_with("\u{1b}[36mfix\u{1b}[0m: sudo nvidia-modprobe -u -c0\n"), "{coloured:?}");
    for width in [20, 40, 60, 80] {
        let longest = text(&checks, width, false).lines().map(|line| line.chars().count()).max();
        assert!(width < 60 || longest < Some(width), "{width}: {longest:?}");
    }
}

#[test]
fn the_same_for_programs() {
    let json = doctor_json(&examine(&session()), true);
    let names: Vec<&str> =
        json["checks"].as_array().expect("checks").iter().filter_map(|check| check["name"].as_str()).collect();
    assert_eq!(names, ["device nodes", "CDI", "Docker"]);
    assert_eq!((&json["errors"], &json["warnings"], &json["skipped"]), (&2.into(), &1.into(), &2.into()));
    insta::assert_snapshot!(serde_json::to_string_pretty(&json["checks"][0]).expect("JSON"), @r#"
    {
      "name": "device nodes",
      "status": "error",
      "line": "/dev/nvidia-uvm is missing",
      "consequence": "CUDA cannot start in any container; nvidia-smi works without it.",
      "lookedAt": [
        "/dev/nvidia*",
        "/proc/devices (module nvidia_uvm not loaded)"
      ],
      "fix": "sudo nvidia-modprobe -u -c0"
    }
    "#);
    let all = doctor_json(&examine(&well()), false);
    assert_eq!(all["checks"].as_array().map(Vec::len), Some(15));
}

/// Everything that somebody else wrote is shown without its control characters.
#[test]
fn terminal_sequences_are_not_passed_on() {
    let escape = "\u{1b}[31m\nx".to_owned();
    let mut facts = well();
    facts.driver.version = Some(escape.clone());
    facts.driver.libraries = vec![format!("{escape}2")];
    facts.docker.version.clone_from(&escape);
    facts.docker.runtimes =
        vec![Runtime { problem: Some("is not there".to_owned()), ..runtime(&format!("{escape}/cudaview-runtime")) }];
    facts.processes = Some(vec![Process { pid: 7, name: escape.clone(), in_container: false }]);
    facts.podman.hooks = vec![HookFile {
        path: "/h.json".to_owned(),
        stages: Vec::new(),
        program: escape,
        is_missing: true,
        in_shared_folder: false,
    }];
    let text = text(&examine(&facts), 80, false);
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

/// What is found in a check after a change: its status, and words of its line, its consequence and its fix.
#[track_caller]
fn check(name: &str, change: impl FnOnce(&mut Facts), status: Status, words: &[&str]) {
    let mut facts = well();
    change(&mut facts);
    let checks = examine(&facts);
    let check = checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name}: {checks:#?}"));
    assert_eq!(check.status, status, "{check:#?}");
    let said = format!("{}\n{}\n{}", check.line, check.consequence, check.fix);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {check:#?}");
    }
    if check.is_problem() {
        let is_whole = !check.consequence.is_empty() && !check.fix.is_empty() && !check.looked_at.is_empty();
        assert!(is_whole, "{check:#?}");
        assert!(check.consequence.ends_with('.') && !check.line.ends_with('.'), "{check:#?}");
    }
}

use Status::{Error, Ok as Fine, Skipped, Warning};

#[test]
fn the_driver() {
    let row = |change: fn(&mut Driver), status, words: &[&str]| {
        check("driver", |facts| change(&mut facts.driver), status, words);
    };
    row(|_| {}, Fine, &["550.54.15: kernel module and libraries agree"]);
    row(|d| d.version = None, Error, &["version unknown"]);
    row(|d| (d.version, d.libraries) = (None, Vec::new()), Fine, &["does not say"]);
    row(|d| d.libraries = vec!["550.90.07".to_owned()], Error, &["550.54.15", "550.90.07", "mismatch", "sudo reboot"]);
    row(|d| d.libraries.clear(), Warning, &["libraries are not found", "libcuda.so.1"]);
    row(|d| d.modules.clear(), Error, &["nvidia is not loaded", "sudo nvidia-modprobe -u -c0"]);
    row(|d| (d.modules, d.nouveau) = (Vec::new(), true), Error, &["nouveau"]);
    row(|d| (d.modules, d.libraries) = (Vec::new(), Vec::new()), Error, &["not installed"]);
    row(|d| (d.modules, d.gpus_on_bus) = (Vec::new(), Some(0)), Error, &["PCI bus"]);
    row(|d| d.wsl2 = true, Warning, &["WSL2"]);
    for name in ["device nodes", "inventory"] {
        let change = |facts: &mut Facts| {
            facts.driver.modules.clear();
            facts.inventory = Err(trouble());
        };
        check(name, change, Skipped, &["see above"]);
    }
}

#[test]
fn gpus_and_their_list() {
    let of = |text: &'static [u8]| move |facts: &mut Facts| facts.inventory = Ok(inventory(text));
    check("GPUs", of(A100X4), Fine, &["4 x NVIDIA A100-SXM4-40GB, host index = minor, no MIG"]);
    check("GPUs", of(MIXED5), Fine, &["index is not minor: GPU "]);
    check("GPUs", of(A100MIG4), Fine, &["MIG devices on GPU "]);
    let empty = |facts: &mut Facts| facts.inventory.as_mut().expect("one").gpus[2].mig_enabled = true;
    check("GPUs", empty, Warning, &["no MIG device: GPU 2", "sudo nvidia-smi -i 2 -mig 0"]);
    let unknown = |facts: &mut Facts| facts.inventory = Err(trouble());
    check("GPUs", unknown, Skipped, &["see inventory"]);
    check("inventory", unknown, Error, &["it is broken", "mend it"]);
    check("inventory", |_| {}, Fine, &["4 GPUs, read from /proc/driver/nvidia"]);
    let file = |facts: &mut Facts| facts.config.inventory = Some("/x.json".to_owned());
    check("inventory", file, Fine, &["4 GPUs, read from /x.json"]);
}

#[test]
fn nodes() {
    let row = |change: fn(&mut Vec<Node>), status, words: &[&str]| {
        check("device nodes", |facts| change(&mut facts.nodes), status, words);
    };
    row(|_| {}, Fine, &["4 GPUs, nvidiactl and nvidia-uvm"]);
    row(|n| n[0].state = NodeState::Missing, Error, &["/dev/nvidiactl is missing", "nvidia-smi", "sudo nvidia-smi -L"]);
    row(|n| n[1].state = NodeState::Missing, Error, &["/dev/nvidia-uvm is missing", "sudo nvidia-modprobe -u -c0"]);
    row(|n| n[3].state = NodeState::Missing, Error, &["/dev/nvidia1 is missing", "sudo nvidia-smi -L"]);
    let all = |n: &mut Vec<Node>| n.iter_mut().for_each(|node| node.state = NodeState::Missing);
    row(
        all,
        Error,
        &[
            "/dev/nvidiactl, /dev/nvidia-uvm and 4 more are missing",
            "sudo nvidia-smi -L && sudo nvidia-modprobe -u -c0",
        ],
    );
    let stale = |n: &mut Vec<Node>| n[1].state = NodeState::There(DeviceNumber { major: 508, minor: 0 }, 0o666);
    row(stale, Error, &["is device 508:0; the driver's is 510:0", "sudo rm /dev/nvidia-uvm && sudo nvidia-modprobe"]);
    let closed = |n: &mut Vec<Node>| n[2].state = NodeState::There(DeviceNumber { major: 195, minor: 0 }, 0o660);
    row(closed, Warning, &["/dev/nvidia0 (mode 0660)", "NVreg_DeviceFileMode"]);
}

#[test]
fn policy_and_programs() {
    check("policy", |_| {}, Fine, &["/etc/cudaview/config.toml: owned by root, all keys known"]);
    check("policy", |facts| facts.policy.exists = false, Fine, &["no /etc/cudaview/config.toml: the defaults"]);
    check("policy", |facts| facts.policy.trouble = Some(trouble()), Error, &["it is broken", "mend it"]);
    check("policy", |facts| facts.config.mode = Mode::Observe, Warning, &["observe"]);
    let none = |facts: &mut Facts| facts.low_level_runtime = Err("no low-level runtime found".to_owned());
    check("policy", none, Error, &["no low-level runtime found", "install runc or crun"]);
    let gone = |facts: &mut Facts| facts.programs[1].problem = Some("is not there".to_owned());
    check("programs", gone, Error, &["/usr/bin/cudaview-hook is not there"]);
    assert!(examine(&well()).iter().all(|check| check.name != "programs"));
}

#[test]
fn cdi() {
    let row =
        |change: fn(&mut Cdi), status, words: &[&str]| check("CDI", |facts| change(&mut facts.cdi), status, words);
    let generate = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    row(|_| {}, Fine, &["/etc/cdi/nvidia.yaml: 5 devices"]);
    row(|cdi| cdi.files.clear(), Warning, &["no specification for nvidia.com/gpu", generate]);
    let no_ctk = |facts: &mut Facts| {
        facts.cdi.files.clear();
        facts.toolkit.programs.clear();
    };
    check("CDI", no_ctk, Warning, &["(package nvidia-container-toolkit-base)"]);
    row(|cdi| cdi.trouble = Some(trouble()), Error, &["it is broken", "mend it"]);
    let stale = |cdi: &mut Cdi| cdi.files[0].missing = vec!["/usr/lib/libcuda.so.1.2".to_owned()];
    row(stale, Error, &["/etc/cdi/nvidia.yaml is out of date", "It names /usr/lib/libcuda.so.1.2, which", generate]);
    row(|cdi| drop(cdi.files[0].devices.remove(2)), Warning, &["has no GPU 2", generate]);
    let no_driver = |facts: &mut Facts| {
        facts.cdi.files.clear();
        facts.driver.modules.clear();
    };
    check("CDI", no_driver, Skipped, &["where the driver runs"]);
}

#[test]
fn toolkit() {
    let row = |change: fn(&mut Toolkit), status, words: &[&str]| {
        check("toolkit", |facts| change(&mut facts.toolkit), status, words);
    };
    row(|_| {}, Fine, &["NVIDIA's: nvidia-ctk"]);
    row(|toolkit| toolkit.programs.clear(), Skipped, &["not installed"]);
    row(|toolkit| toolkit.no_cgroups = true, Fine, &[]);
    let no_cgroups = |toolkit: &mut Toolkit| {
        toolkit.no_cgroups = true;
        toolkit.programs.push("/usr/bin/nvidia-container-cli".to_owned());
    };
    row(no_cgroups, Warning, &["no-cgroups = true in /etc/nvidia-container-runtime/config.toml", "may not open"]);
}

#[test]
fn docker_and_its_runtime() {
    let row = |change: fn(&mut Docker), status, words: &[&str]| {
        check("Docker", |facts| change(&mut facts.docker), status, words);
    };
    let reload = "sudo systemctl reload docker (running containers stay up)";
    row(|_| {}, Fine, &["28.5.2: the runtime \"cudaview\" is /usr/bin/cudaview-runtime"]);
    row(|d| d.default_runtime = "cudaview".to_owned(), Fine, &["\"cudaview\" (its default) is"]);
    row(|d| d.rootless = true, Fine, &["28.5.2 (rootless): "]);
    row(|d| d.presence = Presence::Absent, Skipped, &["not installed"]);
    row(|d| d.presence = Presence::Denied, Skipped, &["sudo cudaview doctor"]);
    row(|d| d.presence = Presence::Elsewhere("tcp://h:1".to_owned()), Skipped, &["\"tcp://h:1\" is no socket"]);
    let silent = |d: &mut Docker| d.presence = Presence::Silent("it does not run".to_owned());
    row(silent, Warning, &["it does not run", "sudo systemctl start docker"]);
    let unread = |d: &mut Docker| drop(d.runtimes.remove(0));
    row(unread, Error, &["28.5.2 does not know the runtime \"cudaview\"", "has not read that yet", reload]);
    let other = |d: &mut Docker| d.runtimes[0].path = "/usr/bin/runc".to_owned();
    row(other, Error, &["28.5.2 starts /usr/bin/runc for the runtime \"cudaview\"", reload]);
    let moved = |d: &mut Docker| d.runtimes[0].path = "/opt/bin/cudaview-runtime".to_owned();
    row(moved, Warning, &["28.5.2 still starts /opt/bin/cudaview-runtime", "says /usr/bin/cudaview-runtime", reload]);
    row(|d| d.runtimes = vec![broken(WRAPPER)], Error, &["cudaview-runtime, which is not there"]);
    row(|d| d.file.trouble = Some(trouble()), Error, &["it is broken", "mend it"]);
    row(|d| d.in_file.clear(), Fine, &["\"cudaview\""]);
}

#[test]
fn a_docker_that_was_never_told() {
    fn never(facts: &mut Facts) {
        facts.docker.runtimes.remove(0);
        facts.docker.in_file.clear();
    }
    let added =
        "add \"runtimes\": {\"cudaview\": {\"path\": \"/usr/bin/cudaview-runtime\"}} to /etc/docker/daemon.json";
    let alone = |facts: &mut Facts| {
        never(facts);
        facts.podman = Podman::default();
        facts.containerd = Containerd::default();
    };
    check("Docker", alone, Error, &["28.5.2 does not know cudaview", "unknown or invalid runtime name", added]);
    let denied = |facts: &mut Facts| {
        alone(facts);
        facts.docker.file_is_denied = true;
    };
    check("Docker", denied, Error, &["sudo cudaview doctor says whether /etc/docker/daemon.json has it"]);
    // Another engine calls cudaview.
    check("Docker", never, Warning, &["28.5.2 does not know cudaview", added]);
}

#[test]
fn the_gpus_flag() {
    let row =
        |flag: GpusFlag, status, words: &[&str]| check("--gpus flag", |facts| facts.gpus_flag = flag, status, words);
    let path = || "/usr/bin/nvidia-container-runtime-hook".to_owned();
    let ours = |is_newer_than_daemon| GpusFlag::Ours { path: path(), is_newer_than_daemon };
    let restart = "sudo systemctl restart docker (stops running containers)";
    row(ours(Some(false)), Fine, &["accepted, by cudaview's nvidia-container-runtime-hook"]);
    row(ours(None), Fine, &["accepted"]);
    row(ours(Some(true)), Error, &["not accepted yet", "could not select device driver", restart]);
    row(GpusFlag::Other(path()), Fine, &["accepted, by /usr/bin/nvidia-container-runtime-hook"]);
    row(GpusFlag::Other("/usr/bin/nvidia-cdi-hook".to_owned()), Warning, &["28.5.2 knows no nvidia-cdi-hook"]);
    row(GpusFlag::Broken(path()), Error, &["leads nowhere", "sudo cudaview install gpus-flag, then"]);
    row(GpusFlag::Nobody, Warning, &["not accepted", "sudo cudaview install gpus-flag, then", restart]);
    let newer = |facts: &mut Facts| {
        facts.docker.version = "29.2.0".to_owned();
        facts.gpus_flag = GpusFlag::Other("/usr/bin/nvidia-cdi-hook".to_owned());
    };
    check("--gpus flag", newer, Fine, &["accepted, by /usr/bin/nvidia-cdi-hook"]);
    let live = |facts: &mut Facts| {
        facts.docker.live_restore = true;
        facts.gpus_flag = GpusFlag::Nobody;
    };
    check("--gpus flag", live, Warning, &["running containers stay up: live-restore"]);
    check("--gpus flag", |facts| facts.docker.presence = Presence::Absent, Skipped, &["not installed"]);
    let silent = |facts: &mut Facts| {
        facts.docker.presence = Presence::Silent("x".to_owned());
        facts.gpus_flag = GpusFlag::Nobody;
    };
    check("--gpus flag", silent, Warning, &["sudo cudaview install gpus-flag, then sudo systemctl start docker"]);
}

#[test]
fn podman_and_its_hooks() {
    let row = |change: fn(&mut Podman), status, words: &[&str]| {
        check("podman", |facts| change(&mut facts.podman), status, words);
    };
    let hook = |stage: &str, is_missing, in_shared_folder| HookFile {
        path: "/usr/share/containers/oci/hooks.d/50-cudaview.json".to_owned(),
        stages: vec![stage.to_owned()],
        program: "/usr/bin/cudaview-hook".to_owned(),
        is_missing,
        in_shared_folder,
    };
    let with = |hook: HookFile, status, words: &[&str]| {
        let change = |facts: &mut Facts| {
            facts.podman.runtimes.clear();
            facts.podman.hooks = vec![hook];
        };
        check("podman", change, status, words);
    };
    row(|_| {}, Fine, &["the runtime \"cudaview\"; --device goes through CDI"]);
    row(|p| p.default_runtime = Some("cudaview".to_owned()), Fine, &["(its default); --device"]);
    row(|p| p.installed = false, Skipped, &["not installed"]);
    row(|p| p.trouble = Some(trouble()), Error, &["it is broken"]);
    row(|p| p.runtimes = vec![broken(WRAPPER)], Error, &["which is not there"]);
    row(|p| p.runtimes.clear(), Warning, &["does not know cudaview", "hooks/podman/containers.conf"]);
    with(hook("precreate", false, false), Fine, &["precreate hook"]);
    with(hook("precreate", false, true), Error, &["unknown stage", "sudo mv /usr/share/containers/oci/hooks.d/50-"]);
    with(hook("precreate", true, false), Error, &["names /usr/bin/cudaview-hook, which is not there"]);
    with(hook("createRuntime", false, true), Warning, &["does not know cudaview"]);
}

#[test]
fn containerd_and_its_handlers() {
    let row = |change: fn(&mut Containerd), status, words: &[&str]| {
        check("containerd", |facts| change(&mut facts.containerd), status, words);
    };
    row(|_| {}, Fine, &["the handler \"cudaview\" is /usr/bin/cudaview-runtime"]);
    row(|c| c.installed = false, Skipped, &["not installed"]);
    row(|c| c.handlers.clear(), Skipped, &["no runtime handler"]);
    row(|c| c.trouble = Some(trouble()), Error, &["it is broken"]);
    row(|c| c.handlers = vec![broken(WRAPPER)], Error, &["which is not there"]);
    row(|c| c.is_changed = Some(true), Warning, &["has changed", "sudo systemctl restart containerd"]);
}

#[test]
fn the_host() {
    check("cgroups", |facts| facts.cgroup_version = 1, Fine, &["version 1"]);
    check("cgroups", |facts| facts.cgroup_version = 0, Skipped, &["not mounted"]);
    check("systemd", |_| {}, Fine, &["GPU nodes are in the spec: daemon-reload leaves them"]);
    check("systemd", |facts| facts.systemd = false, Skipped, &["does not run"]);
    let cgroupfs = |facts: &mut Facts| facts.docker.cgroup_driver = "cgroupfs".to_owned();
    check("systemd", cgroupfs, Fine, &["keeps its cgroups itself"]);
    check("systemd", |facts| facts.config.inject = Inject::Nvidia, Warning, &["Failed to initialize NVML"]);
    let nvidia = |facts: &mut Facts| facts.low_level_runtime = Ok("/usr/bin/nvidia-container-runtime".to_owned());
    check("systemd", nvidia, Warning, &["daemon-reload takes them away"]);
    let selinux = |state| move |facts: &mut Facts| facts.selinux = state;
    check("SELinux", selinux(SeLinux::Absent), Skipped, &["not enabled on this host"]);
    check("SELinux", selinux(SeLinux::Permissive), Fine, &["permissive"]);
    check("SELinux", selinux(SeLinux::Enforcing(None)), Fine, &["no switch"]);
    check("SELinux", selinux(SeLinux::Enforcing(Some(true))), Fine, &["may use devices"]);
    let fix = "sudo setsebool -P container_use_devices=true";
    check("SELinux", selinux(SeLinux::Enforcing(Some(false))), Warning, &["may not use devices", fix]);
    check("processes", |facts| facts.processes = None, Skipped, &["needs root: sudo cudaview doctor"]);
    check("processes", |_| {}, Fine, &["none has a GPU open"]);
    let process = |pid, in_container| Process { pid, name: "python3".to_owned(), in_container };
    let some = |facts: &mut Facts| facts.processes = Some(vec![process(7, true), process(8, false)]);
    check("processes", some, Fine, &["1 in containers have a GPU open, 1 outside: 8 python3"]);
}
