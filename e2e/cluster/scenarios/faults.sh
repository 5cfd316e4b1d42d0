# Components and nodes that fail in the middle of a rollout, and the end of an installation.
# shellcheck shell=bash

draining() { [[ "$(annotation "$1" desiredDrain)" == drain-* ]] && [ "$(annotation "$1" desiredDrain)" != "$(annotation "$1" lastAppliedDrain)" ]; }
any_draining() {
    local machine
    for machine in $WORKERS; do
        ! draining "$machine" || return 0
    done
    return 1
}

the_leader_is_killed_during_a_drain() {
    local before
    before=$(target_of worker)
    machine_config 50-hello worker /etc/hello leader >/dev/null
    eventually 120 "a drain is under way" any_draining
    inside "$FIRST_CONTROL_PLANE" pkill -KILL -f '/usr/bin/mco controller'
    eventually 60 "pool worker has a new target" target_differs worker "$before"
    eventually "$NODE_PATIENCE" "pool worker is updated" pool_is_updated worker
}

the_api_server_restarts_during_a_rollout() {
    local before
    before=$(target_of worker)
    machine_config 50-hello worker /etc/hello restarted >/dev/null
    eventually 120 "a drain is under way" any_draining
    inside "$FIRST_CONTROL_PLANE" pkill -KILL kube-apiserver
    eventually 90 "the API server answers again" kubectl get --raw /readyz
    eventually 60 "pool worker has a new target" target_differs worker "$before"
    eventually "$NODE_PATIENCE" "pool worker is updated" pool_is_updated worker
}

a_dead_node_does_not_stop_the_installation() {
    expected down worker-2
    expected budget default/web
    power_off worker-2
    eventually 120 "worker-2 is NotReady" nodes_ready 2
    kubectl apply --server-side --force-conflicts -f "$work/install.yaml" >/dev/null
    eventually 60 "the controller runs" kubectl -n "$NAMESPACE" rollout status deployment/machine-config-controller --timeout=5s
}

uninstalls() {
    local machine
    mco install --removal --image "$MCO_IMAGE" >"$work/removal.yaml" 2>/dev/null
    timeout 120 "$(command -v ip)" netns exec "$HUB" "$control_plane_bin/kubectl" --kubeconfig "$work/admin.conf" \
        delete --ignore-not-found -f "$work/removal.yaml" >"$work/removal.log" 2>&1 \
        || { tail -n 5 "$work/removal.log" >&2; fail "the removal does not end"; }
    for machine in worker-1 $CONTROL_PLANES; do
        expect "$machine still works" kubectl get node "$machine"
    done
}

# Requests of our components, without watches, leases and events, when nothing changes.
the_operator_is_quiet() {
    local before after
    sleep 20
    before=$(our_requests)
    sleep 60
    after=$(our_requests)
    say "requests in a minute, without watches and leases: $((after - before))"
    expect "at most one request per minute and component" test $((after - before)) -le $((3 + $(wc -w <<<"$MACHINES") + 3))
}

# Counted by kind: none of these is read by other clients of this cluster.
our_requests() {
    kubectl get --raw /metrics | awk '
        /^apiserver_request_total\{/ && !/verb="(WATCH|CONNECT)"/ && /group="(machineconfiguration.openshift.io|apiextensions.k8s.io|operator.openshift.io|config.openshift.io|networking.k8s.io)"/ {n += $NF}
        END {printf "%d\n", n}'
}
