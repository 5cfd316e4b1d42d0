# Container images of the cluster suite, built from nothing: the control plane of Kubernetes, the pause program and mco.
# Sourced by run, which sets $work, $control_plane_bin, $node_bin and $mco.
# shellcheck shell=bash

# Images of the control plane, under the names that kubeadm expects with this repository.
IMAGE_REPOSITORY=localhost
PAUSE_IMAGE=$IMAGE_REPOSITORY/pause:e2e
MCO_IMAGE=$IMAGE_REPOSITORY/mco:e2e
NEXT_MCO_IMAGE=$IMAGE_REPOSITORY/mco:e2e-next

# Neither overlay mounts nor a registry are needed.
image_tool() { buildah --root "$work/images/root" --runroot "$work/images/run" --storage-driver vfs "$@"; }

# An image with one static program and nothing else, exported as DIRECTORY/FILE.tar.
program_image() { # NAME PROGRAM FILE
    local container program
    program=$(basename "$2")
    container=$(image_tool from scratch)
    image_tool copy -q "$container" "$2" "/usr/local/bin/$program" >/dev/null
    image_tool config --env PATH=/usr/local/bin --entrypoint "[\"/usr/local/bin/$program\"]" "$container"
    image_tool commit -q --rm "$container" "$1" >/dev/null
    image_tool push -q "$1" "docker-archive:$3:$1"
    image_tool rmi -f "$1" >/dev/null
}

# The images that do not change between runs are cached beside the commands they hold.
kubernetes_images() {
    local into=$CACHE/images-$(basename "$control_plane_bin") name
    if [ ! -d "$into" ]; then
        say "making the images of Kubernetes (once)"
        rm -rf "$into.partial"
        mkdir -p "$into.partial"
        (cd e2e/cluster/image/pause && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/pause" main.go)
        program_image "$PAUSE_IMAGE" "$work/pause" "$into.partial/pause.tar"
        for name in kube-apiserver kube-controller-manager; do
            program_image "$IMAGE_REPOSITORY/$name:$KUBERNETES_VERSION" "$control_plane_bin/$name" "$into.partial/$name.tar"
        done
        program_image "$IMAGE_REPOSITORY/kube-scheduler:$KUBERNETES_VERSION" "$node_bin/kube-scheduler" \
            "$into.partial/kube-scheduler.tar"
        program_image "$IMAGE_REPOSITORY/etcd:e2e" "$control_plane_bin/etcd" "$into.partial/etcd.tar"
        mv -T "$into.partial" "$into"
    fi
    kubernetes_images=$into
}

mco_image() {
    # Not a pipe: with pipefail the end of ldd by SIGPIPE would count.
    if [[ "$(ldd "$mco" 2>&1)" == *'=>'* ]]; then
        development_image
    else
        release_image
    fi
    image_tool push -q "$MCO_IMAGE" "docker-archive:$work/mco.tar:$MCO_IMAGE"
    say "image: $(($(stat -c %s "$work/mco.tar") / 1000000)) MB"
}

# Our own image, built as a user builds it. Two builds of one program must have one digest.
release_image() {
    local round digests=()
    for round in 1 2; do
        BUILDAH="buildah --root $work/images/root --runroot $work/images/run --storage-driver vfs" \
            scripts/build-image --program "$mco" "$MCO_IMAGE" >"$work/build-image-$round.log" 2>&1 \
            || { tail -n 20 "$work/build-image-$round.log" >&2; fail "the image does not build"; }
        digests+=("$(image_tool inspect --type image --format '{{.FromImageDigest}}' "$MCO_IMAGE")")
    done
    [ "${digests[0]}" = "${digests[1]}" ] || fail "two builds have two digests: ${digests[*]}"
    say "two builds, one digest: ${digests[0]}"
}

# A development build with the libraries that it is linked to: quicker to build than the static program.
development_image() {
    local container library
    mkdir -p "$work/development/usr/bin"
    strip -o "$work/development/usr/bin/mco" "$mco"
    local name
    for name in machine-config-daemon machine-config-operator machine-config-osimagestream apiserver-watcher flock; do
        ln -sf mco "$work/development/usr/bin/$name"
    done
    ldd "$mco" | grep -o '/[^ ]*' | while read -r library; do
        install -D -m 0755 "$library" "$work/development$library"
    done
    container=$(image_tool from scratch)
    image_tool copy -q "$container" "$work/development" / >/dev/null
    image_tool config --user 0:0 --entrypoint '["/usr/bin/mco"]' "$container"
    image_tool commit -q --rm "$container" "$MCO_IMAGE" >/dev/null
}

# The same program in an image with another digest, as of the next release.
next_mco_image() {
    local container
    container=$(image_tool from "$MCO_IMAGE")
    image_tool config --env MCO_E2E_RELEASE=next "$container"
    image_tool commit -q --rm "$container" "$NEXT_MCO_IMAGE" >/dev/null
    image_tool push -q "$NEXT_MCO_IMAGE" "docker-archive:$work/mco-next.tar:$NEXT_MCO_IMAGE"
}
