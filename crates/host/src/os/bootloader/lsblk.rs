//! `lsblk`: the disks of a machine, and which EFI system partitions its firmware may start from.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::command::{CommandError, Commands, succeed};

/// The partition type GUID of EFI system partitions.
const SYSTEM_PARTITION: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

#[derive(Debug, Deserialize)]
struct LsblkOutput {
    blockdevices: Vec<Device>,
}

/// A block device with its children: partitions, and the arrays and volumes on them.
#[derive(Debug, Deserialize)]
struct Device {
    name: String,
    #[serde(default)]
    parttype: Option<String>,
    #[serde(default)]
    children: Vec<Device>,
}

impl Device {
    fn holds(&self, name: &str) -> bool {
        self.name == name || self.children.iter().any(|child| child.holds(name))
    }

    fn collect_system_partitions(&self, found: &mut BTreeSet<String>) {
        let type_ = self.parttype.as_deref().unwrap_or_default();
        if type_.eq_ignore_ascii_case(SYSTEM_PARTITION) {
            found.insert(self.name.clone());
        }
        for child in &self.children {
            child.collect_system_partitions(found);
        }
    }
}

/// Returns the EFI system partitions of the machine whose `/boot` is on the device `boot`.
pub(super) fn system_partitions(commands: &dyn Commands, boot: &str) -> Result<Vec<String>, CommandError> {
    let arguments = ["--paths", "--json", "-o", "NAME,PARTTYPE,FSTYPE"];
    let text = succeed(commands, "lsblk", &arguments)?;
    let list: LsblkOutput = serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
        command: format!("lsblk {}", arguments.join(" ")),
        why: error.to_string(),
    })?;
    Ok(beside(&list.blockdevices, boot))
}

/// Returns those on every disk that carries a part of the device: one disk for a partition, all members for an array.
/// If those disks have none, the machine's only EFI system partition is used, if there is exactly one.
fn beside(disks: &[Device], boot: &str) -> Vec<String> {
    let carriers: Vec<&Device> = disks.iter().filter(|disk| disk.holds(boot)).collect();
    if carriers.is_empty() {
        return Vec::new();
    }
    let mut found = BTreeSet::new();
    for disk in carriers {
        disk.collect_system_partitions(&mut found);
    }
    if found.is_empty() {
        for disk in disks {
            disk.collect_system_partitions(&mut found);
        }
        if found.len() > 1 {
            return Vec::new();
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::testing::Recorded;

    const SINGLE: &str = include_str!("fixtures/lsblk-single-disk.json");
    const TWO: &str = include_str!("fixtures/lsblk-two-disks.json");
    const RAID: &str = include_str!("fixtures/lsblk-raid.json");
    const MULTIPATH: &str = include_str!("fixtures/lsblk-multipath.json");

    #[test]
    fn the_system_partition_beside_boot_is_chosen() {
        let cases: [(&str, &str, &str, &[&str]); 8] = [
            ("a single disk: its own", SINGLE, "/dev/vda3", &["/dev/vda2"]),
            ("a disk for data beside it", SINGLE, "/dev/vdb1", &["/dev/vda2"]),
            (
                "two disks: the one beside /boot",
                TWO,
                "/dev/nvme0n1p3",
                &["/dev/nvme0n1p2"],
            ),
            (
                "two disks, the other way round",
                TWO,
                "/dev/nvme1n1p3",
                &["/dev/nvme1n1p2"],
            ),
            (
                "an array: those of both members",
                RAID,
                "/dev/md126",
                &["/dev/sda2", "/dev/sdb2"],
            ),
            (
                "a disk on two ways: once",
                MULTIPATH,
                "/dev/mapper/mpatha3",
                &["/dev/mapper/mpatha2"],
            ),
            ("an unknown device: none", TWO, "/dev/sdz3", &[]),
            ("no device at all: none", SINGLE, "", &[]),
        ];
        for (name, output, boot, expected) in cases {
            let recorded = Arc::new(Recorded::answering(&[("lsblk", output)]));
            assert_eq!(system_partitions(&recorded, boot).unwrap(), expected, "{name}");
            assert_eq!(
                recorded.invocations(),
                ["lsblk --paths --json -o NAME,PARTTYPE,FSTYPE"]
            );
        }
        let garbage = Arc::new(Recorded::answering(&[("lsblk", "NAME PARTTYPE\n")]));
        assert!(matches!(
            system_partitions(&garbage, "/dev/sda3"),
            Err(CommandError::Unexpected { .. })
        ));
    }
}
