//! The agent's blocking work on its machine, called outside the event loop.

use std::path::PathBuf;
use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::machine_config_node::IrreconcilableChange;
use mco_core::config::disruption::{Cost, DisruptionPolicy, Drain, PostConfigAction};
use mco_core::config::irreconcilable;
use mco_core::config::reconcilable::Overrides;
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::NodeAnnotations;
use mco_core::rollout::node_progress::{Applied, UpdatePhase as Progress};
use mco_host::os::OsChange;
use mco_host::{Attributes, FsError, Machine, Reboot, RootedPath};

use super::decide::{ConfigVersion, DrainStep, Observation, PendingChange, drain_step};
use super::error::AgentError;
use super::notes::{self, Note};
use super::on_disk::OnDisk;
use super::{report, safety};
use crate::apply::{self, ApplyRequest, ApplyResult, Circumstances, ConfigApplyError, PreparedApply};
use crate::boot_proof::{self, BootProof};
use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::disk::{self, DiskError};
use crate::firstboot;
use crate::guard::{self, RequiredHealth};
use crate::once;
use crate::os_change;
use crate::os_stage;
use crate::paths;
use crate::revert::{self, WayBack};
use crate::status::StatusError;
use crate::transaction::{self, Journal, JournalPhase, Uninterrupted, read_journal};
use crate::validate::{self, Mismatch};

/// The reboot reason when the force file is present.
const FORCED: &str = "the force file requests to apply the whole config again";

/// Combines the state of disk and kernel with the Node's annotations.
pub(super) fn observe(machine: &Machine, node: NodeAnnotations) -> Result<Observation, AgentError> {
    let root = &machine.root;
    let boot = machine.power.boot_id(root).map_err(StatusError::from)?;
    let pending = match read_journal(root).map_err(StatusError::from)? {
        Some(journal) if journal.phase == JournalPhase::AwaitingBoot && journal.boot == boot => {
            PendingChange::AwaitingBoot {
                because: journal.aftermath.reboot.unwrap_or_default(),
            }
        }
        Some(journal) if journal.phase == JournalPhase::AwaitingBoot => PendingChange::Booted,
        Some(journal) if journal.awaits_confirmation() => PendingChange::Restarted,
        _ => PendingChange::Nothing,
    };
    Ok(Observation {
        node,
        disk: OnDisk::new(disk::current_config(root)?.as_ref()),
        pending,
        introduces_itself: disk::node_annotations(root)?.is_some(),
        forced: disk::is_forced(root)?,
        renews_files: false,
    })
}

/// Returns whether the disk has a record of ours: a config, the annotations of a new node, or a change.
pub(super) fn has_record(machine: &Machine) -> Result<bool, AgentError> {
    let root = &machine.root;
    Ok(disk::has_config(root)?
        || disk::has_node_annotations(root)?
        || read_journal(root).map_err(StatusError::from)?.is_some())
}

/// Completes or rolls back an interrupted change.
pub(super) fn recover(machine: &Machine) -> Result<(), AgentError> {
    if has_record(machine)?
        && let Err(error) = machine.os.prepare(&machine.root)
    {
        // The next change prepares them again.
        tracing::warn!(%error, "could not prepare the tools of the operating system");
    }
    if once::settle_past_unproven(machine, &Uninterrupted)?.is_none() && has_record(machine)? {
        guard::disarm(machine).map_err(DiskError::from)?;
    }
    Ok(())
}

/// Returns why the previous boot lost its staged deployment, truncated to fit an annotation.
pub(super) fn finalization_failure(machine: &Machine) -> Result<Option<String>, AgentError> {
    let failure = machine
        .os
        .finalization_failure()
        .map_err(ConfigApplyError::from)?;
    Ok(failure.map(|text| report::shortened(&text)))
}

/// What the machine is like after the boot of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExaminedBoot {
    /// The machine matches its config. It still has to prove its use.
    Matches {
        new_system: bool,
        required: Option<RequiredHealth>,
    },
    AnotherBoot {
        because: String,
    },
}

/// Validates the machine against the config it has booted into.
pub(super) fn examine_boot(machine: &Machine) -> Result<ExaminedBoot, AgentError> {
    let Some(journal) = read_journal(&machine.root).map_err(StatusError::from)? else {
        return Ok(ExaminedBoot::Matches {
            new_system: false,
            required: None,
        });
    };
    Ok(match boot_proof::examine(machine, &journal, &Uninterrupted)? {
        BootProof::Proven => ExaminedBoot::Matches {
            new_system: journal.os.is_some(),
            required: journal.health,
        },
        BootProof::AnotherBoot { because } => ExaminedBoot::AnotherBoot { because },
    })
}

/// Drops the state before the change, with its OS deployment and its guard.
pub(super) fn confirm_change(machine: &Machine) -> Result<(), AgentError> {
    let Some(journal) = read_journal(&machine.root).map_err(StatusError::from)? else {
        return Ok(());
    };
    transaction::prove(machine, &journal, &Uninterrupted).map_err(ConfigApplyError::from)?;
    guard::disarm(machine).map_err(DiskError::from)?;
    if journal.os.is_some()
        && let Err(error) = machine.os.remove_rollback(&machine.root)
    {
        tracing::warn!(%error, "could not remove the previous deployment, which takes space in /boot");
    }
    Ok(())
}

/// Returns why a target is not attempted again, if it was rolled back.
pub(super) fn rolled_back(machine: &Machine, to: &ConfigVersion) -> Result<Option<String>, AgentError> {
    let target = boot_proof::rolled_back(machine)?;
    let same = target.filter(|target| target.config == to.config && target.image == to.image);
    Ok(same.map(|target| target.because))
}

/// Forgets a rolled back target, because it is to be attempted again.
pub(super) fn forget_rolled_back(machine: &Machine) -> Result<(), AgentError> {
    Ok(boot_proof::forget_rolled_back(machine)?)
}

/// Forgets a rolled back target once the node has reached a config that is neither this one nor the former one.
pub(super) fn forget_rolled_back_after(machine: &Machine, reached: &str) -> Result<(), AgentError> {
    Ok(boot_proof::forget_rolled_back_after(machine, reached)?)
}

/// Returns the number of local changes of the OS image that no config has made.
pub(super) fn unsupported_packages(machine: &Machine) -> Result<usize, AgentError> {
    let state = machine.os.state(&machine.root).map_err(ConfigApplyError::from)?;
    Ok(os_change::unsupported_packages(&state))
}

/// Checks and stages the OS change while the node still runs its workloads. It does not boot before its config is in
/// place.
fn stage_ahead(
    machine: &Machine,
    prepared: &PreparedApply<'_>,
    new: &NodeConfig,
    notify: &dyn Fn(Note),
) -> Result<(), AgentError> {
    let Some(change) = prepared.system_change() else {
        // Nothing of a target that was given up may boot.
        return Ok(os_stage::discard_unused(machine).map_err(ConfigApplyError::from)?);
    };
    if !machine.os.stages_ahead() || os_stage::is_staged(machine, change).map_err(ConfigApplyError::from)? {
        return Ok(());
    }
    notes::os_update_started(change, new).into_iter().for_each(notify);
    let staged = pulling(change, notify, || {
        machine.os.preflight(&machine.root, change)?;
        os_stage::stage(machine, change)
    });
    staged.map_err(ConfigApplyError::from)?;
    notify(notes::os_staged_ahead(new));
    Ok(())
}

/// Reports the pull of the images of an OS change, which is the first that such a change does.
fn pulling<T, E: std::fmt::Display>(
    change: &OsChange,
    notify: &dyn Fn(Note),
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if change.image.is_none() && change.packages_image.is_none() {
        return work();
    }
    notify(Progress::PullingImage.into());
    let result = work();
    let phase = match &result {
        Ok(_) => Progress::ImagePulled,
        Err(error) => Progress::ImagePullFailed {
            error: report::shortened(&error.to_string()),
        },
    };
    notify(phase.into());
    result
}

/// Stages the OS of a config that the node will be sent to; returns whether there was something to stage.
pub(super) fn stage_next(
    machine: &Machine,
    object: MachineConfig,
    rules: &AdministratorRules,
) -> Result<bool, AgentError> {
    let new = checked(object)?;
    let Some(old) = disk::current_config(&machine.root)? else {
        return Ok(false);
    };
    let request = ApplyRequest {
        old: &old,
        new: &new,
        policy: &rules.policy,
        overrides: rules.overrides,
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody: Custody::of(&machine.root)?,
    };
    let prepared = apply::prepare(machine, &request)?;
    stage_ahead(machine, &prepared, &new, &|_| {})?;
    Ok(prepared.system_change().is_some())
}

pub(super) fn reboot(machine: &Machine, because: &str) -> Result<Reboot, AgentError> {
    Ok(apply::reboot(machine, because)?)
}

/// Returns the config on disk if it has this name and is complete.
pub(super) fn on_disk(machine: &Machine, name: &str) -> Result<Option<MachineConfig>, AgentError> {
    if disk::node_annotations(&machine.root)?.is_some() {
        return Ok(None);
    }
    let config = disk::current_config(&machine.root)?;
    Ok(config
        .filter(|config| config.name() == name)
        .map(|config| Arc::unwrap_or_clone(config.parsed.object)))
}

/// Returns the parts of its config that the machine gets only when it is reinstalled; `None` if the installed config is
/// not recorded.
pub(super) fn irreconcilable(machine: &Machine) -> Result<Option<Vec<IrreconcilableChange>>, AgentError> {
    let Some(installed) = disk::machine_config(&machine.root, paths::INSTALLED_CONFIG)? else {
        return Ok(None);
    };
    let installed = checked(installed)?;
    let current = disk::current_config(&machine.root)?;
    Ok(current.map(|current| irreconcilable::changes(&installed.ignition, &current.ignition)))
}

/// Returns the config that a new node was installed with, if it has this name.
pub(super) fn installed(machine: &Machine, name: &str) -> Result<Option<MachineConfig>, AgentError> {
    let config = disk::machine_config(&machine.root, paths::INSTALLED_CONFIG)?;
    Ok(config.filter(|config| config.metadata.name.as_deref() == Some(name)))
}

/// Writes a diff between the installed config and the cluster's to disk, for administrators.
pub(super) fn note_bootstrap_difference(
    machine: &Machine,
    rendered: MachineConfig,
) -> Result<(), AgentError> {
    let Some(installed) = disk::machine_config(&machine.root, paths::INSTALLED_CONFIG)? else {
        return Ok(());
    };
    let (installed, rendered) = (checked(installed)?, checked(rendered)?);
    let difference = apply::difference(&installed, &rendered);
    let text = serde_json::to_vec_pretty(&difference).unwrap_or_default();
    let write = || -> Result<(), FsError> {
        let path = RootedPath::new(paths::BOOTSTRAP_DIFF)?;
        machine
            .root
            .write_atomically(&path, Attributes::root(0o600), &text)
    };
    Ok(write().map_err(DiskError::from)?)
}

/// Returns the current state of the machine. `known` is for a machine without a config on disk.
pub(super) fn starting_point(
    machine: &Machine,
    known: Option<MachineConfig>,
    image: Option<String>,
) -> Result<NodeConfig, AgentError> {
    match known {
        // A new machine has the files of its config, but runs the OS of its disk image.
        Some(object) => {
            let config = checked(object)?.with_built_image(image);
            Ok(firstboot::as_running(machine, config).map_err(ConfigApplyError::from)?)
        }
        None => Ok(disk::current_config(&machine.root)?.unwrap_or_else(NodeConfig::empty)),
    }
}

pub(super) fn checked(object: MachineConfig) -> Result<NodeConfig, AgentError> {
    Ok(NodeConfig::new(object).map_err(Box::new)?)
}

/// The parameters of an update.
#[derive(Debug)]
pub(super) struct UpdateRequest {
    pub node: NodeAnnotations,
    pub old: NodeConfig,
    pub new: NodeConfig,
    pub rules: AdministratorRules,
    pub forced: bool,
    /// Set for an update that reverts from a built image.
    pub way_back: Option<WayBack>,
    /// The program of the guard, and what the node must show after the update.
    pub guard: Option<(PathBuf, RequiredHealth)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AgentUpdateResult {
    Settled {
        version: ConfigVersion,
        actions: Vec<PostConfigAction>,
    },
    AwaitingBoot,
    /// The services were restarted; the node's health is waited for.
    AwaitingConfirmation {
        actions: Vec<PostConfigAction>,
    },
    /// The node must be drained first. Nothing was changed.
    NeedsDrain {
        because: String,
    },
}

/// Updates from one config to another, up to a reboot. Sends a progress note for each step.
pub(super) fn update(
    machine: &Machine,
    update: &UpdateRequest,
    notify: &dyn Fn(Note),
) -> Result<AgentUpdateResult, AgentError> {
    let UpdateRequest { old, new, .. } = update;
    // A forced update does not rely on what is recorded: the OS is compared with the one that runs.
    let running = update
        .forced
        .then(|| firstboot::as_running(machine, old.clone()).map_err(ConfigApplyError::from))
        .transpose()?;
    let old = running.as_ref().unwrap_or(old);
    let request = ApplyRequest {
        old,
        new,
        policy: &update.rules.policy,
        overrides: update.rules.overrides,
        circumstances: Circumstances::Cluster,
        reboot_owed: update.forced.then_some(FORCED),
        pending_os: None,
        custody: Custody::of(&machine.root)?,
    };
    let mut prepared = prepare(machine, &request, notify)?;
    if let Some(way) = &update.way_back {
        prepared = prepared.with_steps(revert::preparation(&machine.root, way, new)?);
    }
    let drain = if update.forced {
        Drain::Needed {
            because: FORCED.to_owned(),
        }
    } else {
        prepared.cost.drain.clone()
    };
    log_cost(&prepared, &drain, notify);
    stage_ahead(machine, &prepared, new, notify)?;
    if drain_step(&update.node, &drain, new.name()) == DrainStep::Ask
        && let Drain::Needed { because } = drain
    {
        return Ok(AgentUpdateResult::NeedsDrain { because });
    }
    let actions = prepared.cost.actions.clone();
    let system = prepared.system_change().cloned();
    let applied = applied(system.as_ref());
    if !prepared.is_nothing() {
        safety::before_apply(machine, update, notify)?;
    }
    notify(Progress::Applying(applied).into());
    prepared = safety::arm(machine, prepared, update)?;
    let is_change = !prepared.is_nothing();
    if is_change {
        notify(notes::protected());
    }
    if let Some(change) = system.as_ref().filter(|_| !machine.os.stages_ahead()) {
        notes::os_update_started(change, new).into_iter().for_each(notify);
    }
    if let Some(journal) = read_journal(&machine.root).map_err(StatusError::from)? {
        // The boot cannot be proven and the update is forced, so the previous state is no longer a rollback target.
        transaction::supersede(machine, &journal, &Uninterrupted).map_err(ConfigApplyError::from)?;
    }
    let committed = commit(machine, prepared, system.as_ref(), notify);
    if is_change {
        notify(notes::unprotected());
    }
    let committed = safety::after_apply(machine, committed, update, notify)?;
    settle_in(machine, request.custody)?;
    if let Some(change) = &system {
        notes::os_update_staged(change, old, new)
            .into_iter()
            .for_each(notify);
    }
    notify(Progress::Applied(applied).into());
    let version = ConfigVersion {
        config: new.name().to_owned(),
        image: new.built_image.clone(),
    };
    match committed
        .map(|journal| apply::settle(machine, journal, &Uninterrupted))
        .transpose()?
    {
        None | Some(ApplyResult::Done) => Ok(AgentUpdateResult::Settled { version, actions }),
        Some(ApplyResult::AwaitingBoot { .. }) => Ok(AgentUpdateResult::AwaitingBoot),
        Some(ApplyResult::AwaitingConfirmation) => Ok(AgentUpdateResult::AwaitingConfirmation { actions }),
    }
}

fn applied(system: Option<&OsChange>) -> Applied {
    match system {
        Some(_) => Applied::FilesAndOs,
        None => Applied::Files,
    }
}

/// Writes the update. Where nothing is staged ahead, this pulls the images as well.
fn commit(
    machine: &Machine,
    prepared: PreparedApply<'_>,
    system: Option<&OsChange>,
    notify: &dyn Fn(Note),
) -> Result<Option<Journal>, ConfigApplyError> {
    let commit = || apply::commit(machine, prepared, &Uninterrupted);
    match system.filter(|_| !machine.os.stages_ahead()) {
        Some(change) => pulling(change, notify, commit),
        None => commit(),
    }
}

fn prepare<'a>(
    machine: &Machine,
    request: &ApplyRequest<'a>,
    notify: &dyn Fn(Note),
) -> Result<PreparedApply<'a>, AgentError> {
    apply::prepare(machine, request).map_err(|error| match error {
        ConfigApplyError::Irreconcilable(problems) => {
            let causes: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            let error = AgentError::Unreconcilable {
                old: request.old.name().to_owned(),
                new: request.new.name().to_owned(),
                cause: causes.join("; "),
            };
            let incompatible = Progress::Incompatible {
                error: error.to_string(),
            };
            notify(incompatible.into());
            error
        }
        other => other.into(),
    })
}

fn log_cost(prepared: &PreparedApply<'_>, drain: &Drain, notify: &dyn Fn(Note)) {
    let compatible = Progress::Prepared {
        post_actions: names(&prepared.cost),
        drain_required: *drain != Drain::NotNeeded,
    };
    notify(compatible.into());
    if *drain == Drain::NotNeeded {
        notify(Progress::DrainNotRequired.into());
    }
}

fn names(cost: &Cost) -> Vec<String> {
    cost.actions.iter().map(ToString::to_string).collect()
}

/// Restores the contents of a config, regardless of how they were changed.
pub(super) fn heal(machine: &Machine, config: &NodeConfig) -> Result<(), AgentError> {
    let request = ApplyRequest {
        old: config,
        new: config,
        policy: &DisruptionPolicy::default(),
        overrides: Overrides::default(),
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody: Custody::of(&machine.root)?,
    };
    let prepared = apply::prepare(machine, &request)?;
    if let Some(journal) = apply::commit(machine, prepared, &Uninterrupted)? {
        apply::settle(machine, journal, &Uninterrupted)?;
    }
    Ok(())
}

/// Returns all differences between the machine and the config.
pub(super) fn compare(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, AgentError> {
    Ok(validate::validate(machine, config)?)
}

/// Removes the force file, which is consumed now, and the installation files of a machine that was installed from its
/// config. Those of an adopted machine are of its own installation.
fn settle_in(machine: &Machine, custody: Custody) -> Result<(), AgentError> {
    let away = || -> Result<(), FsError> {
        let root = &machine.root;
        root.remove_file(&RootedPath::new(paths::FORCE_FILE)?)?;
        if !custody.is_installed() {
            return Ok(());
        }
        for (from, to) in [
            (paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_DONE),
            (paths::ENCAPSULATED, paths::ENCAPSULATED_DONE),
        ] {
            let (from, to) = (RootedPath::new(from)?, RootedPath::new(to)?);
            if root.entry(&from)?.is_some() {
                root.rename(&from, &to)?;
            }
        }
        root.remove_file(&RootedPath::new(paths::IGNITION_PRESET)?)?;
        Ok(())
    };
    Ok(away().map_err(DiskError::from)?)
}
