//! Removes duplicates: spec 2 allowed a path, a unit or a user to be declared several times, the last one winning; spec
//! 3 does not.

use std::collections::{HashMap, HashSet};

use super::model::{ConfigV2, FileV2, PasswdUserV2, UnitV2};

/// A config with unique files, units and users, and their original positions.
///
/// Files and units are in reverse order: the reference lists them so in rendered configs, whose names depend on it.
pub(super) struct Deduplicated {
    pub(super) config: ConfigV2,
    /// The original positions of the remaining files.
    pub(super) files: Vec<usize>,
    /// The original positions of the remaining units.
    pub(super) units: Vec<usize>,
    /// Files that a later one replaced, with their positions.
    pub(super) replaced_files: Vec<(usize, FileV2)>,
    /// Units that a later one replaced, with their positions.
    pub(super) replaced_units: Vec<(usize, UnitV2)>,
}

pub(super) fn deduplicate(mut config: ConfigV2) -> Deduplicated {
    let mut files = Vec::new();
    let mut replaced_files = Vec::new();
    let mut seen = HashSet::new();
    for (place, file) in config.storage.files.drain(..).enumerate().rev() {
        if seen.insert(file.path.clone()) {
            files.push((place, file));
        } else {
            replaced_files.push((place, file));
        }
    }
    let mut units: Vec<(usize, UnitV2)> = Vec::new();
    let mut replaced_units = Vec::new();
    let mut known: HashMap<String, (usize, HashSet<String>)> = HashMap::new();
    for (place, unit) in config.systemd.units.drain(..).enumerate().rev() {
        if let Some((index, dropins)) = known.get_mut(&unit.name) {
            // Drop-ins of a replaced unit are kept, unless the later unit has one of the same name.
            let missing = unit
                .dropins
                .iter()
                .filter(|dropin| dropins.insert(dropin.name.clone()));
            units[*index].1.dropins.extend(missing.cloned());
            replaced_units.push((place, unit));
        } else {
            let dropins = unit.dropins.iter().map(|dropin| dropin.name.clone()).collect();
            known.insert(unit.name.clone(), (units.len(), dropins));
            units.push((place, unit));
        }
    }
    let (file_places, files) = files.into_iter().unzip();
    let (unit_places, units) = units.into_iter().unzip();
    config.storage.files = files;
    config.systemd.units = units;
    config.passwd.users = one_user(config.passwd.users);
    Deduplicated {
        config,
        files: file_places,
        units: unit_places,
        replaced_files,
        replaced_units,
    }
}

/// Merges entries of the same user: the last one wins, with the keys of all of them.
fn one_user(mut users: Vec<PasswdUserV2>) -> Vec<PasswdUserV2> {
    let Some(mut user) = users.pop() else {
        return Vec::new();
    };
    let own_keys = std::mem::take(&mut user.ssh_authorized_keys);
    let earlier_keys = users
        .into_iter()
        .rev()
        .flat_map(|earlier| earlier.ssh_authorized_keys);
    let mut seen = HashSet::new();
    user.ssh_authorized_keys = own_keys
        .into_iter()
        .chain(earlier_keys)
        .filter(|key| seen.insert(key.clone()))
        .collect();
    vec![user]
}
