//! `config.json` as an engine writes it, and the edits that a GPU host's engine makes to it.

use serde_json::{Value, json};

/// Docker's default capabilities (moby `daemon/pkg/oci/caps/defaults.go`).
const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// A container's specification in the shape that Docker gives it, without any GPU.
pub(crate) fn template(args: &[&str], env: &[&str], cgroups_path: &str) -> Value {
    let mut all_env = vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=box"];
    all_env.extend(env);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": all_env,
            "cwd": "/",
            "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
            "noNewPrivileges": false
        },
        "root": {"path": "rootfs"},
        "hostname": "box",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
             "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]}
        ],
        "linux": {
            "cgroupsPath": cgroups_path,
            "resources": {
                "devices": [
                    {"allow": false, "access": "rwm"},
                    {"allow": true, "type": "c", "access": "m"},
                    {"allow": true, "type": "b", "access": "m"},
                    {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 5, "minor": 2, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 136, "access": "rwm"}
                ]
            },
            "namespaces": [
                {"type": "mount"}, {"type": "network"}, {"type": "uts"}, {"type": "pid"}, {"type": "ipc"}
            ],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/sys/firmware"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"]
        }
    })
}

/// What an engine with NVIDIA's toolkit (CDI) adds for these GPUs: their nodes and the control nodes, with the rules.
pub(crate) fn grant_nodes(spec: &mut Value, minors: &[u32]) {
    for minor in minors {
        add_device(spec, &format!("/dev/nvidia{minor}"), 195, *minor);
    }
    add_device(spec, "/dev/nvidiactl", 195, 255);
    add_device(spec, "/dev/nvidia-uvm", 510, 0);
}

/// Adds a character device and the rule that lets the container open it.
pub(crate) fn add_device(spec: &mut Value, path: &str, major: u32, minor: u32) {
    push(
        &mut spec["linux"]["devices"],
        json!({"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0}),
    );
    push(
        &mut spec["linux"]["resources"]["devices"],
        json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rw"}),
    );
}

/// Adds an entry to a hook stage, `createRuntime` for example.
pub(crate) fn add_hook(spec: &mut Value, stage: &str, hook: Value) {
    push(&mut spec["hooks"][stage], hook);
}

/// Appends to an array, which is made when it is not there.
pub(crate) fn push(array: &mut Value, item: Value) {
    if array.is_null() {
        *array = json!([]);
    }
    array.as_array_mut().expect("an array").push(item);
}
