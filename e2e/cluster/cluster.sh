# A kubeadm cluster of machines with their own systemd, containerd and network namespaces. Nothing leaves these namespaces.
# Sourced by run, which sets $profile, $work, $node_bin, $tools_bin, $kubernetes_images and the names of the machines.
# shellcheck shell=bash

# The namespace of the bridge between the machines, of kubectl and of mco on the command line.
HUB=mco-e2e-hub
HUB_ADDRESS=10.77.0.1
SERVICE_SUBNET=10.79.0.0/16
JOIN_TOKEN=abcdef.0123456789abcdef
CERTIFICATE_KEY=$(printf '%064d' 17)
ROOT_PACKAGES=systemd,dbus,containerd,runc,containernetworking-plugins,iptables,nftables,conntrack,ethtool,socat,ebtables
ROOT_PACKAGES+=,kmod,iproute2,procps,util-linux,mount,curl,ca-certificates,openssh-client

in_hub() { ip netns exec "$HUB" "$@"; }
kubectl() { in_hub "$control_plane_bin/kubectl" --kubeconfig "$work/admin.conf" "$@"; }
mco() { in_hub "$mco" "$@"; }

# number MACHINE: its place in the list, from 1; addresses are derived from it.
number() {
    local machine i=0
    for machine in $MACHINES; do
        i=$((i + 1))
        [ "$machine" != "$1" ] || { echo "$i"; return; }
    done
    fail "no machine is named $1"
}
address() { echo "10.77.0.$((10 + $(number "$1")))"; }
pod_subnet() { echo "10.78.$(number "$1").0/24"; }

# The address of the API: of the one control plane, or of the balancer in front of several.
endpoint() {
    if [ "$CONTROL_PLANES" = "$FIRST_CONTROL_PLANE" ]; then
        address "$FIRST_CONTROL_PLANE"
    else
        echo "$HUB_ADDRESS"
    fi
}

start_balancer() {
    local machine addresses=()
    for machine in $CONTROL_PLANES; do
        addresses+=("$(address "$machine"):6443")
    done
    (exec ip netns exec "$HUB" python3 e2e/cluster/balancer.py "$HUB_ADDRESS:6443" "${addresses[@]}") >"$work/balancer.log" 2>&1 &
    balancer_pid=$!
}

# inside MACHINE COMMAND...: runs the command on a running machine.
inside() {
    local machine=$1 leader
    shift
    leader=$(leader_of "$machine") || fail "$machine is not running"
    nsenter --target "$leader" --mount --uts --ipc --pid --cgroup --net --root --wd=/ \
        env -i CONTAINERD_ADDRESS="$(socket_of "$machine")" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb "$@"
}

# Where containerd listens: on agents of k3s in its directory.
socket_of() {
    if [ "$profile" = k3s ] && [ "$1" != "$FIRST_CONTROL_PLANE" ]; then
        echo /run/k3s/containerd/containerd.sock
    else
        echo /run/containerd/containerd.sock
    fi
}

# The first process of the machine: the child of its systemd-nspawn.
leader_of() {
    local nspawn
    nspawn=$(pgrep -f "^systemd-nspawn .*--machine=$1 " | head -n 1)
    [ -n "$nspawn" ] && pgrep -P "$nspawn" | head -n 1
}

make_network() {
    # Of an earlier run that could not clean up.
    remove_network
    ip netns add "$HUB"
    in_hub ip link set lo up
    in_hub ip link add bridge0 type bridge
    in_hub ip address add "$HUB_ADDRESS/24" dev bridge0
    in_hub ip link set bridge0 up
    local machine
    for machine in $MACHINES; do
        ip netns add "$machine"
        ip -n "$machine" link set lo up
        ip -n "$HUB" link add "v-$machine" type veth peer name eth0 netns "$machine"
        ip -n "$HUB" link set "v-$machine" master bridge0 up
        ip -n "$machine" address add "$(address "$machine")/24" dev eth0
        ip -n "$machine" link set eth0 up
        # kubeadm and the kubelet find their address by the default route.
        ip -n "$machine" route add default via "$HUB_ADDRESS"
        ip netns exec "$machine" sysctl -qw net.ipv4.ip_forward=1
    done
    local other
    for machine in $MACHINES; do
        in_hub ip route add "$(pod_subnet "$machine")" via "$(address "$machine")"
        for other in $MACHINES; do
            [ "$machine" = "$other" ] || ip -n "$machine" route add "$(pod_subnet "$other")" via "$(address "$other")"
        done
    done
}

remove_network() {
    local machine
    for machine in $MACHINES $HUB; do
        ip netns delete "$machine" 2>/dev/null || true
    done
}

# What an image of the operating system would contain.
make_machine() { # MACHINE
    local disk=$work/$1 unit
    mkdir -p "$disk"
    tar -C "$disk" -xf "$root_archive"
    echo "$1" >"$disk/etc/hostname"
    printf '127.0.0.1 localhost\n%s %s\n' "$(address "$1")" "$1" >"$disk/etc/hosts"
    rm -f "$disk/etc/resolv.conf"
    echo "nameserver $HUB_ADDRESS" >"$disk/etc/resolv.conf"
    rm -f "$disk/etc/machine-id"
    printf '%032x\n' "$((0x4d000000 + $(number "$1")))" >"$disk/etc/machine-id"
    install -m 0755 "$node_bin/kubelet" "$node_bin/kubeadm" "$node_bin/kube-proxy" "$disk/usr/bin/"
    install -m 0755 "$control_plane_bin/kubectl" "$disk/usr/bin/"
    # The other profiles check that a missing one is noticed.
    case $profile in adoption | k3s) install -m 0755 "$tools_bin/crictl" "$disk/usr/bin/" ;; esac
    install -m 0755 e2e/cluster/machine-files/e2e-init "$disk/sbin/e2e-init"
    install -m 0755 e2e/cluster/machine-files/runc-without-oom-score "$disk/usr/local/sbin/runc-without-oom-score"
    install -D -m 0644 e2e/cluster/machine-files/containerd.toml "$disk/etc/containerd/config.toml"
    install -d "$disk/etc/cni/net.d" "$disk/etc/systemd/system/kubelet.service.d" "$disk/var/lib/kubelet"
    sed "s#@SUBNET@#$(pod_subnet "$1")#" e2e/cluster/machine-files/cni.json >"$disk/etc/cni/net.d/10-bridge.conf"
    install -m 0644 e2e/cluster/machine-files/kubelet.service e2e/cluster/machine-files/kube-proxy.service \
        "$disk/etc/systemd/system/"
    install -m 0644 e2e/cluster/machine-files/10-kubeadm.conf "$disk/etc/systemd/system/kubelet.service.d/"
    install -d "$disk/etc/systemd/system/multi-user.target.wants"
    for unit in kubelet kube-proxy; do
        ln -sf "/etc/systemd/system/$unit.service" "$disk/etc/systemd/system/multi-user.target.wants/"
    done
    # Debian's timers have nothing to do here, and each costs a core that the cluster needs.
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
        ln -sf /dev/null "$disk/etc/systemd/system/$unit"
    done
    # The user of SSH keys.
    echo 'core:x:1000:1000::/home/core:/bin/bash' >>"$disk/etc/passwd"
    echo 'core:x:1000:' >>"$disk/etc/group"
    echo 'core:!:19000:0:99999:7:::' >>"$disk/etc/shadow"
    install -d -o 1000 -g 1000 "$disk/home/core"
    install -d "$disk/var/log/kubernetes"
    install -D -m 0644 e2e/cluster/machine-files/audit-policy.yaml "$disk/etc/kubernetes/audit/policy.yaml"
    boot_loader "$disk"
    [ "$profile" != k3s ] || k3s_layout "$1"
    [ "$profile" != build ] || [ "$1" != "$IMAGE_NODE" ] || image_machine "$disk"
}

# The layout of k3s on its agents, with the kubelet and containerd of the other profiles: the service that runs the kubelet,
# the socket and directories of containerd, and the directories of drop-ins. The control plane stays kubeadm's.
k3s_layout() { # MACHINE
    local disk=$work/$1 agent=/var/lib/rancher/k3s/agent units=$work/$1/etc/systemd/system
    mkdir -p "$disk$agent/etc/kubelet.conf.d" "$disk$agent/etc/containerd/certs.d"
    [ "$1" != "$FIRST_CONTROL_PLANE" ] || return 0
    mv "$units/kubelet.service" "$units/k3s-agent.service"
    mv "$units/kubelet.service.d" "$units/k3s-agent.service.d"
    rm "$units/multi-user.target.wants/kubelet.service"
    ln -s /etc/systemd/system/k3s-agent.service "$units/multi-user.target.wants/"
    sed -i "s#^ExecStart=/usr/bin/kubelet .*#& --config-dir=$agent/etc/kubelet.conf.d#" "$units/k3s-agent.service.d/10-kubeadm.conf"
    sed -i -e "s#/etc/containerd/certs.d#$agent/etc/containerd/certs.d#" \
        -e "s#^version = 2#&\nroot = \"$agent/containerd\"\nstate = \"/run/k3s/containerd\"#" "$disk/etc/containerd/config.toml"
    printf '[grpc]\n  address = "%s"\n' "$(socket_of "$1")" >>"$disk/etc/containerd/config.toml"
}

# A container has neither boot loader nor kernel of its own: the arguments of the simulated boot loader are in
# /proc/cmdline after the next boot, which e2e-init arranges.
boot_loader() { # ROOT
    install -m 0755 e2e/cluster/machine-files/update-grub "$1/usr/sbin/update-grub"
}

power_on() { # MACHINE
    rm -f "$work/$1.off"
    e2e/cluster/machine "$1" "$work/$1" "$work/$1.off" "$work/$1.boots" >>"$work/$1.console" 2>&1 &
    machine_pids[$1]=$!
}

power_off() { # MACHINE: as if the plug was pulled
    touch "$work/$1.off"
    local leader
    # Its end is the end of every process of the machine, and of systemd-nspawn.
    leader=$(leader_of "$1") && kill -KILL "$leader"
    wait "${machine_pids[$1]}" 2>/dev/null || true
    unset "machine_pids[$1]"
}

boots() { wc -l <"$work/$1.boots"; }

import_image() { # MACHINE ARCHIVE
    install -D -m 0644 "$2" "$work/$1/var/tmp/import.tar"
    inside "$1" ctr -n k8s.io images import /var/tmp/import.tar >>"$work/$1.import" 2>&1 \
        || { tail -n 5 "$work/$1.import" >&2; fail "$1: cannot import $(basename "$2")"; }
    rm "$work/$1/var/tmp/import.tar"
}

is_up() { inside "$1" ctr version >/dev/null 2>&1; }

kubeadm_config() { # MACHINE
    sed -e "s#@ADDRESS@#$(address "$1")#g" -e "s#@NAME@#$1#g" -e "s#@ENDPOINT@#$(endpoint):6443#g" \
        -e "s#@SOCKET@#$(socket_of "$1")#g" -e "s#@CERTIFICATE_KEY@#$CERTIFICATE_KEY#g" \
        -e "s#@VERSION@#$KUBERNETES_VERSION#g" -e "s#@REPOSITORY@#$IMAGE_REPOSITORY#g" -e "s#@TOKEN@#$JOIN_TOKEN#g" \
        -e "s#@SERVICES@#$SERVICE_SUBNET#g" "e2e/cluster/machine-files/$2"
}

# kubeadm as an administrator runs it, except for what a namespace cannot offer (preflight checks of the kernel).
kubeadm_init() {
    local machine=$FIRST_CONTROL_PLANE
    kubeadm_config "$machine" init.yaml >"$work/$machine/root/kubeadm.yaml"
    inside "$machine" kubeadm init --config /root/kubeadm.yaml --ignore-preflight-errors=all --upload-certs \
        --skip-phases=addon/kube-proxy,addon/coredns >"$work/kubeadm-$machine.log" 2>&1 \
        || { tail -n 30 "$work/kubeadm-$machine.log" >&2; fail "kubeadm init failed"; }
    cp "$work/$machine/etc/kubernetes/admin.conf" "$work/admin.conf"
    chmod 600 "$work/admin.conf"
    inside "$machine" install -m 0600 /etc/kubernetes/admin.conf /etc/kubernetes/kube-proxy.conf
    authority_hash=$(openssl x509 -in "$work/$machine/etc/kubernetes/pki/ca.crt" -noout -pubkey |
        openssl pkey -pubin -outform der | openssl dgst -sha256 -hex | sed 's/.* //')
}

kubeadm_join() { # MACHINE FILE
    kubeadm_config "$1" "$2" | sed "s#@CA_HASH@#$authority_hash#" >"$work/$1/root/kubeadm.yaml"
    inside "$1" kubeadm join --config /root/kubeadm.yaml --ignore-preflight-errors=all >"$work/kubeadm-$1.log" 2>&1 \
        || { tail -n 30 "$work/kubeadm-$1.log" >&2; fail "$1: kubeadm join failed"; }
    install -m 0600 "$work/admin.conf" "$work/$1/etc/kubernetes/kube-proxy.conf"
}

nodes_ready() { # COUNT
    [ "$(kubectl get nodes --no-headers 2>/dev/null | awk '$2 == "Ready"' | wc -l)" = "$1" ]
}

make_cluster() {
    local machine archive started=$SECONDS
    make_network
    for machine in $MACHINES; do
        make_machine "$machine"
        power_on "$machine"
    done
    for machine in $MACHINES; do
        eventually 60 "containerd of $machine" is_up "$machine"
        import_image "$machine" "$kubernetes_images/pause.tar"
        import_image "$machine" "$work/mco.tar"
    done
    for machine in $CONTROL_PLANES; do
        for archive in "$kubernetes_images"/{etcd,kube-apiserver,kube-controller-manager,kube-scheduler}.tar; do
            import_image "$machine" "$archive"
        done
    done
    say "the machines run, with their images ($((SECONDS - started)) s)"
    [ "$(endpoint)" != "$HUB_ADDRESS" ] || start_balancer
    kubeadm_init
    for machine in $CONTROL_PLANES; do
        [ "$machine" = "$FIRST_CONTROL_PLANE" ] || kubeadm_join "$machine" join-control-plane.yaml
    done
    for machine in $WORKERS; do
        kubeadm_join "$machine" join.yaml
    done
    # Services come back with the machine; the first time they waited for their credentials.
    for machine in $MACHINES; do
        inside "$machine" systemctl restart kube-proxy
    done
    eventually 120 "all nodes are Ready" nodes_ready "$(wc -w <<<"$MACHINES")"
    say "kubeadm $KUBERNETES_VERSION: $(wc -w <<<"$MACHINES") nodes are Ready ($((SECONDS - started)) s)"
}
