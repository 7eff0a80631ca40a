//! A container of our own making, run by a real runtime.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::HOOK;

/// Shows what the container has, and whether its device cgroup lets it through:
/// no driver answers for these numbers, so "No such device" is yes, and "not permitted" is no.
const LOOK: &str = "for n in /dev/nvidia1 /dev/nvidia-caps/nvidia-cap2; do \
    [ -c $n ] && stat -c '%n %t:%T %a %u:%g' $n; done; cat /dev/nvidia1 2>&1; echo started";

/// A bundle with a busybox, in a folder of its own.
pub(crate) struct Bundle {
    dir: TempDir,
    id: String,
    pub(crate) config: Value,
}

impl Bundle {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = TempDir::with_prefix("cudaview-hook-").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let rootfs = dir.path().join("rootfs");
        for folder in ["bin", "proc", "dev"] {
            fs::create_dir_all(rootfs.join(folder)).unwrap();
        }
        fs::copy("/bin/busybox", rootfs.join("bin/busybox")).expect("busybox-static is installed");
        for applet in ["sh", "cat", "stat", "ls"] {
            symlink("busybox", rootfs.join("bin").join(applet)).unwrap();
        }
        let id = format!("cudaview-hook-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/bin"], "args": ["sh", "-c", LOOK]},
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
            ],
            "hooks": {"createRuntime": []},
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
                "cgroupsPath": format!("/{id}"),
                "devices": [],
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        });
        Self { dir, id, config }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn push(&mut self, pointer: &str, value: Value) {
        self.config.pointer_mut(pointer).unwrap().as_array_mut().unwrap().push(value);
    }

    /// Adds our hook, as the wrapper does.
    pub(crate) fn hook(&mut self, options: &[&str]) {
        let root = format!("--root={}", self.path("rootfs").display());
        let mut args = vec!["cudaview-hook", "createRuntime", root.as_str(), "--record={\"schemaVersion\":1}"];
        args.extend(options);
        let entry = json!({"path": HOOK, "args": args, "env": ["PATH=/bin"], "timeout": 20});
        self.push("/hooks/createRuntime", entry);
    }

    /// Has something done in the container's mount namespace before our hook comes; `$R` is the root.
    pub(crate) fn before(&mut self, script: &str) {
        let enter = "pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/'); exec nsenter -t $pid -m sh -c \"$0\"";
        let script = format!("R={}; {script}", self.path("rootfs").display());
        let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
        self.push(
            "/hooks/createRuntime",
            json!({"path": "/bin/sh", "args": ["sh", "-c", enter, script], "env": [path]}),
        );
    }

    pub(crate) fn allow_gpu1(&mut self) {
        let rule = json!({"allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw"});
        self.push("/linux/resources/devices", rule);
    }

    /// Runs the container under a command that ends with the runtime's name.
    pub(crate) fn run(&self, runtime: &[&str]) -> Output {
        fs::write(self.path("config.json"), self.config.to_string()).unwrap();
        assert!(!Path::new("/dev/nvidia1").exists(), "this test needs a host without GPU nodes");
        let start = Instant::now();
        let output = Command::new("timeout")
            .args(["-k", "5", "60"])
            .args(runtime)
            .arg("--root")
            .arg(self.path("state"))
            .arg("run")
            .arg("--bundle")
            .arg(self.dir.path())
            .arg(&self.id)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
        assert!(!Path::new("/dev/nvidia1").exists(), "a node was made on the host");
        output
    }

    /// Creates the container without starting it, and returns its process.
    pub(crate) fn create(&self) -> u32 {
        fs::write(self.path("config.json"), self.config.to_string()).unwrap();
        let pid_file = self.path("pid");
        let mut runc = self.runc("create");
        runc.arg("--bundle").arg(self.dir.path()).arg("--pid-file").arg(&pid_file).arg(&self.id);
        // Its output would be the container's, and open as long as that lives.
        assert!(runc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()
    }

    /// Ends a container that was created.
    pub(crate) fn delete(&self) {
        assert!(self.runc("delete").arg("--force").arg(&self.id).status().unwrap().success());
    }

    pub(crate) fn runc(&self, verb: &str) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(self.path("state")).arg(verb);
        runc
    }

    /// Runs it under runc, which must start it, and returns what it printed.
    pub(crate) fn starts(&self) -> String {
        started(&self.run(&["runc"]))
    }

    /// Runs it under runc, which must not start it, and returns runc's message.
    pub(crate) fn refused(&self) -> String {
        let output = self.run(&["runc"]);
        let (out, err) = texts(&output);
        assert!(!output.status.success() && !out.contains("started"), "{out}\n{err}");
        // A warning of runc's own, on cgroup version 2.
        let ours = err.lines().filter(|line| !line.contains("unable to get oom kill count"));
        let ours = ours.collect::<Vec<_>>().join("\n").to_lowercase();
        for word in ["permission denied", "no such file", "is a directory", "not a directory"] {
            assert!(!ours.contains(word), "docker would take {word:?} for something else: {err}");
        }
        err
    }
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

pub(crate) fn started(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success() && out.ends_with("started\n"), "{out}\n{err}");
    out
}

impl Drop for Bundle {
    /// A test that failed between create and delete leaves no container behind.
    fn drop(&mut self) {
        let _ = self.runc("delete").arg("--force").arg(&self.id).stderr(Stdio::null()).status();
    }
}
