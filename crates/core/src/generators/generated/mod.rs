//! Common parts of all generated MachineConfigs: metadata, files, and the record of what each part was generated
//! from.
//!
//! This module does not decide *what* to generate; the modules `templates`, `kubelet`, `container_runtime`,
//! `registries` and `credential_provider` do.

pub mod assign;
pub mod condition;
mod generator;
pub mod json_text;
pub mod origins;
pub mod suffix;
pub(crate) mod toml_text;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mco_api::MachineConfig;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::{annotations, labels};
use mco_ignition::MergedItem;
use mco_ignition::SpecVersion;
use serde_json::{Value, json};

pub use generator::{Generator, Restoration, generator_of, generator_of_name, is_intact, restoration};
pub use origins::{ConfigOrigin, Origins};

/// The mode of every generated file: none of them is secret.
const MODE: u32 = 0o644;

/// A generated MachineConfig and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    pub config: MachineConfig,
    pub origin: ConfigOrigin,
}

impl Generated {
    pub fn name(&self) -> &str {
        self.config.metadata.name.as_deref().unwrap_or_default()
    }
}

/// One file of a generated MachineConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    pub path: String,
    pub contents: String,
}

impl GeneratedFile {
    pub fn new(path: impl Into<String>, contents: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            contents: contents.into(),
        }
    }
}

/// The inputs of a generated MachineConfig.
#[derive(Debug, Clone, Default)]
pub struct GeneratedConfigSpec<'a> {
    pub name: String,
    /// The pool it is for.
    pub role: &'a str,
    pub files: Vec<GeneratedFile>,
    pub kernel_arguments: Vec<String>,
    /// The source revision of the generating controller; `None` omits the annotation.
    pub version: Option<&'a str>,
    pub owner: Option<OwnerReference>,
    /// The human-readable origin, such as `KubeletConfig "large-pods"`.
    pub made_from: String,
}

impl GeneratedConfigSpec<'_> {
    /// Builds the MachineConfig in the format of other implementations.
    pub fn build(self) -> Generated {
        let annotations = self.version.map(|version| {
            BTreeMap::from([(
                annotations::GENERATED_BY_CONTROLLER_VERSION.to_owned(),
                version.to_owned(),
            )])
        });
        let metadata = ObjectMeta {
            name: Some(self.name),
            labels: Some(BTreeMap::from([(labels::ROLE.to_owned(), self.role.to_owned())])),
            annotations,
            owner_references: self.owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let items = self
            .files
            .iter()
            .map(|file| (MergedItem::File(file.path.clone()), self.made_from.clone()));
        let origin = ConfigOrigin {
            made_from: self.made_from.clone(),
            items: items.collect(),
        };
        let spec = MachineConfigSpec {
            config: Some(ignition(&self.files)),
            kernel_arguments: self.kernel_arguments,
            ..MachineConfigSpec::default()
        };
        Generated {
            config: MachineConfig { metadata, spec },
            origin,
        }
    }
}

fn ignition(files: &[GeneratedFile]) -> Value {
    let mut config = json!({"ignition": {"version": SpecVersion::NEWEST.as_str()}});
    if !files.is_empty() {
        let files: Vec<Value> = files.iter().map(file).collect();
        config["storage"] = json!({ "files": files });
    }
    config
}

fn file(file: &GeneratedFile) -> Value {
    let encoded = BASE64.encode(&file.contents);
    json!({
        "path": file.path,
        "mode": MODE,
        "overwrite": true,
        "contents": {
            "compression": "",
            "source": format!("data:text/plain;charset=utf-8;base64,{encoded}"),
        },
    })
}

/// Returns an owner reference to the object that a generated MachineConfig belongs to.
pub fn owner(api_version: &str, kind: &str, metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
