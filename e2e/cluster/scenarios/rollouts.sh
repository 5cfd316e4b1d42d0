# Changes of MachineConfigs on nodes with workloads.
# shellcheck shell=bash

# A Deployment whose budget allows one disruption, a DaemonSet, a bare pod and a pod with an emptyDir.
workloads() {
    kubectl apply -f - >/dev/null <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      nodeSelector: {node-role.kubernetes.io/worker: ""}
      containers: [{name: web, image: $PAUSE_IMAGE, imagePullPolicy: Never}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: agent, image: $PAUSE_IMAGE, imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  terminationGracePeriodSeconds: 2
  nodeName: worker-1
  containers: [{name: bare, image: $PAUSE_IMAGE, imagePullPolicy: Never, volumeMounts: [{name: scratch, mountPath: /scratch}]}]
  volumes: [{name: scratch, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: lingers}
spec:
  terminationGracePeriodSeconds: 8
  nodeName: worker-2
  containers: [{name: lingers, image: $PAUSE_IMAGE, imagePullPolicy: Never, args: [linger]}]
END
    kubectl rollout status deployment/web --timeout=60s >/dev/null
    kubectl wait --for=condition=Ready pod/bare pod/lingers --timeout=60s >/dev/null
}

a_file_reaches_all_workers_with_drain_and_reboot() {
    local machine since before=()
    workloads
    mco plan --kubeconfig "$work/admin.conf" -f - >"$work/plan.txt" <<END || true
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-hello, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage: {files: [{path: /etc/hello, mode: 420, overwrite: true, contents: {source: "data:,hello"}}]}
END
    expect "the plan names the bare pod that the drain deletes" \
        grep -q 'a drain would delete pod default/bare on worker-1' "$work/plan.txt"
    for machine in $WORKERS; do
        before+=("$(boots "$machine")")
    done
    since=$(now)
    rolls_out worker machine_config 50-hello worker /etc/hello hello
    say "requests of an update of $(wc -w <<<"$WORKERS") nodes: $(requests_since "$since")"
    for machine in $WORKERS; do
        expect "$machine has the file" grep -qx hello "$work/$machine/etc/hello"
        expect "$machine is schedulable" test -z "$(kubectl get node "$machine" -o 'jsonpath={.spec.unschedulable}')"
        expect "$machine was rebooted once" test "$(boots "$machine")" = $((before[0] + 1))
        before=("${before[@]:1}")
    done
    expect "the bare pod is gone" test -z "$(kubectl get pod bare --ignore-not-found -o name)"
    for machine in $CONTROL_PLANES; do
        expect "$machine was left alone" test ! -e "$work/$machine/etc/hello"
    done
}

kernel_arguments_are_set_by_a_daemon_in_a_pod() {
    local machine
    rolls_out worker kubectl apply -f - <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-arguments, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelArguments: [mco.e2e=1]}
END
    for machine in $WORKERS; do
        expect "$machine has booted with the argument" inside "$machine" grep -q 'mco\.e2e=1' /proc/cmdline
    done
    rolls_out worker kubectl delete machineconfig 50-arguments
    for machine in $WORKERS; do
        expect "$machine has booted without it" inside "$machine" sh -c '! grep -q mco.e2e /proc/cmdline'
    done
}

the_only_control_plane_node_is_updated_without_a_drain() {
    local before
    before=$(boots "$FIRST_CONTROL_PLANE")
    expected down "$FIRST_CONTROL_PLANE"
    rolls_out master machine_config 50-master master /etc/hello master
    no_longer_expected down "$FIRST_CONTROL_PLANE"
    expect "it was rebooted" test "$(boots "$FIRST_CONTROL_PLANE")" = $((before + 1))
    expect "it has the file" grep -qx master "$work/$FIRST_CONTROL_PLANE/etc/hello"
    expect "it was not drained" test -z "$(annotation "$FIRST_CONTROL_PLANE" lastAppliedDrain | grep '^drain-')"
}

drift_is_reported_and_healed_by_hand() {
    local machine=worker-1
    echo edited >"$work/$machine/etc/hello"
    eventually 30 "the drift is reported" drifted "$machine" /etc/hello
    printf hello >"$work/$machine/etc/hello"
    eventually 60 "it is Done again" is_done "$machine"
}
drifted() { [ "$(annotation "$1" state)" = Degraded ] && annotation "$1" reason | grep -qF "$2"; }

a_pause_holds_the_rollout() {
    kubectl patch mcp worker --type=merge -p '{"spec": {"paused": true}}' >/dev/null
    local before
    before=$(annotation worker-1 desiredConfig)
    machine_config 50-hello worker /etc/hello again >/dev/null
    sleep 15
    expect "no node is sent to the new config" test "$(annotation worker-1 desiredConfig)" = "$before"
    kubectl patch mcp worker --type=merge -p '{"spec": {"paused": false}}' >/dev/null
    local machine
    for machine in $WORKERS; do
        eventually "$NODE_PATIENCE" "$machine is updated" has_file "$machine" /etc/hello again
    done
    eventually 60 "pool worker is updated" pool_is_updated worker
}

an_administrators_cordon_stays() {
    # With both workers away its budget would rightly block the drain.
    expected budget default/web
    kubectl scale deployment/web --replicas=0 >/dev/null
    kubectl cordon worker-2 >/dev/null
    expected cordoned worker-2
    # A cordoned node counts as unavailable.
    kubectl patch mcp worker --type=merge -p '{"spec": {"maxUnavailable": 2}}' >/dev/null
    machine_config 50-hello worker /etc/hello cordoned >/dev/null
    eventually "$NODE_PATIENCE" "worker-1 is updated" has_file worker-1 /etc/hello cordoned
    expect "a cordoned node is not updated" test "$(annotation worker-2 desiredConfig)" != "$(target_of worker)"
    expect "the cordon stays" test "$(kubectl get node worker-2 -o 'jsonpath={.spec.unschedulable}')" = true
    watcher_holds
    kubectl patch mcp worker --type=merge -p '{"spec": {"maxUnavailable": 1}}' >/dev/null
    no_longer_expected cordoned worker-2
    kubectl uncordon worker-2 >/dev/null
    kubectl scale deployment/web --replicas=2 >/dev/null
    kubectl rollout status deployment/web --timeout=60s >/dev/null
    no_longer_expected budget default/web
    eventually 60 "pool worker is updated" pool_is_updated worker
}
has_file() { grep -qx "$3" "$work/$1$2" && is_done "$1"; }

keys_units_and_a_kubelet_drop_in_are_applied() {
    local machine
    rolls_out worker kubectl apply -f - <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-units, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    passwd: {users: [{name: core, sshAuthorizedKeys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2eE2eE2eE2eE2eE2eE2eE2eE2eE2eE2eE2eE2eE2eE e2e"]}]}
    systemd:
      units:
        - name: e2e-marker.service
          enabled: true
          contents: |
            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/bin/true
            [Install]
            WantedBy=multi-user.target
        - name: kubelet.service
          dropins: [{name: 30-e2e.conf, contents: "[Service]\nEnvironment=MCO_E2E=1\n"}]
END
    for machine in $WORKERS; do
        expect "$machine has the key" grep -rq 'ssh-ed25519 AAAA.* e2e' "$work/$machine/home/core/.ssh"
        expect "$machine runs the unit" inside "$machine" systemctl is-active e2e-marker.service
        expect "$machine has the drop-in" inside "$machine" sh -c 'systemctl show kubelet -p Environment | grep -q MCO_E2E=1'
    done
    rolls_out worker kubectl delete machineconfig 50-units
    for machine in $WORKERS; do
        expect "$machine has no unit any more" test ! -e "$work/$machine/etc/systemd/system/e2e-marker.service"
        expect "$machine has no drop-in any more" test ! -e "$work/$machine/etc/systemd/system/kubelet.service.d/30-e2e.conf"
        expect "kubeadm's drop-in stays" test -e "$work/$machine/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
    done
}

a_custom_pool_takes_a_node_over() {
    kubectl apply -f - >/dev/null <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  machineConfigSelector: {matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
END
    machine_config 50-infra infra /etc/infra infra >/dev/null
    eventually 60 "pool infra is rendered" target_differs infra ''
    kubectl label node worker-2 node-role.kubernetes.io/infra= >/dev/null
    eventually "$NODE_PATIENCE" "worker-2 is updated" has_file worker-2 /etc/infra infra
    expect "worker-1 is left alone" test ! -e "$work/worker-1/etc/infra"
    eventually 60 "pool infra is updated" pool_is_updated infra
    kubectl label node worker-2 node-role.kubernetes.io/infra- >/dev/null
    eventually "$NODE_PATIENCE" "worker-2 is back" lost_file worker-2 /etc/infra
    eventually 60 "pool worker is updated" pool_is_updated worker
    kubectl delete mcp infra >/dev/null
    kubectl delete machineconfig 50-infra >/dev/null
}
lost_file() { [ ! -e "$work/$1$2" ] && is_done "$1" && [ "$(annotation "$1" currentConfig)" = "$(target_of worker)" ]; }

# The budget of a StatefulSet allows no disruption: its pod stays, and the node waits, until the budget is gone.
a_budget_that_allows_nothing_holds_the_drain() {
    local before node
    kubectl apply -f - >/dev/null <<END
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 20
      nodeSelector: {node-role.kubernetes.io/worker: ""}
      containers: [{name: db, image: $PAUSE_IMAGE, imagePullPolicy: Never, args: [linger]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: db}}}
END
    kubectl rollout status statefulset/db --timeout=60s >/dev/null
    node=$(kubectl get pod db-0 -o 'jsonpath={.spec.nodeName}')
    before=$(target_of worker)
    machine_config 50-hello worker /etc/hello budget >/dev/null
    eventually "$NODE_PATIENCE" "the drain waits for the budget" waits_for "$node" default/db
    sleep 10
    expect "the pod still runs" test "$(kubectl get pod db-0 -o 'jsonpath={.status.phase}{.metadata.deletionTimestamp}')" = Running
    kubectl delete pdb db >/dev/null
    eventually 60 "pool worker has a new target" target_differs worker "$before"
    eventually "$NODE_PATIENCE" "pool worker is updated" pool_is_updated worker
    kubectl delete statefulset db >/dev/null
}
waits_for() { annotation "$1" drain-record | grep -qF "$2"; }

the_control_plane_is_updated_one_node_at_a_time() {
    local machine
    rolls_out master machine_config 50-master master /etc/hello master
    for machine in $CONTROL_PLANES; do
        expect "$machine has the file" grep -qx master "$work/$machine/etc/hello"
        expect "$machine was drained" test "$(cordons_of "$machine")" = 1
    done
    eventually 120 "all pods run" pods_ready "$(expected_pods)"
}

# A daemon in a pod runs the machine's own tools, with their own options, and notices which the machine does not have.
the_machines_tools_run_from_the_daemons_pod() {
    local pod tool printed status
    pod=$(kubectl -n "$NAMESPACE" get pods -l k8s-app=machine-config-daemon --field-selector spec.nodeName=worker-1 -o name)
    for tool in rpm rpm-ostree bootc podman grubby nmstatectl crictl; do
        install -m 0755 /dev/stdin "$work/worker-1/usr/local/bin/$tool" <<END
#!/bin/sh
echo "$tool on \$(cat /etc/hostname): \$*"
END
        printed=$(in_daemon "$pod" "$tool" --version --help -q x)
        rm "$work/worker-1/usr/local/bin/$tool"
        expect "$tool runs on the machine" test "$printed" = "$tool on worker-1: --version --help -q x"
        status=0
        in_daemon "$pod" "$tool" --version >/dev/null 2>&1 || status=$?
        expect "$tool is not installed" test "$status" = 127
    done
    expect "systemctl reaches the machine's systemd" test "$(in_daemon "$pod" systemctl is-active kubelet)" = active
    expect "update-grub is found" in_daemon "$pod" sh -c 'command -v update-grub'
}
in_daemon() { # POD PROGRAM ARGUMENT...
    kubectl -n "$NAMESPACE" exec "$1" -c machine-config-daemon -- /usr/bin/mco daemon in-root /rootfs "${@:2}"
}
