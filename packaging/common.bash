# Sourced by the scripts of this repository that install, build or run something.
# `me` is the name of the script, for its messages.

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 2; }

# sudo hides the caller's Rust: look where rustup puts it.
find_cargo() {
    command -v cargo >/dev/null && return
    local user home
    for user in "${SUDO_USER:-root}" root; do
        home=$(getent passwd "$user" | cut -d: -f6)
        if [ -n "$home" ] && [ -x "$home/.cargo/bin/cargo" ]; then
            export PATH="$home/.cargo/bin:$PATH"
            export CARGO_HOME=${CARGO_HOME:-$home/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
            return
        fi
    done
    die 'cargo was not found; install Rust first (https://rustup.rs)'
}

# From lines `PROGRAM-OR-FILE PACKAGE` on standard input, the packages whose program is not there.
missing_packages() {
    local what package
    while read -r what package; do
        case $what in
            /*) [ -e "$what" ] || echo "$package" ;;
            *) command -v "$what" >/dev/null || echo "$package" ;;
        esac
    done | sort -u
}

# Installs what is missing from such a list, which is the argument. Package lists are fetched only where they have to be.
install_packages() {
    local missing
    missing=$(missing_packages <<<"$1")
    [ -z "$missing" ] && return
    command -v apt-get >/dev/null || die 'not installed, and there is no apt-get:' $missing
    say 'installing:' $missing
    # A package whose service cannot be started here (no systemd, a container) is installed all the same.
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 RUNLEVEL=1
    apt-get install -y -qq --no-install-recommends $missing >&2 || {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $missing >&2
    } || say 'apt-get reported a problem; going on with what is there'
    hash -r
    missing=$(missing_packages <<<"$1")
    [ -z "$missing" ] || die 'could not be installed:' $missing
}

# Built files belong to whoever called sudo, so that a later build of theirs works.
return_target() { # REPOSITORY
    local target=${CARGO_TARGET_DIR:-$1/target}
    if [ -n "${SUDO_UID:-}" ] && [ "$SUDO_UID" != 0 ] && [ -d "$target" ]; then
        chown -hR "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$target" || true
    fi
}

# Runs a script again, inside private mount and pid namespaces, with a new folder as its first argument; what it mounts
# there, and every process that it leaves, goes with them. Cgroups of its name, `$cgroup`, are removed.
# In the background, so that a signal ends the world at once: unshare itself blocks SIGTERM, and init ignores SIGINT.
in_own_world() { # SCRIPT ARGUMENTS…
    local script=$1 world inside code=0 ended=0
    shift
    world=$(mktemp -d)
    cgroup=cudaview-${me##*/}-$$
    export cgroup
    unshare -m -p -f --kill-child --mount-proc "$script" --inside "$world" "$@" </dev/null &
    inside=$!
    trap 'kill -KILL "$inside" 2>/dev/null || true; code=130' INT TERM HUP
    wait "$inside" || ended=$?
    if [ "$code" = 0 ]; then code=$ended; fi
    # A signal ends the first wait before the world has ended.
    wait "$inside" 2>/dev/null || true
    remove_cgroups "$cgroup"
    # Empty by now: what was mounted on it went with the namespace.
    rmdir "$world"
    return "$code"
}

# The processes are gone or going: a moment later their cgroups can be removed.
remove_cgroups() { # NAME
    local top left _try
    for _try in 1 2 3 4 5 6 7 8 9 10; do
        left=0
        for top in "/sys/fs/cgroup/$1" /sys/fs/cgroup/*/"$1"; do
            if [ -d "$top" ]; then
                find "$top" -depth -type d -exec rmdir {} \; 2>/dev/null || true
                if [ -d "$top" ]; then left=1; fi
            fi
        done
        if [ "$left" = 0 ]; then return 0; fi
        sleep 0.2
    done
    say "left behind: cgroups called $1"
}
