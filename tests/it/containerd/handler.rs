//! The shipped files that make containerd know the runtime handler.

use std::fs;
use std::process::Command;

use crate::world::command::run;
use crate::world::containerd::{Containerd, Version, plugin, shipped};
use crate::world::{find_program, repository, require};

/// What Kubernetes is told is what the engines are told.
#[test]
fn the_shipped_files_name_one_handler() {
    let text = |file: &str| fs::read_to_string(repository().join("hooks").join(file)).unwrap();
    let has = |file: &str, line: &str| assert!(text(file).lines().any(|found| found.trim() == line), "{file}: {line}");
    has("kubernetes/runtimeclass.yaml", "handler: cudaview");
    has("kubernetes/runtimeclass.yaml", "name: cudaview");
    has("kubernetes/pod.yaml", "runtimeClassName: cudaview");
    has("containerd/config-v2.toml", "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.cudaview]");
    has("containerd/config-v3.toml", "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.cudaview]");
    has("crio/50-cudaview.conf", "[crio.runtime.runtimes.cudaview]");
    has("crio/50-cudaview.conf", "runtime_path = \"/usr/bin/cudaview-runtime\"");
}

/// Why `config-v2.toml` is to be merged, and `config-v3.toml` may be a file of its own.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn containerd_before_version_2_forgets_its_settings_where_a_file_is_imported() {
    require(&["containerd"]);
    let version = Containerd::program_version();
    let folder = tempfile::tempdir().unwrap();
    let handler = repository().join("hooks/containerd").join(shipped(version));
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    fs::copy(handler, folder.path().join("conf.d/50-cudaview.toml")).unwrap();
    let number = if version < Version(2, 0) { 2 } else { 3 };
    let main = format!(
        "version = {number}\nimports = ['{}/conf.d/*.toml']\n[plugins.'{}']\nenable_selinux = true\n",
        folder.path().display(),
        plugin(version),
    );
    let file = folder.path().join("config.toml");
    fs::write(&file, main).unwrap();
    let mut dump = Command::new(find_program("containerd"));
    let dump = run(dump.arg("--config").arg(&file).args(["config", "dump"])).ok().stdout;
    let has = |text: &str| dump.lines().any(|line| line.trim().replace('\'', "\"") == text);
    assert!(has("BinaryName = \"/usr/bin/cudaview-runtime\""), "{dump}");
    assert_eq!(has("enable_selinux = true"), version >= Version(2, 0), "{dump}");
}
