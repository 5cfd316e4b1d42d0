//! Merges MachineConfigs into one. The result does not depend on the order of the input.

use std::fmt;

use mco_api::MachineConfig;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::{annotations, labels};
use mco_ignition::Config;
use serde_json::Value;
use thiserror::Error;

use crate::config::extensions::{KERNEL_DEVEL, KernelType};
use crate::config::parsed_config::ParsedConfig;
use crate::config::pools;
use crate::config::problem::Problem;
use crate::config::provenance::{Provenance, SourceIndex, SpecField};

/// The OS images of a pool, which its MachineConfigs can override.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultImages<'a> {
    pub os: &'a str,
    pub extensions: &'a str,
}

/// The result of a merge, with the provenance of each part.
#[derive(Debug, Clone)]
pub struct MergedConfig {
    pub spec: MachineConfigSpec,
    /// The parsed form of the Ignition config in `spec.config`.
    pub ignition: Config,
    pub provenance: Provenance,
    pub warnings: Vec<SourcedProblem>,
    /// Conflicts between configs that are valid on their own. The merged result still equals the Go implementation's,
    /// but every node rejects it.
    pub contradictions: Vec<SourcedProblem>,
}

/// A problem and the MachineConfigs that cause it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcedProblem {
    pub sources: Vec<String>,
    pub problem: Problem,
}

impl fmt::Display for SourcedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<String> = self.sources.iter().map(|source| format!("{source:?}")).collect();
        let plural = if sources.len() > 1 { "s" } else { "" };
        write!(
            f,
            "MachineConfig{plural} {}: {}",
            sources.join(" and "),
            self.problem
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MergeError {
    #[error("empty machineconfig object: there is no MachineConfig to merge")]
    Nothing,
    #[error(
        "installing kernel-devel extension is not supported with kernelType: {kernel_type} \
         (kernelType from MachineConfig {kernel_source:?}, kernel-devel from MachineConfig {extension_source:?})"
    )]
    KernelDevel {
        kernel_type: &'static str,
        kernel_source: String,
        extension_source: String,
    },
}

/// Sorts configs into merge order: configs with the role worker first, so that a custom pool's own configs override
/// what it inherits, then by name.
pub fn order(configs: &mut [&ParsedConfig]) {
    configs.sort_by(|a, b| (!is_worker(&a.object), a.name()).cmp(&(!is_worker(&b.object), b.name())));
}

fn is_worker(config: &MachineConfig) -> bool {
    let role = config
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::ROLE));
    role.is_some_and(|role| role == pools::WORKER)
}

/// Whether the config was written by a user. Only such a config may choose the OS image; generated ones may not.
pub fn is_user_provided(config: &MachineConfig) -> bool {
    let by = config
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::GENERATED_BY_CONTROLLER_VERSION));
    by.is_none_or(String::is_empty)
}

/// Merges validated configs, in any input order.
pub fn merge(configs: &[&ParsedConfig], images: DefaultImages<'_>) -> Result<MergedConfig, MergeError> {
    if configs.is_empty() {
        return Err(MergeError::Nothing);
    }
    let mut configs = configs.to_vec();
    order(&mut configs);
    let mut merger = ConfigMerger::new(images);
    for config in configs {
        merger.add(config);
    }
    merger.finish()
}

/// Returns the merge of no configs: no file, no unit, no operating system image.
pub fn nothing() -> Result<MergedConfig, MergeError> {
    ConfigMerger::new(DefaultImages::default()).finish()
}

struct ConfigMerger {
    spec: MachineConfigSpec,
    ignition: Config,
    /// Number of configs with an Ignition part.
    ignition_parts: usize,
    provenance: Provenance,
    warnings: Vec<SourcedProblem>,
}

impl ConfigMerger {
    fn new(images: DefaultImages<'_>) -> Self {
        let spec = MachineConfigSpec {
            os_image_url: images.os.to_owned(),
            base_os_extensions_container_image: images.extensions.to_owned(),
            kernel_type: KernelType::Default.as_str().to_owned(),
            ..MachineConfigSpec::default()
        };
        Self {
            spec,
            ignition: Config::default(),
            ignition_parts: 0,
            provenance: Provenance::default(),
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, config: &ParsedConfig) {
        let source = self.provenance.begin(config.name());
        self.add_spec(&config.object, source);
        if config.has_ignition() {
            self.add_ignition(config.ignition.clone(), source);
        }
        self.warnings
            .extend(config.warnings.iter().map(|problem| SourcedProblem {
                sources: vec![config.name().to_owned()],
                problem: problem.clone(),
            }));
    }

    fn add_spec(&mut self, config: &MachineConfig, source: SourceIndex) {
        let spec = &config.spec;
        self.spec
            .kernel_arguments
            .extend_from_slice(&spec.kernel_arguments);
        self.provenance
            .kernel_arguments
            .resize(self.spec.kernel_arguments.len(), source);
        self.spec.extensions.extend_from_slice(&spec.extensions);
        self.provenance
            .extensions
            .resize(self.spec.extensions.len(), source);
        if spec.fips {
            self.spec.fips = true;
            self.provenance.set_field(SpecField::Fips, source);
        }
        // "default" asks for nothing, so it cannot undo an earlier special kernel.
        let kernel = KernelType::canonical(&spec.kernel_type);
        if kernel != KernelType::Default {
            kernel.as_str().clone_into(&mut self.spec.kernel_type);
            self.provenance.set_field(SpecField::KernelType, source);
        }
        if is_user_provided(config) {
            self.set_image(SpecField::OsImageUrl, &spec.os_image_url, source);
            self.set_image(
                SpecField::ExtensionsImage,
                &spec.base_os_extensions_container_image,
                source,
            );
        }
    }

    fn set_image(&mut self, field: SpecField, image: &str, source: SourceIndex) {
        if image.is_empty() {
            return;
        }
        let target = match field {
            SpecField::OsImageUrl => &mut self.spec.os_image_url,
            _ => &mut self.spec.base_os_extensions_container_image,
        };
        image.clone_into(target);
        self.provenance.set_field(field, source);
    }

    fn add_ignition(&mut self, mut child: Config, source: SourceIndex) {
        if self.ignition_parts > 0 {
            // Uncompressed contents must be able to replace compressed ones, but the merge keeps a parent's value
            // where the child has none. An explicit "" stands for "none" until the merge is over.
            for file in &mut child.storage.files {
                file.contents.compression.get_or_insert_default();
            }
        }
        self.ignition_parts += 1;
        let parent = std::mem::take(&mut self.ignition);
        self.ignition = mco_ignition::merge(parent, child, &mut self.provenance.recorder(source));
    }

    fn finish(mut self) -> Result<MergedConfig, MergeError> {
        self.check_kernel_devel()?;
        for file in &mut self.ignition.storage.files {
            if self.ignition_parts > 1 && file.contents.compression.as_deref() == Some("") {
                file.contents.compression = None;
            }
            file.overwrite.get_or_insert(true);
        }
        let value = to_value(&self.ignition);
        let contradictions = self.contradictions(&value);
        self.warnings.extend(contradictions.iter().cloned());
        self.spec.config = Some(value);
        Ok(MergedConfig {
            spec: self.spec,
            ignition: self.ignition,
            provenance: self.provenance,
            warnings: self.warnings,
            contradictions,
        })
    }

    fn check_kernel_devel(&self) -> Result<(), MergeError> {
        let kernel_type = KernelType::canonical(&self.spec.kernel_type);
        let Some(index) = self
            .spec
            .extensions
            .iter()
            .position(|extension| extension == KERNEL_DEVEL)
        else {
            return Ok(());
        };
        if kernel_type == KernelType::Default {
            return Ok(());
        }
        Err(MergeError::KernelDevel {
            kernel_type: kernel_type.as_str(),
            kernel_source: self
                .provenance
                .sources_of_field(SpecField::KernelType)
                .last()
                .copied()
                .unwrap_or_default()
                .to_owned(),
            extension_source: self
                .provenance
                .source_of_extension(index)
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// Returns all problems that make nodes reject the merged result: two valid configs can merge into an invalid
    /// one.
    fn contradictions(&self, value: &Value) -> Vec<SourcedProblem> {
        let report = mco_ignition::validate(&self.ignition);
        let problems = report.errors.iter().map(|finding| {
            let mut problem = explain(Problem::in_config(finding, value));
            problem.message = format!("merged config is not valid: {}", problem.message);
            SourcedProblem {
                sources: self.sources_of(&problem),
                problem,
            }
        });
        problems.collect()
    }

    /// Returns the MachineConfigs that contributed to the item the problem is about; all of them if it concerns no
    /// single item.
    fn sources_of(&self, problem: &Problem) -> Vec<String> {
        let contributors: Vec<String> = self
            .provenance
            .items()
            .filter(|item| {
                problem
                    .subject
                    .as_deref()
                    .is_some_and(|subject| item_name(item) == Some(subject))
            })
            .flat_map(|item| self.provenance.contributors(item))
            .map(str::to_owned)
            .collect();
        if contributors.is_empty() {
            self.provenance.sources().to_vec()
        } else {
            unique(contributors)
        }
    }
}

fn unique(mut names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn item_name(item: &mco_ignition::MergedItem) -> Option<&str> {
    use mco_ignition::MergedItem;
    match item {
        MergedItem::File(name)
        | MergedItem::Directory(name)
        | MergedItem::Link(name)
        | MergedItem::Unit(name)
        | MergedItem::User(name)
        | MergedItem::Group(name)
        | MergedItem::Disk(name)
        | MergedItem::Raid(name)
        | MergedItem::Filesystem(name)
        | MergedItem::Luks(name)
        | MergedItem::Dropin { name, .. } => Some(name),
        MergedItem::Section(_) | MergedItem::SshKey { .. } | MergedItem::KernelArgument { .. } => None,
    }
}

/// Rewrites Ignition's message, which assumes that the author set the field; here the default value did.
fn explain(problem: Problem) -> Problem {
    if problem.message == "overwrite must be false if source is unspecified" && problem.hint.is_none() {
        return problem.with_hint(
            "set contents.source of the file (\"data:,\" for an empty file) or set overwrite: false",
        );
    }
    problem
}

/// Serializes a config to JSON, which cannot fail for a plain data model.
pub fn to_value(config: &Config) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}
