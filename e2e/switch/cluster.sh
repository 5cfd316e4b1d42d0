# A cluster of the Go implementation: its objects are created once, and copied to every Kubernetes that is started.
# Sourced by "run".
# shellcheck shell=bash

POOLS="infra master worker"
NODES="master-0:master worker-0:worker worker-1:worker worker-2:worker infra-0:infra"

# Sets $case_name, $manifests, $templates, $pull_secret and, with recorded results, $expected.
choose_case() {
    local vectors=../shared/vectors case=c00003
    expected=
    release_image=release.example.com/release@sha256:$(printf '%064d' 0)
    if [ -d "$vectors/bootstrap/$case" ]; then
        case_name="recorded case $case"
        manifests=$(realpath "$vectors/bootstrap/$case/manifests")
        templates=$(realpath "$vectors/templates")
        pull_secret=$(realpath "$vectors/pull-secret.yaml")
        expected=$(realpath "$vectors/bootstrap/$case/expected")
        release_image=$(json "$manifests/machineconfigcontroller-controllerconfig.yaml" | jq -r .spec.releaseImage)
        return
    fi
    [ -z "${CI:-}" ] || fail "$vectors is missing: in CI the names must be those that the Go implementation recorded"
    say "NOTE: $vectors is missing, so the names are those of our own render, not recorded ones"
    case_name="our own examples"
    manifests=examples/quickstart
    templates=templates
    pull_secret=$work/pull-secret.yaml
    cat >"$pull_secret" <<'YAML'
{apiVersion: v1, kind: Secret, type: kubernetes.io/dockerconfigjson, metadata: {name: pull-secret}, data: {.dockerconfigjson: e30=}}
YAML
}

# json FILE   manifests as a stream of JSON objects
json() { kubectl patch --local --type merge --patch '{}' -o json -f "$1" | jq -c 'if .kind == "List" then .items[] else . end'; }

# plain_definition GROUP KIND PLURAL   a kind that accepts everything
plain_definition() {
    jq -n --arg group "$1" --arg kind "$2" --arg plural "$3" '{
        apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", metadata: {name: "\($plural).\($group)"},
        spec: {group: $group, scope: "Cluster",
            names: {kind: $kind, listKind: "\($kind)List", plural: $plural, singular: ($kind | ascii_downcase)},
            versions: [{name: "v1", served: true, storage: true,
                schema: {openAPIV3Schema: {type: "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}'
}

# The CRDs of a release: with other descriptions, and some of them reconciled by the cluster version operator.
their_definitions() {
    "$MCO" crds -o json | jq -c '.[]
        | walk(if type == "object" and (.description | type) == "string" then .description = "In other words: " + .description else . end)
        | if (.metadata.name | test("^(c|k|i)")) then
            .metadata.annotations["include.release.openshift.io/self-managed-high-availability"] = "true" else . end'
    plain_definition config.openshift.io Infrastructure infrastructures
    plain_definition config.openshift.io Network networks
    plain_definition config.openshift.io DNS dnses
    plain_definition config.openshift.io FeatureGate featuregates
    plain_definition config.openshift.io APIServer apiservers
    plain_definition config.openshift.io Node nodes
    plain_definition config.openshift.io ClusterVersion clusterversions
}

# What surrounds the component: namespaces, accounts, the cluster's own description.
surroundings() {
    local name
    jq -n --arg name "$NAMESPACE" '{apiVersion: "v1", kind: "Namespace", metadata: {name: $name,
        annotations: {"openshift.io/node-selector": "", "workload.openshift.io/allowed": "management"},
        labels: {name: $name, "openshift.io/run-level": "", "openshift.io/cluster-monitoring": "true",
            "pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/audit": "privileged",
            "pod-security.kubernetes.io/warn": "privileged"}}}'
    for name in openshift-machine-api openshift-config openshift-config-managed; do
        jq -n --arg name "$name" '{apiVersion: "v1", kind: "Namespace", metadata: {name: $name}}'
    done
    for name in operator controller daemon server; do
        jq -n --arg name "machine-config-$name" --arg namespace "$NAMESPACE" \
            '{apiVersion: "v1", kind: "ServiceAccount", metadata: {name: $name, namespace: $namespace}}'
    done
    json "$pull_secret" | jq '.metadata = {name: "pull-secret", namespace: "openshift-config"}'
    jq -n '{apiVersion: "config.openshift.io/v1", kind: "Network", metadata: {name: "cluster"},
        spec: {networkType: "OVNKubernetes", serviceNetwork: ["172.30.0.0/16"]}, status: {networkType: "OVNKubernetes"}}'
    jq -n --arg release "$RELEASE" --arg image "$release_image" '{apiVersion: "config.openshift.io/v1", kind: "ClusterVersion", metadata: {name: "version"},
        spec: {overrides: [{group: "", kind: "ConfigMap", name: "mine", namespace: "default", unmanaged: true}]},
        status: {desired: {version: $release, image: $image}}}'
    jq -n --arg namespace "$NAMESPACE" --arg release "$RELEASE" '{apiVersion: "v1", kind: "ConfigMap",
        metadata: {name: "machine-config-operator-images", namespace: $namespace},
        data: {"images.json": ({releaseVersion: $release, machineConfigOperator: "localhost/theirs", infraImage: "localhost/pod",
            kubeRbacProxy: "localhost/proxy", oauthProxy: "localhost/oauth", keepalivedImage: "localhost/keepalived"} | tojson)}}'
    jq -n --arg namespace "$NAMESPACE" '{apiVersion: "apps/v1", kind: "Deployment",
        metadata: {name: "machine-config-operator", namespace: $namespace},
        spec: {selector: {matchLabels: {"k8s-app": "machine-config-operator"}},
            template: {metadata: {labels: {"k8s-app": "machine-config-operator"}},
                spec: {containers: [{name: "machine-config-operator", image: "localhost/theirs",
                    command: ["/usr/bin/machine-config-operator"]}]}}}}'
}

# What people and the installer wrote, without the ControllerConfig.
written() {
    local file
    for file in "$manifests"/*.yaml; do
        json "$file" | jq -c 'select(.kind != "ControllerConfig" and .kind != "MachineConfigPool")'
    done
    if [ -n "$expected" ]; then
        for file in "$expected"/machine-pools/*.yaml; do
            json "$file"
        done
    else
        json "$manifests/pools.yaml"
    fi
}

# The ControllerConfig as the Go operator completes it, and the objects that it is made from.
their_controller_config() {
    [ -n "$expected" ] || {
        jq -n '{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "kube-apiserver-client-ca", namespace: "openshift-config-managed"},
            data: {"ca-bundle.crt": "-----BEGIN CERTIFICATE-----\nCLIENTS\n-----END CERTIFICATE-----\n"}}'
        return
    }
    json "$manifests/machineconfigcontroller-controllerconfig.yaml" | jq --arg release "$RELEASE" --arg prefix "$PREFIX" '
        .metadata.annotations += {
            "\($prefix)/generated-by-version": "v0.0.0-theirs", "\($prefix)/release-image-version": $release,
            "\($prefix)/service-ca-rotate": "false"}
        | .spec = {baseOSContainerImage: "", baseOSExtensionsContainerImage: "", cloudProviderCAData: null, dns: null,
            etcdDiscoveryDomain: "", imageRegistryBundleData: [], imageRegistryBundleUserData: [], ipFamilies: "IPv4",
            network: null, networkType: "OVNKubernetes", platform: "none",
            pullSecret: {name: "pull-secret", namespace: "openshift-config"}} + .spec
        | .spec.images = {machineConfigOperator: "localhost/theirs", apiServerWatcherKey: "localhost/theirs",
            infraImageKey: "localhost/pod", keepalivedImage: "localhost/keepalived", corednsImage: "", haproxyImage: "",
            baremetalRuntimeCfgImage: "", kubeRbacProxyImage: "localhost/proxy", dockerRegistryImage: ""}'
    json "$manifests/machineconfigcontroller-controllerconfig.yaml" | jq -c '.spec
        | (.infra | del(.metadata.creationTimestamp)),
          {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "root-ca", namespace: "kube-system"},
            data: {"ca.crt": (.rootCAData | @base64d)}},
          {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "kube-apiserver-client-ca", namespace: "openshift-config-managed"},
            data: {"ca-bundle.crt": (.kubeAPIServerServingCAData | @base64d)}},
          {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "initial-kube-apiserver-server-ca", namespace: "openshift-config"},
            data: {"ca-bundle.crt": "-----BEGIN CERTIFICATE-----\nINITIAL\n-----END CERTIFICATE-----\n"}}'
}

# create FILE   creates a stream of objects; owners get the identities they have here
create() {
    local owners
    [ -s "$1" ] || return 0
    owners=$(kubectl get controllerconfigs,machineconfigpools,kubeletconfigs,containerruntimeconfigs,nodes,images.config.openshift.io \
        -o json 2>/dev/null | jq '[.items[] | {key: "\(.kind)/\(.metadata.name)", value: .metadata.uid}] | from_entries') || owners={}
    jq -c --argjson owners "$owners" '
        if .metadata.ownerReferences then
            .metadata.ownerReferences |= map(.uid = ($owners["\(.kind)/\(.name)"] // error("no owner \(.kind)/\(.name)")))
        else . end' "$1" >"$work/creating"
    kubectl create -f "$work/creating" >"$work/create.log" 2>&1 ||
        { grep -v ' created$' "$work/create.log" >&2; fail "cannot create the objects of $1"; }
}

# start_embedded DIR   an API server without anything
start_embedded() {
    local port
    port=$(free_port)
    "$MCO" up --bare --data-dir "$1" --port "$port" >"$1.log" 2>&1 &
    pids+=("$!")
    export KUBECONFIG=$1/kubeconfig
    answers() { kubectl get --raw /readyz; }
    eventually "the embedded control plane" answers
}

# start_ours [ARGUMENTS-OF-THE-OPERATOR...]
start_ours() {
    "$MCO" operator --ignition-tokens optional --lease-seconds "$LEASE_SECONDS" "$@" >>"$work/operator.log" 2>&1 &
    operator=$!
    "$MCO" controller --lease-seconds "$LEASE_SECONDS" --templates "$templates" >>"$work/controller.log" 2>&1 &
    controller=$!
    pids+=("$operator" "$controller")
}

stop_ours() {
    kill "$operator" "$controller"
    wait "$operator" "$controller" || fail "ours did not stop well: $(tail -n 2 "$work/operator.log" "$work/controller.log")"
}

target() { kubectl get machineconfigpool "$1" -o jsonpath='{.spec.configuration.name}'; }
targets() {
    local pool
    for pool in $POOLS; do
        target "$pool" | grep . || return 1
    done
}
paused() { kubectl get machineconfigpools -o jsonpath='{range .items[?(@.spec.paused==true)]}{.metadata.name}{" "}{end}'; }
overrides() { kubectl get clusterversion version -o jsonpath='{.spec.overrides[*].kind}'; }
finalizers() { kubectl get machineconfigs -o jsonpath='{.items[*].metadata.finalizers[*]}'; }

# is_followed   the template controller has rendered the ControllerConfig of our operator
is_followed() {
    kubectl get controllerconfig machine-config-controller -o json | jq -e --arg prefix "$PREFIX" '
        .metadata.annotations["\($prefix)/generated-by-version"] == $ENV.VERSION
        and .status.observedGeneration == .metadata.generation
        and (.status.conditions | any(.type == "TemplateControllerCompleted" and .status == "True"))' &&
        kubectl get machineconfigs -o json | jq -e --arg prefix "$PREFIX" '
            [.items[] | .metadata.annotations["\($prefix)/generated-by-controller-version"] // empty]
            | unique == [$ENV.VERSION]'
}

# is_content   the operator has done everything that needs no pods
is_content() {
    kubectl get clusteroperator machine-config -o json | jq -e '.status.conditions
        | any(.type == "Degraded" and .status == "False" and .reason == "AsExpected")'
}

# nodes [CURRENT-WORKER-CONFIG]   every node has its pool's config
node_objects() {
    local node pool
    for node in $NODES; do
        pool=${node#*:}
        jq -n --arg name "${node%:*}" --arg pool "$pool" --arg config "$(target "$pool")" --arg prefix "$PREFIX" '{
            apiVersion: "v1", kind: "Node", metadata: {name: $name,
                labels: ({"kubernetes.io/os": "linux", "kubernetes.io/hostname": $name, "node-role.kubernetes.io/\($pool)": ""}
                    + {infra: {"node-role.kubernetes.io/worker": ""}, master: {"node-role.kubernetes.io/control-plane": ""}, worker: {}}[$pool]),
                annotations: {"\($prefix)/currentConfig": $config, "\($prefix)/desiredConfig": $config, "\($prefix)/state": "Done",
                    "\($prefix)/reason": "", "\($prefix)/desiredDrain": "uncordon-\($config)", "\($prefix)/lastAppliedDrain": "uncordon-\($config)"}},
            status: {conditions: [{type: "Ready", status: "True"}], nodeInfo: {kubeletVersion: "v1.36.0"}}}'
    done
}

create_nodes() {
    node_objects >"$work/nodes"
    jq -c . "$work/nodes" | while read -r node; do
        echo "$node" | kubectl create -f - >/dev/null
        echo "$node" | kubectl replace --subresource=status -f - >/dev/null 2>&1 ||
            kubectl patch node "$(jq -r .metadata.name <<<"$node")" --subresource=status --type merge \
                --patch "$(jq -c '{status: .status}' <<<"$node")" >/dev/null
    done
}

# Makes the objects once, with an embedded control plane, and rewrites them as the Go implementation spells them.
make_objects() {
    local seed=$work/seed pool
    VERSION=$("$MCO" --version | awk '{print $2}')
    export VERSION
    start_embedded "$seed"
    their_definitions >"$work/definitions"
    surroundings >"$work/surroundings"
    written >"$work/written"
    their_controller_config >"$work/controller-config"
    create "$work/definitions"
    eventually "the kinds" kubectl get clusterversions,machineconfigpools,images.config.openshift.io
    create "$work/surroundings"
    create "$work/written"
    create "$work/controller-config"
    start_ours
    eventually "rendered configs" targets
    eventually "the ControllerConfig" is_followed
    for pool in $POOLS; do
        [ -z "$expected" ] || [ -e "$expected/machine-configs/$(target "$pool").yaml" ] ||
            fail "pool $pool was rendered to $(target "$pool"), the Go implementation renders $(ls "$expected/machine-configs")"
    done
    create_nodes
    has_progress() { [ "$(kubectl get machineconfignodes -o name | wc -l)" = "$(wc -w <<<"$NODES")" ]; }
    eventually "MachineConfigNodes" has_progress
    pools_are_updated() { kubectl wait machineconfigpools --all --for condition=Updated --timeout 1s; }
    eventually "pools that are up to date" pools_are_updated
    eventually "the operator is content" is_content
    stop_ours
    collect
    end_last
}

# end_last   ends what was started last that still runs: the embedded control plane
end_last() {
    kill "${pids[0]}"
    wait "${pids[0]}" || true
}

# Everything that the Go implementation would have written, in its own spelling.
collect() {
    local strip='del(.metadata.managedFields, .metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.generation, .metadata.finalizers)'
    kubectl get controllerconfigs -o json | jq -c --arg prefix "$PREFIX" --slurpfile theirs "$work/controller-config" ".items[] | $strip"'
        | .metadata.annotations["\($prefix)/generated-by-version"] = "v0.0.0-theirs" | (.spec.platform | strings) |= ascii_downcase
        | .spec = .spec + (($theirs | map(select(.kind == "ControllerConfig")) | .[0].spec // {}) | del(.rootCAData))' >"$work/configs.json"
    kubectl get kubeletconfigs,containerruntimeconfigs -o json | jq -c '.items[] | .metadata.finalizers as $names | '"$strip"'
        | .metadata.finalizers = $names' >"$work/users.json"
    kubectl get machineconfigpools -o json | jq -c ".items[] | $strip | .status.conditions |= reverse" >"$work/pools.json"
    kubectl get machineconfigurations.operator.openshift.io -o json | jq -c ".items[] | $strip"'
        | .status.nodeDisruptionPolicyStatus.clusterPolicies.files |= reverse' >"$work/settings.json"
    kubectl get machineconfignodes -o json | jq -c ".items[] | $strip" >"$work/progress.json"
    kubectl get clusteroperators -o json | jq -c ".items[] | $strip"'
        | .status.extension.lastSyncError = "pool worker has not progressed"
        | .status.versions = [{name: "operator", version: $ENV.RELEASE}, {name: "operator-image", version: "localhost/theirs"}]' >"$work/operators.json"
    kubectl get secrets --namespace openshift-machine-api -o json | jq -c ".items[] | $strip"'
        | if (.metadata.name | endswith("-managed")) then .data.userData |= (@base64d | fromjson
            | .ignition.config.merge[0].verification = {} | .ignition.proxy = {} | .ignition.timeouts = {}
            | .ignition.security.tls.certificateAuthorities[]?.verification = {}
            | .passwd = {} | .storage = {} | .systemd = {} | tojson | @base64) else . end' >"$work/user-data.json"
    kubectl get secrets,configmaps --namespace "$NAMESPACE" -o json | jq -c ".items[] | $strip"'
        | select(.metadata.name | startswith("machine-config-server"))' >"$work/server.json"
    kubectl get machineconfigs -o json | jq -c --arg prefix "$PREFIX" --arg version "$THEIR_VERSION" ".items[] | $strip"'
        | select(.metadata.annotations["\($prefix)/generated-by-controller-version"])
        | .metadata.annotations["\($prefix)/generated-by-controller-version"] = $version
        | if (.spec.extensions // []) == [] then del(.spec.extensions) else . end
        | if (.spec.kernelArguments // []) == [] then .spec.kernelArguments = null else . end
        | if .metadata.ownerReferences and (.metadata.name | endswith("-generated-registries")) then
            .metadata.ownerReferences |= map(del(.controller, .blockOwnerDeletion)) else . end' >"$work/machine-configs.json"
    use_recorded
}

# Recorded rendered configs take the place of ours: their bytes are the Go implementation's.
use_recorded() {
    [ -n "$expected" ] || return 0
    local file
    jq -c 'select(.metadata.name | startswith("rendered-") | not)' "$work/machine-configs.json" >"$work/generated.json"
    for file in "$expected"/machine-configs/rendered-*.yaml; do
        json "$file" | jq -c --arg prefix "$PREFIX" --arg release "$RELEASE" \
            'del(.metadata.creationTimestamp) | .metadata.annotations["\($prefix)/release-image-version"] = $release'
    done >"$work/rendered.json"
    cat "$work/generated.json" "$work/rendered.json" >"$work/machine-configs.json"
}

# with_status FILE   writes the status of objects that were created without it
with_status() {
    jq -c 'select(.status)' "$1" | while read -r object; do
        kubectl patch "$(jq -r '.kind + "." + (.apiVersion | split("/")[0])' <<<"$object")" "$(jq -r .metadata.name <<<"$object")" \
            --subresource=status --type merge --patch "$(jq -c '{status: .status}' <<<"$object")" >/dev/null
    done
}

# start_cluster DIR   a real Kubernetes with those objects, as if the Go implementation had just gone
start_cluster() {
    [ -d "$work/kubernetes" ] || {
        # The daemon is privileged, which every distribution's API server allows and a bare one does not.
        cp -r e2e/kubernetes "$work/kubernetes"
        sed -i 's/launch kube-apiserver /launch kube-apiserver --allow-privileged /' "$work/kubernetes/start"
    }
    "$work/kubernetes/start" "$1"
    export KUBECONFIG=$1/kubeconfig
    create "$work/definitions"
    eventually "the kinds" kubectl get clusterversions,machineconfigpools,images.config.openshift.io
    create "$work/surroundings"
    jq -c 'select(.kind | IN("MachineConfigPool", "KubeletConfig", "ContainerRuntimeConfig") | not)' "$work/written" >"$work/others.json"
    create "$work/others.json"
    jq -c 'select(.kind != "ControllerConfig")' "$work/controller-config" >"$work/facts.json"
    create "$work/facts.json"
    for objects in users configs pools settings operators; do
        create "$work/$objects.json"
        with_status "$work/$objects.json"
    done
    create_nodes
    for objects in progress user-data server machine-configs; do
        create "$work/$objects.json"
    done
    with_status "$work/progress.json"
}
