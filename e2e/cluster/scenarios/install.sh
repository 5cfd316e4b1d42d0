# shellcheck shell=bash

profile_scenarios() { # PROFILE
    case $1 in
        quick | full) printf '%s\n' installs_as_documented ;;
        *) fail "unknown profile $1 (expected quick or full)" ;;
    esac
}

installs_as_documented() {
    local worker
    for worker in $WORKERS; do
        kubectl label node "$worker" node-role.kubernetes.io/worker= >/dev/null
    done
    mco install --image "$MCO_IMAGE" >"$work/install.yaml"
    kubectl apply --server-side -f "$work/install.yaml" >"$work/install.log" 2>&1 || { cat "$work/install.log" >&2; fail "apply failed"; }
    eventually 120 "all pods run" pods_ready 7
    kubectl -n "$NAMESPACE" get pods -o wide >&2
}
