# Sourced by the scripts that make a world for the tests: `tests/run`, `tests/engines`.

make_node() { # NAME MODE MAJOR MINOR
    mknod -m "$2" "$1" c "$3" "$4"
}

# Mounts a /dev with only what containers and engines need; no GPU nodes: tests make those in folders of their own.
private_dev() { # FOLDER
    local dev=$1 fuse='' kmsg=''
    if [ -e /dev/fuse ]; then fuse=1; fi
    if [ -e /dev/kmsg ]; then kmsg=1; fi
    mount -t tmpfs -o mode=755,nosuid,size=64m dev "$dev"
    make_node "$dev/null" 666 1 3
    make_node "$dev/zero" 666 1 5
    make_node "$dev/full" 666 1 7
    make_node "$dev/random" 666 1 8
    make_node "$dev/urandom" 666 1 9
    make_node "$dev/tty" 666 5 0
    if [ "$fuse" ]; then make_node "$dev/fuse" 666 10 229; fi
    if [ "$kmsg" ]; then make_node "$dev/kmsg" 644 1 11; fi
    ln -s /proc/self/fd "$dev/fd"
    ln -s /proc/self/fd/0 "$dev/stdin"
    ln -s /proc/self/fd/1 "$dev/stdout"
    ln -s /proc/self/fd/2 "$dev/stderr"
    ln -s pts/ptmx "$dev/ptmx"
    mkdir "$dev/pts" "$dev/shm" "$dev/mqueue"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
    mount -t tmpfs -o mode=1777,nosuid,nodev shm "$dev/shm"
    mount -t mqueue mqueue "$dev/mqueue"
}
