//! Completes the first boot of a machine that Ignition provisioned: the files are in place, but the OS is still that of
//! the disk image. Also completes the first boot after reverting from a built image: the OS is right, but files that
//! came with the image are missing. Runs before the kubelet, so there is no cluster to connect to.

use mco_api::MachineConfig;
use mco_core::config::disruption::DisruptionPolicy;
use mco_core::config::extensions;
use mco_core::config::reconcilable::Overrides;
use mco_host::os::{OsBackend, OsError, OsState, missing_kernel_arguments, split_kernel_arguments};
use mco_host::{FsError, Machine, Reboot, RootedPath};

use crate::apply::{self, ApplyRequest, ApplyResult, Circumstances};
use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::disk::{self, DiskError};
use crate::once::{self, OnceError, RebootPolicy};
use crate::paths;
use crate::revert;
use crate::transaction::{self, Journal, Uninterrupted};

/// The result of a first boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBoot {
    /// There is nothing to complete.
    NotNeeded,
    /// The machine already runs the desired OS.
    Complete {
        config: String,
    },
    /// The change is staged and needs a reboot.
    NeedsReboot {
        config: String,
    },
    Rebooting {
        config: String,
    },
}

/// Applies the OS of the installed config, and requests a reboot if one is needed.
pub fn complete(machine: &Machine, reboots: RebootPolicy) -> Result<FirstBoot, OnceError> {
    let _lock = once::lock(machine)?;
    if let Some(object) = disk::machine_config(&machine.root, paths::REVERT_CONFIG)? {
        return come_back(machine, object, reboots);
    }
    if let Some(because) = once::settle_past(machine, &Uninterrupted)? {
        // The kubelet must not start on a system that is about to be replaced.
        let journal =
            transaction::read_journal(&machine.root).map_err(transaction::TransactionFailure::from)?;
        let config = journal.map(|journal| journal.to).unwrap_or_default();
        return boot_into(machine, config, &because, reboots);
    }
    let Some(object) = disk::machine_config(&machine.root, paths::ENCAPSULATED)? else {
        return Ok(FirstBoot::NotNeeded);
    };
    let new = NodeConfig::new(object).map_err(|source| DiskError::Invalid {
        path: paths::ENCAPSULATED,
        source,
    })?;
    let config = new.name().to_owned();
    // The installed state is that of the config itself, so no difference shows the kernel's mode.
    apply::check_fips(machine, &new)?;
    let mut old = as_running(machine, new.clone())
        .map_err(apply::ConfigApplyError::from)?
        .unnamed();
    let state = machine
        .os
        .state(&machine.root)
        .map_err(apply::ConfigApplyError::from)?;
    old.object_mut().spec.kernel_arguments =
        in_order(&new.object.spec.kernel_arguments, &state.kernel_arguments);
    let encapsulated = RootedPath::new(paths::ENCAPSULATED).map_err(FsError::from)?;
    if apply::difference(&old, &new).is_empty() {
        machine.root.remove_file(&encapsulated)?;
        return Ok(FirstBoot::Complete { config });
    }
    let because = format!("Completing firstboot provisioning to {config}");
    let request = ApplyRequest {
        old: &old,
        new: &new,
        policy: &DisruptionPolicy::default(),
        overrides: Overrides::default(),
        circumstances: Circumstances::FirstBoot,
        reboot_owed: Some(&because),
        pending_os: None,
        custody: Custody::Installed,
    };
    let prepared = apply::prepare(machine, &request)?.with_steps(revert::leftovers(&machine.root)?);
    let journal = apply::commit(machine, prepared, &Uninterrupted)?;
    let done = RootedPath::new(paths::ENCAPSULATED_DONE).map_err(FsError::from)?;
    machine.root.rename(&encapsulated, &done)?;
    finish(machine, config, journal, reboots)
}

/// Applies a config again after the machine has left an image that contained parts of it. Another reboot is needed only
/// if something was missing, because services have started without it.
fn come_back(
    machine: &Machine,
    object: MachineConfig,
    reboots: RebootPolicy,
) -> Result<FirstBoot, OnceError> {
    let left = once::settle_past_unproven(machine, &Uninterrupted)?;
    if let Some(journal) = &left
        && machine.power.boot_id(&machine.root)? == journal.boot
    {
        // The built image is still booted.
        return Ok(FirstBoot::NotNeeded);
    }
    let new = NodeConfig::new(object).map_err(|source| DiskError::Invalid {
        path: paths::REVERT_CONFIG,
        source,
    })?;
    let config = new.name().to_owned();
    let old = as_running(machine, new.clone()).map_err(apply::ConfigApplyError::from)?;
    let because = format!("Completing the revert from a built image to {config}");
    let mut request = ApplyRequest {
        old: &old,
        new: &new,
        policy: &DisruptionPolicy::default(),
        overrides: Overrides::default(),
        // Certificates on disk are newer than the recorded config.
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody: Custody::of(&machine.root)?,
    };
    let mut prepared = apply::prepare(machine, &request)?;
    if !prepared.is_nothing() {
        request.reboot_owed = Some(&because);
        prepared = apply::prepare(machine, &request)?;
    }
    if let Some(journal) = left {
        // The image that was left cannot be restored, so the rollback data is dropped.
        transaction::supersede(machine, &journal, &Uninterrupted)?;
    }
    let prepared = prepared.with_steps(revert::leftovers(&machine.root)?);
    let journal = apply::commit(machine, prepared, &Uninterrupted)?;
    finish(machine, config, journal, reboots)
}

fn finish(
    machine: &Machine,
    config: String,
    journal: Option<Journal>,
    reboots: RebootPolicy,
) -> Result<FirstBoot, OnceError> {
    let settled = journal
        .map(|journal| apply::settle(machine, journal, &Uninterrupted))
        .transpose()?;
    match settled {
        None | Some(ApplyResult::Done | ApplyResult::AwaitingConfirmation) => {
            Ok(FirstBoot::Complete { config })
        }
        Some(ApplyResult::AwaitingBoot { because }) => boot_into(machine, config, &because, reboots),
    }
}

fn boot_into(
    machine: &Machine,
    config: String,
    because: &str,
    reboots: RebootPolicy,
) -> Result<FirstBoot, OnceError> {
    if reboots == RebootPolicy::Never {
        return Ok(FirstBoot::NeedsReboot { config });
    }
    match apply::reboot(machine, because)? {
        Reboot::Queued => Ok(FirstBoot::Rebooting { config }),
        Reboot::Simulated => match once::settle_past(machine, &Uninterrupted)? {
            None => Ok(FirstBoot::Complete { config }),
            Some(_) => Ok(FirstBoot::NeedsReboot { config }),
        },
    }
}

/// Returns the config to validate the machine against: the current one, or before the first boot is complete the
/// installed one with the running OS. `None` on a machine that has neither.
pub fn expected(machine: &Machine) -> Result<Option<NodeConfig>, OnceError> {
    let is_new = disk::node_annotations(&machine.root)?.is_some();
    if let Some(config) = disk::current_config(&machine.root)?
        && !is_new
    {
        return Ok(Some(config));
    }
    let Some(object) = disk::machine_config(&machine.root, paths::INSTALLED_CONFIG)? else {
        return Ok(None);
    };
    let config = NodeConfig::new(object).map_err(|source| DiskError::Invalid {
        path: paths::INSTALLED_CONFIG,
        source,
    })?;
    Ok(Some(
        as_running(machine, config).map_err(apply::ConfigApplyError::from)?,
    ))
}

/// Returns the config with the running OS in place of the desired one.
pub fn as_running(machine: &Machine, mut config: NodeConfig) -> Result<NodeConfig, OsError> {
    let state = machine.os.state(&machine.root)?;
    let image_based = machine.os.backend() != OsBackend::PackageMode;
    if image_based && !config.os_image().is_empty() && !state.runs(config.os_image()) {
        config.built_image = None;
        config.object_mut().spec.os_image_url = state.image.clone().unwrap_or_default();
    }
    let is_built = config.built_image.is_some();
    let spec = &mut config.object_mut().spec;
    let missing = missing_kernel_arguments(&spec.kernel_arguments, &state.kernel_arguments);
    spec.kernel_arguments.retain(|entry| {
        split_kernel_arguments(entry)
            .iter()
            .all(|argument| !missing.contains(argument))
    });
    // A built image contains its kernel and extensions.
    if !is_built {
        running_kernel(&state).clone_into(&mut spec.kernel_type);
        spec.extensions
            .retain(|extension| has_extension(&state, extension));
    }
    Ok(config)
}

/// Returns the wanted arguments that are running, in their running order. Before a machine's first use a wrong order
/// can still be corrected without disruption, and for some arguments it matters.
fn in_order(wanted: &[String], running: &[String]) -> Vec<String> {
    let tokens: Vec<String> = wanted
        .iter()
        .flat_map(|entry| split_kernel_arguments(entry))
        .collect();
    let found: Vec<String> = running
        .iter()
        .filter(|argument| tokens.contains(argument))
        .cloned()
        .collect();
    if found == tokens { wanted.to_vec() } else { found }
}

fn running_kernel(state: &OsState) -> &'static str {
    let has = |prefix: &str| state.packages.iter().any(|package| package.starts_with(prefix));
    if has("kernel-rt-") {
        "realtime"
    } else if has("kernel-64k-") {
        "64k-pages"
    } else {
        ""
    }
}

fn has_extension(state: &OsState, extension: &str) -> bool {
    extensions::packages([extension])
        .iter()
        .all(|package| state.packages.iter().any(|present| present == package))
}
