//! Which node is in which pool: an index, so that a reconcile of one pool does not read the nodes of all.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_core::config::pools::{self, NodePools};
use mco_core::rollout::ContestedNode;
use mco_runtime::object_name;
use parking_lot::RwLock;
use tracing::warn;

/// The pool of each node and the nodes of each pool.
#[derive(Debug)]
pub(crate) struct MembershipIndex {
    state: RwLock<MembershipState>,
}

#[derive(Debug)]
struct MembershipState {
    selectors: NodePools,
    by_node: HashMap<String, NodeMembership>,
    by_pool: HashMap<String, BTreeSet<String>>,
    /// Nodes that no pool selects.
    unmanaged: BTreeSet<String>,
}

/// The pool of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeMembership {
    pub pool: Option<String>,
    /// A custom pool that selects this control-plane node, and is ignored.
    pub ignored: Option<String>,
    /// Custom pools that all select the node, so that it belongs to none.
    pub contested: Vec<String>,
}

impl NodeMembership {
    /// Returns whether a custom pool selects this control-plane node, if that has changed.
    pub fn claim_change(&self, old: &Self) -> Option<IgnoredClaim> {
        (self.ignored != old.ignored).then_some(match self.ignored {
            Some(_) => IgnoredClaim::Present,
            None => IgnoredClaim::Absent,
        })
    }

    /// Returns the pools that contest the node, if they have changed.
    pub fn new_contest(&self, old: &Self, node: &str) -> Option<ContestedNode> {
        (!self.contested.is_empty() && self.contested != old.contested).then(|| ContestedNode {
            node: node.to_owned(),
            pools: self.contested.clone(),
        })
    }
}

/// What new selectors changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MembershipChanges {
    /// Pools that gained or lost a node.
    pub pools: BTreeSet<String>,
    pub contested: Vec<ContestedNode>,
    /// Control-plane nodes that a custom pool began or stopped to select.
    pub claims: Vec<(String, IgnoredClaim)>,
}

/// Whether a custom pool selects a control-plane node, which stays in its own pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IgnoredClaim {
    Present,
    Absent,
}

impl Default for MembershipIndex {
    fn default() -> Self {
        Self {
            state: RwLock::new(MembershipState {
                selectors: NodePools::new([]),
                by_node: HashMap::new(),
                by_pool: HashMap::new(),
                unmanaged: BTreeSet::new(),
            }),
        }
    }
}

impl MembershipIndex {
    /// Updates one node after it was created, changed or deleted. `node` reads it under the index's lock, so that of
    /// two concurrent updates the later one never leaves the older state. Returns the membership before and after.
    pub fn update_node(
        &self,
        name: &str,
        node: impl FnOnce() -> Option<Arc<Node>>,
    ) -> (NodeMembership, NodeMembership) {
        let mut state = self.state.write();
        match node() {
            Some(node) => state.update(&node),
            None => (state.remove(name), NodeMembership::default()),
        }
    }

    /// Updates all nodes after the selectors of pools have changed. Both closures are called under the index's lock.
    pub fn rebuild(
        &self,
        pools: impl FnOnce() -> Vec<Arc<MachineConfigPool>>,
        nodes: impl FnOnce() -> Vec<Arc<Node>>,
    ) -> MembershipChanges {
        let mut state = self.state.write();
        state.selectors = NodePools::new(pools().iter().map(Arc::as_ref));
        for (pool, problem) in state.selectors.unreadable() {
            warn!(
                pool,
                "invalid spec.nodeSelector, so the pool has no nodes: {problem}"
            );
        }
        let mut changes = MembershipChanges::default();
        for node in nodes() {
            let (old, new) = state.update(&node);
            let name = object_name(&node.metadata);
            changes.contested.extend(new.new_contest(&old, name));
            let claim = new.claim_change(&old);
            changes.claims.extend(claim.map(|claim| (name.to_owned(), claim)));
            if old.pool != new.pool {
                changes.pools.extend([old.pool, new.pool].into_iter().flatten());
            }
        }
        changes
    }

    pub fn of_node(&self, node: &str) -> NodeMembership {
        self.state.read().by_node.get(node).cloned().unwrap_or_default()
    }

    /// Returns the nodes of a pool, ordered by name.
    pub fn nodes_of(&self, pool: &str) -> Vec<String> {
        let state = self.state.read();
        state.by_pool.get(pool).into_iter().flatten().cloned().collect()
    }

    /// Returns the nodes that no pool selects, ordered by name.
    pub fn unmanaged(&self) -> Vec<String> {
        self.state.read().unmanaged.iter().cloned().collect()
    }
}

impl MembershipState {
    fn note_unmanaged(&mut self, name: &str, is_unmanaged: bool) {
        if is_unmanaged {
            self.unmanaged.insert(name.to_owned());
        } else {
            self.unmanaged.remove(name);
        }
    }

    fn update(&mut self, node: &Node) -> (NodeMembership, NodeMembership) {
        let name = object_name(&node.metadata);
        let new = match self.selectors.of_node(node.metadata.labels.as_ref()) {
            pools::Membership::Unmanaged => NodeMembership::default(),
            pools::Membership::Member { pool, ignored } => NodeMembership {
                pool: Some(pool.to_owned()),
                ignored: ignored.map(str::to_owned),
                contested: Vec::new(),
            },
            pools::Membership::Contested { pools } => NodeMembership {
                contested: pools.into_iter().map(str::to_owned).collect(),
                ..NodeMembership::default()
            },
        };
        let old = self
            .by_node
            .insert(name.to_owned(), new.clone())
            .unwrap_or_default();
        if old.pool != new.pool {
            self.remove_from_pool(name, &old);
        }
        self.note_unmanaged(name, new.pool.is_none() && new.contested.is_empty());
        if let Some(pool) = &new.pool {
            let nodes = self.by_pool.entry(pool.clone()).or_default();
            nodes.insert(name.to_owned());
        }
        (old, new)
    }

    fn remove(&mut self, name: &str) -> NodeMembership {
        let old = self.by_node.remove(name).unwrap_or_default();
        self.remove_from_pool(name, &old);
        self.note_unmanaged(name, false);
        old
    }

    fn remove_from_pool(&mut self, name: &str, old: &NodeMembership) {
        if let Some(nodes) = old.pool.as_ref().and_then(|pool| self.by_pool.get_mut(pool)) {
            nodes.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, role: &str) -> MachineConfigPool {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels":
            {format!("node-role.kubernetes.io/{role}"): ""}}}}),
        )
        .unwrap()
    }

    fn node(name: &str, roles: &[&str]) -> Node {
        let labels: serde_json::Map<String, serde_json::Value> = roles
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn update(membership: &MembershipIndex, node: &Node) -> (NodeMembership, NodeMembership) {
        let name = node.metadata.name.as_deref().unwrap();
        membership.update_node(name, || Some(Arc::new(node.clone())))
    }

    fn rebuild(
        membership: &MembershipIndex,
        pools: &[MachineConfigPool],
        nodes: &[Node],
    ) -> MembershipChanges {
        let pools = || pools.iter().cloned().map(Arc::new).collect();
        membership.rebuild(pools, || nodes.iter().cloned().map(Arc::new).collect())
    }

    #[test]
    fn nodes_move_between_pools_by_their_labels_and_by_the_pools_selectors() {
        let membership = MembershipIndex::default();
        let pools = [pool("worker", "worker"), pool("infra", "infra")];
        rebuild(&membership, &pools, &[]);
        update(&membership, &node("a", &["worker"]));
        update(&membership, &node("b", &["worker"]));
        assert_eq!(membership.nodes_of("worker"), ["a", "b"]);
        let (old, new) = update(&membership, &node("b", &["worker", "infra"]));
        assert_eq!(
            (old.pool.as_deref(), new.pool.as_deref()),
            (Some("worker"), Some("infra"))
        );
        assert_eq!(
            (membership.nodes_of("worker"), membership.nodes_of("infra")),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        let moved = [pool("worker", "worker"), pool("infra", "other")];
        let nodes = [node("a", &["worker"]), node("b", &["worker", "infra"])];
        let affected = rebuild(&membership, &moved, &nodes);
        assert_eq!(affected.pools, ["infra".to_owned(), "worker".to_owned()].into());
        assert_eq!(membership.nodes_of("worker"), ["a", "b"]);
        assert_eq!(
            membership.update_node("a", || None).0.pool.as_deref(),
            Some("worker")
        );
        assert_eq!(membership.nodes_of("worker"), ["b"]);
        assert_eq!(membership.of_node("a"), NodeMembership::default());
    }

    #[test]
    fn a_node_that_several_pools_select_is_reported_once_per_contest() {
        let membership = MembershipIndex::default();
        let pools = [pool("infra", "infra"), pool("gpu", "gpu")];
        rebuild(&membership, &pools, &[]);
        let contest = |node: &Node| {
            let (old, new) = update(&membership, node);
            new.new_contest(&old, "a").map(|contested| contested.to_string())
        };
        let contested = node("a", &["infra", "gpu"]);
        let text = "node a belongs to 2 custom roles, cannot proceed with this Node";
        assert_eq!(contest(&contested).as_deref(), Some(text));
        assert_eq!(contest(&contested), None, "a heartbeat changes nothing");
        assert_eq!(contest(&node("a", &["infra"])), None);
        assert_eq!(membership.nodes_of("infra"), ["a"]);
        let other = [pool("infra", "infra"), pool("gpu", "infra")];
        let moves = rebuild(&membership, &other, &[node("a", &["infra"])]);
        assert_eq!(moves.contested.len(), 1, "{moves:?}");
        assert_eq!(moves.pools, ["infra".to_owned()].into());
    }
}
