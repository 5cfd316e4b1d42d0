//! Visits every resource of a config with its path.

use crate::model::{Config, Resource};

/// The purpose of a resource; older versions support fewer features for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A further config or a certificate authority.
    Reference,
    /// The contents of a file or a key.
    Contents,
}

/// Calls `visit` for every resource.
pub(super) fn each(config: &Config, mut visit: impl FnMut(String, &Resource, Purpose)) {
    let section = &config.ignition;
    for (index, resource) in section.config.merge.iter().enumerate() {
        visit(
            format!("ignition.config.merge[{index}]"),
            resource,
            Purpose::Reference,
        );
    }
    visit(
        "ignition.config.replace".to_owned(),
        &section.config.replace,
        Purpose::Reference,
    );
    for (index, resource) in section.security.tls.certificate_authorities.iter().enumerate() {
        let place = format!("ignition.security.tls.certificateAuthorities[{index}]");
        visit(place, resource, Purpose::Reference);
    }
    for (index, file) in config.storage.files.iter().enumerate() {
        visit(
            format!("storage.files[{index}].contents"),
            &file.contents,
            Purpose::Contents,
        );
        for (fragment, resource) in file.append.iter().enumerate() {
            visit(
                format!("storage.files[{index}].append[{fragment}]"),
                resource,
                Purpose::Contents,
            );
        }
    }
    for (index, luks) in config.storage.luks.iter().enumerate() {
        visit(
            format!("storage.luks[{index}].keyFile"),
            &luks.key_file,
            Purpose::Contents,
        );
    }
}
