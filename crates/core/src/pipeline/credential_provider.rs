//! The generator of the kubelets' credential provider configuration (97-<pool>-generated-credentialproviderconfig).

use std::collections::BTreeSet;

use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;

use super::generate::name_of;
use super::registries::is_built_in;
use super::{ExistingConfigs, GenerationResult, GeneratorInputs};
use crate::generators::credential_provider::{
    self, CredentialProviderError, CredentialProviderOutcome, FEATURE_GATE,
};
use crate::generators::generated::{self, Generator};
use crate::generators::templates::base_file;

const CONFIG_GROUP: &str = "config.openshift.io/v1";
const KIND: &str = "CRIOCredentialProviderConfig";

pub(super) fn run(
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) {
    if !inputs.base.base.has_templates() {
        return;
    }
    let is_on = !inputs.base.feature_gates.is_disabled(FEATURE_GATE);
    let config = inputs.objects.credential_provider.as_ref();
    let Some(config) = config.filter(|config| is_on && config.metadata.deletion_timestamp.is_none()) else {
        return;
    };
    let before = result.configs.len();
    let outcome = match generate(config, inputs, result) {
        Ok(ignored) => CredentialProviderOutcome::Applied { ignored },
        Err(error) => {
            result.configs.truncate(before);
            for config in existing.of_generator(Generator::CredentialProvider) {
                result.keep(Some(config));
            }
            let outcome = match &error {
                CredentialProviderError::Patterns(_) => CredentialProviderOutcome::Invalid(error.to_string()),
                CredentialProviderError::Base { .. } => {
                    CredentialProviderOutcome::NotRendered(error.to_string())
                }
            };
            result.fail(&format!("{KIND} {:?}", name_of(&config.metadata)), error);
            outcome
        }
    };
    result.credential_provider = Some(outcome);
}

/// Generates the configs and returns the patterns that the platform's own provider handles.
fn generate(
    config: &CRIOCredentialProviderConfig,
    inputs: &GeneratorInputs<'_>,
    result: &mut GenerationResult,
) -> Result<Vec<String>, CredentialProviderError> {
    let infrastructure = inputs.base.controller_config.spec.infra.as_ref();
    let platform = infrastructure.and_then(|infra| infra.status.as_ref()?.platform_status.as_ref());
    let platform = platform.map_or("", |platform| platform.type_.as_str());
    let owner = generated::owner(CONFIG_GROUP, KIND, &config.metadata);
    let mut ignored = BTreeSet::new();
    for pool in inputs.objects.pools.iter().filter(|pool| is_built_in(pool)) {
        let role = name_of(&pool.metadata);
        let base = |path: &str| base_file(&inputs.base.templates, role, path);
        let files = credential_provider::files(config, platform, base)?;
        ignored.extend(files.ignored);
        result.push(credential_provider::generate(
            role,
            files.files,
            inputs.version,
            Some(owner.clone()),
        ));
    }
    Ok(ignored.into_iter().collect())
}
