# Shared by the scripts in this directory: the release, the cache and reporting.
# Sourced, never run; the sourcing script sets $here.
# shellcheck shell=bash

say() { echo "e2e/kubernetes: $*" >&2; }

fail() {
    say "error: $*"
    exit 1
}

KUBERNETES_VERSION=$(sed -nE 's#^(require)?[[:space:]]+k8s\.io/kubernetes (v[0-9.]+)( .*)?$#\2#p' "${here:?}/go.mod")
[ -n "$KUBERNETES_VERSION" ] || fail "go.mod names no release of k8s.io/kubernetes"

# The cache entry is keyed by what decides its content: the release and the exact versions of every module.
kubernetes_bin() {
    local sums
    sums=$(sha256sum "${here:?}/go.sum" | cut -c1-12)
    echo "${MCO_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mco-e2e}/kubernetes-$KUBERNETES_VERSION-$sums"
}
