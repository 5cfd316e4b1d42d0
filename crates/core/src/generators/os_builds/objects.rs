//! The objects that a build creates: ConfigMaps and Secrets with its inputs, and its Job.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::machine_os_config::EVERY_ARCHITECTURE;
use mco_api::vocabulary::names::{self, build};
use mco_api::vocabulary::{annotations, labels};
use mco_api::{ControllerConfig, MachineConfig, MachineOSBuild, MachineOSConfig};
use serde_json::Value;
use thiserror::Error;

use super::architecture::{Architecture, content_for};
use super::containerfile::{ComposeError, compose};
use super::credentials::{CredentialsError, canonical_credentials};
use super::job;
use crate::config::diff;

const POLICY: &str = "/etc/containers/policy.json";
const REGISTRIES: &str = "/etc/containers/registries.conf";

/// Everything that a build reads.
#[derive(Debug, Clone, Copy)]
pub struct BuildInputs<'a> {
    pub pool: &'a str,
    pub config: &'a MachineOSConfig,
    pub build: &'a MachineOSBuild,
    pub rendered: &'a MachineConfig,
    /// The rendered config as it is stored.
    pub stored: &'a Value,
    pub controller_config: &'a ControllerConfig,
    /// The Secret with which the base image is pulled.
    pub base_secret: &'a Secret,
    /// The Secret with which the image is pushed.
    pub push_secret: &'a Secret,
    /// Whether the Secret with the pool's subscription certificates exists.
    pub has_entitlement: bool,
    pub has_yum_repos: bool,
    pub has_rpm_keys: bool,
    /// The image in which the build runs.
    pub builder_image: &'a str,
    /// The architectures of the pool's nodes; empty if none is known.
    pub architectures: &'a [Architecture],
    /// The architecture of images if no node is known.
    pub default_architecture: Architecture,
}

/// The objects, in the order in which they are created.
#[derive(Debug, Clone)]
pub struct BuildObjects {
    pub containerfile: String,
    pub config_maps: Vec<ConfigMap>,
    pub secrets: Vec<Secret>,
    pub job: Job,
}

#[derive(Debug, Error)]
pub enum BuildError {
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error("MachineOSConfig {config:?}: {source}")]
    Credentials {
        config: String,
        #[source]
        source: CredentialsError,
    },
    #[error(
        "MachineOSConfig {config:?} has a containerFile for {entry}, but the nodes of pool {pool:?} have several \
         architectures ({architectures}) and one image cannot serve them; move the nodes to one pool per architecture"
    )]
    SeveralArchitectures {
        config: String,
        pool: String,
        entry: String,
        architectures: String,
    },
    #[error("rendered MachineConfig {config:?}: {problem}")]
    Rendered { config: String, problem: String },
    #[error("rendered MachineConfig {config:?}: the contents of {path} cannot be decoded")]
    File { config: String, path: &'static str },
    #[error("cannot write the objects of a build: {0}")]
    Encode(String),
}

impl BuildError {
    /// Whether the user must change the MachineOSConfig or the pool's config before a build can succeed.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Compose(ComposeError::Invalid { .. } | ComposeError::NoExtensionsImage { .. })
                | Self::SeveralArchitectures { .. }
        )
    }
}

/// Returns the objects of a build.
pub fn objects(inputs: &BuildInputs<'_>) -> Result<BuildObjects, BuildError> {
    let selected = selected_architecture(inputs)?;
    let architecture = match inputs.architectures {
        [only] => *only,
        _ => inputs.default_architecture,
    };
    let entries = entries(inputs, selected);
    let containerfile = compose(inputs.pool, inputs.rendered, &entries, architecture)?;
    let labels = job::object_labels(inputs);
    let annotations = object_annotations(inputs);
    let metadata = |name: String| ObjectMeta {
        name: Some(name),
        namespace: Some(names::NAMESPACE.to_owned()),
        labels: Some(labels.clone()),
        annotations: Some(annotations.clone()),
        ..ObjectMeta::default()
    };
    let config_maps = config_maps(inputs, &containerfile, metadata)?;
    let name = inputs.build.metadata.name.as_deref().unwrap_or_default();
    let secrets = vec![
        secret(inputs, inputs.base_secret, metadata(build::base_secret(name)))?,
        secret(inputs, inputs.push_secret, metadata(build::final_secret(name)))?,
    ];
    let is_specific = entries
        .first()
        .is_some_and(|(entry, _)| *entry != EVERY_ARCHITECTURE);
    let job = job::job(inputs, &labels, &annotations, selected.filter(|_| is_specific))
        .map_err(|error| BuildError::Encode(error.to_string()))?;
    Ok(BuildObjects {
        containerfile,
        config_maps,
        secrets,
        job,
    })
}

/// Returns the one architecture of the pool's nodes. Several are fine as long as no Containerfile is for one of them.
fn selected_architecture(inputs: &BuildInputs<'_>) -> Result<Option<Architecture>, BuildError> {
    if let [] | [_] = inputs.architectures {
        return Ok(inputs.architectures.first().copied());
    }
    let specific = inputs.architectures.iter().find_map(|architecture| {
        let (entry, _) = content_for(&inputs.config.spec, Some(*architecture))?;
        (entry != EVERY_ARCHITECTURE).then(|| entry.to_owned())
    });
    match specific {
        None => Ok(None),
        Some(entry) => Err(BuildError::SeveralArchitectures {
            config: inputs.config.metadata.name.clone().unwrap_or_default(),
            pool: inputs.pool.to_owned(),
            entry,
            architectures: inputs
                .architectures
                .iter()
                .map(|architecture| architecture.node_name())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// The piece that is built, and the general one, which must be valid even where a specific one replaces it.
fn entries<'a>(inputs: &BuildInputs<'a>, selected: Option<Architecture>) -> Vec<(&'a str, &'a str)> {
    let built = content_for(&inputs.config.spec, selected);
    let general = content_for(&inputs.config.spec, None).filter(|general| Some(*general) != built);
    built.into_iter().chain(general).collect()
}

fn object_annotations(inputs: &BuildInputs<'_>) -> BTreeMap<String, String> {
    use annotations::build as key;
    let mut all = BTreeMap::from([
        (
            key::MACHINE_OS_CONFIG.to_owned(),
            inputs.build.spec.machine_os_config.name.clone(),
        ),
        (
            key::MACHINE_OS_BUILD.to_owned(),
            inputs.build.metadata.name.clone().unwrap_or_default(),
        ),
    ]);
    for (is_present, key) in [
        (inputs.has_entitlement, key::HAS_ENTITLEMENT),
        (inputs.has_yum_repos, key::HAS_YUM_REPOS),
        (inputs.has_rpm_keys, key::HAS_RPM_KEYS),
    ] {
        if is_present {
            all.insert(key.to_owned(), String::new());
        }
    }
    all
}

fn config_maps(
    inputs: &BuildInputs<'_>,
    containerfile: &str,
    metadata: impl Fn(String) -> ObjectMeta,
) -> Result<Vec<ConfigMap>, BuildError> {
    let name = inputs.build.metadata.name.as_deref().unwrap_or_default();
    let text = |name: String, key: &str, value: String| ConfigMap {
        metadata: metadata(name),
        data: Some(BTreeMap::from([(key.to_owned(), value)])),
        ..ConfigMap::default()
    };
    let trust = inputs.controller_config.spec.additional_trust_bundle.clone();
    let mut all = vec![
        text(
            build::containerfile(name),
            "Containerfile",
            containerfile.to_owned(),
        ),
        text(
            build::machine_config(name),
            "machineconfig.json.gz",
            compressed(inputs.stored)?,
        ),
        ConfigMap {
            metadata: metadata(build::trust_bundle(name)),
            binary_data: Some(BTreeMap::from([(
                "openshift-config-user-ca-bundle.crt".to_owned(),
                trust.unwrap_or_default(),
            )])),
            ..ConfigMap::default()
        },
    ];
    let rendered_name = inputs.rendered.metadata.name.clone().unwrap_or_default();
    let ignition = match &inputs.rendered.spec.config {
        Some(config) if !config.is_null() => {
            let parsed = mco_ignition::parse(config).map_err(|error| BuildError::Rendered {
                config: rendered_name.clone(),
                problem: error.to_string(),
            })?;
            parsed.config
        }
        _ => mco_ignition::Config::default(),
    };
    for (path, object, key) in [
        (POLICY, build::policy(name), "policy.json"),
        (REGISTRIES, build::registries(name), "registries.conf"),
    ] {
        let mut files = ignition.storage.files.iter();
        let Some(file) = files.find(|file| file.path == path) else {
            continue;
        };
        let bytes = file
            .contents
            .source
            .as_ref()
            .and_then(|_| diff::file_bytes(file))
            .ok_or_else(|| BuildError::File {
                config: rendered_name.clone(),
                path,
            })?;
        all.push(match String::from_utf8(bytes) {
            Ok(contents) => text(object, key, contents),
            Err(error) => ConfigMap {
                metadata: metadata(object),
                binary_data: Some(BTreeMap::from([(key.to_owned(), ByteString(error.into_bytes()))])),
                ..ConfigMap::default()
            },
        });
    }
    Ok(all)
}

fn compressed(stored: &Value) -> Result<String, BuildError> {
    let encode = |error: std::io::Error| BuildError::Encode(error.to_string());
    let json = serde_json::to_vec(stored).map_err(|error| BuildError::Encode(error.to_string()))?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&json).map_err(encode)?;
    Ok(STANDARD.encode(encoder.finish().map_err(encode)?))
}

fn secret(
    inputs: &BuildInputs<'_>,
    original: &Secret,
    mut metadata: ObjectMeta,
) -> Result<Secret, BuildError> {
    let credentials = canonical_credentials(original).map_err(|source| BuildError::Credentials {
        config: inputs.config.metadata.name.clone().unwrap_or_default(),
        source,
    })?;
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(labels::build::CANONICALIZED_SECRET.to_owned(), String::new());
    labels.insert(
        labels::build::ORIGINAL_SECRET_NAME.to_owned(),
        original.metadata.name.clone().unwrap_or_default(),
    );
    Ok(Secret {
        metadata,
        type_: Some("kubernetes.io/dockerconfigjson".to_owned()),
        data: Some(BTreeMap::from([(
            ".dockerconfigjson".to_owned(),
            ByteString(credentials.into_bytes()),
        )])),
        ..Secret::default()
    })
}
