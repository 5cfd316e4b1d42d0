# What scenarios ask and wait for. Sourced by run.
# shellcheck shell=bash

PREFIX=machineconfiguration.openshift.io
NAMESPACE=openshift-machine-config-operator
# A node through drain, reboot and uncordon, with the kubelet's slow start on a machine that shares two cores with all others.
NODE_PATIENCE=300

# eventually SECONDS WHAT COMMAND...: repeats the command until it succeeds.
eventually() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "$what: never came true: $*"
        sleep 0.5
    done
}

expect() { # WHAT COMMAND...: the command must succeed
    local what=$1
    shift
    "$@" >/dev/null 2>&1 || fail "$what: $*"
}

exits() { # CODE WHAT COMMAND...: the command must exit with this code
    local code=$1 what=$2 status=0
    shift 2
    "$@" >"$work/exits.log" 2>&1 || status=$?
    [ "$status" = "$code" ] || { cat "$work/exits.log" >&2; fail "$what: exit code $status, not $code: $*"; }
}

annotation() { kubectl get node "$1" -o "jsonpath={.metadata.annotations.${PREFIX//./\\.}/$2}"; }
is_done() { [ "$(annotation "$1" state)" = Done ] && [ "$(annotation "$1" currentConfig)" = "$(annotation "$1" desiredConfig)" ]; }
target_of() { kubectl get mcp "$1" -o 'jsonpath={.spec.configuration.name}'; }

# The pool has rendered what its sources say and all its nodes have it.
pool_is_updated() { # POOL
    [ "$(kubectl get mcp "$1" -o 'jsonpath={.status.conditions[?(@.type=="Updated")].status}')" = True ] &&
        [ "$(target_of "$1")" = "$(kubectl get mcp "$1" -o 'jsonpath={.status.configuration.name}')" ]
}

# rolls_out POOL COMMAND...: the command changes the pool's target, which then reaches all nodes.
rolls_out() {
    local pool=$1 before
    before=$(target_of "$pool")
    shift
    "$@" >/dev/null
    eventually 60 "pool $pool has a new target" target_differs "$pool" "$before"
    eventually "$NODE_PATIENCE" "pool $pool is updated" pool_is_updated "$pool"
}
target_differs() { [ -n "$(target_of "$1")" ] && [ "$(target_of "$1")" != "$2" ]; }

pods_ready() { # COUNT
    local states
    states=$(kubectl -n "$NAMESPACE" get pods --no-headers 2>/dev/null | awk '{print $2, $3}')
    [ "$(grep -c '^\([0-9]*\)/\1 Running$' <<<"$states")" = "$1" ] && [ "$(wc -l <<<"$states")" = "$1" ]
}

start_watcher() {
    (exec ip netns exec "$HUB" python3 e2e/cluster/watcher.py "$work" "$control_plane_bin/kubectl" \
        --kubeconfig "$work/admin.conf") >"$work/watcher.log" 2>&1 &
    watcher_pid=$!
    eventually 30 "the watcher sees the cluster" test -s "$work/counts.json"
}

watcher_holds() {
    kill -0 "$watcher_pid" 2>/dev/null || fail "the watcher ended: $(cat "$work/watcher.log")"
    [ ! -s "$work/violations" ] || fail "violated: $(cat "$work/violations")"
}

stop_watcher() {
    kill "$watcher_pid"
    watcher_pid=
    say "watched: $(cat "$work/counts.json")"
}

# cordons_of NODE: how often the watcher has seen it become unschedulable.
cordons_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["cordons_of"].get(sys.argv[2], 0))' "$work/counts.json" "$1"; }

# requests_since TIME: the requests of each component since that time, without watches, leases and events. The API servers
# record them in their audit logs.
requests_since() {
    local machine logs=()
    for machine in $CONTROL_PLANES; do
        logs+=("$work/$machine/var/log/kubernetes/audit.log")
    done
    python3 e2e/cluster/requests.py "$1" "${logs[@]}"
}
now() { date -u +%Y-%m-%dT%H:%M:%S; }

expected() { echo "$1 $2" >>"$work/expected"; }
no_longer_expected() { sed -i "\\#^$1 $2\$#d" "$work/expected"; }

machine_config() { # NAME POOL PATH CONTENT
    kubectl apply -f - <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: $1
  labels: {machineconfiguration.openshift.io/role: $2}
spec:
  config:
    ignition: {version: 3.2.0}
    storage: {files: [{path: $3, mode: 420, overwrite: true, contents: {source: "data:,$4"}}]}
END
}

collect_logs() {
    local machine pod
    kubectl --request-timeout=10s get --raw /readyz >/dev/null || return
    kubectl get nodes,mcp,pods -A -o wide >"$work/state.txt" 2>&1
    kubectl get events -A --sort-by=.lastTimestamp >"$work/events.txt" 2>&1
    kubectl get nodes -o yaml >"$work/nodes.yaml" 2>&1
    for pod in $(kubectl -n "$NAMESPACE" get pods -o name 2>/dev/null); do
        kubectl -n "$NAMESPACE" logs --tail 500 "$pod" >"$work/$(basename "$pod").log" 2>&1
    done
    for machine in "${!machine_pids[@]}"; do
        inside "$machine" journalctl --no-pager -n 500 >"$work/$machine.journal" 2>&1
    done
    tail -n 40 "$work/state.txt" >&2
}
