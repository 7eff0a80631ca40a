//! What containerd is started with: its namespace, its configuration, and the low-level runtime.

use std::fs;
use std::path::Path;

use super::{PAUSE, Version, reference};
use crate::world::{Install, repository};

/// Runs in the new namespace and becomes containerd. Arguments: the test's folder, a folder with GPU nodes, containerd.
pub(super) const WORLD: &str = r#"
set -eu
dev=$1/dev
mkdir "$dev"
mount -t tmpfs -o mode=755,nosuid dev "$dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd /dev/stdin /dev/stdout /dev/stderr "$dev"
cp -a "$2"/. "$dev"
ln -s pts/ptmx "$dev/ptmx"
mkdir "$dev/pts" "$dev/shm" "$dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount --move "$dev" /dev
mkdir -p /run/cdi /run/containerd
mount --bind "$1/cdi" /run/cdi
mount -t tmpfs -o mode=755 none /run/containerd
[ ! -d /sys/fs/cgroup/unified ] || mount -t tmpfs none /sys/fs/cgroup/unified
exec "$3" --config "$1/config.toml" --log-level info
"#;

/// A low-level runtime where some cgroup controllers are missing, as in a private view of cgroup version 2: containerd
/// always asks for weights and limits, which the plain runtime fails at too. It keeps what it was given.
pub(super) const LOW_LEVEL: &str = r#"#!/bin/sh
create= bundle=. before=
for argument; do
    [ "$before" != --bundle ] || bundle=$argument
    [ "$argument" != create ] || create=1
    before=$argument
done
if [ "$create" ]; then
    config=$bundle/config.json seen=$0.seen/${before}.json
    cat "$config" >"$seen" && jq -c 'del(.linux.resources | .blockIO, .memory, .cpu, .pids, .unified)' "$seen" >"$config" ||
        exit 99
fi
exec RUNTIME "$@"
"#;

/// The shipped runtime handler, with the path of this installation, and what the test needs beside.
///
/// All of it is one file: containerd before version 2 takes an imported file's settings of a plugin in the place of all
/// of the main file's.
pub(super) fn configuration(path: &Path, install: &Install, version: Version) -> String {
    let (file, pause) = (shipped(version), reference(PAUSE));
    let handler = fs::read_to_string(repository().join("hooks/containerd").join(file)).unwrap();
    assert!(handler.contains("\"/usr/bin/cudaview-runtime\""), "{handler}");
    let handler = handler.replace("/usr/bin/cudaview-runtime", install.runtime().to_str().unwrap());
    let (head, handler) = handler.split_once("\n[").expect("the version, and then a table");
    let plugin = plugin(version);
    let settings = match version {
        Version(1, 6) => format!("[plugins.'{plugin}']\nsandbox_image = '{pause}'\n"),
        Version(1, _) => format!("[plugins.'{plugin}']\nsandbox_image = '{pause}'\nenable_cdi = true\n"),
        _ => format!(
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{pause}'\n\n[plugins.'{plugin}']\n"
        ),
    };
    format!(
        "{head}\n\
        root = '{path}/root'\n\
        state = '{path}/state'\n\
        disabled_plugins = ['io.containerd.nri.v1.nri']\n\
        [grpc]\n\
        address = '{path}/c.sock'\n\
        [ttrpc]\n\
        address = '{path}/c.sock.ttrpc'\n\
        [plugins.'io.containerd.internal.v1.opt']\n\
        path = '{path}/opt'\n\
        {settings}\
        restrict_oom_score_adj = true\n\
        [plugins.'{plugin}'.containerd.runtimes.runc]\n\
        runtime_type = 'io.containerd.runc.v2'\n\
        [plugins.'{plugin}'.containerd.runtimes.runc.options]\n\
        BinaryName = '{path}/low-level'\n\
        [{handler}",
        path = path.display(),
    )
}

/// The shipped file for a version of containerd.
pub(crate) fn shipped(version: Version) -> &'static str {
    if version < Version(2, 0) { "config-v2.toml" } else { "config-v3.toml" }
}

/// The plugin whose settings have the runtime handlers.
pub(crate) fn plugin(version: Version) -> &'static str {
    if version < Version(2, 0) { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" }
}
