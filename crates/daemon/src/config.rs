//! A parsed and validated MachineConfig: the current or desired state of a machine.

use std::ops::Deref;
use std::sync::Arc;

use mco_api::MachineConfig;
use mco_core::config::manifest::{self, ManifestError};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::problem::InvalidObject;
use mco_ignition::ParseError;
use serde_json::{Value, json};
use thiserror::Error;

use crate::node_files::ResolvedFiles;

/// The name of the config of a machine that no config was ever applied to.
pub const EMPTY: &str = "mco-empty-mc";

#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    pub parsed: ParsedConfig,
    /// The pool's built image, if it has one. It replaces the config's own image.
    pub built_image: Option<String>,
    /// What the node has in the files that differ between the nodes of its pool. They are then among the files of the
    /// parsed config, and never in the object. `None` until they are known.
    pub node_files: Option<ResolvedFiles>,
}

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error(transparent)]
    Manifest(Box<ManifestError>),
    #[error(transparent)]
    Invalid(#[from] InvalidObject),
    #[error("{file}: {source}")]
    Ignition { file: String, source: ParseError },
    #[error("{file}: expected one MachineConfig or one Ignition config, found {found}")]
    NotOneConfig { file: String, found: String },
}

impl From<ManifestError> for ConfigError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest(Box::new(error))
    }
}

impl NodeConfig {
    pub fn new(object: MachineConfig) -> Result<Self, InvalidObject> {
        Ok(Self {
            parsed: ParsedConfig::applicable(object)?,
            built_image: None,
            node_files: None,
        })
    }

    /// Returns the config of a machine that has none.
    pub fn empty() -> Self {
        let mut object = MachineConfig::default();
        object.metadata.name = Some(EMPTY.to_owned());
        Self {
            parsed: ParsedConfig {
                object: Arc::new(object),
                ..ParsedConfig::default()
            },
            built_image: None,
            node_files: None,
        }
    }

    /// Whether this is the starting point of a machine that no config was applied to.
    pub fn is_empty_start(&self) -> bool {
        self.name() == EMPTY && self.ignition == mco_ignition::Config::default()
    }

    /// Returns the config under the name of a machine that no config was ever applied to.
    #[must_use]
    pub fn unnamed(mut self) -> Self {
        self.object_mut().metadata.name = Some(EMPTY.to_owned());
        self
    }

    #[must_use]
    pub fn with_built_image(mut self, image: Option<String>) -> Self {
        self.built_image = image.filter(|image| !image.is_empty());
        self
    }

    /// Parses a MachineConfig manifest or an Ignition config. The latter is named after its file.
    pub fn from_document(file: &str, bytes: &[u8]) -> Result<Self, ConfigError> {
        if let Ok(value) = serde_json::from_slice::<Value>(bytes)
            && value.get("ignition").is_some()
            && value.get("kind").is_none()
        {
            return Self::from_ignition(file, &value);
        }
        let manifests = manifest::read(file, bytes)?;
        let found = || {
            let kinds: Vec<&str> = manifests.iter().map(|manifest| manifest.kind.as_str()).collect();
            if kinds.is_empty() {
                "nothing".to_owned()
            } else {
                kinds.join(", ")
            }
        };
        match manifests.as_slice() {
            [one] if one.kind == "MachineConfig" => Ok(Self::new(one.decode()?)?),
            _ => Err(ConfigError::NotOneConfig {
                file: file.to_owned(),
                found: found(),
            }),
        }
    }

    fn from_ignition(file: &str, value: &Value) -> Result<Self, ConfigError> {
        mco_ignition::parse(value).map_err(|source| ConfigError::Ignition {
            file: file.to_owned(),
            source,
        })?;
        let stem = file
            .rsplit('/')
            .next()
            .unwrap_or(file)
            .split('.')
            .next()
            .unwrap_or_default();
        let name: String = stem
            .to_lowercase()
            .chars()
            .map(|character| {
                if character.is_ascii_alphanumeric() {
                    character
                } else {
                    '-'
                }
            })
            .collect();
        let name = name.trim_matches('-');
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": if name.is_empty() { "ignition" } else { name }},
            "spec": {"config": value},
        });
        let object: MachineConfig =
            serde_json::from_value(object).map_err(|error| ManifestError::WrongShape {
                origin: manifest::ManifestOrigin {
                    file: file.to_owned(),
                    line: 1,
                },
                kind: "MachineConfig".to_owned(),
                name: name.to_owned(),
                path: "spec".to_owned(),
                message: error.to_string(),
            })?;
        Ok(Self::new(object)?)
    }

    /// Returns the effective OS image: the pool's built one, otherwise the config's own.
    pub fn os_image(&self) -> &str {
        self.built_image
            .as_deref()
            .unwrap_or(&self.object.spec.os_image_url)
    }

    /// Returns the config's name for messages about the machine's state.
    pub fn title(&self) -> &str {
        self.built_image.as_deref().unwrap_or(self.name())
    }

    /// Returns the object, to change it without parsing it again.
    pub fn object_mut(&mut self) -> &mut MachineConfig {
        Arc::make_mut(&mut self.parsed.object)
    }
}

impl Deref for NodeConfig {
    type Target = ParsedConfig;

    fn deref(&self) -> &ParsedConfig {
        &self.parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_document_are_read() {
        let ignition = br#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"}]}}"#;
        let config = NodeConfig::from_document("dir/My_Node.ign", ignition).unwrap();
        assert_eq!(
            (config.name(), config.ignition.storage.files.len()),
            ("my-node", 1)
        );

        let manifest = b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-a\n\
            spec:\n  config:\n    ignition: {version: 3.5.0}\n    systemd: {units: [{name: a.service, enabled: true}]}\n";
        let config = NodeConfig::from_document("a.yaml", manifest).unwrap();
        assert_eq!((config.name(), config.ignition.systemd.units.len()), ("50-a", 1));
    }

    #[test]
    fn anything_else_says_what_it_found() {
        let pool = b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: a}\n";
        let error = NodeConfig::from_document("pool.yaml", pool).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pool.yaml: expected one MachineConfig or one Ignition config, found MachineConfigPool"
        );
        assert!(NodeConfig::from_document("empty", b"").is_err());
    }
}
