//! What `install` writes, read by the engines themselves. `/etc` is an overlay of the test's own.

use std::path::Path;
use std::process::Command;

use crate::world::command::{Ran, run};
use crate::world::containerd::{Containerd, Version, plugin};
use crate::world::{A100X4, Install, find_program, require};

/// Runs a script as root where `/etc` can be written; `cudaview` is the program of an installation.
#[track_caller]
fn world(install: &Install, folder: &Path, script: &str) -> Ran {
    let overlay = r#"
mkdir -p "$0/etc" "$0/etc.work"
mount -t overlay -o "lowerdir=/etc,upperdir=$0/etc,workdir=$0/etc.work" none /etc
"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc"]);
    command.arg(format!("{overlay}\nPATH={}:$PATH\n{script}", install.prefix().join("bin").display())).arg(folder);
    run(&mut command)
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn podman_reads_what_install_writes() {
    require(&["podman", "unshare"]);
    let (install, folder) = (Install::new(A100X4, ""), tempfile::tempdir().unwrap());
    let info = r#"info() {
    podman --root "$0/storage" --runroot "$0/run" "$@" info --format '{{.Host.OCIRuntime.Name}} {{.Host.OCIRuntime.Path}}'
}
"#;
    let script = r#"
rm -f /etc/containers/containers.conf.d/*
printf '[engine]\nruntime = "runc"\nruntime_supports_json = ["crun", "runc", "mine"]\n' >/etc/containers/containers.conf
before=$(info)
! podman --root "$0/storage" --runroot "$0/run" --runtime cudaview info 2>/dev/null || exit 9
cudaview install podman >&2
test "$(info)" = "$before"
info --runtime cudaview
cudaview install podman --default-runtime >&2
info
grep -q '"mine", "cudaview"' /etc/containers/containers.conf.d/50-cudaview.conf
cudaview uninstall podman --force >&2
test "$(info)" = "$before"
test ! -e /etc/containers/containers.conf.d/50-cudaview.conf
"#;
    let ran = world(&install, folder.path(), &format!("{info}{script}")).ok();
    let line = format!("cudaview {}\n", install.runtime().display());
    assert_eq!(ran.stdout, line.repeat(2), "{ran}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_reads_what_install_writes() {
    require(&["containerd", "unshare"]);
    let version = Containerd::program_version();
    let install = Install::new(A100X4, "");
    let plugin = plugin(version);
    let number = if version < Version(2, 0) { 2 } else { 3 };
    let own = format!(
        "[plugins.'{plugin}']\nenable_selinux = true\n[plugins.'{plugin}'.containerd]\n  \
                       default_runtime_name = 'runc' # ours\n"
    );
    let import = "imports = ['/etc/containerd/conf.d/*.toml']\n";
    let files = [
        None,
        Some(format!("version = {number}\n{own}")),
        Some(format!("version = {number}\n{import}{own}")),
        // What containerd 1 has by default, and containerd 2 still reads.
        Some("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_selinux = true\n".to_owned()),
    ];
    for file in files {
        let folder = tempfile::tempdir().unwrap();
        let before = folder.path().join("before.toml");
        let prepare = match &file {
            Some(text) => {
                std::fs::write(&before, text).unwrap();
                "mkdir -p /etc/containerd; cp \"$0/before.toml\" /etc/containerd/config.toml"
            }
            None => "rm -rf /etc/containerd",
        };
        let back = if file.is_some() {
            "cmp \"$0/before.toml\" /etc/containerd/config.toml; test \"$(ls -A /etc/containerd)\" = config.toml"
        } else {
            "test ! -e /etc/containerd"
        };
        let script = format!(
            "{prepare}\ncudaview install containerd --default-runtime >&2\n{} config dump\ncudaview uninstall containerd --force >&2\n{back}\n",
            find_program("containerd").display()
        );
        let ran = world(&install, folder.path(), &script).ok();
        let has = |text: &str| ran.stdout.lines().any(|line| line.trim().replace('\'', "\"") == text);
        assert!(has(&format!("BinaryName = \"{}\"", install.runtime().display())), "{file:?}: {ran}");
        assert!(has("default_runtime_name = \"cudaview\""), "{file:?}: {ran}");
        assert_eq!(has("enable_selinux = true"), file.is_some(), "{file:?}: {ran}");
    }
}
