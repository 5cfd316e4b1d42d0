//! A MachineConfig with its parsed Ignition config: parsed once when the object changes, then shared by rendering,
//! comparison, reconcilability and the daemon.

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::machine_config::MachineConfigSpec;
use mco_ignition::Config;

use crate::config::diff;
use crate::config::node_files;
use crate::config::problem::{InvalidObject, Problem};
use crate::config::remote::{RemoteContents, RemoteReference};
use crate::config::validate;

const READABLE_BY_ALL: i64 = 0o004;

/// A MachineConfig whose Ignition config was parsed and found valid. The default value represents a node without any
/// config.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedConfig {
    pub object: Arc<MachineConfig>,
    /// The Ignition config as spec 3.5; empty if the MachineConfig has none.
    pub ignition: Config,
    /// Findings that do not stop a render.
    pub warnings: Vec<Problem>,
}

impl ParsedConfig {
    /// Parses a config that is applied to machines, such as a rendered one. Unlike a source of a render it needs no
    /// role label.
    pub fn applicable(object: impl Into<Arc<MachineConfig>>) -> Result<Self, InvalidObject> {
        validate::check_applicable(&object.into())
    }

    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn spec(&self) -> &MachineConfigSpec {
        &self.object.spec
    }

    /// Whether this represents a node without any config.
    pub fn is_nothing(&self) -> bool {
        self.name().is_empty()
    }

    /// Whether the MachineConfig has an Ignition config.
    pub fn has_ignition(&self) -> bool {
        self.object
            .spec
            .config
            .as_ref()
            .is_some_and(|config| !config.is_null())
    }

    /// Returns the decoded contents of a file; `None` if the file is missing or not UTF-8. Those of a file with per-node
    /// values have their placeholders, and those of a Secret are not part of the config.
    pub fn text_of(&self, path: &str) -> Option<String> {
        let files = node_files::files_on_nodes(&self.ignition);
        let file = files.iter().find(|file| file.path == path)?;
        String::from_utf8(diff::file_bytes(file)?).ok()
    }

    /// Returns the contents of a unit and its drop-ins, concatenated; empty if the unit is missing.
    pub fn text_of_unit(&self, name: &str) -> String {
        let mut units = self.ignition.systemd.units.iter();
        let Some(unit) = units.find(|unit| unit.name == name) else {
            return String::new();
        };
        let dropins = unit.dropins.iter().map(|dropin| {
            let contents = dropin.contents.as_deref().unwrap_or_default();
            format!("# drop-in {}\n{contents}", dropin.name)
        });
        let contents = unit.contents.clone().into_iter();
        contents.chain(dropins).collect::<Vec<_>>().join("\n")
    }

    /// Whether a file is world-readable or missing.
    pub fn is_public(&self, path: &str) -> bool {
        let files = node_files::files_on_nodes(&self.ignition);
        let file = files.iter().find(|file| file.path == path);
        file.is_none_or(|file| diff::mode_bits(file) & READABLE_BY_ALL != 0)
    }
}

/// A MachineConfig that pools are rendered from: the object with its parsed form, or with the reason that it cannot
/// be merged.
#[derive(Debug, Clone)]
pub struct SourceConfig {
    pub object: Arc<MachineConfig>,
    /// With all remote contents embedded.
    pub parsed: Result<Arc<ParsedConfig>, InvalidObject>,
    /// The remote contents that it refers to.
    pub remote: Vec<RemoteReference>,
    /// Whether it cannot be merged only because remote contents are not fetched yet.
    pub is_pending: bool,
}

impl PartialEq for SourceConfig {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl SourceConfig {
    /// Parses and validates the object to the extent that rendering requires.
    pub fn new(object: impl Into<Arc<MachineConfig>>) -> Self {
        Self::with_contents(object, &RemoteContents::default())
    }

    /// Like [`Self::new`], and embeds the remote contents that it refers to.
    pub fn with_contents(object: impl Into<Arc<MachineConfig>>, contents: &RemoteContents) -> Self {
        let object = object.into();
        let resolution = validate::resolve(&object, contents);
        let parsed = validate::check_resolved(&object, &resolution).map(Arc::new);
        let is_pending = match &parsed {
            Ok(_) => false,
            Err(invalid) => resolution.is_pending() && invalid.problems.len() == resolution.missing.len(),
        };
        Self {
            object,
            parsed,
            remote: resolution.references,
            is_pending,
        }
    }

    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
impl ParsedConfig {
    /// Creates a config from a spec whose Ignition config must parse; nothing else is validated.
    pub(crate) fn of_spec(spec: serde_json::Value) -> Self {
        let mut object = MachineConfig::new("config", serde_json::from_value(spec).unwrap());
        object.metadata.labels = None;
        let ignition = object.spec.config.as_ref();
        let ignition = ignition.map(|config| mco_ignition::parse(config).unwrap().config);
        Self {
            ignition: ignition.unwrap_or_default(),
            object: Arc::new(object),
            warnings: Vec::new(),
        }
    }
}
