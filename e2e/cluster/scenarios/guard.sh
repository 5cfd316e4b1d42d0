# Configs with which a node is not healthy: its guard reverts them without its kubelet, and the pool is halted.
# shellcheck shell=bash

GUARD_DEADLINE=90

a_config_that_breaks_the_kubelet_is_reverted_on_its_canary() {
    canary_reverts 50-bad-kubelet "the kubelet is not healthy" <<'END'
    systemd:
      units:
        - name: kubelet.service
          dropins: [{name: 50-bad.conf, contents: "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --no-such-flag\n"}]
END
}

# The default route of the canary goes to an address that no machine has.
a_config_that_cuts_the_network_is_reverted_on_its_canary() {
    canary_reverts 50-bad-network "the API server is not reached" <<'END'
    systemd:
      units:
        - name: bad-network.service
          enabled: true
          contents: |
            [Unit]
            Before=kubelet.service
            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/usr/sbin/ip route add prohibit 10.77.0.11/32
            ExecStop=/usr/sbin/ip route del prohibit 10.77.0.11/32
            [Install]
            WantedBy=multi-user.target
END
}

# canary_reverts NAME WHY: the config on standard input breaks the first node that gets it.
canary_reverts() {
    local name=$1 why=$2 before machine canary other
    declare -A boots_before
    before=$(target_of worker)
    for machine in $WORKERS; do
        boots_before[$machine]=$(boots "$machine")
        # Whichever is the canary has no kubelet until it is reverted.
        expected down "$machine"
    done
    kubectl apply -f - >/dev/null <<END
apiVersion: mco.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: guard}
spec:
  poolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}}
  waves: [{name: canary, limit: 1, soak: 1m}]
  maxFailures: {count: 1, action: Halt}
  confirm: {deadline: ${GUARD_DEADLINE}s}
END
    {
        cat <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: $name
  labels: {machineconfiguration.openshift.io/role: worker}
  annotations: {mco.dev/allow-guarded-paths: kubelet.service}
spec:
  config:
    ignition: {version: 3.2.0}
END
        cat
    } | kubectl apply -f - >/dev/null
    eventually 60 "pool worker has a new target" target_differs worker "$before"
    eventually $((NODE_PATIENCE + GUARD_DEADLINE * 2)) "a node reports the revert" reverted_canary "$why"
    canary=$(reverted_canary "$why")
    other=$(tr ' ' '\n' <<<"$WORKERS" | grep -vx "$canary")
    say "$canary: $(annotation "$canary" reason)"
    eventually 120 "$canary is Ready again" kubectl wait --for=condition=Ready --timeout=1s "node/$canary"
    expect "one boot into the config and one back" test "$(boots "$canary")" = $((boots_before[$canary] + 2))
    expect "$canary has its former config" test "$(annotation "$canary" currentConfig)" = "$before"
    expect "no guard is left" test ! -e "$work/$canary/etc/systemd/system/mco-guard.service"
    eventually 60 "$canary takes work again" schedulable "$canary"
    eventually 60 "the rollout is halted" halted
    say "pool worker: $(kubectl get rolloutpolicy guard -o 'jsonpath={.status.message}')"
    expect "$other was not sent to the config" test "$(annotation "$other" desiredConfig)" = "$before"
    expect "$other was not rebooted" test "$(boots "$other")" = "${boots_before[$other]}"
    expect "$other was not cordoned" schedulable "$other"
    kubectl delete machineconfig "$name" >/dev/null
    eventually 60 "pool worker has its former target" test_target "$before"
    eventually "$NODE_PATIENCE" "pool worker is updated" pool_is_updated worker
    kubectl delete rolloutpolicy guard >/dev/null
    for machine in $WORKERS; do
        no_longer_expected down "$machine"
    done
}
reverted_canary() { # WHY: the node that was reverted because of that
    local machine
    for machine in $WORKERS; do
        if annotation "$machine" reason | grep -q "^Reverted: .*$1"; then
            echo "$machine"
            return
        fi
    done
    return 1
}
schedulable() { [ -z "$(kubectl get node "$1" -o 'jsonpath={.spec.unschedulable}')" ]; }
halted() { [ "$(kubectl get rolloutpolicy guard -o 'jsonpath={.status.phase}')" = Halted ]; }
test_target() { [ "$(target_of worker)" = "$1" ]; }
