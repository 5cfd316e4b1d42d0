//! The base configuration of all roles, which the other generators build on.

use std::sync::Arc;

use mco_api::cluster_base::UnknownBase;
use mco_api::controller_config::ControllerConfigSpec;
use mco_api::foreign::api_server::APIServer;
use mco_api::vocabulary::annotations;
use mco_api::{ClusterBase, ControllerConfig, MachineConfig};
use thiserror::Error;

use super::ClusterObjects;
use crate::config::feature_gates::{FeatureGateError, FeatureGates};
use crate::generators::generated;
use crate::generators::templates::{self, TemplateConfig, TemplateError, TemplateInputs, TemplateTree};
use crate::generators::tls_profile;

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";
/// The path of the registry credentials in the base configuration.
const PULL_SECRET_FILE: &str = "/var/lib/kubelet/config.json";

/// The inputs of the base in addition to the cluster's objects.
#[derive(Debug, Clone, Copy)]
pub struct BaseSettings<'a> {
    pub templates: &'a TemplateTree,
    /// The registry credentials as compact JSON; empty if there are none.
    pub pull_secret: &'a str,
    /// The source revision of the generating controller.
    pub version: &'a str,
    /// The release whose feature gates apply; `None` uses the ControllerConfig's, or the only one.
    pub payload_version: Option<&'a str>,
}

/// The base configuration of all roles.
#[derive(Debug, Clone, Default)]
pub struct BaseConfigs {
    pub base: ClusterBase,
    pub controller_config: Arc<ControllerConfig>,
    /// Empty on a base without templates.
    pub templates: Vec<TemplateConfig>,
    pub feature_gates: FeatureGates,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BaseError {
    #[error(transparent)]
    Base(#[from] UnknownBase),
    #[error(transparent)]
    FeatureGates(#[from] FeatureGateError),
    #[error(transparent)]
    Templates(#[from] TemplateError),
}

impl BaseConfigs {
    /// Renders the base from its templates, if it has any.
    pub fn render(
        objects: &ClusterObjects,
        controller_config: &Arc<ControllerConfig>,
        settings: &BaseSettings<'_>,
    ) -> Result<Self, BaseError> {
        let feature_gates = FeatureGates::in_force(
            objects.feature_gate.as_ref(),
            controller_config,
            settings.payload_version,
        )?;
        let base = controller_config.base()?;
        if !base.has_templates() {
            return Ok(Self {
                base,
                controller_config: Arc::clone(controller_config),
                templates: Vec::new(),
                feature_gates,
            });
        }
        let profile = objects
            .api_server
            .as_ref()
            .and_then(|server| server.spec.tls_security_profile.as_ref());
        let inputs = TemplateInputs {
            spec: &controller_config.spec,
            pull_secret: settings.pull_secret,
            // Kubernetes by itself approves no certificate that a kubelet requests for serving.
            serving_certificates: base.is_openshift(),
            tls: tls_profile::settings(profile),
            version: settings.version,
            owner: Some(generated::owner(
                OWN_GROUP,
                "ControllerConfig",
                &controller_config.metadata,
            )),
        };
        Ok(Self {
            base,
            templates: templates::render(settings.templates, &inputs)?,
            controller_config: Arc::clone(controller_config),
            feature_gates,
        })
    }

    /// Restores the base from the MachineConfigs that a running cluster's template controller wrote, so that neither
    /// its templates nor its registry credentials are needed.
    pub fn of_cluster<'c>(
        objects: &ClusterObjects,
        controller_config: &Arc<ControllerConfig>,
        configs: impl IntoIterator<Item = &'c MachineConfig>,
        payload_version: Option<&str>,
    ) -> Result<Self, BaseError> {
        let feature_gates =
            FeatureGates::in_force(objects.feature_gate.as_ref(), controller_config, payload_version)?;
        let base = controller_config.base()?;
        let configs = configs.into_iter().filter(|_| base.has_templates());
        Ok(Self {
            base,
            templates: configs.filter_map(TemplateConfig::of_cluster).collect(),
            controller_config: Arc::clone(controller_config),
            feature_gates,
        })
    }

    /// Returns the registry credentials in the base; empty if it has none.
    pub fn pull_secret(&self) -> &str {
        let mut found = self
            .templates
            .iter()
            .filter_map(|config| config.file(PULL_SECRET_FILE));
        found.next().unwrap_or_default().trim_end()
    }

    /// Whether configs generated from this base stay valid when the other replaces it.
    pub fn is_like(&self, other: &Self) -> bool {
        let generation = |base: &Self| base.controller_config.metadata.generation;
        generation(self) == generation(other)
            && Self::inputs(&self.controller_config) == Self::inputs(&other.controller_config)
            && self.feature_gates == other.feature_gates
            && self.templates == other.templates
    }

    /// Whether both write the same files.
    pub fn has_same_files(&self, other: &Self) -> bool {
        let specs = |base: &Self| -> Vec<_> {
            let mut all: Vec<_> = base
                .templates
                .iter()
                .map(|config| {
                    (
                        config.generated.name().to_owned(),
                        config.generated.config.spec.clone(),
                    )
                })
                .collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        specs(self) == specs(other)
    }

    /// Returns the parts of a ControllerConfig that the base depends on: its spec, the version that wrote it, the
    /// release, and the base that it names.
    pub fn inputs(config: &ControllerConfig) -> (&ControllerConfigSpec, [Option<&String>; 3]) {
        let all = config.metadata.annotations.as_ref();
        let versions = [
            annotations::GENERATED_BY_VERSION,
            annotations::RELEASE_IMAGE_VERSION,
            annotations::BASE,
        ];
        (&config.spec, versions.map(|key| all.and_then(|all| all.get(key))))
    }

    /// Whether a change of the cluster's objects changes the base.
    pub fn depends_on_change(before: &ClusterObjects, after: &ClusterObjects) -> bool {
        let spec = |objects: &ClusterObjects| {
            let config = objects.controller_config.as_deref();
            config.map(|config| (config.spec.clone(), config.base()))
        };
        let profile = |objects: &ClusterObjects| {
            let server: Option<&APIServer> = objects.api_server.as_ref();
            tls_profile::settings(server.and_then(|server| server.spec.tls_security_profile.as_ref()))
        };
        spec(before) != spec(after) || profile(before) != profile(after)
    }
}
