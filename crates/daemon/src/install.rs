//! Installs a machine as Ignition does on a real one, and completes its first boot. For the directories that `mco up`
//! uses as nodes, and for tests; a real machine is installed by Ignition itself.

use mco_api::MachineConfig;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::node_state;
use mco_core::config::problem::InvalidObject;
use mco_host::{Attributes, FsError, Machine, RootedPath};
use serde_json::{Value, json};
use thiserror::Error;

use crate::config::{ConfigError, NodeConfig};
use crate::disk::{self, DiskError};
use crate::firstboot;
use crate::once::{self, OnceError, RebootPolicy};
use crate::paths;
use crate::plan::{self, PlanError};
use crate::transaction::{self, Failure, Subject, TransactionError, Uninterrupted};

#[derive(Debug, Error)]
pub enum InstallError {
    #[error(transparent)]
    Document(Box<ConfigError>),
    #[error(transparent)]
    Invalid(#[from] Box<InvalidObject>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Proof(#[from] Failure),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the first boot was not completed: {0}")]
    FirstBoot(#[from] OnceError),
}

impl From<ConfigError> for InstallError {
    fn from(error: ConfigError) -> Self {
        Self::Document(Box::new(error))
    }
}

/// Returns whether the machine was installed before, so that its daemon can resume from its disk.
pub fn is_installed(machine: &Machine) -> Result<bool, InstallError> {
    let introduces_itself = disk::node_annotations(&machine.root)?.is_some();
    Ok(introduces_itself || disk::current_config(&machine.root)?.is_some())
}

/// Installs the machine from the document that the server serves to new machines. Idempotent after an interruption.
pub fn install_document(machine: &Machine, document: &[u8]) -> Result<(), InstallError> {
    lay_out(machine, &NodeConfig::from_document("installation", document)?)?;
    firstboot::complete(machine, RebootPolicy::WhenNeeded)?;
    Ok(())
}

/// Installs the machine from a rendered config, with the files that the server would add to it.
pub fn install_config(machine: &Machine, config: &MachineConfig) -> Result<(), InstallError> {
    let config = NodeConfig::new(config.clone()).map_err(Box::new)?;
    lay_out(machine, &config)?;
    let name = config.name();
    let mut encapsulated = json!(&*config.object);
    if let Some(spec) = encapsulated.get_mut("spec") {
        spec["config"] = json!({"ignition": {"version": "3.5.0"}});
    }
    let annotations = json!({
        annotation::CURRENT_CONFIG: name,
        annotation::DESIRED_CONFIG: name,
        annotation::FIRST_PIVOT_CONFIG: name,
        annotation::STATE: node_state::DONE,
    });
    write(machine, paths::INSTALLED_CONFIG, &json!(&*config.object))?;
    write(machine, paths::ENCAPSULATED, &encapsulated)?;
    firstboot::complete(machine, RebootPolicy::WhenNeeded)?;
    // Written last, because it marks the machine as installed.
    write(machine, paths::NODE_ANNOTATIONS, &annotations)
}

fn lay_out(machine: &Machine, config: &NodeConfig) -> Result<(), InstallError> {
    let _lock = once::lock(machine)?;
    once::settle_past(machine, &Uninterrupted)?;
    let plan = plan::plan_installation(machine, config)?;
    if plan.steps.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        to: config.name().to_owned(),
        ..Subject::default()
    };
    let journal = transaction::execute(machine, &plan, subject, &Uninterrupted)?;
    Ok(transaction::prove(machine, &journal, &Uninterrupted)?)
}

fn write(machine: &Machine, path: &str, value: &Value) -> Result<(), InstallError> {
    let path = RootedPath::new(path).map_err(FsError::from)?;
    if let Some(parent) = path.parent() {
        machine
            .root
            .create_directories(&parent, Attributes::root(0o755))?;
    }
    let text = value.to_string();
    Ok(machine
        .root
        .write_atomically(&path, Attributes::root(0o644), text.as_bytes())?)
}
