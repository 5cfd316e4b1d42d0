//! The machine counts of a pool's status.

use std::collections::HashMap;

use mco_api::MachineConfigNode;
use mco_api::machine_config_pool::{MachineConfigPoolStatus, PoolSynchronizerStatus};

use crate::rollout::image_mode_status;
use crate::rollout::{NodeView, PoolView, RolloutTarget};

/// Machine counts of a pool. A node can count in several of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    pub total: usize,
    /// Nodes with the target, verified.
    pub updated: usize,
    /// Nodes with the target, verified, that are also ready and schedulable. Not all ready nodes.
    pub ready: usize,
    /// Nodes that are not ready, unschedulable or being updated. Not all nodes without `ready`.
    pub unavailable: usize,
    /// Nodes that report a failure.
    pub degraded: usize,
}

/// How nodes report that they are updated or have failed.
#[derive(Debug, Clone, Copy, Default)]
pub enum NodeReports<'a> {
    /// In the annotations of the Node.
    #[default]
    Annotations,
    /// In the MachineConfigNodes, which are here by node, with the feature gate `ImageModeStatusReporting`.
    MachineConfigNodes(&'a HashMap<&'a str, &'a MachineConfigNode>),
}

impl NodeReports<'_> {
    fn is_updated_to(self, node: &NodeView<'_>, target: &RolloutTarget) -> bool {
        match self {
            Self::Annotations => node.is_updated_to(target),
            Self::MachineConfigNodes(all) => all
                .get(node.name)
                .is_some_and(|object| image_mode_status::is_updated_to(object, target)),
        }
    }

    /// Without a MachineConfigNode the annotations count.
    pub(super) fn is_degraded(self, node: &NodeView<'_>) -> bool {
        let object = match self {
            Self::Annotations => None,
            Self::MachineConfigNodes(all) => all.get(node.name),
        };
        object.map_or_else(
            || node.is_degraded(),
            |object| image_mode_status::is_degraded(object),
        )
    }
}

impl NodeCounts {
    /// Counts the nodes. Without a reachable target no node is updated.
    pub fn of(pool: &PoolView<'_>, target: Option<&RolloutTarget>, reports: NodeReports<'_>) -> Self {
        let updated = |node: &&NodeView<'_>| target.is_some_and(|target| reports.is_updated_to(node, target));
        let members = || pool.members.iter();
        Self {
            total: pool.members.len(),
            updated: members().filter(updated).count(),
            ready: members().filter(|node| updated(node) && node.is_ready()).count(),
            unavailable: members().filter(|node| node.is_unavailable()).count(),
            degraded: members().filter(|node| reports.is_degraded(node)).count(),
        }
    }

    pub fn all_updated(&self) -> bool {
        self.updated == self.total && self.ready == self.total && self.unavailable == 0
    }

    pub(super) fn write(&self, status: &mut MachineConfigPoolStatus) {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        status.machine_count = count(self.total);
        status.updated_machine_count = count(self.updated);
        status.ready_machine_count = count(self.ready);
        status.unavailable_machine_count = count(self.unavailable);
        status.degraded_machine_count = count(self.degraded);
    }
}

/// Counts the nodes with all pinned images. A node that has reported no set has none.
pub(super) fn pinned_image_sets(
    pool: &PoolView<'_>,
    counts: &NodeCounts,
    nodes: &HashMap<&str, &MachineConfigNode>,
) -> PoolSynchronizerStatus {
    let keeps_all = |node: &&MachineConfigNode| {
        let sets = node
            .status
            .as_ref()
            .map_or(&[][..], |status| status.pinned_image_sets.as_slice());
        sets.iter().all(|set| {
            set.desired_generation.is_some_and(|desired| desired > 0)
                && set.current_generation == set.desired_generation
        })
    };
    let known = pool.members.iter().filter_map(|member| nodes.get(member.name));
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    PoolSynchronizerStatus {
        pool_synchronizer_type: "PinnedImageSets".to_owned(),
        machine_count: count(counts.total),
        updated_machine_count: count(known.copied().filter(keeps_all).count()),
        ready_machine_count: count(counts.ready),
        unavailable_machine_count: count(counts.unavailable),
        available_machine_count: count(counts.total - counts.unavailable),
        observed_generation: 0,
    }
}
