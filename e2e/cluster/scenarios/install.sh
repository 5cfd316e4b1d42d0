# Installation, and nodes that are adopted.
# shellcheck shell=bash

# The base templates are for machines that boot from our server. These machines are kubeadm's, so their base is one file.
templates_image() {
    local tree=$work/templates/etc/mcc/templates role
    for role in master worker; do
        mkdir -p "$tree/$role/00-$role/_base/files"
        cat >"$tree/$role/00-$role/_base/files/marker.yaml" <<END
mode: 0644
path: "/etc/mco-e2e-base"
contents:
  inline: |
    $role
END
    done
    install -D -m 0755 /bin/busybox "$work/templates/bin/cp"
    local container
    container=$(image_tool from scratch)
    image_tool copy -q "$container" "$work/templates" / >/dev/null
    image_tool config --env PATH=/bin --user 65534:65534 "$container"
    image_tool commit -q --rm "$container" "$IMAGE_REPOSITORY/templates:e2e" >/dev/null
    image_tool push -q "$IMAGE_REPOSITORY/templates:e2e" "docker-archive:$work/templates.tar:$IMAGE_REPOSITORY/templates:e2e"
}

installs_as_documented() {
    local machine
    templates_image
    # Nodes that already are as their base says: their adoption changes nothing.
    for machine in $CONTROL_PLANES; do
        echo master >"$work/$machine/etc/mco-e2e-base"
    done
    for machine in $WORKERS; do
        echo worker >"$work/$machine/etc/mco-e2e-base"
    done
    for machine in $CONTROL_PLANES; do
        import_image "$machine" "$work/templates.tar"
        kubectl label node "$machine" node-role.kubernetes.io/master= >/dev/null
    done
    for machine in $WORKERS; do
        kubectl label node "$machine" node-role.kubernetes.io/worker= >/dev/null
    done
    mco install "${INSTALL_OPTIONS[@]}" --image "$MCO_IMAGE" >"$work/install.yaml"
    exits 3 "a check reports what would be created" check_of "$MCO_IMAGE"
    kubectl apply --server-side -f "$work/install.yaml" >"$work/install.log" 2>&1 \
        || { cat "$work/install.log" >&2; fail "kubectl apply failed"; }
    eventually 120 "all pods run" pods_ready "$(expected_pods)"
    kubectl -n "$NAMESPACE" get pods -o wide >&2
    expect "the replicas follow the number of control-plane nodes" \
        test "$(kubectl -n "$NAMESPACE" get deployment machine-config-controller -o 'jsonpath={.spec.replicas}')" = "$(controllers)"
    [ "$(controllers)" -gt 1 ] || expect "no budget that a drain could never satisfy" \
        test -z "$(kubectl -n "$NAMESPACE" get pdb -o name)"
}

INSTALL_OPTIONS=(--base openshift --templates-image "$IMAGE_REPOSITORY/templates:e2e")
check_of() { mco install "${INSTALL_OPTIONS[@]}" --image "$1" --check --kubeconfig "$work/admin.conf"; } # IMAGE
controllers() { [ "$(wc -w <<<"$CONTROL_PLANES")" = 1 ] && echo 1 || echo 2; }
# Operator, controllers, a server on every control-plane node, and a daemon on every node.
expected_pods() { echo $((1 + $(controllers) + $(wc -w <<<"$CONTROL_PLANES") + $(wc -w <<<"$MACHINES"))); }

it_can_be_applied_again() {
    kubectl apply --server-side -f "$work/install.yaml" >"$work/again.log" 2>&1 \
        || { cat "$work/again.log" >&2; fail "applying the same manifests again fails"; }
    expect "no pod was replaced" pods_ready "$(expected_pods)"
    exits 0 "a check finds nothing to change" check_of "$MCO_IMAGE"
}

nodes_are_adopted() {
    local machine pool
    for pool in master worker; do
        eventually "$NODE_PATIENCE" "pool $pool is updated" pool_is_updated "$pool"
    done
    for machine in $MACHINES; do
        expect "$machine was not rebooted" test "$(boots "$machine")" = 1
    done
}
