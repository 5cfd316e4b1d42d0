//! The gate of the control plane: whether every node of the control plane has its static pods, and all are ready.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::{Node, Pod};
use mco_api::vocabulary::labels::node::{ROLE_ARBITER, ROLE_ETCD};

use super::super::control_plane::is_control_plane_node;

/// What a static pod of the control plane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlPlaneMember {
    Etcd,
    ApiServer,
}

impl fmt::Display for ControlPlaneMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd member",
            Self::ApiServer => "API server",
        })
    }
}

/// Whether the members of the control plane are ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlPlaneHealth {
    Ready {
        etcd_members: usize,
    },
    /// A member is missing or not ready, as a sentence.
    NotReady(String),
    /// No etcd member runs as a pod, so nothing is known about them.
    UnknownEtcd,
}

/// Decides from the static pods whether all members are ready. A pod whose manifest is gone does not exist any more, so
/// where there is any, every node that has to run one must have one. API servers without pods are asked by their
/// address alone.
pub fn control_plane_health(nodes: &[&Node], etcd: &[Pod], api_servers: &[Pod]) -> ControlPlaneHealth {
    let members = [
        (ControlPlaneMember::Etcd, etcd),
        (ControlPlaneMember::ApiServer, api_servers),
    ];
    let objection = members
        .into_iter()
        .find_map(|(member, pods)| objection(member, nodes, pods));
    match objection {
        Some(why) => ControlPlaneHealth::NotReady(why),
        None if etcd.is_empty() => ControlPlaneHealth::UnknownEtcd,
        None => ControlPlaneHealth::Ready {
            etcd_members: etcd.len(),
        },
    }
}

fn objection(member: ControlPlaneMember, nodes: &[&Node], pods: &[Pod]) -> Option<String> {
    if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        return Some(format!("{member} {name} is not ready"));
    }
    let homes: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    let names = hosts(member, nodes).into_iter();
    let mut missing = names.filter(|node| !pods.is_empty() && !homes.contains(node));
    let node = missing.next()?;
    Some(format!("node {node} has no {member}"))
}

/// Returns the nodes that have to run a member, by name. RKE2 labels the nodes of etcd, which need not be those of the
/// API servers; everywhere else etcd runs beside each API server, and on the arbiter of OpenShift.
fn hosts<'n>(member: ControlPlaneMember, nodes: &[&'n Node]) -> BTreeSet<&'n str> {
    let is_etcd = member == ControlPlaneMember::Etcd;
    let has = |node: &Node, label: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(label))
    };
    let is_labelled = is_etcd && nodes.iter().any(|node| has(node, ROLE_ETCD));
    let hosts = nodes.iter().filter(|node| {
        if is_labelled {
            has(node, ROLE_ETCD)
        } else {
            is_control_plane_node(node) || (is_etcd && has(node, ROLE_ARBITER))
        }
    });
    hosts.filter_map(|node| node.metadata.name.as_deref()).collect()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, roles: &[&str]) -> Node {
        let labels = roles
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), String::new()));
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.labels = Some(labels.collect());
        node
    }

    /// Pods as `name@node`, or `name@node!` for one that is not ready.
    fn pods(text: &str) -> Vec<Pod> {
        let pods = text.split_whitespace().map(|pod| {
            let (name, node) = pod.split_once('@').unwrap();
            let status = if node.ends_with('!') { "False" } else { "True" };
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"containers": [], "nodeName": node.trim_end_matches('!')},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }))
            .unwrap()
        });
        pods.collect()
    }

    #[test]
    fn an_etcd_member_without_a_pod_was_not_missed() {
        let not_ready = |why: &str| ControlPlaneHealth::NotReady(why.to_owned());
        let ready = |etcd_members| ControlPlaneHealth::Ready { etcd_members };
        let kubeadm = [
            node("cp-0", &["control-plane"]),
            node("cp-1", &["control-plane"]),
            node("cp-2", &["control-plane"]),
            node("worker-0", &[]),
        ];
        let rke2 = [
            node("cp-0", &["control-plane", "master"]),
            node("db-0", &["etcd"]),
            node("db-1", &["etcd"]),
        ];
        let arbiter = [
            node("m-0", &["master"]),
            node("m-1", &["master"]),
            node("arbiter-0", &["arbiter"]),
        ];
        let workers = [node("worker-0", &["worker"])];
        for (nodes, etcd, api_servers, expected) in [
            (
                kubeadm.as_slice(),
                "e0@cp-0 e1@cp-1 e2@cp-2",
                "a0@cp-0 a1@cp-1 a2@cp-2",
                ready(3),
            ),
            (
                &kubeadm,
                "e0@cp-0 e2@cp-2",
                "",
                not_ready("node cp-1 has no etcd member"),
            ),
            (
                &kubeadm,
                "e0@cp-0 e1@cp-1! e2@cp-2",
                "",
                not_ready("etcd member e1 is not ready"),
            ),
            (
                &kubeadm,
                "e0@cp-0 e1@cp-1 e2@cp-2",
                "a0@cp-0 a1@cp-1",
                not_ready("node cp-2 has no API server"),
            ),
            (
                &kubeadm,
                "",
                "a0@cp-0 a1@cp-1 a2@cp-2",
                ControlPlaneHealth::UnknownEtcd,
            ),
            (
                &kubeadm,
                "",
                "a0@cp-0 a1@cp-1! a2@cp-2",
                not_ready("API server a1 is not ready"),
            ),
            (&kubeadm, "", "", ControlPlaneHealth::UnknownEtcd),
            (&workers, "", "", ControlPlaneHealth::UnknownEtcd),
            (&rke2, "e0@db-0 e1@db-1", "a0@cp-0", ready(2)),
            (
                &rke2,
                "e0@db-0",
                "a0@cp-0",
                not_ready("node db-1 has no etcd member"),
            ),
            (
                &arbiter,
                "e0@m-0 e1@m-1",
                "a0@m-0 a1@m-1",
                not_ready("node arbiter-0 has no etcd member"),
            ),
            (&arbiter, "e0@m-0 e1@m-1 e2@arbiter-0", "a0@m-0 a1@m-1", ready(3)),
        ] {
            let nodes: Vec<&Node> = nodes.iter().collect();
            assert_eq!(
                control_plane_health(&nodes, &pods(etcd), &pods(api_servers)),
                expected,
                "etcd {etcd:?}, API servers {api_servers:?}"
            );
        }
    }
}
