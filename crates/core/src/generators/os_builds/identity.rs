//! The identity of a build: its name depends on everything that the image depends on, and on nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_api::machine_os_build::{MachineOSBuildSpec, MachineOSConfigName, RenderedConfigName};
use mco_api::machine_os_config::MachineOSConfigSpec;
use mco_api::vocabulary::{annotations, finalizers, labels, names};
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use md5::{Digest, Md5};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::reference::{ImageReference, ReferenceError};
use crate::config::goyaml;
use crate::config::hex;
use crate::config::render::SALT;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentityError {
    #[error("MachineOSConfig {config:?} is for pool {expected:?}, not for pool {pool:?}")]
    OtherPool {
        config: String,
        expected: String,
        pool: String,
    },
    #[error("MachineConfig {0:?} is not a rendered MachineConfig; images are built from rendered ones only")]
    NotRendered(String),
    #[error(
        "rendered MachineConfig {config:?} has no annotation {annotation}; wait until it is rendered again"
    )]
    MissingAnnotation {
        config: String,
        annotation: &'static str,
    },
    #[error("MachineOSConfig {config:?}: spec.renderedImagePushSpec: {source}")]
    PushSpec {
        config: String,
        #[source]
        source: ReferenceError,
    },
}

/// Returns the name of the build of this MachineOSConfig for a configuration of its pool.
pub fn name(
    config: &MachineOSConfig,
    configuration: &MachineConfigPoolConfiguration,
    rendered: &MachineConfig,
) -> Result<String, IdentityError> {
    let rendered_name = rendered.metadata.name.as_deref().unwrap_or_default();
    if !rendered_name.starts_with(names::RENDERED_PREFIX) {
        return Err(IdentityError::NotRendered(rendered_name.to_owned()));
    }
    let annotation = |annotation: &'static str| {
        let all = rendered.metadata.annotations.as_ref();
        let value = all
            .and_then(|all| all.get(annotation))
            .filter(|value| !value.is_empty());
        value.ok_or_else(|| IdentityError::MissingAnnotation {
            config: rendered_name.to_owned(),
            annotation,
        })
    };
    let release = annotation(annotations::RELEASE_IMAGE_VERSION)?;
    annotation(annotations::GENERATED_BY_CONTROLLER_VERSION)?;
    let images = json!({
        "BaseOSContainerImage": rendered.spec.os_image_url,
        "BaseOSExtensionsContainerImage": rendered.spec.base_os_extensions_container_image,
        "OSImageURL": "",
        "ReleaseVersion": release,
    });
    let mut hash = Md5::new();
    hash.update(SALT);
    for document in [
        configuration_document(configuration),
        spec_document(&config.spec),
        images,
    ] {
        hash.update(goyaml::to_string(&document));
    }
    let config = config.metadata.name.as_deref().unwrap_or_default();
    Ok(format!("{config}-{}", hex::encode(&hash.finalize())))
}

/// Returns the build of the pool's target, as it is created.
pub fn machine_os_build(
    pool: &MachineConfigPool,
    config: &MachineOSConfig,
    rendered: &MachineConfig,
) -> Result<MachineOSBuild, IdentityError> {
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let config_name = config.metadata.name.as_deref().unwrap_or_default();
    if config.spec.machine_config_pool.name != pool_name {
        return Err(IdentityError::OtherPool {
            config: config_name.to_owned(),
            expected: config.spec.machine_config_pool.name.clone(),
            pool: pool_name.to_owned(),
        });
    }
    let name = name(config, &pool.spec.configuration, rendered)?;
    let tagged = ImageReference::parse(&config.spec.rendered_image_push_spec)
        .and_then(|reference| reference.with_tag(&name))
        .map_err(|source| IdentityError::PushSpec {
            config: config_name.to_owned(),
            source,
        })?;
    let target = pool.target_name();
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(BTreeMap::from([
            (labels::build::POOL.to_owned(), pool_name.to_owned()),
            (labels::build::RENDERED_CONFIG.to_owned(), target.to_owned()),
            (
                labels::build::MACHINE_OS_CONFIG.to_owned(),
                config_name.to_owned(),
            ),
        ])),
        annotations: Some(BTreeMap::from([(
            annotations::build::PUSH_SECRET.to_owned(),
            config.spec.rendered_image_push_secret.name.clone(),
        )])),
        finalizers: Some(vec![finalizers::FOREGROUND_DELETION.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: "machineconfiguration.openshift.io/v1".to_owned(),
            kind: "MachineOSConfig".to_owned(),
            name: config_name.to_owned(),
            uid: config.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let spec = MachineOSBuildSpec {
        machine_config: RenderedConfigName {
            name: target.to_owned(),
        },
        machine_os_config: MachineOSConfigName {
            name: config_name.to_owned(),
        },
        rendered_image_push_spec: tagged.to_string(),
    };
    Ok(MachineOSBuild {
        metadata,
        spec,
        status: None,
    })
}

/// Only fields that are not empty, as the reference implementation writes them.
fn configuration_document(configuration: &MachineConfigPoolConfiguration) -> Value {
    let mut document = reference_document(&configuration.reference);
    if !configuration.source.is_empty() {
        let sources = configuration.source.iter().map(reference_document);
        document.insert("source".to_owned(), sources.map(Value::Object).collect());
    }
    Value::Object(document)
}

fn reference_document(reference: &ObjectReference) -> Map<String, Value> {
    let fields = [
        ("apiVersion", &reference.api_version),
        ("fieldPath", &reference.field_path),
        ("kind", &reference.kind),
        ("name", &reference.name),
        ("namespace", &reference.namespace),
        ("resourceVersion", &reference.resource_version),
        ("uid", &reference.uid),
    ];
    let present = fields.into_iter().filter_map(|(key, value)| {
        let value = value.as_ref().filter(|value| !value.is_empty())?;
        Some((key.to_owned(), Value::from(value.as_str())))
    });
    present.collect()
}

/// Every required field, also when it is empty; an absent list of Containerfiles is `null`, an empty one `[]`.
fn spec_document(spec: &MachineOSConfigSpec) -> Value {
    let pieces = spec.container_file.as_ref().map(|pieces| {
        let pieces = pieces.iter().map(|piece| {
            let mut document = Map::new();
            if !piece.containerfile_arch.is_empty() {
                document.insert(
                    "containerfileArch".to_owned(),
                    piece.containerfile_arch.clone().into(),
                );
            }
            document.insert("content".to_owned(), piece.content.clone().into());
            Value::Object(document)
        });
        pieces.collect::<Value>()
    });
    let mut document = json!({
        "containerFile": pieces,
        "imageBuilder": {"imageBuilderType": spec.image_builder.image_builder_type},
        "machineConfigPool": {"name": spec.machine_config_pool.name},
        "renderedImagePushSecret": {"name": spec.rendered_image_push_secret.name},
        "renderedImagePushSpec": spec.rendered_image_push_spec,
    });
    if let Some(secret) = &spec.base_image_pull_secret {
        document["baseImagePullSecret"] = json!({"name": secret.name});
    }
    document
}
