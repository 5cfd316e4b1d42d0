# The two clusters on which the story is played: how each is started and what only an administrator of it can do. Both have
# three masters and three workers, later four, each a directory with a real daemon. Sourced by "run".
# shellcheck shell=bash
#
# After start_* there are KUBECONFIG and $machines, the directory with the roots of the nodes.

MASTERS="master-0 master-1 master-2"
WORKERS="worker-0 worker-1 worker-2"

# background LOG COMMAND...: its process is $!, and ends with this suite.
background() {
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null &
    echo $! >>"${work:?}/pids"
}

# end PID: kills it and waits. Processes of other parents cannot be waited for, so it polls.
end() {
    local deadline=$((SECONDS + PATIENCE))
    kill "$1" 2>/dev/null || return 0
    while kill -0 "$1" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do
        sleep 0.1
    done
}

end_all() {
    local pids pid
    mapfile -t pids <"$work/pids"
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]}"; do
        end "$pid"
    done
    : >"$work/pids"
}

start_real() {
    local node
    e2e/kubernetes/start "$work/real/kubernetes"
    export KUBECONFIG=$work/real/kubernetes/kubeconfig
    machines=$work/real/machines
    webhook=127.0.0.1:$(free_port)
    start_operator
    background "$work/real/controller.log" "$MCO" controller
    for node in $MASTERS; do
        register "$node" master control-plane
    done
    for node in $WORKERS; do
        register "$node" worker
    done
    eventually "configs for all roles" all_rendered
    for node in $MASTERS $WORKERS; do
        start_machine "$node" "${node%-*}"
    done
    eventually "the webhook" bash -c "! kubectl create --dry-run=server -f e2e/story/objects/50-bad.yaml"
}

start_operator() {
    background "$work/real/operator.log" "$MCO" operator --base openshift --apiserver-url https://127.0.0.1:6443 \
        --webhook-listen "$webhook" --webhook-url "https://$webhook"
    echo $! >"$work/real/operator.pid"
}

# register NODE ROLE...: simulates the kubelet.
register() {
    local node=$1 labels="kubernetes.io/hostname: $1, kubernetes.io/os: linux" role
    shift
    for role in "$@"; do
        labels+=", node-role.kubernetes.io/$role: ''"
    done
    kubectl create -f - >/dev/null <<YAML
{apiVersion: v1, kind: Node, metadata: {name: $node, labels: {$labels}}}
YAML
    kubectl patch node "$node" --subresource=status --type=merge --patch \
        '{"status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"}}}' >/dev/null
}

all_rendered() { target master | grep -q . && target worker | grep -q .; }

# first_boot NODE POOL: simulates Ignition.
first_boot() {
    local root=$machines/$1 config
    config=$(target "$2")
    mkdir -p "$root/etc/machine-config-daemon"
    cat >"$root/etc/machine-config-daemon/node-annotations.json" <<JSON
{"$PREFIX/currentConfig": "$config", "$PREFIX/desiredConfig": "$config", "$PREFIX/state": "Done"}
JSON
    kubectl get machineconfig "$config" -o yaml >"$work/real/$1.yaml"
    "$MCO" daemon once-from "$work/real/$1.yaml" --root "$root" >/dev/null
}

# start_machine NODE POOL: its first boot, and its daemon from then on.
start_machine() {
    first_boot "$1" "$2"
    background "$work/real/$1.log" "$MCO" daemon start --node-name "$1" --root "$machines/$1" --kubeconfig "$KUBECONFIG"
}

add_worker_real() {
    register "$1" worker
    start_machine "$1" worker
}

# Without the webhook an invalid object can be written; the operator must not run, or it would recreate the webhook.
without_admission_real() {
    end "$(cat "$work/real/operator.pid")"
    kubectl delete validatingwebhookconfiguration machine-config-operator >/dev/null
    "$@"
    start_operator
}

start_embedded() {
    port=$(free_port)
    machines=$work/embedded/data/nodes
    export KUBECONFIG=$work/embedded/data/kubeconfig
    start_up --nodes masters=3,workers=3
}

# start_up ARGUMENTS...
start_up() {
    background "$work/embedded/up.log" "$MCO" up --data-dir "$work/embedded/data" --port "$port" "$@"
    echo $! >"$work/embedded/up.pid"
    eventually "the embedded control plane" ready
}

ready() { [ -s "$KUBECONFIG" ] && kubectl get --raw /readyz; }

# The bare API on the same data directory has no admission, so an invalid object can be written.
without_admission_embedded() {
    end "$(cat "$work/embedded/up.pid")"
    start_up --bare
    "$@"
    end "$(cat "$work/embedded/up.pid")"
    start_up --nodes masters=3,workers=3
}

# Nodes are numbered, so one more is the next.
add_worker_embedded() {
    end "$(cat "$work/embedded/up.pid")"
    start_up --nodes masters=3,workers=4
}
