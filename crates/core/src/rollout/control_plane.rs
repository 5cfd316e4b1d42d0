//! The role labels and taints that make control-plane nodes schedulable for user workloads or not. Independent of
//! pools and rollouts: reconciled for every control-plane node whenever it or the scheduler's settings change.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use mco_api::vocabulary::labels::node as label;
use mco_api::vocabulary::taints::effect;
use serde::{Deserialize, Serialize};

/// Whether user workloads may be scheduled on control-plane nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlPlaneWorkloads {
    Welcome,
    KeptAway,
    /// The cluster does not configure it, so nothing is changed.
    Unspecified,
}

/// The write to one control-plane node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleChange {
    /// Labels to set (a value) or to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// The whole list of taints, when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
}

/// Returns whether the node has a role label of the control plane.
pub fn is_control_plane_node(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| {
        labels.contains_key(label::ROLE_MASTER) || labels.contains_key(label::ROLE_CONTROL_PLANE)
    })
}

/// Returns the name of the only control-plane node; `None` if there are none or several. It cannot be drained: the
/// controller that must complete the drain runs there and nowhere else.
pub fn only_control_plane_node<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Option<&'a str> {
    let mut nodes = nodes.into_iter().filter(|node| is_control_plane_node(node));
    let first = nodes.next()?;
    nodes
        .next()
        .is_none()
        .then_some(first.metadata.name.as_deref().unwrap_or_default())
}

/// Returns the missing changes of this node; `None` if there are none or it is not a control-plane node.
pub fn role_change(node: &Node, workloads: ControlPlaneWorkloads) -> Option<RoleChange> {
    let has = |key: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(key))
    };
    if !has(label::ROLE_MASTER) {
        return None;
    }
    let mut change = RoleChange::default();
    if !has(label::ROLE_CONTROL_PLANE) {
        change
            .labels
            .insert(label::ROLE_CONTROL_PLANE.to_owned(), Some(String::new()));
    }
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    match workloads {
        ControlPlaneWorkloads::Unspecified => {}
        ControlPlaneWorkloads::Welcome => {
            if !has(label::ROLE_WORKER) {
                change
                    .labels
                    .insert(label::ROLE_WORKER.to_owned(), Some(String::new()));
            }
            let kept: Vec<Taint> = taints
                .iter()
                .filter(|taint| !keeps_workloads_away(taint))
                .cloned()
                .collect();
            if kept.len() != taints.len() {
                change.taints = Some(kept);
            }
        }
        ControlPlaneWorkloads::KeptAway => {
            if has(label::ROLE_WORKER) {
                change.labels.insert(label::ROLE_WORKER.to_owned(), None);
            }
            let there = |taint: &Taint| taint.key == label::ROLE_MASTER && keeps_workloads_away(taint);
            if !taints.iter().any(there) {
                let mut taints = taints;
                taints.push(Taint {
                    key: label::ROLE_MASTER.to_owned(),
                    effect: effect::NO_SCHEDULE.to_owned(),
                    ..Taint::default()
                });
                change.taints = Some(taints);
            }
        }
    }
    (change != RoleChange::default()).then_some(change)
}

fn keeps_workloads_away(taint: &Taint) -> bool {
    matches!(taint.key.as_str(), label::ROLE_MASTER | label::ROLE_CONTROL_PLANE)
        && taint.effect == effect::NO_SCHEDULE
}
