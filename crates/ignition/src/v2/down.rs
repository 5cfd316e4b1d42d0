//! Converts the model to spec 2.2. What has no counterpart was rejected before.

use super::model as v2;
use crate::model;

/// The filesystem that every machine has.
const ROOT: &str = "root";

pub(crate) fn config(config: &model::Config) -> v2::ConfigV2 {
    v2::ConfigV2 {
        ignition: ignition(&config.ignition),
        networkd: v2::Networkd::default(),
        passwd: v2::PasswdV2 {
            groups: config.passwd.groups.iter().map(group).collect(),
            users: config.passwd.users.iter().map(user).collect(),
        },
        storage: storage(&config.storage),
        systemd: v2::SystemdV2 {
            units: config.systemd.units.iter().map(unit).collect(),
        },
    }
}

fn ignition(section: &model::Ignition) -> v2::IgnitionV2 {
    let replace = &section.config.replace;
    v2::IgnitionV2 {
        config: v2::IgnitionConfigV2 {
            append: section.config.merge.iter().map(reference).collect(),
            replace: replace.source.is_some().then(|| reference(replace)),
        },
        security: v2::SecurityV2 {
            tls: v2::TlsV2 {
                certificate_authorities: section
                    .security
                    .tls
                    .certificate_authorities
                    .iter()
                    .map(reference)
                    .collect(),
            },
        },
        timeouts: section.timeouts.clone(),
        ..v2::IgnitionV2::default()
    }
}

fn reference(resource: &model::Resource) -> v2::ReferenceV2 {
    v2::ReferenceV2 {
        source: text(resource.source.as_ref()),
        verification: resource.verification.clone(),
    }
}

fn group(group: &model::PasswdGroup) -> v2::PasswdGroupV2 {
    v2::PasswdGroupV2 {
        gid: group.gid,
        name: group.name.clone(),
        password_hash: text(group.password_hash.as_ref()),
        system: flag(group.system),
    }
}

fn user(user: &model::PasswdUser) -> v2::PasswdUserV2 {
    v2::PasswdUserV2 {
        create: None,
        gecos: text(user.gecos.as_ref()),
        groups: user.groups.clone(),
        home_dir: text(user.home_dir.as_ref()),
        name: user.name.clone(),
        no_create_home: flag(user.no_create_home),
        no_log_init: flag(user.no_log_init),
        no_user_group: flag(user.no_user_group),
        password_hash: user.password_hash.clone(),
        primary_group: text(user.primary_group.as_ref()),
        ssh_authorized_keys: user.ssh_authorized_keys.clone(),
        shell: text(user.shell.as_ref()),
        system: flag(user.system),
        uid: user.uid,
    }
}

fn storage(storage: &model::Storage) -> v2::StorageV2 {
    let homes = Homes::of(&storage.filesystems);
    v2::StorageV2 {
        directories: storage
            .directories
            .iter()
            .map(|node| directory(node, &homes))
            .collect(),
        disks: storage.disks.iter().map(disk).collect(),
        files: storage
            .files
            .iter()
            .flat_map(|node| files(node, &homes))
            .collect(),
        filesystems: filesystems(&storage.filesystems),
        links: storage.links.iter().map(|node| link(node, &homes)).collect(),
        raid: storage.raid.iter().map(raid).collect(),
    }
}

/// The mount points of filesystems: in spec 2 paths are relative to their filesystem.
struct Homes<'a> {
    /// Longest first.
    mount_points: Vec<&'a str>,
}

impl<'a> Homes<'a> {
    fn of(filesystems: &'a [model::Filesystem]) -> Self {
        let mut mount_points: Vec<&str> = filesystems
            .iter()
            .filter_map(|filesystem| filesystem.path.as_deref())
            .filter(|path| !path.is_empty())
            .collect();
        mount_points.sort_by_key(|path| std::cmp::Reverse(path.len()));
        Self { mount_points }
    }

    /// Returns the filesystem of a path, and the path within it.
    fn split(&self, path: &str) -> (String, String) {
        let within = |mount_point: &str| match path.strip_prefix(mount_point) {
            Some("") => Some("/".to_owned()),
            Some(rest) if rest.starts_with('/') => Some(rest.to_owned()),
            Some(_) if mount_point == "/" => Some(path.to_owned()),
            _ => None,
        };
        self.mount_points
            .iter()
            .find_map(|mount_point| Some(((*mount_point).to_owned(), within(mount_point)?)))
            .unwrap_or_else(|| (ROOT.to_owned(), path.to_owned()))
    }
}

/// Returns a file, followed by its appended contents.
fn files(file: &model::File, homes: &Homes<'_>) -> Vec<v2::FileV2> {
    let (filesystem, path) = homes.split(&file.path);
    let entry = |append: bool, overwrite: bool, resource: &model::Resource| v2::FileV2 {
        filesystem: filesystem.clone(),
        group: owner(file.group.id, file.group.name.as_ref()),
        overwrite: Some(overwrite),
        path: path.clone(),
        user: owner(file.user.id, file.user.name.as_ref()),
        append,
        contents: v2::FileContents {
            compression: text(resource.compression.as_ref()),
            source: text(resource.source.as_ref()),
            verification: resource.verification.clone(),
        },
        mode: file.mode,
    };
    let mut entries = Vec::new();
    if file.contents.source.is_some() {
        // Unset means false in spec 3 and true in spec 2.
        entries.push(entry(false, file.overwrite.unwrap_or(false), &file.contents));
    }
    entries.extend(file.append.iter().map(|fragment| entry(true, false, fragment)));
    if entries.is_empty() {
        // Without contents the file must exist, with any contents: spec 2 expresses that by appending nothing.
        entries.push(entry(true, false, &model::Resource::default()));
    }
    entries
}

fn directory(directory: &model::Directory, homes: &Homes<'_>) -> v2::DirectoryV2 {
    let (filesystem, path) = homes.split(&directory.path);
    v2::DirectoryV2 {
        filesystem,
        group: owner(directory.group.id, directory.group.name.as_ref()),
        overwrite: directory.overwrite,
        path,
        user: owner(directory.user.id, directory.user.name.as_ref()),
        mode: directory.mode,
    }
}

fn link(link: &model::Link, homes: &Homes<'_>) -> v2::LinkV2 {
    let (filesystem, path) = homes.split(&link.path);
    v2::LinkV2 {
        filesystem,
        group: owner(link.group.id, link.group.name.as_ref()),
        overwrite: link.overwrite,
        path,
        user: owner(link.user.id, link.user.name.as_ref()),
        hard: flag(link.hard),
        target: text(link.target.as_ref()),
    }
}

fn owner(id: Option<i64>, name: Option<&String>) -> Option<v2::NodeOwner> {
    (id.is_some() || name.is_some()).then(|| v2::NodeOwner { id, name: text(name) })
}

fn disk(disk: &model::Disk) -> v2::DiskV2 {
    let partition = |partition: &model::Partition| v2::PartitionV2 {
        guid: text(partition.guid.as_ref()),
        label: text(partition.label.as_ref()),
        number: partition.number,
        size: 0,
        start: 0,
        type_guid: text(partition.type_guid.as_ref()),
    };
    v2::DiskV2 {
        device: disk.device.clone(),
        partitions: disk.partitions.iter().map(partition).collect(),
        wipe_table: flag(disk.wipe_table),
    }
}

fn raid(raid: &model::Raid) -> v2::RaidV2 {
    v2::RaidV2 {
        devices: raid.devices.clone(),
        level: text(raid.level.as_ref()),
        name: raid.name.clone(),
        options: raid.options.clone(),
        spares: raid.spares.unwrap_or_default(),
    }
}

/// Returns the filesystems with the names that spec 2 requires: the mount point, or a number.
fn filesystems(filesystems: &[model::Filesystem]) -> Vec<v2::FilesystemV2> {
    let mut unnamed = 0;
    let mut name = |path: Option<&String>| {
        path.cloned().unwrap_or_else(|| {
            unnamed += 1;
            unnamed.to_string()
        })
    };
    filesystems
        .iter()
        .map(|filesystem| v2::FilesystemV2 {
            mount: Some(v2::Mount {
                create: None,
                device: filesystem.device.clone(),
                format: text(filesystem.format.as_ref()),
                label: filesystem.label.clone(),
                options: filesystem.options.clone(),
                uuid: filesystem.uuid.clone(),
                wipe_filesystem: flag(filesystem.wipe_filesystem),
            }),
            name: name(filesystem.path.as_ref()),
            path: None,
        })
        .collect()
}

fn unit(unit: &model::Unit) -> v2::UnitV2 {
    let dropin = |dropin: &model::Dropin| v2::DropinV2 {
        contents: text(dropin.contents.as_ref()),
        name: dropin.name.clone(),
    };
    v2::UnitV2 {
        contents: text(unit.contents.as_ref()),
        dropins: unit.dropins.iter().map(dropin).collect(),
        enable: false,
        enabled: unit.enabled,
        mask: flag(unit.mask),
        name: unit.name.clone(),
    }
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

fn flag(flag: Option<bool>) -> bool {
    flag.unwrap_or_default()
}
