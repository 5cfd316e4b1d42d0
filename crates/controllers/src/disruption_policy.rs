//! What changes cost, in the status of the cluster's MachineConfiguration: the built-in rules with the administrator's.
//! Daemons read it from there.

use std::sync::Arc;

use kube::api::Patch;
use mco_api::MachineConfiguration;
use mco_api::machine_configuration::{
    MACHINE_CONFIGURATION_NAME, NodeDisruptionPolicies, NodeDisruptionPolicyStatus,
};
use mco_core::config::rules::Rules;
use serde_json::json;
use tracing::info;

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::patches;
use crate::queue::Again;

const MANAGER: &str = "machine-config-controller-policies";

/// Publishes the rules that are in force.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let name = MACHINE_CONFIGURATION_NAME;
    let Some(settings) = cluster.machine_configurations.get(name) else {
        return Ok(Again::OnChange);
    };
    let policy = Rules::written(&settings).policy;
    let before = settings.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.observed_generation = settings.metadata.generation.unwrap_or_default();
    let wanted = policy.to_cluster_policies();
    let published = before.node_disruption_policy_status.as_ref();
    if !published.is_some_and(|published| are_same(&published.cluster_policies, &wanted)) {
        after.node_disruption_policy_status = Some(NodeDisruptionPolicyStatus {
            cluster_policies: wanted,
        });
    }
    if after == before {
        return Ok(Again::OnChange);
    }
    let patch = json!({"status": patches::between(&before, &after)});
    match cluster
        .api::<MachineConfiguration>()
        .patch_status(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            info!("the rules about what changes cost are published");
            cluster.machine_configurations.learn(written);
        }
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => {
            return Err(Error::api("writing the status of the MachineConfiguration")(
                problem,
            ));
        }
    }
    Ok(Again::OnChange)
}

/// Whether two sets of rules say the same. Their order does not count: the longest path decides, and a unit has one rule.
fn are_same(published: &NodeDisruptionPolicies, wanted: &NodeDisruptionPolicies) -> bool {
    let sorted = |policies: &NodeDisruptionPolicies| {
        let mut sorted = policies.clone();
        sorted.files.sort_by(|a, b| a.path.cmp(&b.path));
        sorted.units.sort_by(|a, b| a.name.cmp(&b.name));
        sorted
    };
    sorted(published) == sorted(wanted)
}

#[cfg(test)]
mod tests {
    use mco_core::config::disruption::Policy;

    use super::*;

    #[test]
    fn rules_in_another_order_were_written_again() {
        let wanted = Policy::default().to_cluster_policies();
        let mut published = wanted.clone();
        published.files.reverse();
        assert!(wanted.files.len() > 1 && published.files != wanted.files);
        assert!(are_same(&published, &wanted));
        published.files.pop();
        assert!(!are_same(&published, &wanted));
    }
}
