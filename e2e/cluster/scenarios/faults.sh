# Components, nodes and administrators that interfere in the middle of a rollout.
# shellcheck shell=bash

draining() { [[ "$(annotation "$1" desiredDrain)" == drain-* ]] && [ "$(annotation "$1" desiredDrain)" != "$(annotation "$1" lastAppliedDrain)" ]; }
# The worker that is being drained.
draining_worker() {
    local machine
    for machine in $WORKERS; do
        ! draining "$machine" || { echo "$machine"; return; }
    done
    return 1
}
other_worker() { tr ' ' '\n' <<<"$WORKERS" | grep -vx "$1"; } # WORKER

# begins_to_roll_out CONTENT: changes /etc/hello and returns when a worker is being drained, in $first; $other is the other.
# A pod on each worker needs its whole grace period, so that a drain lasts.
begins_to_roll_out() {
    local machine
    for machine in $WORKERS; do
        kubectl delete pod "lingers-on-$machine" --ignore-not-found --force --grace-period=0 >/dev/null 2>&1
        kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: lingers-on-$machine}
spec:
  terminationGracePeriodSeconds: 10
  nodeName: $machine
  containers: [{name: lingers, image: $PAUSE_IMAGE, imagePullPolicy: Never, args: [linger]}]
END
    done
    for machine in $WORKERS; do
        kubectl wait --for=condition=Ready "pod/lingers-on-$machine" --timeout=60s >/dev/null
    done
    before=$(target_of worker)
    machine_config 50-hello worker /etc/hello "$1" >/dev/null
    eventually 120 "a drain is under way" draining_worker
    first=$(draining_worker) || fail "the drain was over at once"
    other=$(other_worker "$first")
}

rollout_ends() { # CONTENT
    local machine
    eventually 60 "pool worker has a new target" target_differs worker "$before"
    eventually "$NODE_PATIENCE" "pool worker is updated" pool_is_updated worker
    for machine in $WORKERS; do
        expect "$machine has the file" grep -qx "$1" "$work/$machine/etc/hello"
        expect "$machine is schedulable" test -z "$(kubectl get node "$machine" -o 'jsonpath={.spec.unschedulable}')"
    done
}

the_leader_is_killed_during_a_drain() {
    local before first other
    begins_to_roll_out leader
    kill_the_leader
    rollout_ends leader
}

# The holder of the Lease begins with the name of its pod. Other replicas go on, so that one of them takes over.
kill_the_leader() {
    local holder pod machine uid
    holder=$(kubectl -n "$NAMESPACE" get lease machine-config-controller -o 'jsonpath={.spec.holderIdentity}')
    pod=$(kubectl -n "$NAMESPACE" get pods -l k8s-app=machine-config-controller -o name | sed 's,^pod/,,' |
        while read -r name; do [[ $holder != "$name"* ]] || echo "$name"; done)
    [ -n "$pod" ] || fail "no pod holds the Lease, but $holder"
    machine=$(kubectl -n "$NAMESPACE" get pod "$pod" -o 'jsonpath={.spec.nodeName}')
    uid=$(kubectl -n "$NAMESPACE" get pod "$pod" -o 'jsonpath={.metadata.uid}')
    # The systemd driver writes underscores in names of control groups.
    # shellcheck disable=SC2016
    inside "$machine" bash -c 'for process in $(pgrep -f "/usr/bin/mco controller"); do
        ! grep -qE "pod(${0}|${0//-/_})" "/proc/$process/cgroup" || { kill -KILL "$process" && exit; }
    done; exit 1' "$uid" || fail "the leader $pod is not running on $machine"
}

the_api_server_restarts_during_a_rollout() {
    local before first other
    begins_to_roll_out restarted
    inside "$FIRST_CONTROL_PLANE" pkill -KILL kube-apiserver
    eventually 90 "the API server answers again" kubectl get --raw /readyz
    rollout_ends restarted
}

# From the former image to the next one while a node is being drained, and back afterwards.
mco_is_upgraded_during_a_rollout() {
    local before first other machine cordons=() boots=()
    next_mco_image
    for machine in $MACHINES; do
        import_image "$machine" "$work/mco-next.tar"
    done
    for machine in $WORKERS; do
        cordons+=("$(cordons_of "$machine")")
        boots+=("$(boots "$machine")")
    done
    begins_to_roll_out upgraded
    exits 3 "a check reports the other image" check_of "$NEXT_MCO_IMAGE"
    mco install "${INSTALL_OPTIONS[@]}" --image "$NEXT_MCO_IMAGE" | kubectl apply --server-side -f - >/dev/null
    rollout_ends upgraded
    eventually 180 "all pods run the next image" all_pods_run "$NEXT_MCO_IMAGE"
    for machine in $WORKERS; do
        expect "$machine was drained once" test "$(cordons_of "$machine")" = $((cordons[0] + 1))
        expect "$machine was rebooted once" test "$(boots "$machine")" = $((boots[0] + 1))
        expect "$machine is Done" is_done "$machine"
        cordons=("${cordons[@]:1}")
        boots=("${boots[@]:1}")
    done
    kubectl apply --server-side -f "$work/install.yaml" >/dev/null
    eventually 180 "all pods run the former image again" all_pods_run "$MCO_IMAGE"
}
all_pods_run() { # IMAGE
    pods_ready "$(expected_pods)" &&
        [ "$(kubectl -n "$NAMESPACE" get pods -o 'jsonpath={range .items[*]}{.spec.containers[0].image}{"\n"}{end}' | sort -u)" = "$1" ]
}

an_administrator_drains_the_other_node() {
    local before first other
    # With both workers away its budget would rightly block one of the drains.
    expected budget default/web
    kubectl scale deployment/web --replicas=0 >/dev/null
    begins_to_roll_out drained
    kubectl drain "$other" --ignore-daemonsets --delete-emptydir-data --force --timeout=120s >/dev/null 2>&1
    expected cordoned "$other"
    eventually "$NODE_PATIENCE" "$first is updated" has_file "$first" /etc/hello drained
    sleep 5
    expect "a cordoned node is not updated" test "$(annotation "$other" desiredConfig)" != "$(target_of worker)"
    watcher_holds
    no_longer_expected cordoned "$other"
    kubectl uncordon "$other" >/dev/null
    rollout_ends drained
    kubectl scale deployment/web --replicas=2 >/dev/null
    kubectl rollout status deployment/web --timeout=60s >/dev/null
    no_longer_expected budget default/web
}

# A node that is removed from the cluster while it is being drained, and joins again.
a_node_is_deleted_during_a_rollout() {
    local before first other
    # Its pods end with it, whether their budget allows it or not.
    expected budget default/web
    expected down worker-1
    expected down worker-2
    begins_to_roll_out deleted
    kubectl delete node "$first" >/dev/null
    eventually "$NODE_PATIENCE" "$other is updated" has_file "$other" /etc/hello deleted
    eventually 60 "the pool has one node" pool_has_nodes worker 1
    inside "$first" systemctl restart kubelet
    eventually 60 "$first is registered again" kubectl label node "$first" node-role.kubernetes.io/worker=
    eventually 120 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    eventually "$NODE_PATIENCE" "$first is updated" has_file "$first" /etc/hello deleted
    rollout_ends deleted
    kubectl rollout status deployment/web --timeout=60s >/dev/null
    no_longer_expected down worker-1
    no_longer_expected down worker-2
    no_longer_expected budget default/web
}
pool_has_nodes() { [ "$(kubectl get mcp "$1" -o 'jsonpath={.status.machineCount}')" = "$2" ]; }

# The machine stays off when it reboots for its update; no other node is disrupted before it is back.
a_node_does_not_come_back_for_a_while() {
    local before first other old
    begins_to_roll_out returned
    old=$(annotation "$other" desiredConfig)
    expected down "$first"
    touch "$work/$first.off"
    eventually 120 "$first is off" is_off "$first"
    eventually 120 "$first is not Ready" nodes_ready $(($(wc -w <<<"$MACHINES") - 1))
    sleep 20
    expect "$other is left alone" test "$(annotation "$other" desiredConfig)" = "$old"
    expect "$other is schedulable" test -z "$(kubectl get node "$other" -o 'jsonpath={.spec.unschedulable}')"
    power_on "$first"
    eventually 180 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    no_longer_expected down "$first"
    rollout_ends returned
}
is_off() { ! leader_of "$1" >/dev/null; }

# One worker is dead. Nothing waits for its kubelet, and nothing of ours stays in the API. Installed again, the nodes are as
# they were.
uninstalls_with_a_dead_node() {
    local machine boots=()
    expected down worker-2
    expected budget default/web
    # With several controllers there is a budget, and an uninstall deletes them with it.
    expected budget "$NAMESPACE/machine-config-controller"
    power_off worker-2
    eventually 120 "worker-2 is NotReady" nodes_ready $(($(wc -w <<<"$MACHINES") - 1))
    kubectl apply --server-side -f "$work/install.yaml" >/dev/null
    exits 3 "the steps are printed" mco uninstall --kubeconfig "$work/admin.conf" --dry-run
    exits 0 "the uninstall ends" timeout 150 ip netns exec "$HUB" "$mco" uninstall --kubeconfig "$work/admin.conf" --yes \
        --leave-adopted
    expect "the namespace is gone" test -z "$(kubectl get namespace "$NAMESPACE" --ignore-not-found -o name)"
    expect "no webhook or policy is left" test -z "$(kubectl get \
        validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings -o name)"
    expect "no permission is left" test -z "$(kubectl get clusterroles,clusterrolebindings -o name | grep machine-config)"
    expect "no annotation of a node is left" test -z "$(kubectl get nodes -o yaml | grep -E "$PREFIX/|mco\.dev/|UpdateInProgress")"
    expect "no finalizer is left" test -z "$(kubectl get machineconfigs,kubeletconfigs -o yaml | grep finalizers)"
    exits 0 "nothing is left to do" mco uninstall --kubeconfig "$work/admin.conf" --yes
    expect "nothing is left to do" grep -q 'nothing to do' "$work/exits.log"
    power_on worker-2
    eventually 180 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    eventually 60 "no daemon runs on worker-2" no_daemon worker-2
    for machine in $MACHINES; do
        boots+=("$(boots "$machine")")
    done
    kubectl apply --server-side -f "$work/install.yaml" >/dev/null
    eventually 120 "all pods run" pods_ready "$(expected_pods)"
    for machine in $MACHINES; do
        eventually 120 "$machine is Done again" is_settled "$machine"
        expect "$machine was not rebooted" test "$(boots "$machine")" = "${boots[0]}"
        boots=("${boots[@]:1}")
    done
}
no_daemon() { ! inside "$1" pgrep -f '/usr/bin/mco daemon' >/dev/null; }
is_settled() { is_done "$1" && [ -n "$(annotation "$1" currentConfig)" ]; }

# Requests of our components when nothing changes: at most one per minute and pod, besides watches, leases and events.
the_components_are_quiet() {
    local since counts
    # Kinds that the cluster does not serve are looked for half a minute after the last restart.
    sleep 60
    since=$(now)
    sleep 60
    counts=$(requests_since "$since")
    say "requests in an idle minute, without watches and leases: $counts"
    expect "the operator is quiet" test "$(requests_of operator "$counts")" -le 1
    expect "the controllers are quiet" test "$(requests_of controller "$counts")" -le "$(controllers)"
    expect "the servers are quiet" test "$(requests_of server "$counts")" -le "$(wc -w <<<"$CONTROL_PLANES")"
    expect "the daemons are quiet" test "$(requests_of daemon "$counts")" -le "$(wc -w <<<"$MACHINES")"
}
requests_of() { python3 -c 'import json, sys; print(json.loads(sys.argv[2]).get("machine-config-" + sys.argv[1], 0))' "$1" "$2"; }
