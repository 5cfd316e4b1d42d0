//! Computes which enablement links to create and remove. Units are read as they will be after the change.

use std::collections::BTreeSet;

use mco_core::config::diff;
use mco_host::systemd::{self, Fragment, Preset, RootUnits, UnitSource};
use mco_host::{FsError, Root, RootedPath};
use mco_ignition::Config;
use mco_ignition::model::Unit;

use super::{Builder, PlanAction, PlanError};
use crate::config::NodeConfig;
use crate::paths;
use crate::target;

pub(super) fn plan(
    builder: &mut Builder<'_, '_>,
    old: &NodeConfig,
    new: &NodeConfig,
) -> Result<(), PlanError> {
    let units = PlannedUnits {
        root: builder.root(),
        old: &old.ignition,
        new: &new.ignition,
    };
    let difference = diff::diff(old, new);
    let changed: BTreeSet<&str> = difference.units.iter().map(|unit| unit.name.as_str()).collect();
    for unit in new
        .ignition
        .systemd
        .units
        .iter()
        .filter(|unit| !target::is_masked(unit))
    {
        // A unit that is neither defined by the config nor present on the machine is skipped.
        if units.definition(&unit.name)?.is_none() {
            continue;
        }
        match unit.enabled {
            Some(true) => enable(builder, &units, &unit.name)?,
            Some(false) => disable(builder, &units, &unit.name)?,
            None if builder.is_adopted() => {}
            None if changed.contains(unit.name.as_str()) => preset(builder, &units, &unit.name)?,
            None => {}
        }
    }
    if builder.is_adopted() {
        return leave(builder, new);
    }
    let kept: BTreeSet<&str> = new
        .ignition
        .systemd
        .units
        .iter()
        .map(|unit| unit.name.as_str())
        .collect();
    for unit in old
        .ignition
        .systemd
        .units
        .iter()
        .filter(|unit| !kept.contains(unit.name.as_str()))
    {
        if units.definition(&unit.name)?.is_some() {
            preset(builder, &units, &unit.name)?;
        } else {
            disable(builder, &units, &unit.name)?;
        }
    }
    remove_leftovers(builder)
}

/// Restores the enablement of units that the config of an adopted machine does not set any more. Presets are for new
/// machines, so they do not count.
fn leave(builder: &mut Builder<'_, '_>, new: &NodeConfig) -> Result<(), PlanError> {
    for name in builder.units_with_links() {
        let units = &new.ignition.systemd.units;
        let is_set = |unit: &Unit| unit.name == name && unit.enabled.is_some() && !target::is_masked(unit);
        if !units.iter().any(is_set) {
            builder.restore_links(&name)?;
        }
    }
    Ok(())
}

fn enable(builder: &mut Builder<'_, '_>, units: &PlannedUnits<'_>, name: &str) -> Result<(), PlanError> {
    let wanted = systemd::links(name, units)?;
    for link in systemd::existing_links(builder.root(), name)? {
        if !wanted.contains_key(&link) {
            builder.record_link(name, &link)?;
            builder.add(link, PlanAction::Remove);
        }
    }
    for (link, target) in wanted {
        if builder.root().read_link(&link)?.as_ref() != Some(&target) {
            builder.record_link(name, &link)?;
        }
        builder.reach_link(link, target)?;
    }
    Ok(())
}

fn disable(builder: &mut Builder<'_, '_>, units: &PlannedUnits<'_>, name: &str) -> Result<(), PlanError> {
    for link in systemd::existing_links(builder.root(), name)? {
        builder.record_link(name, &link)?;
        builder.add(link, PlanAction::Remove);
    }
    for (link, target) in systemd::links(name, units)? {
        if builder.root().read_link(&link)? == Some(target) {
            builder.record_link(name, &link)?;
            builder.add(link, PlanAction::Remove);
        }
    }
    Ok(())
}

fn preset(builder: &mut Builder<'_, '_>, units: &PlannedUnits<'_>, name: &str) -> Result<(), PlanError> {
    match systemd::preset(builder.root(), name)? {
        Preset::Enable => enable(builder, units, name),
        Preset::Disable => disable(builder, units, name),
        Preset::Ignore => Ok(()),
    }
}

fn remove_leftovers(builder: &mut Builder<'_, '_>) -> Result<(), PlanError> {
    for path in paths::LEFTOVER_LINKS {
        let path = RootedPath::new(path).map_err(FsError::from)?;
        if builder.root().read_link(&path)?.is_some() {
            builder.add(path, PlanAction::Remove);
        }
    }
    Ok(())
}

/// The machine's units as they will be once the new config is in place.
struct PlannedUnits<'a> {
    root: &'a Root,
    old: &'a Config,
    new: &'a Config,
}

impl UnitSource for PlannedUnits<'_> {
    fn fragment(&self, name: &str) -> Result<Option<Fragment>, FsError> {
        let find = |config: &'_ Config| {
            config
                .systemd
                .units
                .iter()
                .find(|unit| unit.name == name)
                .cloned()
        };
        let contents = |unit: &Unit| unit.contents.clone().filter(|contents| !contents.is_empty());
        let unit = find(self.new);
        if unit.as_ref().is_some_and(target::is_masked) {
            return Ok(None);
        }
        let on_disk = || {
            // A file that only the old config had is about to be removed.
            let leaves = find(self.old)
                .as_ref()
                .is_some_and(|old| contents(old).is_some() || target::is_masked(old));
            if leaves {
                RootUnits(self.root).vendor_fragment(name)
            } else {
                RootUnits(self.root).fragment(name)
            }
        };
        let fragment = match unit.as_ref().and_then(contents) {
            Some(text) => Some(Fragment {
                path: format!("{}/{name}", systemd::UNIT_DIRECTORY),
                text,
            }),
            None => on_disk()?,
        };
        // Drop-ins may also have an install section; read after the unit's own, they add to it.
        let dropins = unit
            .iter()
            .flat_map(|unit| &unit.dropins)
            .filter_map(|dropin| dropin.contents.as_deref());
        Ok(fragment.map(|mut fragment| {
            for dropin in dropins {
                fragment.text.push('\n');
                fragment.text.push_str(dropin);
            }
            fragment
        }))
    }
}
