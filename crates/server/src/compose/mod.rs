//! From a rendered MachineConfig to the document a new machine receives.
//!
//! A pure function of its [`Source`] and the negotiated version: nothing it is given is changed, so a second request can
//! never see what the first one did. Which config and which image it is about was decided before ([`crate::choose`]).

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
use files::Files;

/// Certificates that kubelets check the API server with.
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// Certificates that the cloud provider's API is checked with.
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
/// What the node agent writes onto its Node before it has ever talked to the cluster.
const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The whole MachineConfig, for people and for later comparison.
const CONTENT: &str = "/etc/mcs-machine-config-content.json";
/// The MachineConfig without its Ignition part; its presence starts the first-boot services.
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// The first version in which Ignition itself sets kernel arguments.
const SETS_KERNEL_ARGUMENTS: SpecVersion = SpecVersion::V3_3;

/// Everything one pool's documents are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    config: Arc<MachineConfig>,
    ignition: Config,
    surroundings: Surroundings,
}

/// What is added to a rendered config.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    pub kubelet_ca: ByteString,
    pub cloud_ca: ByteString,
    pub kubeconfig: Vec<u8>,
    /// An image that the machine can start with at once.
    pub layered_image: Option<String>,
    pub registry_certificates: Vec<RegistryCertificate>,
    pub origin: Origin,
}

/// The certificates of one image registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryCertificate {
    pub host: String,
    pub pem: Vec<u8>,
}

/// Where the MachineConfig came from, which shows in how it is embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From a directory: it names its kind, and is encapsulated with the newest version whatever was negotiated.
    Files,
    /// From the cluster: no kind, and the negotiated version.
    Cluster,
}

impl Surroundings {
    /// The part that comes from the ControllerConfig, with everything else empty.
    pub fn of(controller_config: &ControllerConfig, origin: Origin) -> Self {
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

/// A finished document and what its author should know.
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

impl Source {
    /// Reads the config's Ignition part, which is the same for every version served from it.
    pub fn new(config: Arc<MachineConfig>, surroundings: Surroundings) -> Result<Self, ComposeError> {
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
            surroundings,
        })
    }

    /// The rendered config that is served.
    pub fn config_name(&self) -> &str {
        name_of(&self.config)
    }
}

fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// The document for a machine that understands `version`.
pub fn compose(source: &Source, version: SpecVersion) -> Result<Composed, ComposeError> {
    let name = || source.config_name().to_owned();
    let encode_error = |source| ComposeError::Encode { name: name(), source };
    let surroundings = &source.surroundings;
    let mut ignition = source.ignition.clone();
    let mut config = MachineConfig::clone(&source.config);

    if version < SETS_KERNEL_ARGUMENTS {
        migrate_kernel_arguments(&mut ignition, &mut config, version)?;
    }
    let annotations = node_annotations(source).map_err(encode_error)?;
    if let Some(image) = &surroundings.layered_image {
        config.spec.os_image_url.clone_from(image);
    }

    let mut files = Files::new(&mut ignition.storage);
    files.refresh(KUBELET_CA, &surroundings.kubelet_ca.0);
    files.refresh(CLOUD_CA, &surroundings.cloud_ca.0);
    files.put(NODE_ANNOTATIONS, &annotations);
    files.put(KUBECONFIG, &surroundings.kubeconfig);
    let type_meta = match surroundings.origin {
        Origin::Files => TypeMeta::Present,
        Origin::Cluster => TypeMeta::Absent,
    };
    files.put(
        CONTENT,
        &gojson::indented(&config, type_meta).map_err(encode_error)?,
    );
    for certificate in &surroundings.registry_certificates {
        files.put(
            &format!("/etc/docker/certs.d/{}/ca.crt", certificate.host),
            &certificate.pem,
        );
    }
    let encapsulated_version = match surroundings.origin {
        Origin::Files => SpecVersion::V3_5,
        Origin::Cluster => version,
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

/// Older Ignition cannot set kernel arguments; the first-boot service sets those of the encapsulated config instead.
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

fn node_annotations(source: &Source) -> serde_json::Result<Vec<u8>> {
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
    if let Some(image) = pre_built.or(source.surroundings.layered_image.as_deref()) {
        entries.extend([(CURRENT_IMAGE, image), (DESIRED_IMAGE, image)]);
    }
    gojson::strings(&entries)
}
