//! Nodes that were provisioned directly into a custom pool: they boot with that pool's config before they have its
//! labels. The labels are set once; afterwards the user decides.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::names::pool::{ARBITER, MASTER, WORKER};

use super::node::NodeView;
use super::plan::NodeAction;
use super::view::{PoolView, RolloutView};
use crate::config::pools::Membership;

/// A node that joins the pool it was provisioned for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JoiningNode<'a> {
    pub pool: &'a str,
    /// Labels that the node lacks.
    pub labels: BTreeMap<String, String>,
}

impl JoiningNode<'_> {
    /// Whether the node has all labels and only lacks the annotation that prevents setting them again.
    pub fn is_already_there(&self) -> bool {
        self.labels.is_empty()
    }

    pub fn action(&self, node: &str) -> NodeAction {
        NodeAction::JoinPool {
            node: node.to_owned(),
            pool: self.pool.to_owned(),
            labels: self.labels.clone(),
        }
    }
}

/// Returns the custom pool that the node was provisioned for, if it has not joined yet and can join: the labels in
/// the pool's selector must put the node into that pool and no other.
pub(super) fn join<'a>(
    view: &RolloutView<'a>,
    pool: &PoolView<'_>,
    node: &NodeView<'_>,
) -> Option<JoiningNode<'a>> {
    if node.annotation(annotation::CUSTOM_POOL_LABELS_APPLIED).is_some() {
        return None;
    }
    let first = node.annotation(annotation::FIRST_PIVOT_CONFIG)?;
    let owner = *view.first_pivots.get(first)?;
    if matches!(owner, MASTER | WORKER) {
        return None;
    }
    if owner == pool.name {
        return Some(JoiningNode {
            pool: owner,
            labels: BTreeMap::new(),
        });
    }
    lacking(view, owner, node)
}

/// Returns the write by which a node that belongs to no pool joins the pool it was provisioned for, if that is this
/// one. Kubelets do not set role labels, so a new node may have none at all.
///
/// Never the control plane: kubelets write the annotations of their own Nodes.
pub(super) fn join_from_no_pool(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    node: &NodeView<'_>,
) -> Option<NodeAction> {
    if matches!(pool.name, MASTER | ARBITER)
        || node.annotation(annotation::CUSTOM_POOL_LABELS_APPLIED).is_some()
    {
        return None;
    }
    let first = node.annotation(annotation::FIRST_PIVOT_CONFIG)?;
    if view.first_pivots.get(first) != Some(&pool.name) {
        return None;
    }
    Some(lacking(view, pool.name, node)?.action(node.name))
}

/// Returns the labels that the node lacks, if the labels of the pool's selector put it into that pool.
fn lacking<'a>(view: &RolloutView<'_>, owner: &'a str, node: &NodeView<'_>) -> Option<JoiningNode<'a>> {
    let wanted = labels_for(view.pool(owner)?.pool.spec.node_selector.as_ref()?);
    let mut all = node.node.metadata.labels.clone().unwrap_or_default();
    all.extend(wanted.clone());
    match view.node_pools.of_node(Some(&all)) {
        Membership::Member { pool, .. } if pool == owner => {}
        _ => return None,
    }
    let lacking = wanted
        .into_iter()
        .filter(|(key, value)| node.label(key) != Some(value))
        .collect();
    Some(JoiningNode {
        pool: owner,
        labels: lacking,
    })
}

/// Returns the labels that a selector requires. Expressions without a single value are skipped.
pub fn labels_for(selector: &LabelSelector) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.as_deref().unwrap_or_default();
        let value = match (expression.operator.as_str(), values) {
            ("In", [value]) => value.clone(),
            ("Exists", _) => String::new(),
            _ => continue,
        };
        labels.insert(expression.key.clone(), value);
    }
    labels.extend(selector.match_labels.clone().unwrap_or_default());
    labels
}
