//! Computes the changes to a pool's MachineConfigs that restore a former config.
//!
//! A cluster keeps rendered configs, not their sources, so the former MachineConfigs are reconstructed: those that
//! are newer than the former config are deleted, those that differ get the former parts, and parts that no
//! MachineConfig has any more are put into a new one. The result is rendered with the controller's own function and
//! compared with the former config; no change is proposed that would leave a node different. Configs generated from
//! other objects are never changed, because their generator would revert that.

mod choice;
mod draft;

use jiff::Timestamp;
use mco_api::MachineConfig;
use thiserror::Error;

use crate::comparison;
pub use choice::former;
use draft::{DraftImages, Drafts};
use mco_core::config::merge::is_user_provided;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::{RenderIdentity, Rendered};
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::bootstrap::BootstrapCluster;

/// One change of one MachineConfig.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEdit {
    Delete(Box<MachineConfig>),
    Replace(Box<MachineConfig>),
    Create(Box<MachineConfig>),
}

impl SourceEdit {
    pub fn name(&self) -> &str {
        let (Self::Delete(config) | Self::Replace(config) | Self::Create(config)) = self;
        config.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The changes, and the resulting config.
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    pub edits: Vec<SourceEdit>,
    /// The rendered config that the pool will have.
    pub result: String,
}

/// The config to restore.
#[derive(Debug, Clone, Copy)]
pub struct Former<'a> {
    pub config: &'a ParsedConfig,
    pub created: Option<Timestamp>,
    /// The name of the new MachineConfig for parts whose MachineConfig is gone.
    pub missing_source: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UndoError {
    #[error("there is no pool {0}")]
    NoSuchPool(String),
    #[error("pool {pool} has {config} already; there is nothing to undo")]
    NothingToUndo { pool: String, config: String },
    #[error("pool {pool} cannot be rendered without what is newer: {why}")]
    CannotRender { pool: String, why: String },
    #[error(
        "{what} comes from MachineConfig {source_name}, which is generated; undo the change in what it is generated from"
    )]
    Generated { what: String, source_name: String },
    #[error(
        "the MachineConfigs cannot be brought to make {config} again; these would still differ: {}",
        .left.join(", ")
    )]
    NotTheSame { config: String, left: Vec<String> },
}

/// Computes how to restore a former config. `cluster` holds the current MachineConfigs, without rendered ones.
pub fn undo(
    cluster: &BootstrapCluster,
    pool: &str,
    former: Former<'_>,
    identity: RenderIdentity<'_>,
) -> Result<Undo, UndoError> {
    let now = render(cluster, pool, identity);
    if let Ok(now) = &now
        && now.name() == former.config.name()
    {
        return Err(UndoError::NothingToUndo {
            pool: pool.to_owned(),
            config: former.config.name().to_owned(),
        });
    }
    if let Err(error @ UndoError::NoSuchPool(_)) = now {
        return Err(error);
    }
    let newer = newer_sources(cluster, pool, former);
    let mut outcome = attempt(cluster, pool, former, identity, &newer, DraftImages::Release);
    if matches!(outcome, Err(UndoError::NotTheSame { .. })) {
        outcome = attempt(cluster, pool, former, identity, &newer, DraftImages::Choose);
    }
    outcome
}

fn attempt(
    cluster: &BootstrapCluster,
    pool: &str,
    former: Former<'_>,
    identity: RenderIdentity<'_>,
    newer: &[MachineConfig],
    images: DraftImages,
) -> Result<Undo, UndoError> {
    let without_newer = without(cluster, newer);
    let base = render(&without_newer, pool, identity)?;
    let mut drafts = Drafts::new(&without_newer, &base, pool, former.missing_source);
    if base.name() != former.config.name() {
        drafts.restore(&base, former.config, images)?;
    }
    let mut edits: Vec<SourceEdit> = newer
        .iter()
        .map(|config| SourceEdit::Delete(Box::new(config.clone())))
        .collect();
    edits.extend(drafts.into_edits());
    let result = render(&edited(cluster, &edits), pool, identity)?;
    let comparison = comparison::compare(former.config, &result.config, &AdministratorRules::default());
    if !comparison.changes.is_empty() {
        return Err(UndoError::NotTheSame {
            config: former.config.name().to_owned(),
            left: draft::names_of(&comparison.changes),
        });
    }
    Ok(Undo {
        edits,
        result: result.name().to_owned(),
    })
}

fn render(
    cluster: &BootstrapCluster,
    pool: &str,
    identity: RenderIdentity<'_>,
) -> Result<Rendered, UndoError> {
    let outcome = cluster
        .render(identity)
        .into_iter()
        .find(|outcome| outcome.name() == pool);
    let outcome = outcome.ok_or_else(|| UndoError::NoSuchPool(pool.to_owned()))?;
    let rendered = outcome.result.map(|pool| pool.rendered);
    rendered.map_err(|error| UndoError::CannotRender {
        pool: pool.to_owned(),
        why: error.to_string(),
    })
}

/// Returns the user's MachineConfigs of this pool that are newer than the former config, except those that it already
/// contains: a MachineConfig that was deleted and recreated is newer and yet part of it.
fn newer_sources(cluster: &BootstrapCluster, pool: &str, former: Former<'_>) -> Vec<MachineConfig> {
    let pools = &cluster.inventory.pools;
    let selector = pools
        .iter()
        .find(|one| one.metadata.name.as_deref() == Some(pool))
        .and_then(|pool| mco_core::config::pools::config_selector(pool).ok());
    let is_newer = |config: &&MachineConfig| {
        let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let selected = selector
            .as_ref()
            .is_some_and(|selector| selector.matches(config.metadata.labels.as_ref()));
        selected
            && is_user_provided(config)
            && created
                .zip(former.created)
                .is_some_and(|(own, former)| own > former)
            && !draft::is_part_of(config, former.config)
    };
    cluster
        .inventory
        .configs
        .iter()
        .filter(is_newer)
        .cloned()
        .collect()
}

fn without(cluster: &BootstrapCluster, gone: &[MachineConfig]) -> BootstrapCluster {
    let mut cluster = cluster.clone();
    cluster
        .inventory
        .configs
        .retain(|config| !gone.iter().any(|gone| gone.metadata.name == config.metadata.name));
    cluster
}

/// Returns the cluster after the edits.
fn edited(cluster: &BootstrapCluster, edits: &[SourceEdit]) -> BootstrapCluster {
    let mut cluster = cluster.clone();
    let configs = &mut cluster.inventory.configs;
    configs.retain(|config| {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        !edits.iter().any(|edit| edit.name() == name)
    });
    for edit in edits {
        match edit {
            SourceEdit::Delete(_) => {}
            SourceEdit::Replace(config) | SourceEdit::Create(config) => configs.push((**config).clone()),
        }
    }
    cluster
}

#[cfg(test)]
mod tests;
