//! Translates spec 2 into the model. What has no counterpart was rejected before.

use super::model as v2;
use crate::model;
use crate::validate::simplified;
use crate::version::SpecVersion;

/// Translates a config of the given version.
pub(super) fn config(config: &v2::ConfigV2, version: SpecVersion) -> model::Config {
    model::Config {
        ignition: ignition(&config.ignition),
        kernel_arguments: model::KernelArguments::default(),
        passwd: model::Passwd {
            groups: config.passwd.groups.iter().map(group).collect(),
            users: config
                .passwd
                .users
                .iter()
                .map(|entry| user(entry, version))
                .collect(),
        },
        storage: storage(&config.storage, version),
        systemd: model::Systemd {
            units: config.systemd.units.iter().map(unit).collect(),
        },
    }
}

fn ignition(section: &v2::IgnitionV2) -> model::Ignition {
    model::Ignition {
        config: model::IgnitionConfig {
            merge: section.config.append.iter().map(reference).collect(),
            replace: section.config.replace.as_ref().map(reference).unwrap_or_default(),
        },
        security: model::Security {
            tls: model::Tls {
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
        ..model::Ignition::default()
    }
}

fn reference(reference: &v2::ReferenceV2) -> model::Resource {
    model::Resource {
        source: Some(reference.source.clone()),
        verification: reference.verification.clone(),
        ..model::Resource::default()
    }
}

fn group(group: &v2::PasswdGroupV2) -> model::PasswdGroup {
    model::PasswdGroup {
        gid: group.gid,
        name: group.name.clone(),
        password_hash: text(&group.password_hash),
        system: flag(group.system),
        should_exist: None,
    }
}

fn user(user: &v2::PasswdUserV2, version: SpecVersion) -> model::PasswdUser {
    // In 2.0 an empty hash was no hash.
    let password_hash = user
        .password_hash
        .clone()
        .filter(|hash| version > SpecVersion::V2_0 || !hash.is_empty());
    model::PasswdUser {
        gecos: text(&user.gecos),
        groups: user.groups.clone(),
        home_dir: text(&user.home_dir),
        name: user.name.clone(),
        no_create_home: flag(user.no_create_home),
        no_log_init: flag(user.no_log_init),
        no_user_group: flag(user.no_user_group),
        password_hash,
        primary_group: text(&user.primary_group),
        ssh_authorized_keys: user.ssh_authorized_keys.clone(),
        shell: text(&user.shell),
        should_exist: None,
        system: flag(user.system),
        uid: user.uid,
    }
}

fn storage(storage: &v2::StorageV2, version: SpecVersion) -> model::Storage {
    model::Storage {
        directories: storage
            .directories
            .iter()
            .map(|entry| directory(entry, version))
            .collect(),
        disks: storage.disks.iter().map(disk).collect(),
        files: storage.files.iter().map(|entry| file(entry, version)).collect(),
        links: storage.links.iter().map(link).collect(),
        raid: storage.raid.iter().map(raid).collect(),
        ..model::Storage::default()
    }
}

pub(super) fn file(file: &v2::FileV2, version: SpecVersion) -> model::File {
    let contents = model::Resource {
        compression: text(&file.contents.compression),
        source: Some(file.contents.source.clone()),
        verification: file.contents.verification.clone(),
        ..model::Resource::default()
    };
    let (append, contents, overwrite) = if file.append {
        (vec![contents], model::Resource::default(), false)
    } else {
        (Vec::new(), contents, file.overwrite.unwrap_or(true))
    };
    let (owner_id, owner_group_id) = (
        owner_id(file.user.as_ref(), version),
        owner_id(file.group.as_ref(), version),
    );
    model::File {
        group: model::NodeGroup {
            id: owner_group_id,
            name: owner_name(file.group.as_ref()),
        },
        overwrite: Some(overwrite),
        path: simplified(&file.path),
        user: model::NodeUser {
            id: owner_id,
            name: owner_name(file.user.as_ref()),
        },
        append,
        contents,
        mode: mode(file.mode, version),
    }
}

fn directory(directory: &v2::DirectoryV2, version: SpecVersion) -> model::Directory {
    model::Directory {
        group: model::NodeGroup {
            id: directory.group.as_ref().and_then(|owner| owner.id),
            name: owner_name(directory.group.as_ref()),
        },
        overwrite: directory.overwrite,
        path: simplified(&directory.path),
        user: model::NodeUser {
            id: directory.user.as_ref().and_then(|owner| owner.id),
            name: owner_name(directory.user.as_ref()),
        },
        mode: mode(directory.mode, version),
    }
}

fn link(link: &v2::LinkV2) -> model::Link {
    model::Link {
        group: model::NodeGroup {
            id: link.group.as_ref().and_then(|owner| owner.id),
            name: owner_name(link.group.as_ref()),
        },
        overwrite: link.overwrite,
        path: simplified(&link.path),
        user: model::NodeUser {
            id: link.user.as_ref().and_then(|owner| owner.id),
            name: owner_name(link.user.as_ref()),
        },
        hard: flag(link.hard),
        target: Some(link.target.clone()),
    }
}

/// Returns the owner. In 2.0 there was always one, root by default.
fn owner_id(owner: Option<&v2::NodeOwner>, version: SpecVersion) -> Option<i64> {
    let id = owner.and_then(|owner| owner.id);
    if version == SpecVersion::V2_0 {
        Some(id.unwrap_or_default())
    } else {
        id
    }
}

fn owner_name(owner: Option<&v2::NodeOwner>) -> Option<String> {
    owner.and_then(|owner| text(&owner.name))
}

/// Returns the mode. Before 2.2 there was always one, 0 by default.
fn mode(mode: Option<i64>, version: SpecVersion) -> Option<i64> {
    if version < SpecVersion::V2_2 {
        Some(mode.unwrap_or_default())
    } else {
        mode
    }
}

fn disk(disk: &v2::DiskV2) -> model::Disk {
    model::Disk {
        device: disk.device.clone(),
        partitions: Vec::new(),
        wipe_table: flag(disk.wipe_table),
    }
}

fn raid(raid: &v2::RaidV2) -> model::Raid {
    model::Raid {
        devices: raid.devices.clone(),
        level: Some(raid.level.clone()),
        name: raid.name.clone(),
        options: raid.options.clone(),
        spares: Some(raid.spares).filter(|spares| *spares != 0),
    }
}

pub(super) fn unit(unit: &v2::UnitV2) -> model::Unit {
    let dropin = |dropin: &v2::DropinV2| model::Dropin {
        contents: text(&dropin.contents),
        name: dropin.name.clone(),
    };
    model::Unit {
        contents: text(&unit.contents),
        dropins: unit.dropins.iter().map(dropin).collect(),
        enabled: unit.enabled.or(flag(unit.enable)),
        mask: flag(unit.mask),
        name: unit.name.clone(),
    }
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn flag(flag: bool) -> Option<bool> {
    flag.then_some(true)
}
