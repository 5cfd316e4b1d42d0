//! The built-in base templates, compiled in. A test compares this list with the directory `templates`.

macro_rules! embed {
    ($($path:literal)*) => {
        &[$((
            $path,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/", $path)),
        )),*]
    };
}

/// Paths relative to the root of the tree, and contents.
pub(super) const FILES: &[(&str, &[u8])] = embed! {
    "arbiter/00-arbiter/_base/files/node-sizing.yaml"
    "arbiter/01-arbiter-container-runtime/_base/files/containerd.yaml"
    "arbiter/01-arbiter-container-runtime/_base/files/crio.yaml"
    "arbiter/01-arbiter-container-runtime/_base/files/policy.yaml"
    "arbiter/01-arbiter-container-runtime/_base/files/registries.yaml"
    "arbiter/01-arbiter-kubelet/_base/files/kubelet.yaml"
    "arbiter/01-arbiter-kubelet/_base/units/kubelet.service.yaml"
    "common/_base/files/apiserver-url.yaml"
    "common/_base/files/journald.yaml"
    "common/_base/files/kubelet-log-level.yaml"
    "common/_base/files/modules.yaml"
    "common/_base/files/node-sizing-calc.yaml"
    "common/_base/files/proxy.yaml"
    "common/_base/files/pull-secret.yaml"
    "common/_base/files/runtime-endpoint.yaml"
    "common/_base/files/storage.yaml"
    "common/_base/files/sysctl-inotify.yaml"
    "common/_base/files/sysctl-kubelet-defaults.yaml"
    "common/_base/files/sysctl-kubernetes.yaml"
    "common/_base/files/sysctl-max-map.yaml"
    "common/_base/files/sysctl-neighbours.yaml"
    "common/_base/files/systemd-accounting.yaml"
    "common/_base/files/systemd-timeout.yaml"
    "common/_base/files/trust-bundle-anchors.yaml"
    "common/_base/files/trust-bundle-debian.yaml"
    "common/_base/units/containerd.service.yaml"
    "common/_base/units/crio.service.yaml"
    "common/_base/units/kubelet-dependencies.target.yaml"
    "common/_base/units/node-sizing.service.yaml"
    "common/_base/units/zincati.service.yaml"
    "master/00-master/_base/files/node-sizing.yaml"
    "master/01-master-container-runtime/_base/files/containerd.yaml"
    "master/01-master-container-runtime/_base/files/crio.yaml"
    "master/01-master-container-runtime/_base/files/policy.yaml"
    "master/01-master-container-runtime/_base/files/registries.yaml"
    "master/01-master-kubelet/_base/files/kubelet.yaml"
    "master/01-master-kubelet/_base/units/kubelet.service.yaml"
    "worker/00-worker/_base/files/node-sizing.yaml"
    "worker/01-worker-container-runtime/_base/files/containerd.yaml"
    "worker/01-worker-container-runtime/_base/files/crio.yaml"
    "worker/01-worker-container-runtime/_base/files/policy.yaml"
    "worker/01-worker-container-runtime/_base/files/registries.yaml"
    "worker/01-worker-kubelet/_base/files/kubelet.yaml"
    "worker/01-worker-kubelet/_base/units/kubelet.service.yaml"
};
