//! Validates the enablement of units.

use mco_host::systemd::{Enablement, RootUnits, UnitSource, state};
use mco_host::{FileKind, FsError, Machine, RootedPath};
use mco_ignition::model::Unit;

use super::{Mismatch, ValidateError};
use crate::config::NodeConfig;
use crate::target;

pub(super) fn validate(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let mut mismatches = Vec::new();
    for unit in config
        .ignition
        .systemd
        .units
        .iter()
        .filter(|unit| !target::is_masked(unit))
    {
        if let Some(expected) = unit.enabled {
            mismatches.extend(enablement(machine, unit, expected)?);
        }
    }
    Ok(mismatches)
}

fn enablement(machine: &Machine, unit: &Unit, expected: bool) -> Result<Option<Mismatch>, ValidateError> {
    if unit.contents.as_deref().unwrap_or_default().is_empty() && !is_plain_unit(machine, &unit.name)? {
        return Ok(None);
    }
    let found = state(&machine.root, &unit.name)?;
    let wrong = match found {
        Enablement::Disabled | Enablement::Masked | Enablement::MaskedRuntime | Enablement::NotFound => {
            expected
        }
        Enablement::Enabled | Enablement::EnabledRuntime => !expected,
        Enablement::Static | Enablement::Indirect => false,
    };
    let cause = || {
        format!(
            "unit {:?} expected enabled={expected}, but systemd reports {:?}",
            unit.name,
            found.as_str()
        )
    };
    Ok(wrong.then(|| Mismatch::plain(unit.name.as_str(), cause())))
}

/// Returns whether a unit's enablement can be validated. A unit that is only enabled is skipped if it is missing, and
/// aliases are enabled through their unit.
fn is_plain_unit(machine: &Machine, name: &str) -> Result<bool, ValidateError> {
    let Some(fragment) = RootUnits(&machine.root).definition(name)? else {
        return Ok(false);
    };
    let path = RootedPath::new(&fragment.path).map_err(FsError::from)?;
    Ok(machine
        .root
        .entry(&path)?
        .is_some_and(|entry| entry.kind == FileKind::File))
}
