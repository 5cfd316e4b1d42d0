# One update of one node, by the accounts of an installation; sourced by run, which has $work, $NAMESPACE, $MCO, $pids and the
# functions, and keeps the controllers running.
# shellcheck shell=bash disable=SC2154

# The machine is a directory: where its config asks for a boot the daemon ends, and is started again as systemd would do.
keep_daemon() {
    # Cleans up when the suite fails.
    trap 'kill -TERM "$daemon"; wait "$daemon"; exit 1' TERM
    while [ ! -e "$work/daemon.stop" ]; do
        "$MCO" daemon start --node-name node-1 --kubeconfig "$work/daemon.kubeconfig" --root "$work/machine" \
            --metrics-listen "127.0.0.1:$daemon_metrics" --metrics-cert "$work/daemon.crt" --metrics-key "$work/daemon.key" \
            >>"$work/daemon.log" 2>&1 &
        daemon=$!
        echo "$daemon" >"$work/daemon.pid"
        wait "$daemon" || return 1
    done
}
start_daemon() {
    rm -f "$work/daemon.stop"
    keep_daemon &
    pids+=($!)
    keeper=$!
}
stop_daemon() {
    touch "$work/daemon.stop"
    kill -TERM "$(cat "$work/daemon.pid")"
    wait "$keeper" || fail "the daemon failed: $(tail -n 3 "$work/daemon.log")"
}

node_says() { kubectl get node node-1 -o jsonpath="{.metadata.annotations.machineconfiguration\.openshift\.io/$1}"; }
# has_arrived CONFIG   the node is done with it
has_arrived() {
    [ "$(node_says currentConfig)" = "$1" ] && [ "$(node_says desiredConfig)" = "$1" ] && [ "$(node_says state)" = Done ]
}
# Without a kubelet, pods have no grace period.
pod_with_a_budget() {
    kubectl create -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: shop, namespace: default, labels: {app: shop}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{name: shop, image: localhost/shop}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop, namespace: default}
spec: {minAvailable: 0, selector: {matchLabels: {app: shop}}}
YAML
    kubectl patch pod shop --namespace default --subresource status --type merge \
        --patch '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}' >/dev/null
}
may_go() { [ "$(kubectl get poddisruptionbudget shop --namespace default -o jsonpath='{.status.disruptionsAllowed}')" = 1 ]; }
is_gone() { ! kubectl get pod shop --namespace default; }
is_uncordoned() { [ "$(kubectl get node node-1 -o jsonpath='{.spec.unschedulable}')" = "" ]; }

update_a_node() {
    local first second
    first=$(rendered_of worker)
    kubectl label node node-1 node-role.kubernetes.io/worker= >/dev/null
    kubectl annotate --overwrite node node-1 "machineconfiguration.openshift.io/currentConfig=$first" \
        "machineconfiguration.openshift.io/desiredConfig=$first" machineconfiguration.openshift.io/state=Done >/dev/null
    kubectl patch node node-1 --subresource status --type merge \
        --patch '{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":""}]}}' >/dev/null
    # This machine was installed from a config and has lost everything else: all of it is written.
    mkdir -p "$work/machine/run" "$work/machine/etc"
    kubectl get machineconfig "$first" -o json >"$work/machine/etc/mcs-machine-config-content.json"
    touch "$work/machine/run/machine-config-daemon-force"
    pod_with_a_budget
    eventually "a budget that lets the pod go" may_go
    start_daemon
    eventually "a node that is what it should be" has_arrived "$first"

    sed 's/2541/420/; s/50-bad/60-update/; s,/etc/x,/etc/e2e-update,' "$work/bad.json" | kubectl create -f - >/dev/null
    is_another() { second=$(rendered_of worker) && [ "$second" != "$first" ]; }
    eventually "the next config" is_another
    eventually "a node that is updated" has_arrived "$(rendered_of worker)"
    eventually "a drained node" is_gone
    eventually "a node that takes work again" is_uncordoned
    [ -e "$work/machine/etc/e2e-update" ] || fail "the file is not there"
    reported() { [ "$(kubectl get machineconfignode node-1 -o jsonpath='{.status.conditions[?(@.type=="Updated")].status}')" = True ]; }
    eventually "the node's progress" reported
    told() { kubectl get events --namespace "$NAMESPACE" -o jsonpath='{.items[*].reason}' | grep -w "$1"; }
    eventually "an event of the daemon" told NodeDone
}
