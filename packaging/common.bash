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
