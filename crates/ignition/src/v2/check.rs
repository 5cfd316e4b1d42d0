//! Checks what spec 2 itself forbids, and what cannot be translated to spec 3. All other rules are checked on the
//! translation.

use super::model::{ConfigV2, FilesystemV2, Mount, PasswdUserV2, UserCreate};
use crate::finding::{Finding, FindingReport};

/// The one filesystem that needs no declaration.
const ROOT: &str = "root";

pub(super) fn check(config: &ConfigV2) -> FindingReport {
    let mut report = FindingReport::default();
    nodes(config, &mut report);
    for (index, disk) in config.storage.disks.iter().enumerate() {
        for partition in 0..disk.partitions.len() {
            let path = format!("storage.disks[{index}].partitions[{partition}]");
            let hint = "write the config in spec 3, with startMiB and sizeMiB";
            report
                .errors
                .push(Finding::new(path, "partitions in sectors are deprecated").with_hint(hint));
        }
    }
    for (index, filesystem) in config.storage.filesystems.iter().enumerate() {
        self::filesystem(&format!("storage.filesystems[{index}]"), filesystem, &mut report);
    }
    if !config.networkd.units.is_empty() {
        let message = "config includes deprecated networkd section - use Files instead";
        let hint = "write the units as files below /etc/systemd/network";
        report
            .errors
            .push(Finding::new("networkd.units", message).with_hint(hint));
    }
    for (index, user) in config.passwd.users.iter().enumerate() {
        self::user(&format!("passwd.users[{index}]"), user, &mut report);
    }
    report
}

fn nodes(config: &ConfigV2, report: &mut FindingReport) {
    let storage = &config.storage;
    let files = storage
        .files
        .iter()
        .map(|node| (&node.filesystem, &node.path))
        .enumerate();
    let directories = storage
        .directories
        .iter()
        .map(|node| (&node.filesystem, &node.path))
        .enumerate();
    let links = storage
        .links
        .iter()
        .map(|node| (&node.filesystem, &node.path))
        .enumerate();
    let nodes = files
        .map(|(index, node)| (format!("storage.files[{index}]"), node))
        .chain(directories.map(|(index, node)| (format!("storage.directories[{index}]"), node)))
        .chain(links.map(|(index, node)| (format!("storage.links[{index}]"), node)));
    for (place, (filesystem, path)) in nodes {
        if filesystem.is_empty() {
            let hint = "set filesystem to \"root\"";
            report
                .errors
                .push(Finding::new(format!("{place}.filesystem"), "no filesystem specified").with_hint(hint));
        } else if filesystem != ROOT {
            let message = format!("{path:?} references nonexistent filesystem {filesystem:?}");
            let hint = "it is written to the root filesystem; set filesystem to \"root\"";
            report
                .warnings
                .push(Finding::new(format!("{place}.filesystem"), message).with_hint(hint));
        }
        if !path.starts_with('/') {
            let hint = "start the path with \"/\"";
            report
                .errors
                .push(Finding::new(format!("{place}.path"), "path not absolute").with_hint(hint));
        }
    }
    for (index, file) in storage.files.iter().enumerate() {
        if file.append && file.overwrite == Some(true) {
            let message = "cannot set both append and overwrite to true";
            let hint = "remove one of the two";
            report
                .errors
                .push(Finding::new(format!("storage.files[{index}]"), message).with_hint(hint));
        }
    }
}

fn filesystem(place: &str, filesystem: &FilesystemV2, report: &mut FindingReport) {
    let mut error = |field: &str, message: String, hint: &str| {
        report
            .errors
            .push(Finding::new(format!("{place}{field}"), message).with_hint(hint));
    };
    if filesystem.name != ROOT {
        error(
            ".name",
            format!(
                "Config defined filesystem {:?} but no mapping was defined",
                filesystem.name
            ),
            "write the config in spec 3, where a filesystem has the path that it is mounted at",
        );
    }
    match (&filesystem.mount, &filesystem.path) {
        (None, None) => error(
            "",
            "filesystem is missing mount or path".to_owned(),
            "set mount or path",
        ),
        (Some(_), Some(_)) => {
            error(
                "",
                "filesystem has both mount and path defined".to_owned(),
                "keep one of the two",
            );
        }
        (None, Some(path)) if !path.starts_with('/') => {
            error(
                ".path",
                "path not absolute".to_owned(),
                "start the path with \"/\"",
            );
        }
        (None, Some(_)) => {}
        (Some(mount), None) => {
            if let Some((field, message)) = mount_fault(mount) {
                error(
                    field,
                    message.to_owned(),
                    "correct the mount, or remove it: the root filesystem needs none",
                );
            }
        }
    }
    let hint = "the root filesystem is used as it is; partition and format it in spec 3";
    report
        .warnings
        .push(Finding::new(place, "filesystem definition is not carried over").with_hint(hint));
}

fn mount_fault(mount: &Mount) -> Option<(&'static str, &'static str)> {
    let label = mount.label.as_deref().unwrap_or_default();
    let longest = match mount.format.as_str() {
        "ext4" => 16,
        "btrfs" => 256,
        "xfs" => 12,
        "swap" => 15,
        "vfat" => 11,
        _ => return Some((".mount.format", "invalid filesystem format")),
    };
    if !mount.device.starts_with('/') {
        Some((".mount.device", "path not absolute"))
    } else if mount.create.is_some() && !mount.options.is_empty() {
        Some((
            ".mount",
            "cannot use both create object and mount-level options field",
        ))
    } else if mount.create.is_some() && mount.wipe_filesystem {
        Some((".mount", "cannot use both create object and wipeFilesystem field"))
    } else if label.len() > longest {
        Some((".mount.label", "filesystem label is too long for its format"))
    } else {
        None
    }
}

fn user(place: &str, user: &PasswdUserV2, report: &mut FindingReport) {
    if user.name != "core" {
        let message = format!(
            "unexpected user with name: {}. Only core user is supported",
            user.name
        );
        let hint = "write the config in spec 3 to configure other users";
        report
            .errors
            .push(Finding::new(format!("{place}.name"), message).with_hint(hint));
    }
    let Some(create) = &user.create else { return };
    for field in stated_twice(user) {
        let message = format!("cannot use both the create object and the user-level {field} field");
        report
            .errors
            .push(Finding::new(place, message).with_hint("remove the create object"));
    }
    if *create != UserCreate::default() {
        let hint = "state its fields at the level of the user";
        report.warnings.push(
            Finding::new(format!("{place}.create"), "the create object is not carried over").with_hint(hint),
        );
    }
}

/// Returns the user-level fields that are set; none is allowed beside the create object.
fn stated_twice(user: &PasswdUserV2) -> impl Iterator<Item = &'static str> {
    [
        ("gecos", !user.gecos.is_empty()),
        ("groups", !user.groups.is_empty()),
        ("homeDir", !user.home_dir.is_empty()),
        ("noCreateHome", user.no_create_home),
        ("noLogInit", user.no_log_init),
        ("noUserGroup", user.no_user_group),
        ("primaryGroup", !user.primary_group.is_empty()),
        ("shell", !user.shell.is_empty()),
        ("system", user.system),
        ("uid", user.uid.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, stated)| stated.then_some(field))
}
