//! Unit files, masks and drop-ins of a config. Enablement depends on the machine and is planned elsewhere.

use mco_core::config::applicability::{self, Refusal};
use mco_host::systemd::{MASK, UNIT_DIRECTORY};
use mco_host::{Attributes, RootedPath};
use mco_ignition::Config;
use mco_ignition::model::Unit;

use super::{Contents, Managed, Source, TargetError, Wanted};

const UNIT_ATTRIBUTES: Attributes = Attributes::root(0o644);

pub(super) fn managed(config: &Config) -> Result<Vec<Managed<'_>>, TargetError> {
    let mut managed = Vec::new();
    for unit in &config.systemd.units {
        for dropin in &unit.dropins {
            let wanted = text(dropin.contents.as_ref()).map_or(Wanted::Absent, |text| Wanted::File {
                contents: text,
                attributes: UNIT_ATTRIBUTES,
            });
            managed.push(Managed {
                path: dropin_path(&unit.name, &dropin.name)?,
                wanted,
                source: Source::Dropin,
            });
        }
        if let Some(wanted) = unit_file(unit) {
            managed.push(Managed {
                path: unit_path(&unit.name)?,
                wanted,
                source: Source::Unit,
            });
        }
    }
    Ok(managed)
}

/// Refuses names that no config may have. Not part of the paths, because a config that is being replaced may have them.
pub(super) fn check_names(config: &Config) -> Result<(), TargetError> {
    let forbidden = |name: &str| {
        let path = name.escape_debug().to_string();
        move |refusal: Refusal| TargetError::Forbidden {
            path,
            why: refusal.why,
        }
    };
    for unit in &config.systemd.units {
        applicability::check_unit_name(&unit.name).map_err(forbidden(&unit.name))?;
        for dropin in &unit.dropins {
            applicability::check_dropin_name(&unit.name, &dropin.name).map_err(forbidden(&dropin.name))?;
        }
    }
    Ok(())
}

/// Returns the desired state of the unit's own path; `None` if the config does not define it.
fn unit_file(unit: &Unit) -> Option<Wanted<'_>> {
    match (unit.mask, text(unit.contents.as_ref())) {
        (Some(true), _) => Some(Wanted::Link {
            target: MASK.to_owned(),
        }),
        (_, Some(contents)) => Some(Wanted::File {
            contents,
            attributes: UNIT_ATTRIBUTES,
        }),
        (Some(false), None) => Some(Wanted::Absent),
        (None, None) => None,
    }
}

pub fn is_masked(unit: &Unit) -> bool {
    unit.mask == Some(true)
}

fn text(contents: Option<&String>) -> Option<Contents<'_>> {
    contents
        .filter(|contents| !contents.is_empty())
        .map(|contents| Contents::Text(contents))
}

pub fn unit_path(unit: &str) -> Result<RootedPath, TargetError> {
    below_unit_directory(unit)
}

pub fn dropin_path(unit: &str, dropin: &str) -> Result<RootedPath, TargetError> {
    if dropin.contains('/') {
        return Err(TargetError::Forbidden {
            path: dropin.to_owned(),
            why: "the name of a drop-in must not contain a slash",
        });
    }
    Ok(below_unit_directory(&format!("{unit}.d"))?.join(dropin)?)
}

fn below_unit_directory(name: &str) -> Result<RootedPath, TargetError> {
    if name.contains('/') {
        return Err(TargetError::Forbidden {
            path: name.to_owned(),
            why: "the name of a unit must not contain a slash",
        });
    }
    Ok(RootedPath::new(UNIT_DIRECTORY)?.join(name)?)
}
