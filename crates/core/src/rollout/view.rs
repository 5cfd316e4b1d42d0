//! The inputs of a rollout decision, gathered and indexed once by pool membership.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::names::pool::{ARBITER, MASTER};
use mco_api::vocabulary::topology;
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy};

use super::adoption::AdoptionPolicy;
use super::budget::{self, BudgetError, PoolNodes};
use super::control_plane::is_control_plane_node;
use super::node::NodeView;
use super::node_annotations::NodeAnnotations;
use super::plan::ContestedNode;
use super::policy::{ChangeCosts, Policies};
use super::target::Layering;
use crate::config::pools::{Membership, NodePools};
use crate::config::selector::SelectorError;

/// A snapshot of the cluster's nodes, pools and builds.
#[derive(Debug, Clone)]
pub struct RolloutView<'a> {
    /// By name.
    pub pools: Vec<PoolView<'a>>,
    pub contested: Vec<ContestedNode>,
    /// Nodes that no pool selects.
    pub(super) unmanaged: Vec<NodeView<'a>>,
    /// Control-plane nodes that a custom pool also selects, which is ignored: node, pool.
    pub ignored_wishes: Vec<(String, String)>,
    pub topology: Option<&'a str>,
    pub only_control_plane_node: Option<&'a str>,
    pub operator_node: Option<&'a str>,
    pub(super) policies: Policies<'a>,
    pub(super) first_pivots: BTreeMap<&'a str, &'a str>,
    pub(super) node_pools: NodePools,
}

/// One pool and its members.
#[derive(Debug, Clone)]
pub struct PoolView<'a> {
    pub name: &'a str,
    pub pool: &'a MachineConfigPool,
    /// In rollout order: by zone, then by age, oldest first; nodes without a zone last.
    pub members: Vec<NodeView<'a>>,
    /// Existing nodes that the pool selects and that are not adopted yet, or being released. They count nowhere.
    pub unadopted: Vec<NodeView<'a>>,
    pub layering: Layering<'a>,
    pub target_state: TargetState,
}

/// Whether a pool's target was written by our own render, and whether a render is pending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetState {
    #[default]
    Settled,
    /// A render is pending, which may change the target.
    Rendering,
    /// The target does not come from a render of the pool, so no node is sent to it.
    NotOurs,
}

impl<'a> RolloutView<'a> {
    pub fn new(
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Self {
        let mut pools: Vec<PoolView<'a>> = pools.into_iter().map(PoolView::empty).collect();
        pools.sort_by_key(|pool| pool.name);
        let node_pools = NodePools::new(pools.iter().map(|pool| pool.pool));
        let index: HashMap<&str, usize> = pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (pool.name, index))
            .collect();
        let mut contested = Vec::new();
        let mut unmanaged = Vec::new();
        let mut ignored_wishes = Vec::new();
        for node in nodes {
            let node = NodeView::new(node);
            match node_pools.of_node(node.node.metadata.labels.as_ref()) {
                Membership::Unmanaged => unmanaged.push(node),
                Membership::Contested { pools } => contested.push(ContestedNode {
                    node: node.name.to_owned(),
                    pools: pools.into_iter().map(str::to_owned).collect(),
                }),
                Membership::Member { pool, ignored } => {
                    if let Some(ignored) = ignored {
                        ignored_wishes.push((node.name.to_owned(), ignored.to_owned()));
                    }
                    if let Some(pool) = index.get(pool).and_then(|index| pools.get_mut(*index)) {
                        if pool.has_adopted(&node) {
                            pool.members.push(node);
                        } else {
                            pool.unadopted.push(node);
                        }
                    }
                }
            }
        }
        for pool in &mut pools {
            pool.members.sort_by_cached_key(turn);
            pool.unadopted.sort_by_key(|node| node.name);
        }
        contested.sort_by(|a, b| a.node.cmp(&b.node));
        ignored_wishes.sort();
        Self {
            pools,
            contested,
            unmanaged,
            ignored_wishes,
            topology: None,
            only_control_plane_node: None,
            operator_node: None,
            policies: Policies::default(),
            first_pivots: BTreeMap::new(),
            node_pools,
        }
    }

    /// Sets the control-plane topology; without it nodes are not annotated and no arbiter rules apply.
    #[must_use]
    pub fn with_topology(mut self, topology: Option<&'a str>) -> Self {
        self.topology = topology.filter(|topology| !topology.is_empty());
        self
    }

    /// Sets the node that is the whole control plane. It is annotated as such regardless of the topology.
    #[must_use]
    pub fn with_only_control_plane_node(mut self, node: Option<&'a str>) -> Self {
        self.only_control_plane_node = node;
        self
    }

    /// Returns the topology to annotate a node with, by which its daemon decides whether to drain.
    pub fn topology_of(&self, node: &str) -> Option<&'a str> {
        if self.only_control_plane_node == Some(node) {
            Some(topology::SINGLE_REPLICA)
        } else {
            self.topology
        }
    }

    /// Returns whether the node is updated without a drain, by the topology that it has or is about to be annotated with.
    pub fn skips_drain(&self, node: &Node) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        is_control_plane_node(node)
            && match self.topology_of(name) {
                Some(topology) => topology == topology::SINGLE_REPLICA,
                None => NodeAnnotations::of_node(node).single_replica,
            }
    }

    /// Sets the node that runs the operator's pod, if exactly one such pod runs.
    #[must_use]
    pub fn with_operator_node(mut self, node: Option<&'a str>) -> Self {
        self.operator_node = node;
        self
    }

    /// Sets the state of a pool's target.
    #[must_use]
    pub fn with_target_state(mut self, pool: &str, target_state: TargetState) -> Self {
        if let Some(pool) = self.pools.iter_mut().find(|known| known.name == pool) {
            pool.target_state = target_state;
        }
        self
    }

    /// Sets the owning pool of each rendered config that nodes were provisioned with. Only those that nodes name in
    /// their `firstPivotConfig` annotation are needed.
    #[must_use]
    pub fn with_first_pivots(mut self, owners: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.first_pivots = owners.into_iter().collect();
        self
    }

    /// Sets the objects of image builds for pools.
    #[must_use]
    pub fn with_images(mut self, configs: &'a [MachineOSConfig], builds: &'a [MachineOSBuild]) -> Self {
        for pool in &mut self.pools {
            pool.layering = Layering::of_pool(pool.pool, configs, builds);
        }
        self
    }

    /// Sets the policies, the time at which they are applied, and what the changes of nodes interrupt. Each policy must
    /// see the nodes of all pools that [`policy::related_pools`](super::policy::related_pools) returns.
    #[must_use]
    pub fn with_policies(
        mut self,
        policies: impl IntoIterator<Item = &'a RolloutPolicy>,
        now: Timestamp,
        costs: Option<&'a ChangeCosts>,
    ) -> Self {
        self.policies = Policies::new(policies, now, costs);
        self
    }

    pub fn pool(&self, name: &str) -> Option<&PoolView<'a>> {
        let index = self.pools.binary_search_by_key(&name, |pool| pool.name).ok()?;
        self.pools.get(index)
    }

    /// Returns pools with an invalid node selector. They have no members; other pools are not affected.
    pub fn unreadable_selectors(&self) -> &[(String, SelectorError)] {
        self.node_pools.unreadable()
    }
}

impl<'a> PoolView<'a> {
    fn empty(pool: &'a MachineConfigPool) -> Self {
        Self {
            name: pool.metadata.name.as_deref().unwrap_or_default(),
            pool,
            members: Vec::new(),
            unadopted: Vec::new(),
            layering: Layering::default(),
            target_state: TargetState::default(),
        }
    }

    /// Whether a node that the pool selects is managed. A pool with an adoption policy has existing nodes, each of which is
    /// adopted before it gets a config.
    fn has_adopted(&self, node: &NodeView<'_>) -> bool {
        let is_known = !node.current_config.is_empty()
            || !AdoptionPolicy::is_set(self.pool.metadata.annotations.as_ref());
        is_known && !node.is_being_released()
    }

    pub fn is_paused(&self) -> bool {
        self.pool.spec.paused
    }

    pub fn is_being_deleted(&self) -> bool {
        self.pool.metadata.deletion_timestamp.is_some()
    }

    /// Whether the selector is present but empty; with Kubernetes semantics it would select every node.
    pub fn selects_everything(&self) -> bool {
        self.pool.spec.node_selector.as_ref().is_some_and(|selector| {
            let labels = selector.match_labels.iter().flatten().next().is_some();
            let expressions = selector.match_expressions.iter().flatten().next().is_some();
            !labels && !expressions
        })
    }

    /// Whether nodes of the pool hold etcd members. Only OpenShift names their pools; elsewhere it is any pool.
    pub fn is_control_plane(&self) -> bool {
        matches!(self.name, MASTER | ARBITER) || self.control_plane_members().next().is_some()
    }

    pub(super) fn control_plane_members(&self) -> impl Iterator<Item = &NodeView<'a>> {
        self.members
            .iter()
            .filter(|member| is_control_plane_node(member.node))
    }

    /// Returns how many nodes of the pool may be unavailable at once.
    pub fn max_unavailable(&self) -> Result<i64, BudgetError> {
        let nodes = if self.is_control_plane() {
            PoolNodes::ControlPlane
        } else {
            PoolNodes::Workers
        };
        budget::max_unavailable(nodes, self.pool.spec.max_unavailable.as_ref(), self.members.len())
    }

    pub fn member(&self, name: &str) -> Option<&NodeView<'a>> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// Returns the sort key for rollout order: by zone, so that a bad config affects one failure domain first, then by
/// age; the name makes the order deterministic.
fn turn<'a>(node: &NodeView<'a>) -> (bool, Option<&'a str>, Option<Timestamp>, &'a str) {
    let zone = node.zone();
    let age = node.created().map(|time| time.0);
    (zone.is_none(), zone, age, node.name)
}
