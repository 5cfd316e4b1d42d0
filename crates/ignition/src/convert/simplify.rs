//! Leaving out what an older version has no field for, where that changes nothing: values that equal the default.

use crate::model::{Cex, ClevisCustom, Config};
use crate::version::SpecVersion;

/// A copy of a config that holds only fields of version `to`. Everything else was refused before.
pub(super) fn without_defaults(config: &Config, to: SpecVersion) -> Config {
    let mut config = config.clone();
    for luks in &mut config.storage.luks {
        if to < SpecVersion::V3_5 {
            luks.cex = Cex::default();
        }
        if to < SpecVersion::V3_4 {
            luks.discard = None;
            for server in &mut luks.clevis.tang {
                server.advertisement = None;
            }
        }
        // Without a pin the object does nothing, but before 3.3 it counted as soon as it was there.
        if to < SpecVersion::V3_3 && luks.clevis.custom.pin.as_deref().unwrap_or_default().is_empty() {
            luks.clevis.custom = ClevisCustom::default();
        }
    }
    if to < SpecVersion::V3_2 {
        for partition in config
            .storage
            .disks
            .iter_mut()
            .flat_map(|disk| &mut disk.partitions)
        {
            partition.resize = None;
        }
        for user in &mut config.passwd.users {
            user.should_exist = None;
        }
        for group in &mut config.passwd.groups {
            group.should_exist = None;
        }
    }
    if to < SpecVersion::V3_1 {
        let section = &mut config.ignition;
        section.config.replace.compression = None;
        for reference in &mut section.config.merge {
            reference.compression = None;
        }
        for authority in &mut section.security.tls.certificate_authorities {
            authority.compression = None;
        }
    }
    config
}
