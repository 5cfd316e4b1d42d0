//! Composition of the document for a new machine from a rendered MachineConfig.
//!
//! A pure function of its [`PoolSource`] and the negotiated version. The config and the image are chosen in
//! [`crate::choose`].

mod files;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::ByteString;
use mco_api::vocabulary::{annotations, node_state};
use mco_api::{ControllerConfig, MachineConfig};
use mco_ignition::convert::{self, ConvertError};
use mco_ignition::{Config, ParseError, SpecVersion};
use serde_json::{Value, json};
use thiserror::Error;

use crate::gojson;
pub use crate::gojson::TypeMeta;
use files::ConfigFiles;

/// The CA with which kubelets verify the API server.
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// The CA of the API of the cloud provider.
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
/// The first annotations of the Node, which the daemon writes when it starts.
const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The whole MachineConfig, for debugging and later comparison.
const CONTENT: &str = "/etc/mcs-machine-config-content.json";
/// The MachineConfig without its Ignition config; its presence starts the first-boot services.
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// The first version in which Ignition itself sets kernel arguments.
const SETS_KERNEL_ARGUMENTS: SpecVersion = SpecVersion::V3_3;

/// The inputs of the documents of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSource {
    config: Arc<MachineConfig>,
    ignition: Config,
    context: ComposeContext,
}

/// What the server adds to a rendered config.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposeContext {
    pub kubelet_ca: ByteString,
    pub cloud_ca: ByteString,
    pub kubeconfig: Vec<u8>,
    /// The layered image with which the machine starts.
    pub layered_image: Option<String>,
    pub registry_certificates: Vec<RegistryCertificate>,
    pub origin: ConfigOrigin,
}

/// The certificates of one image registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryCertificate {
    pub host: String,
    pub pem: Vec<u8>,
}

/// The origin of the MachineConfig, which affects how it is embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// A directory: it has a kind, and is encapsulated with the newest version.
    Files,
    /// The cluster: no kind, and the negotiated version.
    Cluster,
}

impl ComposeContext {
    /// Returns the context with the data of the ControllerConfig and nothing else.
    pub fn of(controller_config: &ControllerConfig, origin: ConfigOrigin) -> Self {
        let spec = &controller_config.spec;
        Self {
            kubelet_ca: spec.kube_api_server_serving_ca_data.clone(),
            cloud_ca: spec.cloud_provider_ca_data.clone().unwrap_or_default(),
            kubeconfig: Vec::new(),
            layered_image: None,
            registry_certificates: Vec::new(),
            origin,
        }
    }
}

/// A document, with warnings for the administrator.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    pub document: Value,
    pub warnings: Vec<String>,
}

#[derive(Debug, Error)]
pub enum ComposeError {
    #[error("MachineConfig {name:?}: spec.config is empty; render the pool again")]
    NoIgnition { name: String },
    #[error("MachineConfig {name:?}: parsing Ignition config failed with error: {source}")]
    Ignition {
        name: String,
        #[source]
        source: ParseError,
    },
    #[error(
        "MachineConfig {name:?}: can't serve version {version} with ignition KernelArguments.ShouldNotExist populated"
    )]
    KernelArguments { name: String, version: SpecVersion },
    #[error("MachineConfig {name:?}: {source}")]
    Convert {
        name: String,
        #[source]
        source: ConvertError,
    },
    #[error("MachineConfig {name:?} cannot be written as JSON: {source}")]
    Encode {
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

impl PoolSource {
    /// Parses the Ignition config, which is shared by all served versions.
    pub fn new(config: Arc<MachineConfig>, context: ComposeContext) -> Result<Self, ComposeError> {
        let name = || name_of(&config).to_owned();
        let raw = config
            .spec
            .config
            .as_ref()
            .filter(|raw| !raw.is_null())
            .ok_or_else(|| ComposeError::NoIgnition { name: name() })?;
        let parsed =
            mco_ignition::parse(raw).map_err(|source| ComposeError::Ignition { name: name(), source })?;
        Ok(Self {
            config,
            ignition: parsed.config,
            context,
        })
    }

    /// Returns the name of the rendered config.
    pub fn config_name(&self) -> &str {
        name_of(&self.config)
    }
}

fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the document for a machine that supports `version`.
pub fn compose(source: &PoolSource, version: SpecVersion) -> Result<Composed, ComposeError> {
    let name = || source.config_name().to_owned();
    let encode_error = |source| ComposeError::Encode { name: name(), source };
    let context = &source.context;
    let mut ignition = source.ignition.clone();
    let mut config = MachineConfig::clone(&source.config);

    if version < SETS_KERNEL_ARGUMENTS {
        migrate_kernel_arguments(&mut ignition, &mut config, version)?;
    }
    let annotations = node_annotations(source).map_err(encode_error)?;
    if let Some(image) = &context.layered_image {
        config.spec.os_image_url.clone_from(image);
    }

    let mut files = ConfigFiles::new(&mut ignition.storage);
    files.refresh(KUBELET_CA, &context.kubelet_ca.0);
    files.refresh(CLOUD_CA, &context.cloud_ca.0);
    files.put(NODE_ANNOTATIONS, &annotations);
    files.put(KUBECONFIG, &context.kubeconfig);
    let type_meta = match context.origin {
        ConfigOrigin::Files => TypeMeta::Present,
        ConfigOrigin::Cluster => TypeMeta::Absent,
    };
    files.put(
        CONTENT,
        &gojson::indented(&config, type_meta).map_err(encode_error)?,
    );
    for certificate in &context.registry_certificates {
        files.put(
            &format!("/etc/docker/certs.d/{}/ca.crt", certificate.host),
            &certificate.pem,
        );
    }
    let encapsulated_version = match context.origin {
        ConfigOrigin::Files => SpecVersion::NEWEST,
        ConfigOrigin::Cluster => version,
    };
    config.spec.config = Some(json!({"ignition": {"version": encapsulated_version.as_str()}}));
    files.put(
        ENCAPSULATED,
        &gojson::compact(&config, type_meta).map_err(encode_error)?,
    );

    let warnings = files.warnings;
    let document =
        convert::down(&ignition, version).map_err(|source| ComposeError::Convert { name: name(), source })?;
    Ok(Composed { document, warnings })
}

/// Moves kernel arguments to the encapsulated config, whose first-boot service sets them: older Ignition cannot.
fn migrate_kernel_arguments(
    ignition: &mut Config,
    config: &mut MachineConfig,
    version: SpecVersion,
) -> Result<(), ComposeError> {
    let arguments = std::mem::take(&mut ignition.kernel_arguments);
    if !arguments.should_not_exist.is_empty() {
        return Err(ComposeError::KernelArguments {
            name: name_of(config).to_owned(),
            version,
        });
    }
    config.spec.kernel_arguments.extend(arguments.should_exist);
    Ok(())
}

fn node_annotations(source: &PoolSource) -> serde_json::Result<Vec<u8>> {
    use annotations::node::{
        CURRENT_CONFIG, CURRENT_IMAGE, DESIRED_CONFIG, DESIRED_IMAGE, FIRST_PIVOT_CONFIG, STATE,
    };
    let config = source.config_name();
    let mut entries = vec![
        (CURRENT_CONFIG, config),
        (DESIRED_CONFIG, config),
        (FIRST_PIVOT_CONFIG, config),
        (STATE, node_state::DONE),
    ];
    let pre_built = source
        .config
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::PRE_BUILT_IMAGE))
        .map(String::as_str)
        .filter(|image| !image.is_empty());
    if let Some(image) = pre_built.or(source.context.layered_image.as_deref()) {
        entries.extend([(CURRENT_IMAGE, image), (DESIRED_IMAGE, image)]);
    }
    gojson::strings(&entries)
}
