//! Provisions a machine that Ignition has not provisioned with its first config.

use std::sync::Arc;

use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use mco_api::vocabulary::{annotations, node_state};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::problem::InvalidObject;
use mco_host::{Attributes, FsError, Machine, RootedPath};
use serde_json::json;
use thiserror::Error;

use crate::config::NodeConfig;
use crate::disk::{self, DiskError};
use crate::once::{self, OnceError, OnceOutcome, RebootPolicy};
use crate::paths;
use crate::transaction::Uninterrupted;

#[derive(Debug, Error)]
pub enum ProvisionError {
    #[error("waiting for pool {pool} to have a config: {source}")]
    Pool {
        pool: String,
        source: kube::runtime::wait::Error,
    },
    #[error("pool {0} lost its config")]
    NoTarget(String),
    #[error("reading MachineConfig {name}: {source}")]
    Config { name: String, source: Box<kube::Error> },
    #[error(transparent)]
    Unusable(#[from] Box<InvalidObject>),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Apply(#[from] OnceError),
    #[error("the work was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Applies the pool's config to a machine without any config, and writes the annotations it registers with. A machine
/// that has a config is left alone. Returns whether the machine is rebooting into it.
pub async fn provision(client: &Client, machine: &Arc<Machine>, pool: &str) -> Result<bool, ProvisionError> {
    if disk::current_config(&machine.root)?.is_some() {
        return Ok(false);
    }
    let object = pool_config(client, pool).await?;
    let name = object.metadata.name.clone().unwrap_or_default();
    tracing::info!(pool, config = name, "the first configuration");
    let config = NodeConfig::new(object).map_err(Box::new)?;
    let machine = Arc::clone(machine);
    tokio::task::spawn_blocking(move || {
        // The annotations come first: a machine with a config and without them could never register.
        introduce(&machine, &name).map_err(DiskError::from)?;
        let outcome = once::apply(&machine, &config, RebootPolicy::WhenNeeded, &Uninterrupted)?;
        Ok(matches!(outcome, OnceOutcome::Rebooting { .. }))
    })
    .await?
}

fn introduce(machine: &Machine, config: &str) -> Result<(), FsError> {
    let note = json!({
        annotations::node::CURRENT_CONFIG: config,
        annotations::node::DESIRED_CONFIG: config,
        annotations::node::STATE: node_state::DONE,
        // An earlier attempt may have set a reason.
        annotations::node::REASON: "",
    });
    let path = RootedPath::new(paths::NODE_ANNOTATIONS)?;
    if let Some(directory) = path.parent() {
        machine
            .root
            .create_directories(&directory, Attributes::root(0o755))?;
    }
    let text = note.to_string();
    machine
        .root
        .write_atomically(&path, Attributes::root(0o644), text.as_bytes())
}

async fn pool_config(client: &Client, pool: &str) -> Result<MachineConfig, ProvisionError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let target = |pool: Option<&MachineConfigPool>| {
        let name = pool.and_then(|pool| pool.spec.configuration.reference.name.clone());
        name.filter(|name| !name.is_empty())
    };
    let ready = await_condition(pools, pool, |found: Option<&MachineConfigPool>| {
        target(found).is_some()
    });
    let found = ready.await.map_err(|source| ProvisionError::Pool {
        pool: pool.to_owned(),
        source,
    })?;
    let name = target(found.as_ref()).ok_or_else(|| ProvisionError::NoTarget(pool.to_owned()))?;
    Api::all(client.clone())
        .get(&name)
        .await
        .map_err(|source| ProvisionError::Config {
            name,
            source: Box::new(source),
        })
}
