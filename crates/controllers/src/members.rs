//! Which node is in which pool, kept up to date so that a look at one pool costs what that pool costs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_core::config::pools::{Membership, NodePools};
use mco_core::rollout::ContestedNode;
use parking_lot::RwLock;
use tracing::warn;

#[derive(Debug)]
pub(crate) struct Members {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    selectors: NodePools,
    homes: HashMap<String, Home>,
    members: HashMap<String, BTreeSet<String>>,
}

/// Where a node belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Home {
    pub pool: Option<String>,
    /// A custom pool that wants this control-plane node and does not get it.
    pub ignored: Option<String>,
    /// Custom pools that all want the node, so that none gets it.
    pub contested: Vec<String>,
}

impl Home {
    /// Whether a custom pool wants the node in vain, if that is news.
    pub fn ignored_since(&self, old: &Self) -> Option<Ignored> {
        (self.ignored != old.ignored).then_some(match self.ignored {
            Some(_) => Ignored::Wanted,
            None => Ignored::Unwanted,
        })
    }

    /// What to tell about a node that came here from `old`: only the change is news.
    pub fn dispute_since(&self, old: &Self, node: &str) -> Option<ContestedNode> {
        (!self.contested.is_empty() && self.contested != old.contested).then(|| ContestedNode {
            node: node.to_owned(),
            pools: self.contested.clone(),
        })
    }
}

/// What new selectors changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Pools that lost or won a node.
    pub pools: BTreeSet<String>,
    pub contested: Vec<ContestedNode>,
    /// Nodes that a custom pool wants in vain from now on, or no longer.
    pub ignored: Vec<(String, Ignored)>,
}

/// Whether a custom pool wants a control-plane node in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    Wanted,
    Unwanted,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                selectors: NodePools::new([]),
                homes: HashMap::new(),
                members: HashMap::new(),
            }),
        }
    }
}

impl Members {
    /// A node came, changed or went. It is asked for when no other can be placed meanwhile, so that of two who tell at
    /// once the later never leaves the older state. Returns where it was and where it is.
    pub fn place(&self, name: &str, node: impl FnOnce() -> Option<Arc<Node>>) -> (Home, Home) {
        let mut state = self.state.write();
        match node() {
            Some(node) => state.place(&node),
            None => (state.remove(name), Home::default()),
        }
    }

    /// The pools' selectors changed. Pools and nodes are asked for when nobody else can place any.
    pub fn rebuild(
        &self,
        pools: impl FnOnce() -> Vec<Arc<MachineConfigPool>>,
        nodes: impl FnOnce() -> Vec<Arc<Node>>,
    ) -> Moves {
        let mut state = self.state.write();
        state.selectors = NodePools::new(pools().iter().map(Arc::as_ref));
        for (pool, problem) in state.selectors.unreadable() {
            warn!(
                pool,
                "spec.nodeSelector cannot be read, so the pool has no nodes: {problem}"
            );
        }
        let mut moves = Moves::default();
        for node in nodes() {
            let (old, new) = state.place(&node);
            let name = node.metadata.name.as_deref().unwrap_or_default();
            moves.contested.extend(new.dispute_since(&old, name));
            let ignored = new.ignored_since(&old);
            moves
                .ignored
                .extend(ignored.map(|ignored| (name.to_owned(), ignored)));
            if old.pool != new.pool {
                moves.pools.extend([old.pool, new.pool].into_iter().flatten());
            }
        }
        moves
    }

    pub fn home(&self, node: &str) -> Home {
        self.state.read().homes.get(node).cloned().unwrap_or_default()
    }

    /// The nodes of a pool.
    pub fn of(&self, pool: &str) -> Vec<String> {
        let state = self.state.read();
        state.members.get(pool).into_iter().flatten().cloned().collect()
    }
}

impl State {
    fn place(&mut self, node: &Node) -> (Home, Home) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let new = match self.selectors.of_node(node.metadata.labels.as_ref()) {
            Membership::Unmanaged => Home::default(),
            Membership::Member { pool, ignored } => Home {
                pool: Some(pool.to_owned()),
                ignored: ignored.map(str::to_owned),
                contested: Vec::new(),
            },
            Membership::Contested { pools } => Home {
                contested: pools.into_iter().map(str::to_owned).collect(),
                ..Home::default()
            },
        };
        let old = self
            .homes
            .insert(name.to_owned(), new.clone())
            .unwrap_or_default();
        if old.pool != new.pool {
            self.leave(name, &old);
        }
        if let Some(pool) = &new.pool {
            let members = self.members.entry(pool.clone()).or_default();
            members.insert(name.to_owned());
        }
        (old, new)
    }

    fn remove(&mut self, name: &str) -> Home {
        let home = self.homes.remove(name).unwrap_or_default();
        self.leave(name, &home);
        home
    }

    fn leave(&mut self, name: &str, home: &Home) {
        if let Some(members) = home.pool.as_ref().and_then(|pool| self.members.get_mut(pool)) {
            members.remove(name);
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

    fn place(members: &Members, node: &Node) -> (Home, Home) {
        let name = node.metadata.name.as_deref().unwrap();
        members.place(name, || Some(Arc::new(node.clone())))
    }

    fn rebuild(members: &Members, pools: &[MachineConfigPool], nodes: &[Node]) -> Moves {
        let pools = || pools.iter().cloned().map(Arc::new).collect();
        members.rebuild(pools, || nodes.iter().cloned().map(Arc::new).collect())
    }

    #[test]
    fn nodes_move_between_pools_by_their_labels_and_by_the_pools_selectors() {
        let members = Members::default();
        let pools = [pool("worker", "worker"), pool("infra", "infra")];
        rebuild(&members, &pools, &[]);
        place(&members, &node("a", &["worker"]));
        place(&members, &node("b", &["worker"]));
        assert_eq!(members.of("worker"), ["a", "b"]);
        let (old, new) = place(&members, &node("b", &["worker", "infra"]));
        assert_eq!(
            (old.pool.as_deref(), new.pool.as_deref()),
            (Some("worker"), Some("infra"))
        );
        assert_eq!(
            (members.of("worker"), members.of("infra")),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        let moved = [pool("worker", "worker"), pool("infra", "other")];
        let nodes = [node("a", &["worker"]), node("b", &["worker", "infra"])];
        let affected = rebuild(&members, &moved, &nodes);
        assert_eq!(affected.pools, ["infra".to_owned(), "worker".to_owned()].into());
        assert_eq!(members.of("worker"), ["a", "b"]);
        assert_eq!(members.place("a", || None).0.pool.as_deref(), Some("worker"));
        assert_eq!(members.of("worker"), ["b"]);
        assert_eq!(members.home("a"), Home::default());
    }

    #[test]
    fn a_node_that_several_pools_want_is_told_once_per_dispute() {
        let members = Members::default();
        let pools = [pool("infra", "infra"), pool("gpu", "gpu")];
        rebuild(&members, &pools, &[]);
        let news = |node: &Node| {
            let (old, new) = place(&members, node);
            new.dispute_since(&old, "a")
                .map(|contested| contested.to_string())
        };
        let contested = node("a", &["infra", "gpu"]);
        let text = "node a belongs to 2 custom roles, cannot proceed with this Node";
        assert_eq!(news(&contested).as_deref(), Some(text));
        assert_eq!(news(&contested), None, "a heartbeat is no news");
        assert_eq!(news(&node("a", &["infra"])), None);
        assert_eq!(members.of("infra"), ["a"]);
        let other = [pool("infra", "infra"), pool("gpu", "infra")];
        let moves = rebuild(&members, &other, &[node("a", &["infra"])]);
        assert_eq!(moves.contested.len(), 1, "{moves:?}");
        assert_eq!(moves.pools, ["infra".to_owned()].into());
    }
}
