//! Stages a change of the operating system once, and keeps it from booting before its configuration is in place.
//!
//! What is staged is recorded in `/run`, which ends with the boot like the staged deployment itself. So a change that was
//! staged before a drain is not pulled again afterwards.

use mco_host::os::{OsChange, OsError, OsHold, StagedDeployment};
use mco_host::{Attributes, FsError, Machine, RootedPath};
use serde::{Deserialize, Serialize};

use crate::paths;

const LARGEST: u64 = 16 << 20;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StagedRecord {
    change: OsChange,
    deployment: StagedDeployment,
}

/// Stages a change, unless exactly this one is staged. A shutdown does not boot it until [`release`].
pub fn stage(machine: &Machine, change: &OsChange) -> Result<StagedDeployment, OsError> {
    if let Some(deployment) = staged(machine, change)? {
        return Ok(deployment);
    }
    forget(machine)?;
    machine.os.prepare(&machine.root)?;
    machine.os.hold(&machine.root, OsHold::Locked)?;
    let staged = machine
        .os
        .stage(&machine.root, change)
        .and_then(|()| machine.os.verify_staged(&machine.root, change));
    let deployment = match staged {
        Ok(deployment) => deployment,
        Err(error) => {
            machine.os.hold(&machine.root, OsHold::Released)?;
            return Err(error);
        }
    };
    // Staging may have removed the lock together with what was staged before.
    machine.os.hold(&machine.root, OsHold::Locked)?;
    record(machine, change, &deployment)?;
    Ok(deployment)
}

/// Returns whether exactly this change is staged.
pub fn is_staged(machine: &Machine, change: &OsChange) -> Result<bool, OsError> {
    Ok(staged(machine, change)?.is_some())
}

/// Lets what is staged boot at the next shutdown.
pub fn release(machine: &Machine) -> Result<(), OsError> {
    machine.os.hold(&machine.root, OsHold::Released)
}

/// Discards a staged change.
pub fn discard(machine: &Machine, change: &OsChange) -> Result<(), OsError> {
    forget(machine)?;
    machine.os.discard(&machine.root, change)?;
    release(machine)
}

/// Discards what was staged ahead of a change that is no longer wanted. Must not be called while a change is in progress.
pub fn discard_unused(machine: &Machine) -> Result<(), OsError> {
    match read(machine)? {
        Some(record) => discard(machine, &record.change),
        None => Ok(()),
    }
}

/// Returns the staged deployment if it is the one of this change.
fn staged(machine: &Machine, change: &OsChange) -> Result<Option<StagedDeployment>, OsError> {
    if !machine.os.stages_ahead() {
        return Ok(None);
    }
    let Some(record) = read(machine)?.filter(|record| record.change.is_same_boot(change)) else {
        return Ok(None);
    };
    let found = machine.os.verify_staged(&machine.root, change).ok();
    Ok(found.filter(|found| *found == record.deployment))
}

fn read(machine: &Machine) -> Result<Option<StagedRecord>, OsError> {
    let bytes = machine.root.read(&path()?, LARGEST)?;
    // Without a readable record the change is staged again.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn record(machine: &Machine, change: &OsChange, deployment: &StagedDeployment) -> Result<(), OsError> {
    if !machine.os.stages_ahead() {
        return Ok(());
    }
    let record = StagedRecord {
        change: change.clone(),
        deployment: deployment.clone(),
    };
    let path = path()?;
    if let Some(parent) = path.parent() {
        machine
            .root
            .create_directories(&parent, Attributes::root(0o755))?;
    }
    let text = serde_json::to_vec(&record).unwrap_or_default();
    Ok(machine
        .root
        .write_atomically(&path, Attributes::root(0o600), &text)?)
}

fn forget(machine: &Machine) -> Result<(), OsError> {
    machine.root.remove_file(&path()?)?;
    Ok(())
}

fn path() -> Result<RootedPath, OsError> {
    Ok(RootedPath::new(paths::STAGED_DEPLOYMENT).map_err(FsError::from)?)
}
