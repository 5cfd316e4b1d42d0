//! The versions that nodes report, which decide about the drop-ins that they can read.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::labels;
use mco_api::{ClusterBase, MachineConfigPool};

use crate::config::pools::{Membership, NodePools};

/// A version of which only the first two numbers matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinorVersion(pub u32, pub u32);

impl MinorVersion {
    /// Parses the start of a version such as `v1.35.2+k3s1`.
    pub fn parse(version: &str) -> Option<Self> {
        let mut numbers = version.trim_start_matches('v').split(['.', '-', '+', '~']);
        let mut number = || numbers.next()?.parse().ok();
        Some(Self(number()?, number()?))
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

/// The container runtime of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRuntime {
    Containerd(Option<MinorVersion>),
    CriO,
    Other,
}

/// A node as the generators of drop-ins see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeVersions {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The kubelet's version, as the Node reports it.
    pub kubelet: String,
    /// The container runtime, such as `containerd://2.2.1`.
    pub runtime: String,
}

impl NodeVersions {
    pub fn of(node: &Node) -> Self {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            kubelet: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
            runtime: info
                .map(|info| info.container_runtime_version.clone())
                .unwrap_or_default(),
        }
    }

    /// Returns the runtime; `None` if the node has not reported one yet.
    pub fn runtime(&self) -> Option<NodeRuntime> {
        let (name, version) = self.runtime.split_once("://")?;
        Some(match name {
            "containerd" => NodeRuntime::Containerd(MinorVersion::parse(version)),
            "cri-o" => NodeRuntime::CriO,
            _ => NodeRuntime::Other,
        })
    }

    /// Whether the node is part of the control plane, by its labels with any value.
    pub fn is_control_plane(&self) -> bool {
        [labels::node::ROLE_CONTROL_PLANE, labels::node::ROLE_MASTER]
            .iter()
            .any(|role| self.labels.contains_key(*role))
    }
}

/// The nodes of one pool on a base.
#[derive(Debug, Clone)]
pub struct PoolNodes<'a> {
    pub base: ClusterBase,
    pub pool: &'a str,
    pub nodes: Vec<&'a NodeVersions>,
}

impl<'a> PoolNodes<'a> {
    /// Selects the nodes of a pool.
    pub fn of(
        base: ClusterBase,
        pool: &'a MachineConfigPool,
        pools: &[MachineConfigPool],
        nodes: &'a [NodeVersions],
    ) -> Self {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let all = NodePools::new(pools);
        let is_member = |node: &&NodeVersions| {
            let membership = all.of_node(Some(&node.labels));
            matches!(membership, Membership::Member { pool, .. } if pool == name)
        };
        Self {
            base,
            pool: name,
            nodes: nodes.iter().filter(is_member).collect(),
        }
    }

    /// Returns the nodes that a test finds, each with a text, for messages.
    pub fn named(&self, text: impl Fn(&NodeVersions) -> Option<String>) -> Vec<String> {
        let found = self.nodes.iter();
        found
            .filter_map(|node| Some(format!("{} ({})", node.name, text(node)?)))
            .collect()
    }

    /// Whether any node has this kind of runtime. A pool whose nodes have not reported any is expected to have
    /// containerd.
    pub fn has_runtime(&self, test: impl Fn(NodeRuntime) -> bool) -> bool {
        let known: Vec<NodeRuntime> = self.nodes.iter().filter_map(|node| node.runtime()).collect();
        if known.is_empty() {
            return test(NodeRuntime::Containerd(None));
        }
        known.into_iter().any(test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_parsed() {
        for (version, expected) in [
            ("v1.35.2", Some(MinorVersion(1, 35))),
            ("v1.32.1+k3s1", Some(MinorVersion(1, 32))),
            ("2.2.1-k3s1", Some(MinorVersion(2, 2))),
            ("1.7.28~ds1", Some(MinorVersion(1, 7))),
            ("", None),
            ("v1", None),
        ] {
            assert_eq!(MinorVersion::parse(version), expected, "{version:?}");
        }
    }

    #[test]
    fn the_runtime_is_the_one_that_the_node_reports() {
        let node = |runtime: &str| NodeVersions {
            runtime: runtime.to_owned(),
            ..NodeVersions::default()
        };
        for (runtime, expected) in [
            (
                "containerd://2.2.1",
                Some(NodeRuntime::Containerd(Some(MinorVersion(2, 2)))),
            ),
            ("cri-o://1.35.0", Some(NodeRuntime::CriO)),
            ("docker://28.0.0", Some(NodeRuntime::Other)),
            ("", None),
        ] {
            assert_eq!(node(runtime).runtime(), expected, "{runtime:?}");
        }
    }
}
