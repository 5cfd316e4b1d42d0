//! The blocking work of an update in place.

use std::path::PathBuf;

use mco_core::config::disruption::Drain;
use mco_host::{Attributes, FsError, Machine, RootedPath};

use super::payload::{self, Payload};
use crate::agent::error::AgentError;
use crate::apply::{self, Circumstances};
use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::disk::{self, DiskError};
use crate::once::{self, ConfigChange, OnceOutcome, RebootPolicy};
use crate::paths;
use crate::plan::{NewContents, PlanAction, PlanStep};
use crate::transaction::Uninterrupted;
use crate::validate;

const FORCED: &str = "the force file requests to apply the whole config again";
/// Not world-readable, because a config may contain secrets.
const RECORD: Attributes = Attributes::root(0o600);

/// Where a node is to get.
#[derive(Debug)]
pub(super) struct UpdateGoal {
    pub hash: String,
    pub directory: PathBuf,
    pub is_drained: bool,
}

#[derive(Debug)]
pub(super) enum HostedUpdate {
    /// The mounted ConfigMap is of another config.
    NotMounted {
        found: String,
    },
    NeedsDrain {
        because: String,
    },
    Rebooting {
        because: String,
    },
    Done,
}

/// Updates the machine to the mounted config, as far as possible without a drain or a reboot.
pub(super) fn update(machine: &Machine, goal: &UpdateGoal) -> Result<HostedUpdate, AgentError> {
    let root = &machine.root;
    let found = payload::hash(root, &goal.directory)?;
    if found != goal.hash {
        return Ok(HostedUpdate::NotMounted { found });
    }
    let payload = Payload::read(root, &goal.directory)?;
    if payload.hash != goal.hash {
        return Ok(HostedUpdate::NotMounted { found: payload.hash });
    }
    let _lock = once::lock(machine)?;
    let owed = once::settle_past(machine, &Uninterrupted)?;
    let old = current(machine)?;
    let forced = disk::is_forced(root)?;
    let is_new = !apply::difference(&old, &payload.config).is_empty();
    if !is_new && owed.is_none() && !forced {
        return verified(machine, &payload.config);
    }
    let change = || ConfigChange {
        old: &old,
        new: &payload.config,
        circumstances: Circumstances::Hosted,
        custody: Custody::Installed,
        reboot_owed: owed.as_deref().or(forced.then_some(FORCED)),
        steps: Vec::new(),
    };
    let drain = change().cost(machine)?.drain;
    if let Drain::Needed { because } = drain
        && !goal.is_drained
    {
        return Ok(HostedUpdate::NeedsDrain { because });
    }
    let change = ConfigChange {
        steps: vec![record(&payload)?],
        ..change()
    };
    let outcome = once::apply_change(machine, change, RebootPolicy::WhenNeeded, &Uninterrupted)?;
    if forced {
        let path = RootedPath::new(paths::FORCE_FILE).map_err(FsError::from);
        let removed = path.and_then(|path| root.remove_file(&path));
        removed.map_err(DiskError::from)?;
    }
    match outcome {
        OnceOutcome::Unchanged | OnceOutcome::Applied { .. } => verified(machine, &payload.config),
        OnceOutcome::NeedsReboot { because, .. } | OnceOutcome::Rebooting { because, .. } => {
            Ok(HostedUpdate::Rebooting { because })
        }
    }
}

/// Returns the config on the machine: the one of the last update, else the one it was installed with.
fn current(machine: &Machine) -> Result<NodeConfig, AgentError> {
    for path in [paths::HOSTED_CONFIG, paths::INSTALLED_CONFIG] {
        if let Some(object) = disk::machine_config(&machine.root, path)? {
            return Ok(NodeConfig::new(object).map_err(Box::new)?);
        }
    }
    Err(AgentError::NotInstalled)
}

/// Compares the machine with its config.
fn verified(machine: &Machine, config: &NodeConfig) -> Result<HostedUpdate, AgentError> {
    let mismatches = validate::validate(machine, config)?;
    let Some(first) = mismatches.first() else {
        return Ok(HostedUpdate::Done);
    };
    Err(AgentError::UnexpectedState {
        message: format!(
            "unexpected on-disk state validating against {}: {}",
            config.name(),
            first.cause
        ),
        differences: mismatches.iter().map(|mismatch| mismatch.cause.clone()).collect(),
    })
}

/// The config of the update becomes the current one in the same transaction.
fn record(payload: &Payload) -> Result<PlanStep<'static>, AgentError> {
    Ok(PlanStep {
        path: RootedPath::new(paths::HOSTED_CONFIG)
            .map_err(FsError::from)
            .map_err(DiskError::from)?,
        action: PlanAction::Write {
            contents: NewContents::Bytes(payload.bytes.clone()),
            attributes: RECORD,
        },
    })
}
