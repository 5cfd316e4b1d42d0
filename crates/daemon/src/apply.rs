//! Applies a config: checks whether the change is possible, determines its cost, executes it, and verifies the result.

use mco_core::config::diff::{self, ConfigDiff, Replaced};
use mco_core::config::disruption::{
    self, Cost, DisruptionPolicy, PostConfigAction, REGISTRIES_CONF, RegistriesChange,
};
use mco_core::config::guarded::{self, GuardedPath};
use mco_core::config::problem::Problem;
use mco_core::config::reconcilable::{self, Overrides};
use mco_host::os::{OsBackend, OsChange, OsError, fips_enabled};
use mco_host::systemd::{ServiceAction, ServiceError};
use mco_host::{Machine, PowerError, Reboot};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::guard::{self, RequiredHealth};
use crate::guarded as guarded_paths;
use crate::os_change::{OsChangeContext, OsChangeError, image_to_stage, os_change};
use crate::paths;
use crate::plan::{self, ApplyPlan, LiveContentSource, PlanError, PlanStep};
use crate::target;
use crate::transaction::{
    self, Aftermath, Checkpoints, Journal, TransactionError, TransactionFailure, TransactionSubject,
};

/// A requested change.
#[derive(Debug, Clone, Copy)]
pub struct ApplyRequest<'a> {
    pub old: &'a NodeConfig,
    pub new: &'a NodeConfig,
    pub policy: &'a DisruptionPolicy,
    pub overrides: Overrides,
    pub circumstances: Circumstances,
    /// The reason of a reboot that is due regardless of this change.
    pub reboot_owed: Option<&'a str>,
    /// The OS change that is staged for that reboot.
    pub pending_os: Option<&'a OsChange>,
    pub custody: Custody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circumstances {
    /// A running node of a cluster.
    Cluster,
    /// A running node of a hosted cluster. Its config also has the certificates, which nothing else syncs.
    Hosted,
    /// There is no cluster. Directories and links may change, because no other component will create them.
    Standalone,
    /// There is no cluster yet, and the machine's own tools may be older than its image.
    FirstBoot,
}

/// A change that is possible, with its cost.
#[derive(Debug)]
pub struct PreparedApply<'a> {
    pub diff: ConfigDiff,
    pub cost: Cost,
    plan: ApplyPlan<'a>,
    subject: TransactionSubject,
}

#[derive(Debug, Error)]
pub enum ConfigApplyError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Irreconcilable(Vec<Problem>),
    #[error(
        "cannot set SSH keys or the password of user {user:?}: this machine has no such user. Create it (for example with \
         `useradd --create-home {user}`), name another one in the annotation mco.dev/ssh-user of the pool, or remove it from \
         passwd.users of the MachineConfigs"
    )]
    NoSuchUser { user: String },
    #[error("{}", guarded::refusal(.0))]
    Guarded(Vec<GuardedPath>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    OsChange(#[from] OsChangeError),
    #[error(transparent)]
    Os(#[from] OsError),
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Proof(#[from] TransactionFailure),
    #[error("{failed}")]
    Service {
        failed: Box<ServiceError>,
        action: ServiceAction,
    },
    #[error(transparent)]
    Power(#[from] PowerError),
}

/// What remains after all files are in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyResult {
    Done,
    /// The change cannot be verified before a reboot.
    AwaitingBoot {
        because: String,
    },
    /// The services were restarted. The change is proven by [`crate::transaction::prove`] once the node is healthy.
    AwaitingConfirmation,
}

impl<'a> PreparedApply<'a> {
    /// Prepends steps to the plan. For a path that the plan contains, the plan wins.
    #[must_use]
    pub fn with_steps(mut self, steps: Vec<PlanStep<'a>>) -> Self {
        let planned = |step: &PlanStep<'_>| self.plan.steps.iter().any(|known| known.path == step.path);
        let mut all: Vec<PlanStep<'a>> = steps.into_iter().filter(|step| !planned(step)).collect();
        all.append(&mut self.plan.steps);
        self.plan.steps = all;
        self
    }

    /// Requires that the node is healthy with the change before it is proven.
    #[must_use]
    pub fn requiring(mut self, health: RequiredHealth) -> Self {
        self.subject.health = Some(health);
        self
    }

    /// Returns whether anything runs with the change before the daemon has seen that it works.
    pub fn interrupts(&self) -> bool {
        self.subject.aftermath != Aftermath::default()
    }

    /// Returns whether the machine is already up to date.
    pub fn is_nothing(&self) -> bool {
        self.plan.steps.is_empty()
            && self.subject.os.is_none()
            && self.subject.aftermath == Aftermath::default()
    }

    pub fn changed_paths(&self) -> impl Iterator<Item = &str> {
        self.plan.steps.iter().map(|step| step.path.as_str())
    }

    pub fn reboot(&self) -> Option<&str> {
        self.subject.aftermath.reboot.as_deref()
    }

    /// Returns the change of the operating system, if any.
    pub fn system_change(&self) -> Option<&OsChange> {
        self.subject.os.as_ref()
    }
}

/// Decides whether and how the change is possible. Changes nothing, so that it can run before a drain.
pub fn prepare<'a>(
    machine: &Machine,
    request: &ApplyRequest<'a>,
) -> Result<PreparedApply<'a>, ConfigApplyError> {
    let ApplyRequest { old, new, .. } = *request;
    refuse_built_image(machine, new)?;
    let mut obstacles = obstacles(request);
    obstacles.extend(fips_obstacle(machine, new)?);
    if !obstacles.is_empty() {
        return Err(ConfigApplyError::Irreconcilable(obstacles));
    }
    let missing_user = target::missing_user(old, new, machine.accounts()).map_err(PlanError::from)?;
    if let Some(user) = missing_user {
        return Err(ConfigApplyError::NoSuchUser { user });
    }
    let state = machine.os.state(&machine.root)?;
    let place = OsChangeContext {
        backend: machine.os.backend(),
        state: &state,
        architecture: std::env::consts::ARCH,
        pending: request.pending_os,
    };
    let mut diff = difference(old, new);
    if image_to_stage(new, &diff, place).is_none() {
        // The image is already booted, or the system is not image-based: no reboot is needed for it.
        diff.os_image = None;
    }
    // In a cluster the daemon syncs this file separately; elsewhere no service has read it yet.
    diff.files.retain(|file| file.path != paths::KUBELET_CA);
    let live_content = match request.circumstances {
        Circumstances::Cluster => LiveContentSource::FromCluster,
        Circumstances::Hosted | Circumstances::Standalone | Circumstances::FirstBoot => {
            LiveContentSource::FromConfig
        }
    };
    let plan = plan::plan(machine, old, new, live_content, request.custody)?;
    let guarded = guarded_paths::refused(machine, &plan, request)?;
    if !guarded.is_empty() {
        return Err(ConfigApplyError::Guarded(guarded));
    }
    if old.is_empty_start() && !request.custody.is_installed() {
        only_changed(&mut diff, &plan);
    }
    let cost = disruption::cost(&diff, request.policy, &registries(old, new));
    let mut os = os_change(old, new, &diff, place)?;
    if let Some(change) = &mut os {
        change.first_boot = request.circumstances == Circumstances::FirstBoot;
    }
    if let Some(change) = &os {
        machine.os.check(&machine.root, change)?;
    }
    let aftermath = aftermath(&cost, request.reboot_owed, new);
    let subject = TransactionSubject {
        from: old.name().to_owned(),
        to: new.name().to_owned(),
        os,
        aftermath,
        reboot_owed: request.reboot_owed.map(str::to_owned),
        health: None,
    };
    Ok(PreparedApply {
        diff,
        cost,
        plan,
        subject,
    })
}

/// Leaves only the files and units that differ on the machine. The first config of an adopted machine is all new, and what
/// the machine already has costs nothing.
fn only_changed(diff: &mut ConfigDiff, plan: &ApplyPlan<'_>) {
    let steps = || {
        let paths = plan.steps.iter().map(|step| &step.path);
        paths.filter(|path| !path.is_within(paths::STATE_DIRECTORY))
    };
    diff.files
        .retain(|file| steps().any(|path| path.as_str() == file.path));
    diff.units.retain(|unit| {
        let dropins = format!("/{}.d/", unit.name);
        steps().any(|path| path.name() == unit.name || path.as_str().contains(&dropins))
    });
}

/// Writes all changes in one transaction; returns `None` if there were none.
pub fn commit(
    machine: &Machine,
    prepared: PreparedApply<'_>,
    checkpoints: &dyn Checkpoints,
) -> Result<Option<Journal>, ConfigApplyError> {
    if prepared.is_nothing() {
        return Ok(None);
    }
    Ok(Some(transaction::execute(
        machine,
        &prepared.plan,
        prepared.subject,
        checkpoints,
    )?))
}

/// Runs the service actions, or leaves the rest to a reboot. A failed action rolls the change back.
pub fn settle(
    machine: &Machine,
    mut journal: Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<ApplyResult, ConfigApplyError> {
    if let Some(because) = journal.aftermath.reboot.clone() {
        transaction::await_boot(machine, &mut journal, checkpoints)?;
        return Ok(ApplyResult::AwaitingBoot { because });
    }
    if journal.awaits_confirmation() {
        return Ok(ApplyResult::AwaitingConfirmation);
    }
    if guard::is_armed(&machine.root).map_err(TransactionFailure::from)?
        && journal.health.is_some()
        && let Err(error) = guard::start(machine)
    {
        // The daemon reverts the change as well, as long as it runs.
        tracing::warn!(%error, "could not start {}", guard::UNIT);
    }
    for action in &journal.aftermath.services.clone() {
        if let Err(failed) = machine.services.perform(action) {
            let actions = journal.aftermath.services.clone();
            let because = failed.to_string();
            transaction::roll_back(machine, &mut journal, &because, checkpoints).map_err(|rollback| {
                TransactionError::Stuck {
                    cause: because.clone(),
                    rollback,
                }
            })?;
            // The old files are restored; services that already read the new ones must reload. If a reload fails, the
            // original failure is still the one to report.
            for again in &actions {
                let _ = machine.services.perform(again);
            }
            return Err(ConfigApplyError::Service {
                failed: Box::new(failed),
                action: action.clone(),
            });
        }
    }
    if journal.health.is_some() {
        transaction::await_confirmation(machine, &mut journal, checkpoints)?;
        return Ok(ApplyResult::AwaitingConfirmation);
    }
    transaction::prove(machine, &journal, checkpoints)?;
    Ok(ApplyResult::Done)
}

/// Requests the reboot that a change waits for.
pub fn reboot(machine: &Machine, because: &str) -> Result<Reboot, ConfigApplyError> {
    Ok(machine.power.reboot(&machine.root, because)?)
}

/// Returns the difference of two configs, with the pool's built image in place of the config's own.
pub fn difference(old: &NodeConfig, new: &NodeConfig) -> ConfigDiff {
    let mut difference = diff::diff(&old.on_this_node(), &new.on_this_node());
    let (before, after) = (old.os_image(), new.os_image());
    difference.os_image = (before != after).then(|| Replaced {
        old: before.to_owned(),
        new: after.to_owned(),
    });
    difference
}

/// A machine that boots no images ignores the one of its config, which every rendered config has. It must not ignore one
/// that was built for its pool, because it would report that it runs it.
fn refuse_built_image(machine: &Machine, new: &NodeConfig) -> Result<(), OsError> {
    match &new.built_image {
        Some(image) if machine.os.backend() == OsBackend::PackageMode => Err(OsError::Rejected {
            image: image.clone(),
            why: "it was built in the cluster, and this machine boots from packages, not from images; move the node to a \
                  pool without a MachineOSConfig, or delete the MachineOSConfig of its pool"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

fn obstacles(request: &ApplyRequest<'_>) -> Vec<Problem> {
    let mut obstacles = reconcilable::obstacles(request.old, request.new, request.overrides);
    // No installation has created the directories and links of an adopted machine.
    let is_node = matches!(
        request.circumstances,
        Circumstances::Cluster | Circumstances::Hosted
    );
    if !is_node || !request.custody.is_installed() {
        obstacles.retain(|problem| {
            !["spec.config.storage.directories", "spec.config.storage.links"].contains(&problem.path.as_str())
        });
        obstacles.extend(reconcilable::first_boot_only(request.old, request.new));
    }
    obstacles
}

/// Returns an error for a config whose FIPS flag is not the kernel's mode.
pub fn check_fips(machine: &Machine, new: &NodeConfig) -> Result<(), ConfigApplyError> {
    match fips_obstacle(machine, new)? {
        Some(problem) => Err(ConfigApplyError::Irreconcilable(vec![problem])),
        None => Ok(()),
    }
}

/// Compares the config's FIPS flag with the kernel's mode, which is decided when a machine is installed. The OS of a
/// package-mode machine is not ours: it may be in FIPS mode without a config that says so.
fn fips_obstacle(machine: &Machine, new: &NodeConfig) -> Result<Option<Problem>, ConfigApplyError> {
    let Some(enabled) = fips_enabled(&machine.root).map_err(OsError::from)? else {
        return Ok(None);
    };
    let wanted = new.object.spec.fips;
    let own_choice = machine.os.backend() == OsBackend::PackageMode && !wanted;
    Ok((wanted != enabled && !own_choice).then(|| {
        let (flag, mode) = if wanted { ("true", "not in FIPS mode") } else { ("false", "in FIPS mode") };
        Problem::new(
            "spec.fips",
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
        )
        .with_hint(format!(
            "the config has fips: {flag}, and the kernel of this machine is {mode}; move the machine to another pool, or \
             install it again"
        ))
    }))
}

fn aftermath(cost: &Cost, owed: Option<&str>, new: &NodeConfig) -> Aftermath {
    let reboots = cost.actions.contains(&PostConfigAction::Reboot);
    let reboot = match owed {
        Some(because) => Some(because.to_owned()),
        None => reboots.then(|| format!("Node will reboot into config {}", new.name())),
    };
    let crio = || "crio.service".to_owned();
    let services = cost.actions.iter().filter_map(|action| match action {
        PostConfigAction::DaemonReload => Some(ServiceAction::DaemonReload),
        PostConfigAction::Reload(unit) => Some(ServiceAction::Reload(unit.clone())),
        PostConfigAction::Restart(unit) => Some(ServiceAction::Restart(unit.clone())),
        PostConfigAction::Special => Some(ServiceAction::Reload(crio())),
        PostConfigAction::None | PostConfigAction::Drain | PostConfigAction::Reboot => None,
    });
    let services = if reboot.is_some() {
        Vec::new()
    } else {
        services.collect()
    };
    Aftermath { services, reboot }
}

fn registries(old: &NodeConfig, new: &NodeConfig) -> RegistriesChange {
    let text = |config: &NodeConfig| {
        let file = config
            .ignition
            .storage
            .files
            .iter()
            .find(|file| file.path == REGISTRIES_CONF);
        file.and_then(diff::file_bytes)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or_default()
    };
    disruption::compare_registries(&text(old), &text(new))
}
