//! The properties of a Node that affect image pulls.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::labels::node as label;
use mco_core::generators::quantity::Quantity;

/// Sequential on the control plane: its own images must not compete with those of workloads for the network.
const AT_ONCE_ON_CONTROL_PLANE: usize = 1;
const AT_ONCE: usize = 5;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::agent) struct NodeFacts {
    pub labels: BTreeMap<String, String>,
    pub ready: bool,
    pub disk_pressure: bool,
    /// Allocatable storage in bytes; `None` on machines without a kubelet.
    pub allocatable: Option<u64>,
}

impl NodeFacts {
    pub fn of(node: &Node) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let holds = |type_: &str| {
            conditions
                .iter()
                .any(|condition| condition.type_ == type_ && condition.status == status::TRUE)
        };
        let storage = status
            .allocatable
            .and_then(|mut resources| resources.remove("ephemeral-storage"));
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            ready: holds("Ready"),
            disk_pressure: holds("DiskPressure"),
            allocatable: storage
                .and_then(|quantity| Quantity::parse(&quantity.0).ok())
                .and_then(|quantity| u64::try_from(quantity.value()).ok()),
        }
    }

    /// Returns how many images may be pulled concurrently.
    pub fn at_once(&self) -> usize {
        let control_plane = [label::ROLE_MASTER, label::ROLE_CONTROL_PLANE];
        if control_plane.iter().any(|role| self.labels.contains_key(*role)) {
            AT_ONCE_ON_CONTROL_PLANE
        } else {
            AT_ONCE
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_properties_of_a_node_are_read_from_its_labels_and_status() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/master": ""}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
                "allocatable": {"ephemeral-storage": "25Gi", "cpu": "4"},
            },
        });
        let facts = NodeFacts::of(&serde_json::from_value(node).unwrap());
        assert_eq!(
            (
                facts.ready,
                facts.disk_pressure,
                facts.allocatable,
                facts.at_once()
            ),
            (true, false, Some(25 << 30), 1)
        );
        let nothing = NodeFacts::of(&Node::default());
        assert_eq!(
            (nothing.ready, nothing.allocatable, nothing.at_once()),
            (false, None, 5)
        );
    }
}
