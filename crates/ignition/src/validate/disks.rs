//! Validates disks, partitions, RAID arrays and filesystems.

use std::collections::{HashMap, HashSet};

use super::nodes::path_fault;
use super::rule::{self, ValidationRule};
use super::{Checker, duplicates};
use crate::model::{Disk, Filesystem, Partition, Raid, Storage};
use crate::version::SpecVersion;

pub(super) fn disks(storage: &Storage, check: &mut Checker) {
    check.field("disks", |check| duplicates::by_key(&storage.disks, check));
    check.each("disks", &storage.disks, disk);
    check.field("raid", |check| duplicates::by_key(&storage.raid, check));
    check.each("raid", &storage.raid, raid);
    check.field("filesystems", |check| {
        duplicates::by_key(&storage.filesystems, check);
    });
    let disks: HashMap<&str, &Disk> = storage
        .disks
        .iter()
        .map(|disk| (disk.device.as_str(), disk))
        .collect();
    check.each("filesystems", &storage.filesystems, |filesystem, check| {
        self::filesystem(filesystem, check);
        filesystem_on_disk(filesystem, &disks, check);
    });
}

/// Validates a required device.
pub(super) fn device(device: &str, check: &mut Checker) {
    if device.is_empty() {
        check.error_at("device", rule::DEVICE_MISSING);
    } else if let Some(fault) = path_fault(device) {
        check.error_at("device", fault);
    }
}

fn disk(disk: &Disk, check: &mut Checker) {
    device(&disk.device, check);
    check.field("partitions", |check| {
        duplicates::by_key(&disk.partitions, check);
        partition_table(&disk.partitions, check);
    });
    check.each("partitions", &disk.partitions, partition);
}

fn partition_table(partitions: &[Partition], check: &mut Checker) {
    if let Some(index) = colliding_number(partitions) {
        check.element(index, |check| check.error(rule::PARTITION_NUMBERS));
    }
    if let Some(index) = overlapping(partitions) {
        check.element(index, |check| check.error(rule::PARTITIONS_OVERLAP));
    }
    if let Some(index) = repeated_label(partitions) {
        check.element(index, |check| check.error(rule::PARTITION_LABELS));
    }
    let any_absent = partitions
        .iter()
        .any(|partition| partition.should_exist == Some(false));
    let any_unnumbered = partitions.iter().any(|partition| partition.number == 0);
    if any_absent && any_unnumbered {
        check.error(rule::PARTITION_ABSENT_MIXED);
    }
}

/// Returns the first partition with the number of another one.
fn colliding_number(partitions: &[Partition]) -> Option<usize> {
    let mut first_with: HashMap<i64, usize> = HashMap::new();
    let mut collisions = Vec::new();
    for (index, partition) in partitions
        .iter()
        .enumerate()
        .filter(|(_, partition)| partition.number != 0)
    {
        match first_with.get(&partition.number) {
            Some(&first) => collisions.push((first, index)),
            None => {
                first_with.insert(partition.number, index);
            }
        }
    }
    collisions.into_iter().min().map(|(_, second)| second)
}

/// More partitions than any table holds; above it, pairs are no longer compared one by one.
const MOST_COMPARED: usize = 2048;

/// Returns the first partition that overlaps another one. A size of 0 counts for the sector where it starts; negative
/// sizes are invalid and compared as in Ignition.
fn overlapping(partitions: &[Partition]) -> Option<usize> {
    let mut placed: Vec<(usize, i64, i64)> = partitions
        .iter()
        .enumerate()
        .filter_map(
            |(index, partition)| match (partition.start_mib?, partition.size_mib?) {
                (0, _) => None,
                (start, 0) => Some((index, start, start)),
                (start, size) => Some((index, start, start.wrapping_add(size).wrapping_sub(1))),
            },
        )
        .collect();
    if placed.len() > MOST_COMPARED {
        placed.sort_by_key(|&(_, start, _)| start);
        return placed
            .windows(2)
            .find(|pair| pair[1].1 <= pair[0].2)
            .map(|pair| pair[1].0);
    }
    placed.iter().find_map(|&(index, start, end)| {
        placed.iter().find_map(|&(other, other_start, other_end)| {
            let within_other = |place: i64| (other_start..=other_end).contains(&place);
            let around_other = start < other_start && end > other_end;
            let overlaps = within_other(start) || within_other(end) || around_other;
            (other != index && overlaps).then_some(other)
        })
    })
}

fn repeated_label(partitions: &[Partition]) -> Option<usize> {
    let mut seen = HashSet::new();
    partitions.iter().position(|partition| {
        partition
            .label
            .as_deref()
            .is_some_and(|label| !seen.insert(label))
    })
}

fn partition(partition: &Partition, check: &mut Checker) {
    let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let detailed = partition.label.is_some()
        || is_given(&partition.type_guid)
        || is_given(&partition.guid)
        || partition.start_mib.is_some()
        || partition.size_mib.is_some();
    if partition.should_exist == Some(false) && detailed {
        check.error(rule::PARTITION_ABSENT_DETAILED);
    }
    if partition.number == 0 && partition.label.is_none() {
        check.error(rule::PARTITION_NAMELESS);
    }
    if let Some(label) = &partition.label {
        if label.len() > 36 {
            check.error_at("label", rule::PARTITION_LABEL_LONG);
        } else if label.contains(':') {
            check.error_at("label", rule::PARTITION_LABEL_COLON);
        }
    }
    for (name, guid) in [("guid", &partition.guid), ("typeGuid", &partition.type_guid)] {
        if guid
            .as_deref()
            .is_some_and(|guid| !guid.is_empty() && !is_guid(guid))
        {
            check.error_at(name, rule::GUID);
        }
    }
}

fn is_guid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.len() == 5
        && groups.iter().zip([8, 4, 4, 4, 12]).all(|(group, length)| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

fn raid(raid: &Raid, check: &mut Checker) {
    let level = raid.level.as_deref().unwrap_or_default();
    match level {
        "" if check.at_least(SpecVersion::V3_3) => check.error_at("level", rule::RAID_LEVEL_MISSING),
        "linear" | "raid0" | "0" | "stripe" => {
            if raid.spares.is_some_and(|spares| spares != 0) {
                check.error_at("level", rule::RAID_SPARES);
            }
        }
        "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10" | "10" => {}
        _ => check.error_at("level", rule::RAID_LEVEL_UNKNOWN),
    }
    if raid.devices.is_empty() {
        check.error_at("devices", rule::RAID_DEVICES_MISSING);
    }
    check.field("devices", |check| duplicates::strings(&raid.devices, check));
    check.each("devices", &raid.devices, |device, check| {
        if let Some(fault) = path_fault(device) {
            check.error(fault);
        }
    });
}

fn filesystem(filesystem: &Filesystem, check: &mut Checker) {
    if let Some(fault) = path_fault(&filesystem.device) {
        check.error_at("device", fault);
    }
    let path = filesystem.path.as_deref().filter(|path| !path.is_empty());
    if let Some(fault) = path.and_then(path_fault) {
        check.error_at("path", fault);
    }
    let label = filesystem.label.as_deref().filter(|label| !label.is_empty());
    match filesystem.format.as_deref().unwrap_or_default() {
        "" => {
            let needs_format = path.is_some()
                || label.is_some()
                || filesystem.uuid.as_deref().is_some_and(|uuid| !uuid.is_empty())
                || filesystem.wipe_filesystem == Some(true)
                || !filesystem.options.is_empty()
                || !filesystem.mount_options.is_empty();
            if needs_format {
                check.error_at("format", rule::FILESYSTEM_FORMAT_MISSING);
            }
            if label.is_some() {
                check.error_at("label", rule::LABEL_WITHOUT_FORMAT);
            }
        }
        "ext4" => label_at_most(16, label, rule::LABEL_LONG_EXT4, check),
        "btrfs" => label_at_most(256, label, rule::LABEL_LONG_BTRFS, check),
        "xfs" => label_at_most(12, label, rule::LABEL_LONG_XFS, check),
        "swap" => label_at_most(15, label, rule::LABEL_LONG_SWAP, check),
        "vfat" => label_at_most(11, label, rule::LABEL_LONG_VFAT, check),
        "none" if check.at_least(SpecVersion::V3_3) => {}
        _ => check.error_at("format", rule::FILESYSTEM_FORMAT),
    }
}

fn label_at_most(bytes: usize, label: Option<&str>, fault: ValidationRule, check: &mut Checker) {
    if label.is_some_and(|label| label.len() > bytes) {
        check.error_at("label", fault);
    }
}

fn filesystem_on_disk(filesystem: &Filesystem, disks: &HashMap<&str, &Disk>, check: &mut Checker) {
    let Some(disk) = disks.get(filesystem.device.as_str()) else {
        return;
    };
    if !disk.partitions.is_empty() {
        check.warn_at("device", rule::FILESYSTEM_OVER_PARTITIONS);
    } else if disk.wipe_table == Some(true) && filesystem.wipe_filesystem != Some(true) {
        check.warn_at("device", rule::FILESYSTEM_WIPED);
    }
}
