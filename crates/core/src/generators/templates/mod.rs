//! The base configuration of every role, rendered from a tree of Go templates with the values of a ControllerConfig.
//!
//! The tree is passed in as a value, and each part of the resulting MachineConfigs records the template it came from.
//! Layout, layer precedence and language are the reference's, so a cluster's own tree works unchanged.

mod data;
mod embedded;
mod functions;
mod item;
mod platform;
mod shapes;
pub mod status;
mod tree;

use std::collections::BTreeMap;

use gotmpl::{FuncMap, Template, Value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mco_api::MachineConfig;
use mco_api::controller_config::ControllerConfigSpec;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::{annotations, labels, names};
use mco_ignition::{Config, MergeEvent, MergeObserver};
use thiserror::Error;

use crate::config::merge;
use crate::config::parsed_config::ParsedConfig;
use crate::generators::generated::{ConfigOrigin, Generated};
use crate::generators::tls_profile::TlsSettings;
use platform::TemplatePlatform;
use tree::TemplateSection;

pub use tree::TemplateTree;

/// The inputs of template rendering.
#[derive(Debug, Clone)]
pub struct TemplateInputs<'a> {
    pub spec: &'a ControllerConfigSpec,
    /// The registry credentials, as compact JSON; see [`compact_json`].
    pub pull_secret: &'a str,
    /// Whether the cluster approves the certificates that kubelets request for serving.
    pub serving_certificates: bool,
    pub tls: TlsSettings,
    /// The source revision of the generating controller.
    pub version: &'a str,
    pub owner: Option<OwnerReference>,
}

/// A MachineConfig of a role and the plain contents of its files, which other generators build on.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateConfig {
    pub role: String,
    pub generated: Generated,
    files: BTreeMap<String, String>,
}

impl TemplateConfig {
    /// Restores the value from a MachineConfig that a template controller wrote; `None` if it has another origin.
    pub fn of_cluster(config: &MachineConfig) -> Option<Self> {
        if !Self::is_of_cluster(config) {
            return None;
        }
        let role = config.metadata.labels.as_ref()?.get(labels::ROLE)?.clone();
        let parsed = ParsedConfig::applicable(config.clone()).ok()?;
        let files = &parsed.ignition.storage.files;
        let paths = files.iter().map(|file| file.path.clone());
        let files = paths.filter_map(|path| Some((path.clone(), parsed.text_of(&path)?)));
        Some(Self {
            role,
            files: files.collect(),
            generated: Generated {
                config: config.clone(),
                origin: ConfigOrigin {
                    made_from: "templates".to_owned(),
                    items: BTreeMap::new(),
                },
            },
        })
    }

    /// Whether a template controller wrote the MachineConfig: its owner is the ControllerConfig.
    pub fn is_of_cluster(config: &MachineConfig) -> bool {
        Self::is_owned(&config.metadata)
    }

    /// Like [`Self::is_of_cluster`], by the metadata.
    pub fn is_owned(metadata: &ObjectMeta) -> bool {
        let owners = metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        controllers.any(|owner| owner.kind == "ControllerConfig")
    }

    /// Returns the contents of one of its files.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("cannot generate MachineConfigs when no platformStatus.type is set")]
    NoPlatform,
    #[error("platform {0} unsupported")]
    UnsupportedPlatform(String),
    #[error("failed to create MachineConfig for role {role}: template {path}: {message}")]
    Broken {
        role: String,
        path: String,
        message: String,
    },
    #[error("failed to create MachineConfig for role {role}: the templates have no directory {role:?}")]
    NoRole { role: String },
}

/// Renders the MachineConfigs of all roles, sorted by name.
pub fn render(
    tree: &TemplateTree,
    inputs: &TemplateInputs<'_>,
) -> Result<Vec<TemplateConfig>, TemplateError> {
    let platform = TemplatePlatform::of(inputs.spec)?;
    let mut roles = vec![names::pool::MASTER, names::pool::WORKER];
    if platform.has_arbiter() {
        roles.push(names::pool::ARBITER);
    }
    let renderer = Renderer {
        tree,
        inputs,
        layers: platform.layers(),
        functions: functions::all(&platform),
        data: data::root(inputs),
    };
    let mut configs = Vec::new();
    for role in roles {
        configs.extend(renderer.role(role)?);
    }
    configs.sort_by(|a, b| a.generated.name().cmp(b.generated.name()));
    Ok(configs)
}

/// Returns the contents of a file of a role, from the MachineConfig that has it. Custom pools use the files of the
/// worker role.
pub fn base_file<'c>(configs: &'c [TemplateConfig], pool: &str, path: &str) -> Option<&'c str> {
    let role = if names::pool::is_custom(pool) {
        names::pool::WORKER
    } else {
        pool
    };
    configs
        .iter()
        .filter(|config| config.role == role)
        .find_map(|config| config.file(path))
}

/// Removes insignificant whitespace from JSON; `None` if it is invalid. No error detail, because the contents are
/// credentials.
pub fn compact_json(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in text.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if character == '"' {
            in_string = true;
        } else if character.is_ascii_whitespace() {
            continue;
        }
        compact.push(character);
    }
    Some(compact)
}

struct Renderer<'a> {
    tree: &'a TemplateTree,
    inputs: &'a TemplateInputs<'a>,
    layers: Vec<String>,
    functions: FuncMap,
    data: Value,
}

/// A rendered template and its path.
struct RenderedTemplate<'a> {
    path: &'a str,
    text: String,
}

impl<'a> Renderer<'a> {
    fn role(&self, role: &str) -> Result<Vec<TemplateConfig>, TemplateError> {
        let names = self.tree.names(role);
        if names.is_empty() {
            return Err(TemplateError::NoRole {
                role: role.to_owned(),
            });
        }
        let configs = names.iter().enumerate().map(|(index, name)| {
            let common = if index == 0 {
                Some("common".to_owned())
            } else {
                None
            };
            let directories = common.into_iter().chain([format!("{role}/{name}")]);
            self.config(role, name, &directories.collect::<Vec<_>>())
        });
        configs.collect()
    }

    fn config(
        &self,
        role: &str,
        name: &str,
        directories: &[String],
    ) -> Result<TemplateConfig, TemplateError> {
        let files = self.section(role, directories, TemplateSection::Files)?;
        let units = self.section(role, directories, TemplateSection::Units)?;
        let extensions = self.section(role, directories, TemplateSection::Extensions)?;
        let mut folded = Folded::default();
        let kinds = [
            (item::TemplateItemKind::File, files),
            (item::TemplateItemKind::Unit, units),
        ];
        for (kind, rendered) in kinds {
            for RenderedTemplate { path, text } in rendered.into_values() {
                let piece = item::read(kind, &text).map_err(|message| broken(role, path, message))?;
                folded.add(piece, path);
            }
        }
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(labels::ROLE.to_owned(), role.to_owned())])),
            annotations: Some(BTreeMap::from([(
                annotations::GENERATED_BY_CONTROLLER_VERSION.to_owned(),
                self.inputs.version.to_owned(),
            )])),
            owner_references: self.inputs.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let spec = MachineConfigSpec {
            config: Some(merge::to_value(&folded.config)),
            extensions: extensions.into_keys().collect(),
            ..MachineConfigSpec::default()
        };
        folded.origin.made_from = format!("templates {role}/{name}");
        Ok(TemplateConfig {
            role: role.to_owned(),
            generated: Generated {
                config: MachineConfig { metadata, spec },
                origin: folded.origin,
            },
            files: folded.files,
        })
    }

    /// Returns the effective templates of a section, by base name.
    fn section(
        &self,
        role: &str,
        directories: &[String],
        section: TemplateSection,
    ) -> Result<BTreeMap<String, RenderedTemplate<'a>>, TemplateError> {
        let mut rendered = BTreeMap::new();
        for directory in directories {
            for layer in &self.layers {
                for (path, bytes) in self.tree.section(directory, layer, section) {
                    let base = path.rsplit('/').next().unwrap_or(path).to_owned();
                    if bytes.is_empty() {
                        // An empty file removes what a more general layer added.
                        rendered.remove(&base);
                        continue;
                    }
                    let text = self.text(bytes).map_err(|message| broken(role, path, message))?;
                    if !text.trim().is_empty() {
                        rendered.insert(base, RenderedTemplate { path, text });
                    }
                }
            }
        }
        Ok(rendered)
    }

    fn text(&self, bytes: &[u8]) -> Result<String, String> {
        let source = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        Template::new("")
            .funcs(self.functions.clone())
            .parse(source)
            .and_then(|template| template.execute_to_string(&self.data))
            .map_err(|error| error.to_string())
    }
}

fn broken(role: &str, path: &str, message: String) -> TemplateError {
    TemplateError::Broken {
        role: role.to_owned(),
        path: path.to_owned(),
        message,
    }
}

/// Items merged into one config.
#[derive(Default)]
struct Folded {
    config: Config,
    files: BTreeMap<String, String>,
    origin: ConfigOrigin,
}

impl Folded {
    fn add(&mut self, piece: item::Piece, path: &str) {
        let mut origins = TemplateOrigins {
            origin: &mut self.origin,
            path,
        };
        self.config = mco_ignition::merge(std::mem::take(&mut self.config), piece.config, &mut origins);
        if let (mco_ignition::MergedItem::File(file), Some(inline)) = (piece.item, piece.inline) {
            self.files.insert(file, inline);
        }
    }
}

/// Records which templates contributed to each item.
struct TemplateOrigins<'a> {
    origin: &'a mut ConfigOrigin,
    path: &'a str,
}

impl MergeObserver for TemplateOrigins<'_> {
    fn event(&mut self, event: MergeEvent<'_>) {
        let origin = self.origin.items.entry(event.item.clone()).or_default();
        if origin.is_empty() {
            *origin = format!("template {}", self.path);
        } else if !origin.contains(self.path) {
            origin.push_str(" and ");
            origin.push_str(self.path);
        }
    }
}
