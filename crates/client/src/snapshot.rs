//! A snapshot of a cluster's state, shared by all live pages.
//!
//! Pure: built from objects, and holds only what is shown.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::{self, DRIFT_POLICY};
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy};
use mco_core::rollout::node_progress::{StageReport, stages};
use mco_core::rollout::policy::{self, PolicyOverview, PoolRolloutOverview};
use mco_core::rollout::{NodeView, RolloutView};

use crate::build_status::{self, BuildOverview};
use crate::drift::{self, Drift};
use crate::overview::{NodeOverview, PoolOverview, overview};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// By name.
    pub pools: Vec<PoolOverview>,
    pub paused: Vec<String>,
    /// The builds of OS images: by pool, the newest first.
    pub builds: Vec<BuildOverview>,
    pub nodes: BTreeMap<String, NodeDetails>,
    /// By name.
    pub policies: Vec<PolicyOverview>,
    /// Failed reads, each as a sentence.
    pub trouble: Vec<String>,
    /// Whether every kind was listed once, or access was denied.
    pub complete: bool,
}

/// The details of a node's own page, in addition to its overview.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDetails {
    /// The pool it belongs to; `None` if no pool manages it.
    pub pool: Option<String>,
    pub reason: String,
    pub drift_policy: Option<String>,
    /// The config drift that its daemon has reported.
    pub drift: Option<Drift>,
    pub kubelet: String,
    pub os: String,
    /// Empty if nothing has been reported.
    pub timeline: Vec<StageReport>,
}

/// The objects about OS images; empty where the cluster has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageObjects<'a> {
    pub configs: &'a [MachineOSConfig],
    pub builds: &'a [MachineOSBuild],
}

impl Snapshot {
    pub fn of(
        pools: &[impl AsRef<MachineConfigPool>],
        nodes: &[impl AsRef<Node>],
        progress: &[impl AsRef<MachineConfigNode>],
        policies: &[impl AsRef<RolloutPolicy>],
        images: ImageObjects<'_>,
        now: Timestamp,
    ) -> Self {
        let pool_objects: Vec<&MachineConfigPool> = pools.iter().map(AsRef::as_ref).collect();
        let progress: Vec<&MachineConfigNode> = progress.iter().map(AsRef::as_ref).collect();
        let view = RolloutView::new(pool_objects.iter().copied(), nodes.iter().map(AsRef::as_ref))
            .with_images(images.configs, images.builds)
            .with_policies(policies.iter().map(AsRef::as_ref), now, None);
        let builds = build_status::overviews(images.builds, now);
        let mut overviews = overview(&view, progress.iter().copied(), now);
        build_status::attach(&mut overviews, &builds);
        let timelines: HashMap<&str, Vec<StageReport>> = progress
            .iter()
            .filter_map(|object| {
                let conditions = &object.status.as_ref()?.conditions;
                Some((object.metadata.name.as_deref()?, stages(conditions).into()))
            })
            .collect();
        let mut details: BTreeMap<String, NodeDetails> = nodes
            .iter()
            .map(|node| {
                let node = NodeView::new(node.as_ref());
                let known = timelines.get(node.name).cloned().unwrap_or_default();
                (node.name.to_owned(), details(&node, known))
            })
            .collect();
        for pool in &view.pools {
            let policy = pool.pool.metadata.annotations.as_ref();
            let policy = policy.and_then(|all| all.get(DRIFT_POLICY));
            for member in &pool.members {
                if let Some(details) = details.get_mut(member.name) {
                    details.pool = Some(pool.name.to_owned());
                    details.drift_policy = details.drift_policy.take().or_else(|| policy.cloned());
                }
            }
        }
        for drift in drift::report(&view, &[], &[], &BTreeMap::new()).drifted {
            if let Some(details) = details.get_mut(&drift.node) {
                details.drift = Some(drift);
            }
        }
        let paused = view.pools.iter().filter(|pool| pool.is_paused());
        Self {
            paused: paused.map(|pool| pool.name.to_owned()).collect(),
            pools: overviews,
            builds,
            nodes: details,
            policies: policy::overviews(&view),
            trouble: Vec::new(),
            complete: true,
        }
    }

    pub fn pool(&self, name: &str) -> Option<&PoolOverview> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Returns the rollout of a pool under its policy, and the name of that; `None` without a policy.
    pub fn rollout(&self, pool: &str) -> Option<(&str, &PoolRolloutOverview)> {
        self.policies.iter().find_map(|policy| {
            let rollout = policy.pools.iter().find(|rollout| rollout.name == pool)?;
            Some((policy.name.as_str(), rollout))
        })
    }

    /// Returns a node's details and its overview within its pool.
    pub fn node(&self, name: &str) -> Option<(&NodeDetails, Option<&NodeOverview>)> {
        let details = self.nodes.get(name)?;
        let pool = details.pool.as_deref().and_then(|pool| self.pool(pool));
        let overview = pool.and_then(|pool| pool.nodes.iter().find(|node| node.name == name));
        Some((details, overview))
    }
}

fn details(node: &NodeView<'_>, timeline: Vec<StageReport>) -> NodeDetails {
    let info = node
        .node
        .status
        .as_ref()
        .and_then(|status| status.node_info.as_ref());
    NodeDetails {
        pool: None,
        reason: node
            .annotation(annotations::node::REASON)
            .unwrap_or_default()
            .to_owned(),
        drift_policy: node.annotation(DRIFT_POLICY).map(str::to_owned),
        drift: None,
        kubelet: info.map_or_else(String::new, |info| info.kubelet_version.clone()),
        os: info.map_or_else(String::new, |info| info.os_image.clone()),
        timeline,
    }
}
