//! What the agent does on its machine. Everything here blocks and is called away from the event loop.

use mco_api::MachineConfig;
use mco_core::disruption::Policy;
use mco_core::reconcilable::Overrides;
use mco_host::{FsError, Machine, Reboot, RootedPath};

use super::decide::{DrainStep, Observation, Pending, Version, drain_step};
use super::error::AgentError;
use super::view::{NodeView, OnDisk};
use crate::apply::{self, ApplyError, Circumstances, Request, Settled};
use crate::config::NodeConfig;
use crate::disk::{self, DiskError};
use crate::once;
use crate::paths;
use crate::status::StatusError;
use crate::transaction::{Phase, Uninterrupted, read_journal};
use crate::validate;

/// What the disk and the kernel say, joined with what the Node says.
pub(super) fn observe(machine: &Machine, node: NodeView) -> Result<Observation, AgentError> {
    let root = &machine.root;
    let boot = machine.power.boot_id(root).map_err(StatusError::from)?;
    let pending = match read_journal(root).map_err(StatusError::from)? {
        Some(journal) if journal.phase == Phase::AwaitingBoot && journal.boot == boot => {
            Pending::AwaitingBoot {
                because: journal.aftermath.reboot.unwrap_or_default(),
            }
        }
        Some(journal) if journal.phase == Phase::AwaitingBoot => Pending::Booted,
        _ => Pending::Nothing,
    };
    Ok(Observation {
        node,
        disk: OnDisk::new(disk::current_config(root)?.as_ref()),
        pending,
        introduces_itself: disk::node_annotations(root)?.is_some(),
        forced: disk::is_forced(root)?,
    })
}

/// Finishes or undoes what was interrupted.
pub(super) fn recover(machine: &Machine) -> Result<(), AgentError> {
    once::settle_past_unproven(machine, &Uninterrupted)?;
    Ok(())
}

/// Compares the machine with the config it has booted into.
pub(super) fn prove_boot(machine: &Machine) -> Result<(), AgentError> {
    if let Some(journal) = read_journal(&machine.root).map_err(StatusError::from)? {
        once::prove_boot(machine, &journal, &Uninterrupted)?;
    }
    Ok(())
}

pub(super) fn reboot(machine: &Machine, because: &str) -> Result<Reboot, AgentError> {
    Ok(apply::reboot(machine, because)?)
}

/// Everything an update needs to know.
#[derive(Debug)]
pub(super) struct Update {
    pub node: NodeView,
    /// The config the machine has, if its disk does not say.
    pub annotated: Option<MachineConfig>,
    pub target: MachineConfig,
    pub target_image: Option<String>,
    pub policy: Policy,
    pub forced: bool,
    pub preflight: Preflight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preflight {
    Compare,
    /// Drift is to be overwritten, or somebody forces the update.
    Skip,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Updated {
    Settled(Version),
    AwaitingBoot,
    /// Work has to leave the node first. Nothing was changed.
    NeedsDrain,
}

pub(super) fn update(machine: &Machine, update: Update) -> Result<Updated, AgentError> {
    let checked = |object: MachineConfig| NodeConfig::new(object).map_err(Box::new);
    let old = match (disk::current_config(&machine.root)?, update.annotated) {
        (Some(config), _) => config,
        (None, Some(object)) => checked(object)?.with_built_image(update.node.current_image.clone()),
        (None, None) => NodeConfig::empty(),
    };
    let new = checked(update.target)?.with_built_image(update.target_image);
    if update.preflight == Preflight::Compare && !update.forced {
        compare(machine, &old)?;
    }
    let request = Request {
        old: &old,
        new: &new,
        policy: &update.policy,
        overrides: Overrides::default(),
        circumstances: Circumstances::Cluster,
        reboot_owed: update
            .forced
            .then_some("the node was told to apply everything again"),
    };
    let prepared = apply::prepare(machine, &request).map_err(|error| match error {
        ApplyError::Irreconcilable(problems) => AgentError::Unreconcilable {
            old: old.name().to_owned(),
            new: new.name().to_owned(),
            cause: problems
                .iter()
                .map(|problem| problem.message.as_str())
                .collect::<Vec<_>>()
                .join("; "),
        },
        other => other.into(),
    })?;
    if drain_step(&update.node, &prepared.cost.drain, new.name()) == DrainStep::Ask {
        return Ok(Updated::NeedsDrain);
    }
    let committed = apply::commit(machine, prepared, &Uninterrupted)?;
    settle_in(machine)?;
    let version = Version {
        config: new.name().to_owned(),
        image: new.built_image.clone(),
    };
    match committed
        .map(|journal| apply::settle(machine, journal, &Uninterrupted))
        .transpose()?
    {
        None | Some(Settled::Done) => Ok(Updated::Settled(version)),
        Some(Settled::AwaitingBoot { .. }) => Ok(Updated::AwaitingBoot),
    }
}

/// Compares the machine with a config.
pub(super) fn compare(machine: &Machine, config: &NodeConfig) -> Result<(), AgentError> {
    let mismatches = validate::validate(machine, config)?;
    match validate::unexpected_state(config, &mismatches, None) {
        Some(message) => Err(AgentError::UnexpectedState(message)),
        None => Ok(()),
    }
}

/// Puts away what belongs to installation, and the order to force an update, which has been obeyed now.
fn settle_in(machine: &Machine) -> Result<(), AgentError> {
    let away = || -> Result<(), FsError> {
        let root = &machine.root;
        for (from, to) in [
            (paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_DONE),
            (paths::ENCAPSULATED, paths::ENCAPSULATED_DONE),
        ] {
            let (from, to) = (RootedPath::new(from)?, RootedPath::new(to)?);
            if root.entry(&from)?.is_some() {
                root.rename(&from, &to)?;
            }
        }
        for path in [paths::IGNITION_PRESET, paths::FORCE_FILE] {
            root.remove_file(&RootedPath::new(path)?)?;
        }
        Ok(())
    };
    Ok(away().map_err(DiskError::from)?)
}
