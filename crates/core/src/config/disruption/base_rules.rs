//! The built-in rules of each base.

use mco_api::ClusterBase;

use super::policy::{DisruptionPolicy, DisruptionRule, PostConfigAction};
use crate::config::base_layout::{BaseLayout, CRIO_DROP_INS, REGISTRIES_DROP_INS};

impl DisruptionPolicy {
    /// Returns the built-in rules of a base. Those of the templates name services that other nodes do not have.
    pub fn of_base(base: ClusterBase) -> Self {
        match BaseLayout::of(base) {
            Some(layout) => Self::built_in(additive(&layout)),
            None if base.has_templates() => Self::default(),
            None => Self::built_in(Vec::new()),
        }
    }
}

fn additive(layout: &BaseLayout) -> Vec<DisruptionRule> {
    use PostConfigAction::{DaemonReload, None, Reload, Restart};
    let restart = |service: &str| Restart(service.to_owned());
    let restart_kubelet = restart(layout.kubelet_service);
    let mut rules = vec![
        DisruptionRule::new(layout.kubelet_drop_ins, std::slice::from_ref(&restart_kubelet)),
        DisruptionRule::new(layout.registry_hosts, &[None]),
        DisruptionRule::new(REGISTRIES_DROP_INS, &[Reload("crio.service".to_owned())]),
        DisruptionRule::new(CRIO_DROP_INS, &[restart("crio.service")]),
    ];
    if let Some((path, _)) = layout.kubelet_unit_drop_in {
        rules.push(DisruptionRule::new(path, &[DaemonReload, restart_kubelet]));
    }
    if let Some((path, _)) = layout.containerd_drop_ins {
        rules.push(DisruptionRule::new(path, &[restart("containerd.service")]));
    }
    if let Some(service) = layout.server_service {
        let servers = layout.server_drop_ins();
        rules.extend(servers.map(|path| DisruptionRule::new(&path, &[restart(service)])));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::base_layout::KubeletRole;

    fn action(base: ClusterBase, path: &str) -> String {
        let policy = DisruptionPolicy::of_base(base);
        policy.for_file(path).map_or("reboot".to_owned(), |rule| {
            let actions: Vec<String> = rule.actions.iter().map(ToString::to_string).collect();
            actions.join(", ")
        })
    }

    #[test]
    fn a_change_restarts_the_service_that_reads_it_on_that_base() {
        use ClusterBase::{K3s, Kubeadm, None, OpenShift, Rke2};
        for (base, path, expected) in [
            (
                Kubeadm,
                "/etc/kubernetes/kubelet.conf.d/90-mco-00.conf",
                "restart kubelet.service",
            ),
            (
                Kubeadm,
                "/etc/systemd/system/kubelet.service.d/20-mco-config-dir.conf",
                "systemctl daemon-reload, restart kubelet.service",
            ),
            (Kubeadm, "/etc/containerd/certs.d/docker.io/hosts.toml", "nothing"),
            (
                Kubeadm,
                "/etc/containerd/conf.d/90-mco-00.toml",
                "restart containerd.service",
            ),
            (
                Kubeadm,
                "/etc/containers/registries.conf.d/99-mco-mirrors.conf",
                "reload crio.service",
            ),
            (
                K3s,
                "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/90-mco-00.conf",
                "restart k3s-agent.service",
            ),
            (
                K3s,
                "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/90-mco-server-03.conf",
                "restart k3s.service",
            ),
            (
                Rke2,
                "/var/lib/rancher/rke2/agent/etc/containerd/certs.d/docker.io/hosts.toml",
                "nothing",
            ),
            // A reload of crio.service failed and degraded nodes that have containerd.
            (None, "/etc/containers/policy.json", "reboot"),
            (Kubeadm, "/etc/containers/registries.conf", "reboot"),
            (OpenShift, "/etc/containers/policy.json", "reload crio.service"),
        ] {
            assert_eq!(action(base, path), expected, "{base} {path}");
        }
    }

    #[test]
    fn templates_keep_their_rules() {
        for base in [ClusterBase::OpenShift, ClusterBase::Machine] {
            assert_eq!(DisruptionPolicy::of_base(base), DisruptionPolicy::default());
        }
        let layout = BaseLayout::of(ClusterBase::K3s).unwrap();
        assert!(
            layout
                .server_drop_ins()
                .any(|path| path == layout.kubelet_drop_in(9, KubeletRole::Server))
        );
    }
}
