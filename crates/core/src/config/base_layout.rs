//! Where the nodes of an additive base read drop-ins, and which service reads them. Nothing of the distribution's own
//! files is replaced.

use mco_api::ClusterBase;

use crate::config::node_versions::MinorVersion;

/// The paths and services of an additive base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseLayout {
    /// The directory of the kubelet's configuration drop-ins.
    pub kubelet_drop_ins: &'static str,
    /// The systemd drop-in that makes the kubelet read that directory, where it does not by itself.
    pub kubelet_unit_drop_in: Option<(&'static str, &'static str)>,
    /// The oldest kubelet that reads the directory.
    pub oldest_kubelet: MinorVersion,
    /// The directory of containerd's registry hosts, which it reads at every pull.
    pub registry_hosts: &'static str,
    /// The directory of containerd's drop-ins, and the oldest containerd that reads it by itself.
    pub containerd_drop_ins: Option<(&'static str, MinorVersion)>,
    /// The service that the kubelet runs in, on a node outside the control plane.
    pub kubelet_service: &'static str,
    /// The service on a node of the control plane, if it is another.
    pub server_service: Option<&'static str>,
}

/// The drop-ins of CRI-O, which are the same on every base.
pub const CRIO_DROP_INS: &str = "/etc/crio/crio.conf.d";
/// The drop-ins of containers/image, which CRI-O reads.
pub const REGISTRIES_DROP_INS: &str = "/etc/containers/registries.conf.d";

/// `--config` is repeated, because systemd replaces the variable as a whole. The value is kubeadm's own.
const KUBEADM_CONFIG_DIR: &str = "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml \
     --config-dir=/etc/kubernetes/kubelet.conf.d\"\n";

/// A KubeletConfig has at most this many names.
const DROP_INS: u32 = 10;

impl BaseLayout {
    /// Returns the layout of an additive base; `None` for the others.
    pub fn of(base: ClusterBase) -> Option<Self> {
        match base {
            ClusterBase::Kubeadm => Some(Self {
                kubelet_drop_ins: "/etc/kubernetes/kubelet.conf.d",
                kubelet_unit_drop_in: Some((
                    "/etc/systemd/system/kubelet.service.d/20-mco-config-dir.conf",
                    KUBEADM_CONFIG_DIR,
                )),
                // Before, the directory is an alpha feature behind an environment variable.
                oldest_kubelet: MinorVersion(1, 30),
                registry_hosts: "/etc/containerd/certs.d",
                containerd_drop_ins: Some(("/etc/containerd/conf.d", MinorVersion(2, 2))),
                kubelet_service: "kubelet.service",
                server_service: None,
            }),
            ClusterBase::K3s => Some(Self {
                kubelet_drop_ins: "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
                registry_hosts: "/var/lib/rancher/k3s/agent/etc/containerd/certs.d",
                kubelet_service: "k3s-agent.service",
                server_service: Some("k3s.service"),
                ..Self::rancher()
            }),
            ClusterBase::Rke2 => Some(Self {
                kubelet_drop_ins: "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
                registry_hosts: "/var/lib/rancher/rke2/agent/etc/containerd/certs.d",
                kubelet_service: "rke2-agent.service",
                server_service: Some("rke2-server.service"),
                ..Self::rancher()
            }),
            ClusterBase::OpenShift | ClusterBase::None | ClusterBase::Machine => None,
        }
    }

    fn rancher() -> Self {
        Self {
            kubelet_drop_ins: "",
            kubelet_unit_drop_in: None,
            // Since then the distributions pass the directory to the kubelet.
            oldest_kubelet: MinorVersion(1, 32),
            registry_hosts: "",
            // The distributions generate containerd's configuration at every start.
            containerd_drop_ins: None,
            kubelet_service: "",
            server_service: None,
        }
    }

    /// Returns the path of the kubelet drop-in with this number. Later numbers override earlier ones.
    pub fn kubelet_drop_in(&self, number: u32, role: KubeletRole) -> String {
        let server = match role {
            KubeletRole::Agent => "",
            KubeletRole::Server => "server-",
        };
        format!("{}/90-mco-{server}{number:02}.conf", self.kubelet_drop_ins)
    }

    /// Returns the paths of all kubelet drop-ins of nodes whose service is the control plane's.
    pub fn server_drop_ins(&self) -> impl Iterator<Item = String> {
        (0..DROP_INS).map(|number| self.kubelet_drop_in(number, KubeletRole::Server))
    }
}

/// Which service of its distribution a kubelet runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeletRole {
    Agent,
    /// The service that also runs the control plane, where a distribution has such a service.
    Server,
}
