# The same in the middle of a rollout: the Go controller is gone after it cordoned a node and began to drain it. Sourced by
# "run".
# shellcheck shell=bash

FORMER=rendered-worker-00000000000000000000000000000000

annotate() {
    local node=$1 entry
    shift
    local patch='{}'
    for entry in "$@"; do
        patch=$(jq -c --arg key "$PREFIX/${entry%%=*}" --arg value "${entry#*=}" '.metadata.annotations[$key] = $value' <<<"$patch")
    done
    kubectl patch node "$node" --type merge --patch "$patch" >/dev/null
}
annotation() { kubectl get node "$1" -o json | jq -r --arg key "$PREFIX/$2" '.metadata.annotations[$key] // ""'; }
is_cordoned() { [ "$(kubectl get node "$1" -o jsonpath='{.spec.unschedulable}')" = true ]; }

# cordon NODE MANAGER   as that client
cordon() { kubectl patch node "$1" --type merge --field-manager "$2" --patch '{"spec":{"unschedulable":true}}' >/dev/null; }

# play_daemons   simulates the daemon of every node; records how many workers are unavailable at once
play_daemons() {
    local name step config
    while true; do
        kubectl get nodes -o json >"$work/playing.tmp" 2>/dev/null || continue
        jq -r --arg prefix "$PREFIX" '.items[] | .metadata.name as $name | .metadata.annotations as $a
            | ($a["\($prefix)/desiredConfig"]) as $config
            | (if $a["\($prefix)/currentConfig"] != $config then
                if $a["\($prefix)/desiredDrain"] != "drain-\($config)" then "drain"
                elif $a["\($prefix)/lastAppliedDrain"] == "drain-\($config)" then "apply" else empty end
              elif $a["\($prefix)/state"] == "Working" and $a["\($prefix)/lastAppliedDrain"] == "uncordon-\($config)" then "done"
              else empty end) as $step
            | "\($name) \($step) \($config)"' "$work/playing.tmp" | while read -r name step config; do
            case $step in
                drain) annotate "$name" state=Working "desiredDrain=drain-$config" ;;
                apply) annotate "$name" "currentConfig=$config" "desiredDrain=uncordon-$config" ;;
                done) annotate "$name" state=Done ;;
            esac
        done
        jq --arg prefix "$PREFIX" '[.items[] | select(.metadata.name | startswith("worker"))
            | select(.spec.unschedulable == true or .metadata.annotations["\($prefix)/currentConfig"] != .metadata.annotations["\($prefix)/desiredConfig"])]
            | length' "$work/playing.tmp" >>"$work/away"
        sleep 0.2
    done
}

workers_are_done() {
    local node
    for node in worker-0 worker-1 worker-2; do
        [ "$(annotation "$node" currentConfig)" = "$(target worker)" ] && [ "$(annotation "$node" state)" = Done ] && ! is_cordoned "$node" || return 1
    done
}

in_the_middle() {
    local new infra before
    start_cluster "$work/real2"
    new=$(target worker)
    infra=$(target infra)
    kubectl get machineconfig "$new" -o json | jq --arg name "$FORMER" 'del(.metadata.uid, .metadata.resourceVersion,
        .metadata.creationTimestamp, .metadata.managedFields) | .metadata.name = $name
        | .spec.config.storage.files |= .[1:]' | kubectl create -f - >/dev/null
    # worker-0 has arrived, worker-1 is being drained, worker-2 still has to go.
    annotate worker-1 "currentConfig=$FORMER" "desiredConfig=$new" state=Working "desiredDrain=drain-$new" "lastAppliedDrain=uncordon-$FORMER"
    cordon worker-1 machine-config-controller
    annotate worker-2 "currentConfig=$FORMER" "desiredConfig=$FORMER" "desiredDrain=uncordon-$FORMER" "lastAppliedDrain=uncordon-$FORMER"
    # An administrator had cordoned infra-0 before the Go controller began to drain it.
    annotate infra-0 "currentConfig=$FORMER" "desiredConfig=$infra" state=Working "desiredDrain=drain-$infra" "lastAppliedDrain=uncordon-$FORMER"
    cordon infra-0 kubectl-cordon
    before=$(kubectl get machineconfigs -o name)
    status=0
    "$MCO" switch check --templates "$templates" >"$work/check.log" 2>&1 || status=$?
    [ "$status" = 3 ] && grep -q "node worker-1 is being drained for $new" "$work/check.log" ||
        fail "the check says ($status): $(cat "$work/check.log")"

    start_ours
    play_daemons &
    daemons=$!
    pids+=("$daemons")
    eventually "the end of the rollout" workers_are_done
    infra_is_done() { [ "$(annotation infra-0 state)" = Done ] && [ "$(annotation infra-0 currentConfig)" = "$infra" ]; }
    eventually "the infra node" infra_is_done
    is_cordoned infra-0 || fail "the cordon of an administrator was lifted"
    [ "$(sort -n "$work/away" | tail -n 1)" = 1 ] || fail "more than one worker was away: $(sort "$work/away" | uniq -c)"
    [ "$(kubectl get machineconfigs -o name)" = "$before" ] || fail "there are other MachineConfigs than before"
    kill "$daemons"
    wait "$daemons" 2>/dev/null || true
    say "finished by ours, one worker at a time; the cordons of the update are lifted, the one of an administrator stays"

    say "handed back in the middle of a drain"
    annotate worker-0 "desiredConfig=$new" state=Working "desiredDrain=drain-$FORMER"
    eventually "our cordon" is_cordoned worker-0
    stop_ours
    "$MCO" switch back --yes --no-wait
    is_cordoned worker-0 || fail "the drain that is under way lost its cordon"
    [ -z "$(annotation worker-0 drain-record)" ] || fail "our record is left"
    finalizers | grep -q . && fail "finalizers are left"
    e2e/kubernetes/stop "$work/real2"
}
