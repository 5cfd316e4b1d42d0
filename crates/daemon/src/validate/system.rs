//! Validates the booted image, the kernel arguments and the extension packages.

use mco_core::config::extensions;
use mco_host::Machine;
use mco_host::os::{OsBackend, missing_kernel_arguments};

use super::{Mismatch, ValidateError};
use crate::config::NodeConfig;

pub(super) fn validate(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let wanted = config.os_image();
    let arguments = &config.object.spec.kernel_arguments;
    let image_counts = machine.os.backend() != OsBackend::PackageMode && !wanted.is_empty();
    let extensions = layered_extensions(machine.os.backend(), config);
    if !image_counts && arguments.is_empty() && extensions.is_empty() {
        return Ok(Vec::new());
    }
    let state = machine.os.state(&machine.root)?;
    let mut mismatches = Vec::new();
    if image_counts && !state.runs(wanted) {
        let booted = state.image.clone().unwrap_or_default();
        let cause = format!("expected target osImageURL {wanted:?}, have {booted:?}");
        mismatches.push(Mismatch::plain("osImageURL", cause));
    }
    let missing = missing_kernel_arguments(arguments, &state.kernel_arguments);
    if !missing.is_empty() {
        let cause = format!("missing expected kernel arguments: [{}]", missing.join(" "));
        mismatches.push(Mismatch::plain("kernelArguments", cause));
    }
    for extension in extensions {
        let packages = extensions::packages([extension.as_str()]);
        let absent = machine.os.absent_packages(&machine.root, &packages)?;
        mismatches.extend(missing_packages(extension, &absent));
    }
    Ok(mismatches)
}

/// Returns the extensions that are layered on the machine. A built image contains them, and other systems have none.
fn layered_extensions(backend: OsBackend, config: &NodeConfig) -> &[String] {
    let layered =
        matches!(backend, OsBackend::RpmOstree | OsBackend::Simulated) && config.built_image.is_none();
    if layered {
        &config.object.spec.extensions
    } else {
        &[]
    }
}

/// Returns a mismatch unless all packages of one of the extension's sets are present.
fn missing_packages(extension: &str, absent: &[String]) -> Option<Mismatch> {
    let current = extensions::packages([extension]);
    let sets: Vec<&[&str]> = match extension {
        // The package set from before the package for Open vSwitch was split off.
        "ipsec" => vec![&current, &["NetworkManager-libreswan", "libreswan"]],
        _ => vec![&current],
    };
    let missing: Vec<String> = sets
        .iter()
        .map(|set| {
            let missing = set
                .iter()
                .filter(|package| absent.iter().any(|it| it == *package));
            missing.copied().collect::<Vec<_>>().join(" ")
        })
        .collect();
    if missing.iter().any(String::is_empty) {
        return None;
    }
    let cause = format!(
        "extension package verification failed: extension {extension:?} verification failed: no valid package set is fully \
         installed. Tried {} package set(s), missing packages per set: [{}]",
        sets.len(),
        missing.join("] [")
    );
    Some(Mismatch::plain(extension, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_counts_when_one_of_its_package_sets_is_complete() {
        let packages = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let without_switch = packages(&["openvswitch3.5-ipsec"]);
        assert_eq!(missing_packages("ipsec", &without_switch), None);
        assert_eq!(missing_packages("usbguard", &[]), None);
        let incomplete = missing_packages("kerberos", &packages(&["krb5-workstation"])).unwrap();
        assert_eq!(
            incomplete.cause,
            "extension package verification failed: extension \"kerberos\" verification failed: no valid package set is fully \
             installed. Tried 1 package set(s), missing packages per set: [krb5-workstation]"
        );
    }
}
