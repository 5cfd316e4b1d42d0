//! Status of ImagePolicies and of the CRIOCredentialProviderConfig.

use kube::Api;
use kube::api::Patch;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::image_policy::ImagePolicy;
use mco_api::vocabulary::names;
use mco_core::generators::credential_provider::{self, Outcome};
use mco_core::generators::registries::{self, PolicyConflict};
use serde_json::json;
use tracing::warn;

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::{name_of, patches};

const REGISTRIES_MANAGER: &str = "machine-config-controller-registries";
const CREDENTIAL_PROVIDER_MANAGER: &str = "machine-config-controller-credential-provider";

/// Reports on each namespaced policy whether a cluster-wide one decides in its place.
pub(super) async fn image_policies(cluster: &Cluster, conflicts: &[PolicyConflict]) -> Result<(), Error> {
    let mut reported = Ok(());
    for policy in cluster.image_policies.all() {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let name = name_of(&policy.metadata);
        let conflict = conflicts
            .iter()
            .find(|conflict| conflict.namespace == namespace && conflict.name == name);
        let status = policy.status.as_ref();
        let before = status.map_or(&[][..], |status| status.conditions.as_slice());
        let generation = policy.metadata.generation;
        let after = registries::policy_conditions(before, conflict, generation, &cluster.time());
        if after == before {
            continue;
        }
        if let Some(conflict) = conflict {
            warn!(policy = %format!("{namespace}/{name}"), "{}", conflict.message());
        }
        let policies: Api<ImagePolicy> = Api::namespaced(cluster.client.clone(), namespace);
        let patch = Patch::Merge(json!({"status": {"conditions": after}}));
        match policies
            .patch_status(name, &patches::by(REGISTRIES_MANAGER), &patch)
            .await
        {
            Ok(written) => cluster.image_policies.learn(written),
            Err(problem) if is_not_found(&problem) => {}
            Err(problem) => {
                let attempt = format!("writing the status of ImagePolicy {namespace}/{name}");
                reported = Err(Error::api(attempt)(problem));
            }
        }
    }
    reported
}

/// Reports whether the patterns are in force, and which of them are ignored.
pub(super) async fn credential_provider(
    cluster: &Cluster,
    config: &CRIOCredentialProviderConfig,
    outcome: &Outcome,
) -> Result<(), Error> {
    let status = config.status.as_ref();
    let before = status.map_or(&[][..], |status| status.conditions.as_slice());
    let generation = config.metadata.generation;
    let after = credential_provider::conditions(before, outcome, generation, &cluster.time());
    if after == before {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": {"conditions": after}}));
    let configs = cluster.api::<CRIOCredentialProviderConfig>();
    match configs
        .patch_status(
            names::SINGLETON,
            &patches::by(CREDENTIAL_PROVIDER_MANAGER),
            &patch,
        )
        .await
    {
        Ok(written) => {
            cluster.credential_providers.learn(written);
            Ok(())
        }
        Err(problem) if is_not_found(&problem) => Ok(()),
        Err(problem) => Err(Error::api(
            "writing the status of the CRIOCredentialProviderConfig",
        )(problem)),
    }
}
