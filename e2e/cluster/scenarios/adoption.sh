# Existing nodes: an installation changes nothing on them, adoption is previewed, and a release restores every byte.
# The scenarios of the profiles "adoption" and "k3s" build on each other.
# shellcheck shell=bash

COMPARED=(etc usr opt var/lib/kubelet)
ADOPTING_POOL=workers
ADOPTED_BASE=kubeadm
GUARDED_FILE=/etc/kubernetes/kubelet.conf
REGISTRY_HOSTS=/etc/containerd/certs.d
WORKER_LABEL=node-role.kubernetes.io/worker=
if [ "$profile" = k3s ]; then
    COMPARED+=(var/lib/rancher/k3s/agent/etc)
    ADOPTED_BASE=k3s
    GUARDED_FILE=/etc/rancher/k3s/k3s.yaml
    REGISTRY_HOSTS=/var/lib/rancher/k3s/agent/etc/containerd/certs.d
    WORKER_LABEL=node-role.kubernetes.io/worker=true
fi
# Where a mirror of the hub would listen.
MIRROR=$HUB_ADDRESS:5001

# snapshot MACHINE FILE: paths, kinds, modes, owners, link targets and hashes of the compared directories. Not compared: the
# volumes and the state of pods, which the kubelet writes for every pod, and our state directory.
snapshot() {
    (
        cd "$work/$1"
        local skip=(-path var/lib/kubelet/pods -o -path 'var/lib/kubelet/*_state' -o -path etc/machine-config-daemon)
        find "${COMPARED[@]}" \( "${skip[@]}" \) -prune -o -printf '%p %y %m %U:%G %l\n'
        find "${COMPARED[@]}" \( "${skip[@]}" \) -prune -o -type f -print0 | xargs -0 sha256sum
    ) | LC_ALL=C sort >"$2"
}
same_as() { # MACHINE SNAPSHOT
    snapshot "$1" "$work/now.$1"
    diff "$work/$2.$1" "$work/now.$1" >"$work/diff.$1" || { head -n 20 "$work/diff.$1" >&2; fail "$1 is not as before"; }
}
# Everything of a Node but what its heartbeats change.
nodes_without_status() {
    kubectl get nodes -o json | python3 -c '
import json, sys
for node in json.load(sys.stdin)["items"]:
    del node["status"]
    for key in ("managedFields", "resourceVersion", "generation"):
        node["metadata"].pop(key, None)
    print(json.dumps(node, indent=1, sort_keys=True))'
}
installs_with() { # OPTION...
    mco install "$@" --image "$MCO_IMAGE" >"$work/install.yaml"
    kubectl apply --server-side -f "$work/install.yaml" >"$work/install.log" 2>&1 \
        || { cat "$work/install.log" >&2; fail "kubectl apply failed"; }
    # Operator, controllers and a daemon on every node; no server.
    eventually 120 "all pods run" pods_ready $((1 + $(controllers) + $(wc -w <<<"$MACHINES")))
}
# What an administrator has set up on a worker.
administrators_files() {
    local disk=$work/worker-1
    install -D -m 0640 /dev/stdin "$disk/etc/chrony/chrony.conf" <<<"pool ntp.example.com iburst"
    install -D -m 0644 /dev/stdin "$disk/etc/sysctl.d/60-admin.conf" <<<"net.ipv4.tcp_keepalive_time = 1000"
    install -D -m 0644 /dev/stdin "$disk$REGISTRY_HOSTS/registry.example.com/hosts.toml" \
        <<<'server = "https://registry.example.com"'
    install -D -m 0644 /dev/stdin "$disk/etc/docker/certs.d/registry.corp:5000/ca.crt" <<<"a certificate"
}

an_installation_changes_no_byte_and_no_node() {
    local machine
    administrators_files
    for machine in $MACHINES; do
        snapshot "$machine" "$work/before.$machine"
    done
    nodes_without_status >"$work/nodes.before"
    installs_with
    sleep 15
    for machine in $MACHINES; do
        same_as "$machine" before
        expect "$machine has no state of ours" test ! -e "$work/$machine/etc/machine-config-daemon"
    done
    nodes_without_status >"$work/nodes.after"
    diff "$work/nodes.before" "$work/nodes.after" >&2 || fail "an installation changes Nodes"
    expect "there is no built-in pool" test -z "$(kubectl get mcp -o name)"
    expect "no group of OpenShift's configuration" test -z "$(kubectl api-versions | grep -E '^(config|operator)\.openshift\.io/')"
}

adopting_pool() {
    kubectl apply -f - >/dev/null <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: $ADOPTING_POOL, labels: {pool: $ADOPTING_POOL}}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: $ADOPTING_POOL}}
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/worker, operator: Exists}]}
END
}

a_guarded_path_is_refused_with_its_reason() {
    # The command is that of the page about this kind of cluster.
    PAGE=docs/clusters.md page_commands "$ADOPTED_BASE" || { cat "$work/page.log" >&2; fail "the installation failed"; }
    eventually 120 "all pods run" pods_ready $((1 + $(controllers) + $(wc -w <<<"$MACHINES")))
    adopting_pool
    eventually 60 "the pool is rendered" target_differs "$ADOPTING_POOL" ''
    if machine_config 50-kubelet "$ADOPTING_POOL" "$GUARDED_FILE" x >"$work/guarded.log" 2>&1; then
        eventually 60 "the refusal is reported" refuses_kubelet_conf
        kubectl delete machineconfig 50-kubelet >/dev/null
    else
        expect "the reason is named" grep -q 'credential of the kubelet' "$work/guarded.log"
    fi
}
refuses_kubelet_conf() { kubectl get mcp "$ADOPTING_POOL" -o yaml | grep -q 'credential of the kubelet'; }

# Files of the administrator that a MachineConfig replaces, a new one and a unit.
adoption_configs() {
    machine_config 50-chrony "$ADOPTING_POOL" /etc/chrony/chrony.conf "pool%20time.example.com%0A"
    machine_config 50-admin "$ADOPTING_POOL" /etc/sysctl.d/60-admin.conf "net.ipv4.tcp_keepalive_time%20%3D%202000%0A"
    machine_config 50-new "$ADOPTING_POOL" /etc/sysctl.d/90-new.conf "net.ipv4.tcp_keepalive_probes%20%3D%204%0A"
    kubectl apply -f - <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-unit, labels: {machineconfiguration.openshift.io/role: $ADOPTING_POOL}}
spec:
  config:
    ignition: {version: 3.2.0}
    systemd: {units: [{name: e2e-adopted.service, enabled: true, contents: "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}
END
}
target_names() { kubectl get machineconfig "$(target_of "$ADOPTING_POOL")" -o yaml | grep -qF "$1"; }
adoption_of() { kubectl get nodeadoption "$1" -o "jsonpath={.status.phase}"; }

the_preview_names_foreign_files_and_changes_nothing() {
    adoption_configs >/dev/null
    eventually 60 "the pool has all configs" target_names e2e-adopted.service
    eventually 60 "the pool has all configs" target_names 90-new.conf
    kubectl label node worker-1 "$WORKER_LABEL" >/dev/null
    exits 3 "the preview reports changes" mco adopt worker-1 --kubeconfig "$work/admin.conf"
    cat "$work/exits.log" >&2
    expect "the foreign file is named" grep -q 'replace /etc/chrony/chrony.conf' "$work/exits.log"
    expect "the new file is named" grep -q 'create  /etc/sysctl.d/90-new.conf' "$work/exits.log"
    sleep 3
    same_as worker-1 before
    expect "worker-1 is not adopted" test -z "$(annotation worker-1 currentConfig)"
    expect "worker-1 has no taint" test -z "$(kubectl get node worker-1 -o 'jsonpath={.spec.taints}')"
}

an_adopted_node_gets_what_its_objects_say() {
    exits 0 "the adoption" mco adopt worker-1 --yes --kubeconfig "$work/admin.conf"
    eventually "$NODE_PATIENCE" "worker-1 is updated" has_file worker-1 /etc/chrony/chrony.conf 'pool time.example.com'
    eventually 60 "the pool is updated" pool_is_updated "$ADOPTING_POOL"
    expect "a replaced sysctl is in force" inside worker-1 grep -qx 2000 /proc/sys/net/ipv4/tcp_keepalive_time
    expect "a new sysctl is in force" inside worker-1 grep -qx 4 /proc/sys/net/ipv4/tcp_keepalive_probes
    expect "the unit runs" inside worker-1 systemctl is-active e2e-adopted.service
    expect "worker-2 is left alone" test ! -e "$work/worker-2/etc/sysctl.d/90-new.conf"
    rolls_out "$ADOPTING_POOL" kubectl apply -f - <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: pods}
spec:
  machineConfigPoolSelector: {matchLabels: {pool: $ADOPTING_POOL}}
  kubeletConfig: {maxPods: 77}
END
    eventually 60 "the kubelet uses the setting" configz_has worker-1 '"maxPods":77'
    expect "kubeadm's settings stay" configz_has worker-1 '"imageGCHighThresholdPercent":100'
    rolls_out "$ADOPTING_POOL" kubectl apply -f - <<END
apiVersion: mco.dev/v1
kind: ImageTagMirrorSet
metadata: {name: mirrors}
spec: {imageTagMirrors: [{source: quay.example.com, mirrors: ["$MIRROR"]}]}
END
    expect "containerd's file names the mirror" grep -qF "$MIRROR" "$work/worker-1$REGISTRY_HOSTS/quay.example.com/hosts.toml"
    containerd_asks_the_mirror
    eventually 60 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    an_image_is_pinned_in_containerd
}
configz_has() { kubectl get --raw "/api/v1/nodes/$1/proxy/configz" | grep -qF "$2"; }

# There is no registry, but a socket that sees whether containerd asks the mirror.
containerd_asks_the_mirror() {
    local listener
    expect "containerd reads that directory" \
        grep -qF "\"configPath\":\"$REGISTRY_HOSTS\"" <(inside worker-1 crictl --runtime-endpoint "unix://$(socket_of worker-1)" info)
    (exec ip netns exec "$HUB" timeout 60 python3 -c '
import socket, sys
host, port = sys.argv[1].split(":")
listener = socket.create_server((host, int(port)))
open(sys.argv[2], "w").close()
print("asked by", listener.accept()[1][0], flush=True)' "$MIRROR" "$work/mirror.listens") >"$work/mirror.log" &
    listener=$!
    eventually 20 "the mirror listens" test -e "$work/mirror.listens"
    inside worker-1 crictl --runtime-endpoint "unix://$(socket_of worker-1)" pull quay.example.com/any:1 >/dev/null 2>&1 || true
    wait "$listener" || fail "containerd did not ask the mirror"
    say "mirror: $(cat "$work/mirror.log")"
}

# There is no registry: the image of the suite is stored under its digest, as a pull would do.
an_image_is_pinned_in_containerd() {
    local digest
    digest=$(inside worker-1 ctr -n k8s.io images list "name==$MCO_IMAGE" | grep -o 'sha256:[0-9a-f]*')
    PINNED_IMAGE=registry.example.com/mco@$digest
    inside worker-1 ctr -n k8s.io images tag "$MCO_IMAGE" "$PINNED_IMAGE" >/dev/null
    eventually 30 "the runtime has the image" pinned_is worker-1 false
    kubectl apply -f - >/dev/null <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: PinnedImageSet
metadata: {name: tools, labels: {machineconfiguration.openshift.io/role: $ADOPTING_POOL}}
spec: {pinnedImages: [{name: "$PINNED_IMAGE"}]}
END
    eventually 120 "the image has the label" has_pin_label worker-1
    if inside worker-1 containerd --version | grep -qE ' v?1\.[0-6]\.'; then
        say "$(inside worker-1 containerd --version | cut -d' ' -f3) reports no image as pinned"
        eventually 120 "the node reports that its containerd is too old" refuses_pins worker-1
    else
        eventually 120 "the image is pinned" pinned_is worker-1 true
    fi
}
has_pin_label() { inside "$1" ctr -n k8s.io images list "name==$PINNED_IMAGE" | grep -q 'io.cri-containerd.pinned=pinned'; }
has_no_pin_label() { ! has_pin_label "$1"; }
refuses_pins() { kubectl get machineconfignode "$1" -o yaml | grep -q 'upgrade to containerd 1.7'; }
pinned_is() { # MACHINE VALUE
    inside "$1" crictl --runtime-endpoint "unix://$(socket_of "$1")" images --output json | python3 -c '
import json, sys
images = [image for image in json.load(sys.stdin)["images"] if sys.argv[1] in image["repoDigests"]]
sys.exit(not images or any(image["pinned"] != (sys.argv[2] == "true") for image in images))' "$PINNED_IMAGE" "$2"
}

# Label, annotate currentConfig, request with the force file: the kubelet keeps its credential, and originals come back.
the_formerly_documented_way_is_harmless() {
    local credential
    credential=$(sha256sum <"$work/worker-2/etc/kubernetes/kubelet.conf")
    install -D -m 0640 /dev/stdin "$work/worker-2/etc/chrony/chrony.conf" <<<"pool ntp.example.com iburst"
    kubectl annotate mcp "$ADOPTING_POOL" --overwrite mco.dev/adopt=never >/dev/null
    kubectl annotate node worker-2 "$PREFIX/currentConfig=$(target_of "$ADOPTING_POOL")" >/dev/null
    kubectl label node worker-2 node-role.kubernetes.io/worker= >/dev/null
    inside worker-2 sh -c 'mkdir -p /run && touch /run/machine-config-daemon-force'
    sleep 30
    eventually 120 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    expect "the credential is the same" test "$(sha256sum <"$work/worker-2/etc/kubernetes/kubelet.conf")" = "$credential"
    say "worker-2 after the force: $(annotation worker-2 state) $(annotation worker-2 reason)"
    exits 0 "the release of worker-2" mco release worker-2 --timeout 5m --kubeconfig "$work/admin.conf"
    expect "the original is there" grep -qx 'pool ntp.example.com iburst' "$work/worker-2/etc/chrony/chrony.conf"
    expect "nothing else is left" test ! -e "$work/worker-2/etc/sysctl.d/90-new.conf"
    eventually 60 "no annotation is left" no_annotation worker-2
}
no_annotation() { ! kubectl get node "$1" -o yaml | grep -qE "$PREFIX/|mco\.dev/|UpdateInProgress"; }

a_released_node_is_as_before() {
    kubectl delete pinnedimageset tools >/dev/null
    eventually 120 "the image is no longer pinned" has_no_pin_label worker-1
    rolls_out "$ADOPTING_POOL" kubectl delete imagetagmirrorsets.mco.dev mirrors
    rolls_out "$ADOPTING_POOL" kubectl delete kubeletconfig pods
    eventually 60 "the kubelet has its former setting" configz_has worker-1 '"maxPods":110'
    exits 0 "the release" mco release worker-1 --timeout 5m --kubeconfig "$work/admin.conf"
    eventually 120 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    same_as worker-1 before
    eventually 60 "no annotation is left" no_annotation worker-1
    expect "it is schedulable" test -z "$(kubectl get node worker-1 -o 'jsonpath={.spec.unschedulable}')"
}

# A machine as of a new image joins, and its pool adopts it by itself.
a_new_node_is_adopted_where_its_pool_allows_it() {
    expected down worker-2
    kubectl delete node worker-2 >/dev/null
    inside worker-2 sh -c 'systemctl stop kubelet; rm -rf /etc/kubernetes/kubelet.conf /etc/kubernetes/pki \
        /var/lib/kubelet/pki /var/lib/kubelet/config.yaml /etc/machine-config-daemon'
    kubectl annotate mcp "$ADOPTING_POOL" --overwrite mco.dev/adopt=always >/dev/null
    kubeadm_join worker-2 join.yaml
    eventually 120 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    kubectl label node worker-2 node-role.kubernetes.io/worker= >/dev/null
    eventually "$NODE_PATIENCE" "worker-2 is managed" has_file worker-2 /etc/chrony/chrony.conf 'pool time.example.com'
    expect "a released node stays released" test -z "$(annotation worker-1 currentConfig)"
    no_longer_expected down worker-2
}

an_uninstall_leaves_no_byte_on_released_nodes() {
    if [ -n "$(annotation worker-2 currentConfig)" ]; then
        exits 1 "an uninstall is refused while a node is adopted" mco uninstall --kubeconfig "$work/admin.conf" --yes
        expect "the node is named" grep -q 'adopted and not released: worker-2' "$work/exits.log"
        exits 0 "the release of worker-2" mco release worker-2 --timeout 5m --kubeconfig "$work/admin.conf"
    fi
    exits 0 "the uninstall" timeout 150 ip netns exec "$HUB" "$mco" uninstall --kubeconfig "$work/admin.conf" --yes
    same_as worker-1 before
    same_as cp-1 before
    expect "no annotation of a node is left" test -z "$(kubectl get nodes -o yaml | grep -E "$PREFIX/|mco\.dev/|UpdateInProgress")"
}

# page_block NAME: the block of the page that follows this marker.
PAGE=docs/kubeadm.md
page_block() {
    local block
    block=$(sed -n "/^<!-- e2e: $1 -->\$/,/^\`\`\`\$/p" "$PAGE" | sed '1,/^```/d;$d')
    [ -n "$block" ] || fail "$PAGE has no block $1"
    echo "${block//registry.example.com\/mco:0.1.0/$MCO_IMAGE}"
}
page_commands() { # NAME
    say "$PAGE: $1"
    # Every command has to succeed, also where the caller handles the exit code.
    (export KUBECONFIG=$work/admin.conf && eval "$(page_block "$1" | sed '$!s/$/ \&\&/')") >"$work/page.log" 2>&1 \
        || { page_status=$?; return "$page_status"; }
}
the_page_about_kubeadm_is_right() {
    kubectl label node worker-1 node-role.kubernetes.io/worker- >/dev/null
    page_commands install || { cat "$work/page.log" >&2; fail "the installation failed"; }
    eventually 120 "all pods run" pods_ready $((1 + $(controllers) + $(wc -w <<<"$MACHINES")))
    page_commands pods || { cat "$work/page.log" >&2; fail "the pods do not run"; }
    page_block objects | kubectl apply -f - >/dev/null 2>&1 || fail "the objects are refused"
    eventually 60 "the pool has both configs" page_is_rendered
    page_status=0
    page_commands preview || true
    [ "$page_status" = 3 ] || { cat "$work/page.log" >&2; fail "the preview exits with $page_status, not 3"; }
    same_as worker-1 before
    page_commands adopt || { cat "$work/page.log" >&2; fail "the adoption failed"; }
    eventually "$NODE_PATIENCE" "worker-1 is adopted" has_file worker-1 /etc/sysctl.d/90-apps.conf \
        'net.ipv4.tcp_keepalive_probes = 5'
    eventually 60 "the kubelet uses the setting" configz_has worker-1 '"maxPods":88'
    page_commands release || { cat "$work/page.log" >&2; fail "leaving failed"; }
    same_as worker-1 before
}
page_is_rendered() {
    kubectl get machineconfig "$(target_of apps)" -o yaml | grep -qF 90-apps.conf &&
        kubectl get machineconfig "$(target_of apps)" -o yaml | grep -qF kubelet.conf.d
}
