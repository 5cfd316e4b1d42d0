# Shared by the scripts in this directory: the release, the cache and reporting.
# Sourced, never run; the sourcing script sets $here.
# shellcheck shell=bash

say() { echo "e2e/kubernetes: $*" >&2; }

fail() {
    say "error: $*"
    exit 1
}

# The Go module that pins the release: this directory, or the one of another minor release in it.
module=${here:?}${MCO_E2E_KUBERNETES:+/$MCO_E2E_KUBERNETES}
[ -f "$module/go.mod" ] || fail "no release is pinned in $module (see MCO_E2E_KUBERNETES)"
KUBERNETES_VERSION=$(sed -nE 's#^(require)?[[:space:]]+k8s\.io/kubernetes (v[0-9.]+)( .*)?$#\2#p' "$module/go.mod")
[ -n "$KUBERNETES_VERSION" ] || fail "$module/go.mod names no release of k8s.io/kubernetes"

# The cache entry is keyed by what decides its content: the release and the exact versions of every module.
kubernetes_bin() {
    local sums
    sums=$(sha256sum "$module/go.sum" | cut -c1-12)
    echo "${MCO_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mco-e2e}/kubernetes-$KUBERNETES_VERSION-$sums"
}
