//! Shell scripts for [`Dockerd::start_in`](super::Dockerd::start_in): what a daemon alone is to see of its machine.
//!
//! `$0` is the daemon's folder. A script runs again when the daemon is started again.

use super::Install;

/// A `/dev` with the nodes of the simulated host's GPUs in it.
pub(crate) fn gpu_nodes(install: &Install) -> String {
    format!(
        r#"
dev=$0/dev
mkdir -p "$dev"
mount -t tmpfs -o mode=755,nosuid dev "$dev"
for name in null zero full random urandom tty fuse fd stdin stdout stderr; do
    [ ! -e "/dev/$name" ] || cp -a "/dev/$name" "$dev"
done
cp -a '{nodes}'/. "$dev"
ln -s pts/ptmx "$dev/ptmx"
mkdir "$dev/pts" "$dev/shm" "$dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev shm "$dev/shm"
mount -t mqueue mqueue "$dev/mqueue"
mount --move "$dev" /dev
"#,
        nodes = install.dev_root().join("dev").display()
    )
}

/// A user more, who has 65,536 subordinate ids from `first` on.
pub(crate) fn subordinate_user(name: &str, first: u32) -> String {
    format!(
        r#"
mkdir -p "$0/etc"
with() {{
    {{ cat "/etc/$1"; echo "$2"; }} >"$0/etc/$1"
    mount --bind "$0/etc/$1" "/etc/$1"
}}
with passwd '{name}:x:61235:61235::/:/bin/sh'
with group '{name}:x:61235:'
with subuid '{name}:{first}:65536'
with subgid '{name}:{first}:65536'
"#
    )
}

/// A `/usr/bin` that can be written, without the machine's own being changed.
pub(crate) fn own_programs() -> String {
    r#"
mkdir -p "$0/programs" "$0/programs.work"
mount -t overlay -o "lowerdir=/usr/bin,upperdir=$0/programs,workdir=$0/programs.work" none /usr/bin
"#
    .to_owned()
}
