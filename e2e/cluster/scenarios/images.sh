# OS images that are built in the cluster: the real buildah in the pod of a Job, a real registry with TLS and credentials.
# worker-2 boots images, as far as a container can: the kubelet reports CoreOS, rpm-ostree is a double that keeps state,
# and what it stages boots after an orderly shutdown only. Whether an image exists, and whether the node's credentials and
# certificates are good for it, is checked by the real skopeo. worker-1 is the Debian that it is.
# The scenarios build on each other.
# shellcheck shell=bash

IMAGE_NODE=worker-2
IMAGE_POOL=images
BUILDER_IMAGE=$IMAGE_REPOSITORY/mco-builder:e2e
REGISTRY=$HUB_ADDRESS:5000
KILLS=${KILLS:-20}
# A build, and the minute after which an interrupted one is started again.
BUILD_PATIENCE=240

# What the machine that boots images has besides.
image_machine() { # ROOT
    local programs=$1/usr/lib/os-double state=$1/var/lib/os-double name
    install -d "$programs" "$state/booted" "$1/ostree/repo/refs/heads/ostree/container/blob"
    install -m 0644 crates/testkit/programs/os-double-lib "$programs/"
    install -m 0755 crates/testkit/programs/{rpm-ostree,ostree,os-double} "$programs/"
    for name in rpm-ostree ostree os-double; do
        install -m 0755 e2e/cluster/machine-files/images/os-double "$1/usr/sbin/$name"
    done
    install -m 0644 e2e/cluster/machine-files/images/os-double-finalize.service "$1/etc/systemd/system/"
    ln -sf /etc/systemd/system/os-double-finalize.service "$1/etc/systemd/system/multi-user.target.wants/"
    touch "$state/registry" "$state/booted"/{reference,digest,packages,removals,local}
    echo 4cbe >"$state/booted/checksum"
    printf 'quiet\n' >"$state/booted/kargs"
    cat >"$1/usr/lib/os-release" <<'END_OF_RELEASE'
NAME="Fedora Linux"
ID=fedora
VARIANT_ID=coreos
VERSION_ID=44
PRETTY_NAME="Fedora CoreOS 44 (a double)"
END_OF_RELEASE
}

# A Debian with buildah and our program, as Containerfile.builder makes it, but written without a tool: buildah would copy
# the Debian four times.
builder_image() {
    local into=$work/builder layer diffs=()
    mkdir -p "$into/root/usr/bin"
    # debootstrap does not find out by itself which package provides the network that buildah depends on.
    ln -s "$(debian_root_archive builder buildah,ca-certificates,uidmap,containernetworking-plugins)" "$into/debian.tar"
    strip -o "$into/root/usr/bin/mco" "$mco"
    tar -C "$into/root" --owner=0 --group=0 -cf "$into/program.tar" usr
    for layer in debian program; do
        diffs+=("sha256:$(sha256sum "$into/$layer.tar" | cut -d' ' -f1)")
    done
    jq -n --arg architecture "$(dpkg --print-architecture)" '{architecture: $architecture, os: "linux", rootfs: {type: "layers", diff_ids: $ARGS.positional},
            config: {Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], Entrypoint: ["/usr/bin/mco"]}}' \
        --args "${diffs[@]}" >"$into/config.json"
    jq -n --arg name "$BUILDER_IMAGE" '[{Config: "config.json", RepoTags: [$name], Layers: ["debian.tar", "program.tar"]}]' \
        >"$into/manifest.json"
    tar -C "$into" -hcf "$work/mco-builder.tar" manifest.json config.json debian.tar program.tar
    rm -r "$into"
}

start_registry() {
    local password
    password=$(openssl rand -hex 12)
    mkdir -p "$work/registry" "$work/certs"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout "$work/ca.key" -out "$work/certs/ca.crt" 2>/dev/null
    openssl req -newkey rsa:2048 -nodes -subj /CN=registry -keyout "$work/tls.key" -out "$work/tls.csr" 2>/dev/null
    openssl x509 -req -in "$work/tls.csr" -CA "$work/certs/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:$HUB_ADDRESS") -out "$work/tls.crt" 2>/dev/null
    htpasswd -Bbn builder "$password" >"$work/htpasswd"
    cat >"$work/registry.yml" <<END_OF_FILE
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $work/registry}, delete: {enabled: true}}
http: {addr: "$REGISTRY", tls: {certificate: $work/tls.crt, key: $work/tls.key}}
auth: {htpasswd: {realm: test, path: $work/htpasswd}}
END_OF_FILE
    (exec ip netns exec "$HUB" docker-registry serve "$work/registry.yml") >"$work/registry.log" 2>&1 &
    registry_pid=$!
    printf '{"auths":{"%s":{"auth":"%s"}}}' "$REGISTRY" "$(printf 'builder:%s' "$password" | base64 -w0)" >"$work/auth.json"
    printf 'user = "builder:%s"\n' "$password" >"$work/curl.conf"
    eventually 30 "the registry answers" registry_has '' -X GET
}
# registry_has PATH [OPTION...]: a request to the registry succeeds.
registry_has() {
    local path=$1
    shift
    in_hub curl -sf -o /dev/null --cacert "$work/certs/ca.crt" --config "$work/curl.conf" \
        -H 'Accept: application/vnd.oci.image.manifest.v1+json' "$@" "https://$REGISTRY/v2/$path"
}
image_exists() { registry_has "os/manifests/${1#*@}"; } # IMAGE or TAG
image_is_gone() { ! image_exists "$1"; }

# Two base images that a node could boot: busybox, with the label of a bootable image.
base_images() {
    local number
    mkdir -p "$work/base/bin"
    cp /bin/busybox "$work/base/bin/busybox"
    printf 'FROM scratch\nCOPY bin/busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\nLABEL ostree.bootable=1\n' \
        >"$work/base/Containerfile"
    for number in 1 2; do
        image_tool bud -q --isolation chroot --label number=$number --tag "$REGISTRY/base:$number" "$work/base" \
            >"$work/base.log" 2>&1 || { tail -n 5 "$work/base.log" >&2; fail "cannot build the base image"; }
        in_hub buildah --root "$work/images/root" --runroot "$work/images/run" --storage-driver vfs push -q \
            --authfile "$work/auth.json" --cert-dir "$work/certs" --digestfile "$work/digest-$number" "$REGISTRY/base:$number" \
            >>"$work/base.log" 2>&1 || { tail -n 5 "$work/base.log" >&2; fail "cannot push the base image"; }
    done
}
base() { echo "$REGISTRY/base@$(cat "$work/digest-$1")"; } # NUMBER

a_registry_and_a_builder_image_are_there() {
    local machine
    install_packages docker-registry apache2-utils curl skopeo jq busybox-static
    builder_image
    start_registry
    base_images
    for machine in $WORKERS; do
        import_image "$machine" "$work/mco-builder.tar"
    done
    say "builder image: $(($(stat -c %s "$work/mco-builder.tar") / 1000000)) MB"
    INSTALL_OPTIONS+=(--builder-image "$BUILDER_IMAGE")
}

# os_config POOL CONTAINERFILE: prints a MachineOSConfig; the Containerfile has \n for its ends of lines.
os_config() {
    jq -n --arg pool "$1" --arg content "$(printf '%b' "$2")" --arg to "$REGISTRY/os:latest" '{
        apiVersion: "machineconfiguration.openshift.io/v1", kind: "MachineOSConfig", metadata: {name: $pool},
        spec: {machineConfigPool: {name: $pool}, imageBuilder: {imageBuilderType: "Job"},
               baseImagePullSecret: {name: "base-pull"}, renderedImagePushSecret: {name: "push"}, renderedImagePushSpec: $to,
               containerFile: [{containerfileArch: "NoArch", content: ($content + "\n")}]}}'
}
os_image() { # NUMBER: the base image of the pool
    kubectl apply -f - >/dev/null <<END_OF_FILE
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-os, labels: {machineconfiguration.openshift.io/role: $IMAGE_POOL}}
spec: {osImageURL: "$(base "$1")"}
END_OF_FILE
    eventually 60 "the pool has base image $1" target_has_base "$(base "$1")"
}
target_has_base() { [ "$(kubectl get machineconfig "$(target_of "$IMAGE_POOL")" -o 'jsonpath={.spec.osImageURL}')" = "$1" ]; }
current_build() { kubectl get machineosconfig "$IMAGE_POOL" -o "jsonpath={.metadata.annotations.${PREFIX//./\\.}/current-machine-os-build}"; }
current_image() { kubectl get machineosconfig "$IMAGE_POOL" -o 'jsonpath={.status.currentImagePullSpec}'; }
condition_of() { kubectl get machineosbuild "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].status}"; } # BUILD TYPE
# The current build is for the pool's target, has succeeded, and its image is the pool's.
image_is_built() {
    local build
    build=$(current_build)
    [ -n "$build" ] && [ "$(condition_of "$build" Succeeded)" = True ] &&
        [ "$(kubectl get machineosbuild "$build" -o 'jsonpath={.spec.machineConfig.name}')" = "$(target_of "$IMAGE_POOL")" ] &&
        [ "$(kubectl get machineosbuild "$build" -o 'jsonpath={.status.digestedImagePushSpec}')" = "$(current_image)" ]
}
jobs_created() { kubectl -n "$NAMESPACE" get events -o json | jq '[.items[] | select(.reason == "JobCreated") | .count // 1] | add // 0'; }
has_booted_base() { [ "$(booted_digest)" = "$(cat "$work/digest-$1")" ]; } # NUMBER
booted_digest() { cat "$work/$IMAGE_NODE/var/lib/os-double/booted/digest"; }
# node_runs IMAGE: the node has booted the image with the pool's target.
node_runs() {
    is_done "$IMAGE_NODE" && [ "$(annotation "$IMAGE_NODE" currentImage)" = "$1" ] &&
        [ "$(annotation "$IMAGE_NODE" currentConfig)" = "$(target_of "$IMAGE_POOL")" ] && [ "$(booted_digest)" = "${1#*@}" ] &&
        pool_is_updated "$IMAGE_POOL"
}
records_node() { # FILE: every version of the node from now on
    (exec ip netns exec "$HUB" "$control_plane_bin/kubectl" --kubeconfig "$work/admin.conf" get node "$IMAGE_NODE" --watch \
        -o json) >"$1" 2>/dev/null &
    record_pid=$!
}
# In no recorded version is the new config wanted with another image, or the other way round.
written_together() { # FILE CONFIG IMAGE
    local counts
    kill "$record_pid" 2>/dev/null || true
    wait "$record_pid" 2>/dev/null || true
    counts=$(jq -n --arg config "$2" --arg image "$3" --arg prefix "$PREFIX/" '[inputs.metadata.annotations] |
        {versions: length, with: [.[] | select(.[$prefix + "desiredConfig"] == $config)] | length,
         apart: [.[] | select((.[$prefix + "desiredConfig"] == $config) != (.[$prefix + "desiredImage"] == $image))] | length}' \
        "$1" 2>/dev/null) || true
    [ -n "$counts" ] || fail "the record of $IMAGE_NODE is not readable"
    say "recorded versions of $IMAGE_NODE: $(jq -c . <<<"$counts")"
    expect "the node was seen with its new target" test "$(jq .with <<<"$counts")" -gt 0
    expect "config and image were never written apart" test "$(jq .apart <<<"$counts")" = 0
}
build_objects() { kubectl -n "$NAMESPACE" get "$1" -l "$PREFIX/ephemeral-build-object" -o name; }
only_the_digest_is_left() {
    [ "$(build_objects configmaps)" = "configmap/digest-$1" ] && [ -z "$(build_objects secrets)" ]
}

# Trust, credentials and a pool of the one node that boots images.
an_image_build_for_nodes_without_images_is_refused() {
    local name
    kubectl create namespace openshift-config >/dev/null 2>&1 || true
    kubectl -n openshift-config create configmap registry-cas "--from-file=${REGISTRY/:/..}=$work/certs/ca.crt" >/dev/null
    kubectl apply -f - >/dev/null <<END_OF_FILE
apiVersion: config.openshift.io/v1
kind: Image
metadata: {name: cluster}
spec: {additionalTrustedCA: {name: registry-cas}}
END_OF_FILE
    for name in push base-pull; do
        kubectl -n "$NAMESPACE" create secret docker-registry "$name" --from-file=.dockerconfigjson="$work/auth.json" >/dev/null
    done
    # The API server needs a moment to know a new webhook.
    eventually 60 "a MachineOSConfig for Debian nodes is refused" is_refused worker
    ! os_config worker 'FROM configs AS final' | kubectl apply -f - >"$work/refused.log" 2>&1 \
        || fail "a MachineOSConfig for Debian nodes was accepted"
    say "$(tail -n 2 "$work/refused.log")"
    expect "the node that cannot boot images is named" grep -q 'worker-1 ("Debian' "$work/refused.log"
    expect "the node that can is not" test "$(grep -c "$IMAGE_NODE" "$work/refused.log")" = 0
    kubectl apply -f - >/dev/null <<END_OF_FILE
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: $IMAGE_POOL}
spec:
  machineConfigSelector: {matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: In, values: [worker, $IMAGE_POOL]}]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/$IMAGE_POOL: ""}}
END_OF_FILE
    # As the installer of a CoreOS machine does: the credentials with which it pulls its images.
    kubectl apply -f - >/dev/null <<END_OF_FILE
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 40-pull-secret, labels: {machineconfiguration.openshift.io/role: $IMAGE_POOL}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage: {files: [{path: /var/lib/kubelet/config.json, mode: 384, overwrite: true,
                       contents: {source: "data:;base64,$(base64 -w0 <"$work/auth.json")"}}]}
END_OF_FILE
    eventually 60 "pool $IMAGE_POOL is rendered" target_differs "$IMAGE_POOL" ''
    kubectl label node "$IMAGE_NODE" "node-role.kubernetes.io/$IMAGE_POOL=" >/dev/null
    eventually "$NODE_PATIENCE" "$IMAGE_NODE has credentials" has_file "$IMAGE_NODE" /var/lib/kubelet/config.json auths
    eventually 120 "$IMAGE_NODE trusts the registry" test -s "$work/$IMAGE_NODE/etc/docker/certs.d/$REGISTRY/ca.crt"
    # Before there is any build, the node boots its base image as a pool without builds does.
    os_image 1
    eventually "$NODE_PATIENCE" "$IMAGE_NODE has booted the base image" has_booted_base 1
    eventually "$NODE_PATIENCE" "pool $IMAGE_POOL is updated" pool_is_updated "$IMAGE_POOL"
}

is_refused() { ! os_config "$1" 'FROM configs AS final' | kubectl apply --dry-run=server -f -; }

CONTAINERFILE='FROM configs AS final\nRUN echo built > /built\nLABEL test=1\n'
an_image_is_built_and_booted() {
    local started=$SECONDS image
    records_node "$work/record-1"
    os_config "$IMAGE_POOL" "$CONTAINERFILE" | kubectl apply -f - >/dev/null
    eventually "$BUILD_PATIENCE" "the image is built" image_is_built
    FIRST_BUILD=$(current_build)
    FIRST_IMAGE=$(current_image)
    say "built $FIRST_IMAGE in $((SECONDS - started)) s, with the builder's start"
    expect "the registry has it" image_exists "$FIRST_IMAGE"
    expect "the registry has its tag" image_exists "$FIRST_BUILD"
    in_hub skopeo inspect --config --authfile "$work/auth.json" --cert-dir "$work/certs" "docker://$FIRST_IMAGE" |
        jq -e --arg config "$(target_of "$IMAGE_POOL")" --arg pool "$IMAGE_POOL" \
            '.config.Labels | .test == "1" and .machineconfig == $config and .machineconfigpool == $pool' >/dev/null \
        || fail "the image has other labels"
    eventually 60 "only the digest is left of the build's objects" only_the_digest_is_left "$FIRST_BUILD"
    eventually "$NODE_PATIENCE" "$IMAGE_NODE runs the image" node_runs "$FIRST_IMAGE"
    say "booted after $((SECONDS - started)) s"
    kill "$record_pid" 2>/dev/null || true
    expect "worker-1 is left alone" test -z "$(annotation worker-1 desiredImage)"
}

a_change_of_files_builds_nothing() {
    local jobs before
    jobs=$(jobs_created)
    expect "the Job of the first build is counted" test "$jobs" -ge 1
    before=$(target_of "$IMAGE_POOL")
    machine_config 60-file "$IMAGE_POOL" /etc/story 1 >/dev/null
    eventually 60 "the pool has a new target" target_differs "$IMAGE_POOL" "$before"
    eventually 60 "the new config has the image" image_is_built
    expect "the image is the same" test "$(current_image)" = "$FIRST_IMAGE"
    expect "no Job was created" test "$(jobs_created)" = "$jobs"
    eventually "$NODE_PATIENCE" "$IMAGE_NODE runs it" node_runs "$FIRST_IMAGE"
    expect "$IMAGE_NODE has the file" grep -qx 1 "$work/$IMAGE_NODE/etc/story"
}

another_base_image_is_built() {
    local started=$SECONDS
    records_node "$work/record-2"
    sleep 1
    os_image 2
    eventually "$BUILD_PATIENCE" "the second image is built" image_is_built
    SECOND_IMAGE=$(current_image)
    expect "it is another image" test "$SECOND_IMAGE" != "$FIRST_IMAGE"
    say "built $SECOND_IMAGE in $((SECONDS - started)) s"
    eventually "$NODE_PATIENCE" "$IMAGE_NODE runs the second image" node_runs "$SECOND_IMAGE"
    say "booted after $((SECONDS - started)) s"
    written_together "$work/record-2" "$(target_of "$IMAGE_POOL")" "$SECOND_IMAGE"
}

the_former_config_uses_its_image_again() {
    local jobs started=$SECONDS
    jobs=$(jobs_created)
    os_image 1
    eventually 60 "the former build is used" image_is_built
    expect "the image is the first one" test "$(current_image)" = "$FIRST_IMAGE"
    expect "no Job was created" test "$(jobs_created)" = "$jobs"
    eventually "$NODE_PATIENCE" "$IMAGE_NODE runs the first image" node_runs "$FIRST_IMAGE"
    say "back after $((SECONDS - started)) s"
}

a_bad_containerfile_fails_without_a_job() {
    local jobs
    jobs=$(jobs_created)
    os_config "$IMAGE_POOL" 'FROM configs AS final\nENV BROKEN\n' | kubectl apply -f - >/dev/null
    eventually 60 "the pool reports the failure" image_build_degraded True
    say "$(kubectl get machineosbuild "$(current_build)" -o 'jsonpath={.metadata.annotations.mco\.dev/build-failure}' | head -n 2)"
    expect "the build has failed" test "$(condition_of "$(current_build)" Failed)" = True
    expect "the place is named" grep -q 'line 2: ENV instruction must use key=value form' \
        <(kubectl get machineosbuild "$(current_build)" -o yaml)
    expect "no Job was created" test "$(jobs_created)" = "$jobs"
    expect "the node runs its image" node_runs_still "$FIRST_IMAGE"
    os_config "$IMAGE_POOL" "$CONTAINERFILE" | kubectl apply -f - >/dev/null
    eventually 60 "the pool recovers" image_build_degraded False
    eventually 60 "the former image is used" image_is_built
    expect "the image is the first one" test "$(current_image)" = "$FIRST_IMAGE"
    expect "no Job was created" test "$(jobs_created)" = "$jobs"
}
node_runs_still() { is_done "$IMAGE_NODE" && [ "$(booted_digest)" = "${1#*@}" ]; }
image_build_degraded() {
    [ "$(kubectl get mcp "$IMAGE_POOL" -o 'jsonpath={.status.conditions[?(@.type=="ImageBuildDegraded")].status}')" = "$1" ]
}

# Kills the builder, and the Job, the pod and the process of the build, in any order and at any moment. As documented, a
# Job that was deleted is started again after a minute, and a build whose Job has failed four times is started again by an
# administrator.
the_right_image_is_built_though_everything_is_killed() {
    local round kind started=$SECONDS again=0
    declare -A killed=([builder]=0 [job]=0 [pod]=0 [process]=0 [nothing]=0)
    os_config "$IMAGE_POOL" 'FROM configs AS final\nRUN sleep 4 && echo killed > /killed\n' | kubectl apply -f - >/dev/null
    for ((round = 0; round < KILLS; round++)); do
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        case $((RANDOM % 4)) in
            0) kind=builder ;;
            1) kind=job ;;
            2) kind=pod ;;
            3) kind=process ;;
        esac
        "kills_$kind" >/dev/null 2>&1 || kind=nothing
        killed[$kind]=$((killed[$kind] + 1))
        ! build_has_failed || { again=$((again + 1)); build_again; }
        # A Job that is gone takes a minute to come back: an administrator who does not wait for that.
        [ "$kind" != job ] || { sleep 2; again=$((again + 1)); build_again; }
    done
    say "killed: builder ${killed[builder]}, Job ${killed[job]}, pod ${killed[pod]}, process ${killed[process]}," \
        "nothing there ${killed[nothing]}; requested again $again times"
    eventually "$BUILD_PATIENCE" "the right image is built after $KILLS kills" right_image_is_built
    LAST_IMAGE=$(current_image)
    eventually "$NODE_PATIENCE" "$IMAGE_NODE runs it" node_runs "$LAST_IMAGE"
    say "built and booted after $((SECONDS - started)) s"
}
kills_builder() {
    inside "$FIRST_CONTROL_PLANE" pkill -KILL -f '^/usr/bin/mco builder --' ||
        kubectl -n "$NAMESPACE" delete pod -l k8s-app=machine-os-builder --force --grace-period=0
}
job_of_build() { kubectl -n "$NAMESPACE" get jobs -o name | head -n 1; }
kills_job() { kubectl -n "$NAMESPACE" delete --wait=false "$(job_of_build | grep .)"; }
pod_of_build() { kubectl -n "$NAMESPACE" get pods --field-selector=status.phase!=Succeeded,status.phase!=Failed -l job-name -o name | head -n 1; }
kills_pod() { kubectl -n "$NAMESPACE" delete --force --grace-period=0 "$(pod_of_build | grep .)"; }
kills_process() {
    local machine
    for machine in $WORKERS; do
        ! inside "$machine" pkill -KILL -f '^/usr/bin/mco builder build' || return 0
    done
    return 1
}
build_has_failed() { [ "$(condition_of "$(current_build)" Failed)" = True ]; }
build_again() { kubectl annotate machineosconfig "$IMAGE_POOL" --overwrite "$PREFIX/rebuild=" >/dev/null; }
right_image_is_built() {
    ! build_has_failed || build_again
    image_is_built && in_hub skopeo inspect --config --authfile "$work/auth.json" --cert-dir "$work/certs" "docker://$(current_image)" |
        jq -e '.history | map(.created_by // "" | contains("echo killed")) | any'
}

a_deleted_machineosconfig_leaves_nothing() {
    local started=$SECONDS
    kubectl delete machineosconfig "$IMAGE_POOL" --wait=false >/dev/null
    eventually 120 "no build is left" nothing_is_built
    eventually 60 "an image that no node runs is deleted from the registry" image_is_gone "$SECOND_IMAGE"
    expect "the image of the node is not" image_exists "$LAST_IMAGE"
    eventually "$NODE_PATIENCE" "$IMAGE_NODE has booted the base image" runs_base 1
    eventually 120 "the builder is gone" no_builder
    say "clean after $((SECONDS - started)) s"
}
nothing_is_built() {
    [ -z "$(kubectl get machineosbuilds -o name)" ] && [ -z "$(build_objects configmaps)" ] && [ -z "$(build_objects secrets)" ] &&
        [ -z "$(kubectl -n "$NAMESPACE" get jobs -o name)" ]
}
runs_base() {
    is_done "$IMAGE_NODE" && [ -z "$(annotation "$IMAGE_NODE" desiredImage)" ] && has_booted_base "$1" &&
        pool_is_updated "$IMAGE_POOL"
}
no_builder() { [ -z "$(kubectl -n "$NAMESPACE" get pods -l k8s-app=machine-os-builder -o name)" ]; }
