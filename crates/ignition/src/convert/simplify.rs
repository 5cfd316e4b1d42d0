//! Omits values that equal the default and have no field in an older version.

use crate::model::{Cex, ClevisCustom, Config};
use crate::version::SpecVersion;

/// Returns a copy of a config with only the fields of version `to`. Everything else was rejected before.
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
        // Without a pin the object has no effect, but before 3.3 its mere presence counted.
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
