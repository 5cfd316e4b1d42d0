//! For which images kubelets ask CRI-O's credential provider, as MachineConfigs of the product's own pools.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::Patch;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::vocabulary::names;
use mco_core::credential_provider::{self, CredentialProviderError, FEATURE_GATE, Outcome};
use mco_core::generated::{self, Generated, Generator};
use mco_core::templates::base_file;
use serde_json::json;
use tracing::warn;

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::{Error, is_not_found};
use crate::foundation::Foundation;
use crate::owned::{self, Share};
use crate::patches;
use crate::queue::Again;
use crate::registries::is_built_in;
use crate::user_configs::existing;

const MANAGER: &str = "machine-config-controller-credential-provider";
const SUBCONTROLLER: &str = "machine-config-controller-container-runtime-config";
const CONFIG_GROUP: &str = "config.openshift.io/v1alpha1";

/// Makes the credential providers of all pools again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(Again::OnChange);
    };
    if !cluster.sources_are_known() {
        return Ok(Again::NotYet(Some(SOURCES_POLL)));
    }
    let config = cluster.credential_providers.get(names::SINGLETON);
    let is_on = !foundation.feature_gates.is_disabled(FEATURE_GATE);
    let Some(config) = config.filter(|config| is_on && config.metadata.deletion_timestamp.is_none()) else {
        let nothing = Share::default();
        owned::publish(&cluster, Generator::CredentialProvider, nothing, &foundation)
            .await
            .outcome()?;
        return Ok(Again::OnChange);
    };
    let (outcome, written) = match make(&cluster, &foundation, &config) {
        Ok((configs, ignored)) => {
            let share = owned::share(configs);
            let written = owned::publish(&cluster, Generator::CredentialProvider, share, &foundation)
                .await
                .outcome();
            match &written {
                Ok(()) => (Outcome::Applied { ignored }, written),
                Err(problem) => (Outcome::NotRendered(problem.to_string()), written),
            }
        }
        Err(problem) => {
            warn!("the credential providers stay as they are: {problem}");
            let outcome = match &problem {
                CredentialProviderError::Patterns(_) => Outcome::Invalid(problem.to_string()),
                CredentialProviderError::Base { .. } => Outcome::NotRendered(problem.to_string()),
            };
            (outcome, keep(&cluster, &foundation).await)
        }
    };
    report(&cluster, &config, &outcome).await?;
    written.map(|()| Again::OnChange)
}

/// What was in force before we came stays in force.
async fn keep(cluster: &Cluster, foundation: &Arc<Foundation>) -> Result<(), Error> {
    let is_own =
        |name: &str| name.starts_with("97-") && name.ends_with("-generated-credentialproviderconfig");
    let found = || existing(cluster, is_own);
    owned::retain(cluster, Generator::CredentialProvider, foundation, found).await
}

fn make(
    cluster: &Cluster,
    foundation: &Foundation,
    config: &CRIOCredentialProviderConfig,
) -> Result<(Vec<Generated>, Vec<String>), CredentialProviderError> {
    let infrastructure = foundation.controller_config.spec.infra.as_ref();
    let platform = infrastructure.and_then(|infra| infra.status.as_ref()?.platform_status.as_ref());
    let platform = platform.map_or("", |platform| platform.type_.as_str());
    let owner = generated::owner(CONFIG_GROUP, "CRIOCredentialProviderConfig", &config.metadata);
    let (mut configs, mut ignored) = (Vec::new(), BTreeSet::new());
    for pool in cluster.pools.all().iter().filter(|pool| is_built_in(pool)) {
        let role = pool.metadata.name.as_deref().unwrap_or_default();
        let base = |path: &str| base_file(&foundation.templates, role, path);
        let made = credential_provider::files(config, platform, base)?;
        ignored.extend(made.ignored);
        let version = &cluster.options.source_version;
        configs.push(credential_provider::generate(
            role,
            made.files,
            version,
            Some(owner.clone()),
        ));
        let action = "Sync CRIO Credential Provider Config";
        let now = cluster.now();
        cluster.options.metrics.acted(SUBCONTROLLER, action, role, now);
    }
    Ok((configs, ignored.into_iter().collect()))
}

async fn report(
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
        .patch_status(names::SINGLETON, &patches::by(MANAGER), &patch)
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
