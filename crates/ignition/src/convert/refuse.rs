//! Finds what an older version cannot express.

use super::resources::{self, Purpose};
use crate::finding::Finding;
use crate::model::{Config, Luks, RecordField as _};
use crate::validate::url;
use crate::version::SpecVersion;

/// Returns the first Ignition release that supports a spec version, for the hints.
fn release(version: SpecVersion) -> &'static str {
    match version {
        SpecVersion::V2_0 | SpecVersion::V2_1 | SpecVersion::V2_2 => "0.x",
        SpecVersion::V3_0 => "2.0.0",
        SpecVersion::V3_1 => "2.3.0",
        SpecVersion::V3_2 => "2.7.0",
        SpecVersion::V3_3 => "2.11.0",
        SpecVersion::V3_4 => "2.15.0",
        SpecVersion::V3_5 => "2.20.0",
    }
}

/// Returns everything in a valid config that version `to` cannot express.
pub(super) fn inexpressible(config: &Config, to: SpecVersion) -> Vec<Finding> {
    let mut refusal = ConversionRefusal {
        to,
        findings: Vec::new(),
    };
    kernel_arguments(config, &mut refusal);
    luks(config, &mut refusal);
    modes(config, &mut refusal);
    filesystems(config, &mut refusal);
    absent_accounts(config, &mut refusal);
    sources(config, &mut refusal);
    if !config.ignition.proxy.is_absent() {
        refusal.since(SpecVersion::V3_1, "ignition.proxy", "HTTP proxies are");
    }
    partitions(config, &mut refusal);
    refusal.findings
}

struct ConversionRefusal {
    to: SpecVersion,
    findings: Vec<Finding>,
}

impl ConversionRefusal {
    /// Rejects a feature that was introduced in version `since`, if the target is older.
    fn since(&mut self, since: SpecVersion, place: impl Into<String>, what: &str) {
        if self.to < since {
            let message = format!("{what} not supported in spec {}", self.to);
            let hint = format!(
                "boot the machine from an image with Ignition {} or newer (spec {since}), or remove it",
                release(since)
            );
            self.findings.push(Finding::new(place, message).with_hint(hint));
        }
    }
}

fn kernel_arguments(config: &Config, refusal: &mut ConversionRefusal) {
    let arguments = &config.kernel_arguments;
    if !arguments.should_exist.is_empty() {
        refusal.since(
            SpecVersion::V3_3,
            "kernelArguments.shouldExist",
            "kernel arguments are",
        );
    }
    if !arguments.should_not_exist.is_empty() {
        refusal.since(
            SpecVersion::V3_3,
            "kernelArguments.shouldNotExist",
            "kernel arguments are",
        );
    }
}

fn luks(config: &Config, refusal: &mut ConversionRefusal) {
    for (index, luks) in config.storage.luks.iter().enumerate() {
        let place = format!("storage.luks[{index}]");
        if refusal.to < SpecVersion::V3_2 {
            refusal.since(SpecVersion::V3_2, place, "LUKS is");
        } else {
            luks_fields(&place, luks, refusal);
        }
    }
}

fn luks_fields(place: &str, luks: &Luks, refusal: &mut ConversionRefusal) {
    if luks.cex.enabled == Some(true) {
        refusal.since(SpecVersion::V3_5, format!("{place}.cex"), "LUKS cex is");
    }
    if luks.discard == Some(true) {
        refusal.since(SpecVersion::V3_4, format!("{place}.discard"), "LUKS discard is");
    }
    if !luks.open_options.is_empty() {
        refusal.since(
            SpecVersion::V3_4,
            format!("{place}.openOptions"),
            "LUKS openOptions are",
        );
    }
    for (index, server) in luks.clevis.tang.iter().enumerate() {
        if server
            .advertisement
            .as_deref()
            .is_some_and(|text| !text.is_empty())
        {
            let place = format!("{place}.clevis.tang[{index}].advertisement");
            refusal.since(SpecVersion::V3_4, place, "offline Tang provisioning is");
        }
    }
}

fn modes(config: &Config, refusal: &mut ConversionRefusal) {
    let is_special = |mode: Option<i64>| mode.is_some_and(|mode| mode & 0o7000 != 0);
    let files = config.storage.files.iter().enumerate();
    for (index, _) in files.filter(|(_, file)| is_special(file.mode)) {
        refusal.since(
            SpecVersion::V3_4,
            format!("storage.files[{index}].mode"),
            "special mode bits are",
        );
    }
    let directories = config.storage.directories.iter().enumerate();
    for (index, _) in directories.filter(|(_, directory)| is_special(directory.mode)) {
        refusal.since(
            SpecVersion::V3_4,
            format!("storage.directories[{index}].mode"),
            "special mode bits are",
        );
    }
}

fn filesystems(config: &Config, refusal: &mut ConversionRefusal) {
    for (index, filesystem) in config.storage.filesystems.iter().enumerate() {
        let place = format!("storage.filesystems[{index}]");
        match filesystem.format.as_deref().unwrap_or_default() {
            "none" => refusal.since(SpecVersion::V3_3, format!("{place}.format"), "format none is"),
            "" => refusal.since(
                SpecVersion::V3_0,
                format!("{place}.format"),
                "a filesystem without format is",
            ),
            _ => {}
        }
        if !filesystem.mount_options.is_empty() {
            refusal.since(
                SpecVersion::V3_1,
                format!("{place}.mountOptions"),
                "mountOptions are",
            );
        }
    }
}

fn absent_accounts(config: &Config, refusal: &mut ConversionRefusal) {
    for (index, user) in config.passwd.users.iter().enumerate() {
        if user.should_exist == Some(false) {
            let place = format!("passwd.users[{index}].shouldExist");
            refusal.since(SpecVersion::V3_2, place, "removing users is");
        }
    }
    for (index, group) in config.passwd.groups.iter().enumerate() {
        if group.should_exist == Some(false) {
            let place = format!("passwd.groups[{index}].shouldExist");
            refusal.since(SpecVersion::V3_2, place, "removing groups is");
        }
    }
}

fn sources(config: &Config, refusal: &mut ConversionRefusal) {
    resources::each(config, |place, resource, purpose| {
        let scheme = resource
            .source
            .as_deref()
            .and_then(|source| url::parse(source).ok())
            .map(|url| url.scheme);
        match scheme.as_deref() {
            Some("arn") => refusal.since(SpecVersion::V3_4, format!("{place}.source"), "arn: sources are"),
            Some("gs") => refusal.since(SpecVersion::V3_2, format!("{place}.source"), "gs: sources are"),
            _ => {}
        }
        if !resource.http_headers.is_empty() {
            refusal.since(
                SpecVersion::V3_1,
                format!("{place}.httpHeaders"),
                "HTTP headers are",
            );
        }
        let is_compressed = resource
            .compression
            .as_deref()
            .is_some_and(|method| !method.is_empty());
        if purpose == Purpose::Reference && is_compressed {
            let place = format!("{place}.compression");
            refusal.since(
                SpecVersion::V3_1,
                place,
                "compression of configs and certificates is",
            );
        }
        if resource
            .verification
            .hash
            .as_deref()
            .is_some_and(|hash| hash.starts_with("sha256-"))
        {
            refusal.since(
                SpecVersion::V3_1,
                format!("{place}.verification.hash"),
                "sha256 is",
            );
        }
    });
}

fn partitions(config: &Config, refusal: &mut ConversionRefusal) {
    for (disk, partitions) in config
        .storage
        .disks
        .iter()
        .map(|disk| &disk.partitions)
        .enumerate()
    {
        for (index, partition) in partitions.iter().enumerate() {
            let place = format!("storage.disks[{disk}].partitions[{index}]");
            if partition.resize == Some(true) {
                refusal.since(
                    SpecVersion::V3_2,
                    format!("{place}.resize"),
                    "resizing partitions is",
                );
            }
            if partition.size_mib.is_some() {
                refusal.since(SpecVersion::V3_0, format!("{place}.sizeMiB"), "sizeMiB is");
            }
            if partition.start_mib.is_some() {
                refusal.since(SpecVersion::V3_0, format!("{place}.startMiB"), "startMiB is");
            }
            if partition.should_exist == Some(false) {
                refusal.since(
                    SpecVersion::V3_0,
                    format!("{place}.shouldExist"),
                    "removing partitions is",
                );
            }
            if partition.wipe_partition_entry == Some(true) {
                let place = format!("{place}.wipePartitionEntry");
                refusal.since(SpecVersion::V3_0, place, "replacing partitions is");
            }
        }
    }
}
