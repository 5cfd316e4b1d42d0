//! Publishes the node disruption policy, built-in and configured rules together, in the status of the cluster's
//! MachineConfiguration. Daemons read it from there.

use std::sync::Arc;

use mco_api::ClusterBase;
use mco_api::machine_configuration::{
    MACHINE_CONFIGURATION_NAME, NodeDisruptionPolicies, NodeDisruptionPolicyStatus,
};
use mco_core::config::rules::AdministratorRules;
use mco_runtime::{FieldManager, Requeue, patch};
use serde_json::json;
use tracing::info;

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-policies");

/// Writes the policy that is in force.
pub(crate) async fn reconcile(ctx: Arc<Context>, (): ()) -> Result<Requeue, Error> {
    let name = MACHINE_CONFIGURATION_NAME;
    let Some(settings) = ctx.stores.machine_configuration() else {
        return Ok(Requeue::OnChange);
    };
    let config = ctx.controller_config();
    let base = config.map_or_else(ClusterBase::default, |config| {
        config.base().unwrap_or(ClusterBase::None)
    });
    let policy = AdministratorRules::written(&settings, base).policy;
    let before = settings.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.observed_generation = settings.metadata.generation.unwrap_or_default();
    let wanted = policy.to_cluster_policies();
    let published = before.node_disruption_policy_status.as_ref();
    if !published.is_some_and(|published| is_same_policy(&published.cluster_policies, &wanted)) {
        after.node_disruption_policy_status = Some(NodeDisruptionPolicyStatus {
            cluster_policies: wanted,
        });
    }
    if after == before {
        return Ok(Requeue::OnChange);
    }
    let patch = json!({"status": patch::diff(&before, &after)});
    let stores = &ctx.stores;
    let is_written = if stores.machine_configurations.get(name).is_some() {
        let store = &stores.machine_configurations;
        let written = store.patch_status(&ctx.api(), name, MANAGER, &patch).await;
        written.map(|written| written.is_some())
    } else {
        let store = &stores.plain_machine_configurations;
        let written = store.patch_status(&ctx.api(), name, MANAGER, &patch).await;
        written.map(|written| written.is_some())
    };
    if is_written.map_err(Error::api("writing the status of the MachineConfiguration"))? {
        info!("published the node disruption policy");
    }
    Ok(Requeue::OnChange)
}

/// Returns true if two policies have the same effect. Order does not matter: the longest path wins, and a unit has one
/// rule.
fn is_same_policy(published: &NodeDisruptionPolicies, wanted: &NodeDisruptionPolicies) -> bool {
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
    use mco_core::config::disruption::DisruptionPolicy;

    use super::*;

    #[test]
    fn rules_in_another_order_were_written_again() {
        let wanted = DisruptionPolicy::default().to_cluster_policies();
        let mut published = wanted.clone();
        published.files.reverse();
        assert!(wanted.files.len() > 1 && published.files != wanted.files);
        assert!(is_same_policy(&published, &wanted));
        published.files.pop();
        assert!(!is_same_policy(&published, &wanted));
    }
}
