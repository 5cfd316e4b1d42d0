//! Status of ImagePolicies and of the CRIOCredentialProviderConfig.

use kube::Api;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::image_policy::ImagePolicy;
use mco_api::vocabulary::names;
use mco_core::generators::credential_provider::{self, CredentialProviderOutcome};
use mco_core::generators::registries::{self, PolicyConflict};
use mco_runtime::{FieldManager, object_name};
use serde_json::json;
use tracing::warn;

use crate::context::Context;
use crate::error::Error;

const REGISTRIES_MANAGER: FieldManager = FieldManager::new("machine-config-controller-registries");
const CREDENTIAL_PROVIDER_MANAGER: FieldManager =
    FieldManager::new("machine-config-controller-credential-provider");

/// Reports on each namespaced policy whether a cluster-wide one overrides it.
pub(super) async fn image_policies(ctx: &Context, conflicts: &[PolicyConflict]) -> Result<(), Error> {
    let mut reported = Ok(());
    for policy in ctx.stores.image_policies.all() {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let name = object_name(&policy.metadata);
        let conflict = conflicts
            .iter()
            .find(|conflict| conflict.namespace == namespace && conflict.name == name);
        let status = policy.status.as_ref();
        let before = status.map_or(&[][..], |status| status.conditions.as_slice());
        let generation = policy.metadata.generation;
        let after = registries::policy_conditions(before, conflict, generation, &ctx.time());
        if after == before {
            continue;
        }
        if let Some(conflict) = conflict {
            warn!(policy = %format!("{namespace}/{name}"), "{}", conflict.message());
        }
        let policies: Api<ImagePolicy> = Api::namespaced(ctx.client.clone(), namespace);
        let patch = json!({"status": {"conditions": after}});
        let store = &ctx.stores.image_policies;
        let written = store
            .patch_status(&policies, name, REGISTRIES_MANAGER, &patch)
            .await;
        if let Err(problem) = written {
            let attempt = format!("writing the status of ImagePolicy {namespace}/{name}");
            reported = Err(Error::api(attempt)(problem));
        }
    }
    reported
}

/// Reports whether the image patterns are in force, and which are ignored.
pub(super) async fn credential_provider(
    ctx: &Context,
    config: &CRIOCredentialProviderConfig,
    outcome: &CredentialProviderOutcome,
) -> Result<(), Error> {
    let status = config.status.as_ref();
    let before = status.map_or(&[][..], |status| status.conditions.as_slice());
    let generation = config.metadata.generation;
    let after = credential_provider::conditions(before, outcome, generation, &ctx.time());
    if after == before {
        return Ok(());
    }
    let patch = json!({"status": {"conditions": after}});
    let store = &ctx.stores.credential_providers;
    let written = store
        .patch_status(&ctx.api(), names::SINGLETON, CREDENTIAL_PROVIDER_MANAGER, &patch)
        .await;
    let attempt = "writing the status of the CRIOCredentialProviderConfig";
    written.map_err(Error::api(attempt))?;
    Ok(())
}
