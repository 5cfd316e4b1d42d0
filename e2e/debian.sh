# Shared by the suites that boot or provision Debian machines: packages of this machine, and cached Debian roots.
# Sourced, never run; the sourcing script sets $work and defines say and fail.
# shellcheck shell=bash

CACHE=${MCO_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mco-e2e}
DEBIAN_SUITE=bookworm

# install_packages PACKAGE...: installs the Debian packages that this machine does not have.
install_packages() {
    [ "$(id -u)" = 0 ] || fail "this suite needs root"
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    say "installing ${missing[*]}"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
        >"${work:?}/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2; fail "cannot install ${missing[*]}"; }
}

# Prints the mirror that this machine's own apt uses for the suite. MCO_E2E_MIRROR names another one.
debian_mirror() {
    local mirror=${MCO_E2E_MIRROR:-}
    [ -n "$mirror" ] || mirror=$(configured_mirror)
    # Apt does not remember the name of a suite whose index it has not downloaded.
    [ -n "$mirror" ] || { apt-get update -qq >&2 && mirror=$(configured_mirror); }
    [ -n "$mirror" ] || fail "apt has no source for $DEBIAN_SUITE: name a mirror in MCO_E2E_MIRROR"
    echo "$mirror"
}

configured_mirror() {
    # shellcheck disable=SC2016 # the format is apt's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $DEBIAN_SUITE" | head -n 1
}

# debian_root_archive NAME PACKAGES: prints the cached archive of a Debian root with these packages (separated by commas);
# creates it the first time.
debian_root_archive() {
    local archive=$CACHE/debian-$DEBIAN_SUITE-$1.tar
    mkdir -p "$CACHE"
    if [ ! -f "$archive" ]; then
        say "making a Debian root (once)"
        local into=${work:?}/debian
        debootstrap --variant=minbase --include="$2" "$DEBIAN_SUITE" "$into" "$(debian_mirror)" >"$work/debootstrap.log" 2>&1 \
            || { tail -n 20 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
        rm -rf "$into"/var/cache/apt/archives/*.deb "$into"/var/lib/apt/lists/*
        tar -C "$into" -cf "$archive.$$" .
        mv "$archive.$$" "$archive"
        rm -rf "$into"
    fi
    echo "$archive"
}
