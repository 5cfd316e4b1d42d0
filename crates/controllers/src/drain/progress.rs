//! The drain's steps in the node's MachineConfigNode. A view for people: nothing depends on it, so
//! nothing fails with it.

use kube::api::Patch;
use mco_api::MachineConfigNode;
use mco_core::rollout::drain::DrainRecord;
use mco_core::rollout::node_progress::{self, Phase};
use serde_json::json;
use tracing::debug;

use super::MANAGER;
use crate::cluster::Cluster;
use crate::patches;

/// The daemon writes the same list; whoever comes second reads it again.
const ATTEMPTS: usize = 4;

/// The step of a drain that is under way.
pub(super) fn draining(record: &DrainRecord) -> Phase {
    match &record.waiting_for {
        Some(what) => Phase::DrainBlocked {
            waits_for: what.clone(),
        },
        None => Phase::Draining,
    }
}

/// Reports steps in one write. The list of conditions has several writers, so it is read before and guarded by its
/// version.
pub(super) async fn report(cluster: &Cluster, node: &str, phases: &[Phase]) {
    let api = cluster.api::<MachineConfigNode>();
    for _ in 0..ATTEMPTS {
        let object = match api.get_opt(node).await {
            Ok(Some(object)) => object,
            Ok(None) => return,
            Err(problem) => {
                debug!(node, "the steps of the drain are not reported: {problem}");
                return;
            }
        };
        let status = object.status.clone().unwrap_or_default();
        let target = &object.spec.config_version.desired;
        let after = node_progress::report_all(&status.conditions, phases, node, target, &cluster.time());
        let Some(conditions) = after else {
            return;
        };
        let observed =
            node_progress::observed_generation(status.observed_generation, object.metadata.generation);
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "status": {"conditions": conditions, "observedGeneration": observed},
        });
        match api
            .patch_status(node, &patches::by(MANAGER), &Patch::Merge(patch))
            .await
        {
            Ok(written) => return cluster.machine_config_nodes.learn(written),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(problem) => {
                debug!(node, "the steps of the drain are not reported: {problem}");
                return;
            }
        }
    }
}
