//! Generates a pool's container runtime configuration from a ContainerRuntimeConfig.
//!
//! One file per setting, so that settings the user omits keep the template's value. The caller chooses the names of
//! the resulting MachineConfigs with [`crate::generators::generated::suffix`].

mod drop_in;
mod storage;
mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::ContainerRuntimeConfig;
use mco_api::container_runtime_config::{AdditionalStore, ContainerRuntimeConfiguration};
use thiserror::Error;

use crate::config::feature_gates::FeatureGates;
use crate::generators::generated::toml_text::TomlText;
use crate::generators::generated::{Generated, GeneratedConfigSpec, GeneratedFile};
use crate::generators::quantity::Quantity;

pub use drop_in::drop_in_files;
pub use validate::{ContainerRuntimeProblem, validate};

pub const STORAGE_CONF: &str = "/etc/containers/storage.conf";
const DROPINS: &str = "/etc/crio/crio.conf.d";
/// The feature gate without which additional stores are validated but have no effect.
const STORES_GATE: &str = "AdditionalStorageConfig";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContainerRuntimeError {
    #[error("{}", join(.0))]
    Invalid(Vec<ContainerRuntimeProblem>),
    #[error("could not generate origin ContainerRuntime Configs: {0}")]
    Base(String),
}

fn join(problems: &[ContainerRuntimeProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The inputs of the generated configuration of a pool.
#[derive(Debug, Clone, Copy)]
pub struct ContainerRuntimeBase<'a> {
    /// The pool.
    pub role: &'a str,
    /// The template's storage.conf; `None` if the templates have none.
    pub storage_conf: Option<&'a str>,
    pub feature_gates: &'a FeatureGates,
    /// The source revision of the generating controller.
    pub version: &'a str,
}

/// Generates the MachineConfig of a ContainerRuntimeConfig for one pool.
pub fn generate(
    base: ContainerRuntimeBase<'_>,
    object: &ContainerRuntimeConfig,
    name: String,
    owner: Option<OwnerReference>,
) -> Result<Generated, ContainerRuntimeError> {
    validate(object).map_err(ContainerRuntimeError::Invalid)?;
    let wishes = &object.spec.container_runtime_config;
    let made_from = format!(
        "ContainerRuntimeConfig {:?}",
        object.metadata.name.as_deref().unwrap_or_default()
    );
    Ok(GeneratedConfigSpec {
        name,
        role: base.role,
        files: files(base, wishes)?,
        version: Some(base.version),
        owner,
        made_from,
        ..GeneratedConfigSpec::default()
    }
    .build())
}

fn files(
    base: ContainerRuntimeBase<'_>,
    wishes: &ContainerRuntimeConfiguration,
) -> Result<Vec<GeneratedFile>, ContainerRuntimeError> {
    let mut files = Vec::new();
    let stores = base.feature_gates.is_enabled(STORES_GATE);
    let change = storage::StorageChange {
        size: size(wishes.overlay_size.as_ref()).map(Quantity::canonical),
        layer_stores: if stores { layer_stores(wishes) } else { Vec::new() },
        image_stores: if stores {
            paths(&wishes.additional_image_stores)
        } else {
            Vec::new()
        },
    };
    if !change.is_empty() {
        let text = base
            .storage_conf
            .ok_or_else(|| ContainerRuntimeError::Base(format!("the templates have no {STORAGE_CONF}")))?;
        let contents = storage::with_change(text, &change).map_err(ContainerRuntimeError::Base)?;
        files.push(GeneratedFile::new(STORAGE_CONF, contents));
    }
    let mut dropin = |name: &str, write: &dyn Fn(&mut TomlText)| {
        let mut text = TomlText::default();
        text.table(&["crio"]);
        text.table(&["crio", "runtime"]);
        write(&mut text);
        files.push(GeneratedFile::new(
            format!("{DROPINS}/01-ctrcfg-{name}"),
            text.finish(),
        ));
    };
    if !wishes.log_level.is_empty() {
        dropin("logLevel", &|text| text.string("log_level", &wishes.log_level));
    }
    if let Some(limit) = wishes.pids_limit {
        dropin("pidsLimit", &|text| text.integer("pids_limit", limit.into()));
    }
    if let Some(size) = size(wishes.log_size_max.as_ref()) {
        dropin("logSizeMax", &|text| text.integer("log_size_max", size.value()));
    }
    if !wishes.default_runtime.is_empty() {
        dropin("defaultRuntime", &|text| {
            text.string("default_runtime", &wishes.default_runtime);
        });
    }
    if stores && !wishes.additional_artifact_stores.is_empty() {
        let stores = paths(&wishes.additional_artifact_stores);
        dropin("additionalArtifactStores", &|text| {
            text.strings("additional_artifact_stores", &stores);
        });
    }
    Ok(files)
}

/// Returns a size that is set and not zero; zero means the default.
fn size(quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Option<Quantity> {
    let quantity = Quantity::parse(&quantity?.0).ok()?;
    (!quantity.is_zero()).then_some(quantity)
}

fn paths(stores: &[AdditionalStore]) -> Vec<String> {
    stores.iter().map(|store| store.path.clone()).collect()
}

/// Returns the layer stores, each with the `:ref` suffix.
fn layer_stores(wishes: &ContainerRuntimeConfiguration) -> Vec<String> {
    let with_suffix = |path: String| {
        if path.ends_with(":ref") {
            path
        } else {
            format!("{path}:ref")
        }
    };
    paths(&wishes.additional_layer_stores)
        .into_iter()
        .map(with_suffix)
        .collect()
}
