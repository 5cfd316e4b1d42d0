//! Computes the OS changes (image, kernel, extensions, kernel arguments) of a config update.

use std::collections::BTreeSet;

use mco_core::config::diff::ConfigDiff;
use mco_core::config::extensions::{self, EXTENSIONS, KernelType};
use mco_host::os::{KernelSwap, OsBackend, OsChange, OsState, split_kernel_arguments};
use thiserror::Error;

use crate::config::NodeConfig;

const DEFAULT_KERNEL: [&str; 5] = [
    "kernel",
    "kernel-core",
    "kernel-modules",
    "kernel-modules-core",
    "kernel-modules-extra",
];
const REALTIME_KERNEL: [&str; 3] = ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
const LARGE_PAGES_KERNEL: [&str; 4] = [
    "kernel-64k-core",
    "kernel-64k-modules",
    "kernel-64k-modules-core",
    "kernel-64k-modules-extra",
];

#[derive(Debug, Error, PartialEq, Eq)]
pub enum OsChangeError {
    #[error("invalid extensions found: [{0}]")]
    UnknownExtensions(String),
    #[error("64k-pages is only supported for aarch64 architecture")]
    LargePagesElsewhere,
}

/// The machine that the change applies to.
#[derive(Debug, Clone, Copy)]
pub struct OsChangeContext<'a> {
    pub backend: OsBackend,
    pub state: &'a OsState,
    pub architecture: &'a str,
    /// The change that is staged for a boot that is due. The new change takes its place, so it contains what of it
    /// is still wanted.
    pub pending: Option<&'a OsChange>,
}

/// Returns the change to stage for the next boot; `None` if there is none.
pub fn os_change(
    old: &NodeConfig,
    new: &NodeConfig,
    diff: &ConfigDiff,
    place: OsChangeContext<'_>,
) -> Result<Option<OsChange>, OsChangeError> {
    let mut change = OsChange {
        image: image_to_stage(new, diff, place).map(str::to_owned),
        ..OsChange::default()
    };
    let pending_arguments = place.pending.is_some_and(OsChange::touches_kernel_arguments);
    if diff.kernel_arguments.is_some() || pending_arguments {
        change.delete_kernel_arguments = booted_arguments(old, place.pending);
        change.append_kernel_arguments = tokens(&new.object.spec.kernel_arguments);
    }
    // A built image already contains the kernel and the extensions.
    if new.built_image.is_none() {
        change_kernel(new, diff, place, &mut change)?;
        change_extensions(new, diff, place, &mut change)?;
        change.packages_image = Some(new.object.spec.base_os_extensions_container_image.clone())
            .filter(|image| !image.is_empty());
    }
    let Some(pending) = place.pending else {
        return Ok(Some(change).filter(|change| !change.is_empty()));
    };
    let pending = OsChange {
        replaces: None,
        ..pending.clone()
    };
    change.replaces = Some(Box::new(pending));
    Ok(Some(change))
}

/// Returns the arguments of our configs that the running kernel may have.
fn booted_arguments(old: &NodeConfig, pending: Option<&OsChange>) -> Vec<String> {
    let old = tokens(&old.object.spec.kernel_arguments);
    let Some(pending) = pending.filter(|pending| pending.touches_kernel_arguments()) else {
        return old;
    };
    // The old config's arguments are those of the pending change, which has not booted.
    pending.delete_kernel_arguments.clone()
}

/// Returns the image, unless it is already booted or the system is not image-based.
pub fn image_to_stage<'a>(
    new: &'a NodeConfig,
    diff: &ConfigDiff,
    place: OsChangeContext<'_>,
) -> Option<&'a str> {
    let wanted = new.os_image();
    let pending = place.pending.is_some_and(|pending| pending.image.is_some());
    let changes = diff.os_image.is_some() || pending;
    let applies = changes && !wanted.is_empty() && place.backend != OsBackend::PackageMode;
    (applies && !place.state.runs(wanted)).then_some(wanted)
}

fn change_kernel(
    new: &NodeConfig,
    diff: &ConfigDiff,
    place: OsChangeContext<'_>,
    change: &mut OsChange,
) -> Result<(), OsChangeError> {
    let pending = place.pending.is_some_and(|pending| pending.kernel.is_some());
    if diff.kernel_type.is_none() && change.image.is_none() && !pending {
        return Ok(());
    }
    let replace = |install: &[&str]| KernelSwap::Replace {
        remove: owned(&DEFAULT_KERNEL),
        install: owned(install),
    };
    change.kernel = match KernelType::canonical(&new.object.spec.kernel_type) {
        // What is swapped now counts, not what the pending change would have swapped.
        KernelType::Default if pending => is_swapped(place.state).then_some(KernelSwap::Reset),
        KernelType::Default => diff.kernel_type.is_some().then_some(KernelSwap::Reset),
        KernelType::Realtime => Some(replace(&REALTIME_KERNEL)),
        KernelType::Pages64k if place.architecture == "aarch64" => Some(replace(&LARGE_PAGES_KERNEL)),
        KernelType::Pages64k => return Err(OsChangeError::LargePagesElsewhere),
    };
    Ok(())
}

fn is_swapped(state: &OsState) -> bool {
    let other = |package: &String| package.starts_with("kernel-rt-") || package.starts_with("kernel-64k-");
    state.packages.iter().any(other)
}

fn change_extensions(
    new: &NodeConfig,
    diff: &ConfigDiff,
    place: OsChangeContext<'_>,
    change: &mut OsChange,
) -> Result<(), OsChangeError> {
    let wanted = &new.object.spec.extensions;
    let unknown = extensions::unknown(wanted);
    if !unknown.is_empty() {
        return Err(OsChangeError::UnknownExtensions(unknown.join(" ")));
    }
    let pending = place.pending.is_some_and(OsChange::touches_packages);
    if diff.extensions.is_none() && (wanted.is_empty() || change.image.is_none()) && !pending {
        return Ok(());
    }
    let required: BTreeSet<&str> = extensions::packages(wanted.iter().map(String::as_str))
        .into_iter()
        .collect();
    let present: BTreeSet<&str> = place.state.packages.iter().map(String::as_str).collect();
    let known: BTreeSet<&str> = EXTENSIONS
        .iter()
        .flat_map(|extension| extension.packages.iter().copied())
        .collect();
    change.install_packages = required.difference(&present).map(|it| (*it).to_owned()).collect();
    // Only packages of extensions are removed, never packages that an administrator has layered.
    change.uninstall_packages = present
        .intersection(&known)
        .filter(|it| !required.contains(*it))
        .map(|it| (*it).to_owned())
        .collect();
    Ok(())
}

/// Returns how many local changes of the booted image neither a config's extensions nor its kernel type has made.
pub fn unsupported_packages(state: &OsState) -> usize {
    let kernels = DEFAULT_KERNEL
        .iter()
        .chain(&REALTIME_KERNEL)
        .chain(&LARGE_PAGES_KERNEL);
    let extensions = EXTENSIONS.iter().flat_map(|extension| extension.packages);
    let known: BTreeSet<&str> = kernels.chain(extensions).copied().collect();
    let unknown = state
        .local_changes
        .iter()
        .filter(|package| !known.contains(package.as_str()));
    unknown.count()
}

fn tokens(entries: &[String]) -> Vec<String> {
    entries
        .iter()
        .flat_map(|entry| split_kernel_arguments(entry))
        .collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use mco_core::config::diff::diff;
    use serde_json::{Value, json};

    use super::*;

    fn config(spec: &Value) -> NodeConfig {
        let object = json!({"metadata": {"name": "x"}, "spec": spec});
        NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    fn change(old: &Value, new: &Value, state: &OsState) -> Option<OsChange> {
        let (old, new) = (config(old), config(new));
        let place = OsChangeContext {
            backend: OsBackend::RpmOstree,
            state,
            architecture: "x86_64",
            pending: None,
        };
        os_change(&old, &new, &diff(&old, &new), place).unwrap()
    }

    fn kernel_arguments(old: &[&str], new: &[&str]) -> (Vec<String>, Vec<String>) {
        let change = change(
            &json!({"kernelArguments": old}),
            &json!({"kernelArguments": new}),
            &OsState::default(),
        )
        .unwrap_or_default();
        (change.delete_kernel_arguments, change.append_kernel_arguments)
    }

    #[test]
    fn all_old_kernel_arguments_go_and_all_new_ones_come() {
        type PackageNames = &'static [&'static str];
        let cases: &[(PackageNames, PackageNames, PackageNames, PackageNames)] = &[
            (&[], &["hello=world"], &[], &["hello=world"]),
            (&["hello=world"], &[], &["hello=world"], &[]),
            (
                &["foo", "bar=1", "hello=world"],
                &["hello=world"],
                &["foo", "bar=1", "hello=world"],
                &["hello=world"],
            ),
            (&[], &["bar=1 hello=world"], &[], &["bar=1", "hello=world"]),
            (
                &[],
                &[" baz=test bar=\"hello world\""],
                &[],
                &["baz=test", "bar=\"hello world\""],
            ),
            (
                &["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4"],
                &["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=6"],
                &["hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=4"],
                &["hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=6"],
            ),
        ];
        for (old, new, delete, append) in cases {
            let (got_delete, got_append) = kernel_arguments(old, new);
            assert_eq!(
                (got_delete, got_append),
                (owned(delete), owned(append)),
                "{old:?} -> {new:?}"
            );
        }
    }

    #[test]
    fn an_image_that_already_runs_is_not_staged() {
        let state = OsState {
            image: Some("mirror.example/os@sha256:1".to_owned()),
            ..OsState::default()
        };
        let new = json!({"osImageURL": "quay.io/os@sha256:1"});
        assert_eq!(change(&json!({}), &new, &state), None);
        let new = json!({"osImageURL": "quay.io/os@sha256:2"});
        assert_eq!(
            change(&json!({}), &new, &state).unwrap().image.as_deref(),
            Some("quay.io/os@sha256:2")
        );
    }

    #[test]
    fn extensions_install_what_is_missing_and_remove_what_is_ours() {
        let state = OsState {
            packages: owned(&["pacemaker", "sysstat", "somebodys-package"]),
            ..OsState::default()
        };
        let change = change(
            &json!({}),
            &json!({"extensions": ["two-node-ha", "usbguard"]}),
            &state,
        )
        .unwrap();
        assert_eq!(change.install_packages, ["fence-agents-all", "pcs", "usbguard"]);
        assert_eq!(change.uninstall_packages, ["sysstat"]);
    }

    #[test]
    fn another_kernel_replaces_the_default_one_and_back() {
        let state = OsState::default();
        let (default, realtime) = (json!({}), json!({"kernelType": "realtime"}));
        let swap = change(&default, &realtime, &state).unwrap().kernel;
        assert_eq!(
            swap,
            Some(KernelSwap::Replace {
                remove: owned(&DEFAULT_KERNEL),
                install: owned(&REALTIME_KERNEL)
            })
        );
        assert_eq!(
            change(&realtime, &default, &state).unwrap().kernel,
            Some(KernelSwap::Reset)
        );
        let pages = config(&json!({"kernelType": "64k-pages"}));
        let empty = config(&default);
        let place = OsChangeContext {
            backend: OsBackend::RpmOstree,
            state: &state,
            architecture: "x86_64",
            pending: None,
        };
        let result = os_change(&empty, &pages, &diff(&empty, &pages), place);
        assert_eq!(result, Err(OsChangeError::LargePagesElsewhere));
    }

    #[test]
    fn packages_that_no_config_has_layered_are_counted() {
        let state = OsState {
            local_changes: owned(&["usbguard", "kernel", "kernel-rt-core", "htop", "./local.rpm"]),
            ..OsState::default()
        };
        assert_eq!(unsupported_packages(&state), 2);
        assert_eq!(unsupported_packages(&OsState::default()), 0);
    }

    #[test]
    fn a_change_before_the_due_boot_keeps_what_is_staged_and_still_wanted() {
        let state = OsState {
            image: Some("quay.io/os@sha256:1".to_owned()),
            kernel_arguments: owned(&["base"]),
            ..OsState::default()
        };
        let after = |old: &Value, new: &Value, pending: &OsChange| {
            let (old, new) = (config(old), config(new));
            let place = OsChangeContext {
                backend: OsBackend::RpmOstree,
                state: &state,
                architecture: "x86_64",
                pending: Some(pending),
            };
            os_change(&old, &new, &diff(&old, &new), place).unwrap()
        };
        let (first, image) = (
            json!({"osImageURL": "quay.io/os@sha256:1"}),
            "quay.io/os@sha256:2",
        );
        let second = json!({"osImageURL": image});
        let pending = change(&first, &second, &state).unwrap();
        assert!(
            after(&second, &second, &pending).unwrap().repeats_replaced(),
            "the same again"
        );

        let third = json!({"osImageURL": image, "kernelArguments": ["nosmt"]});
        let both = after(&second, &third, &pending).unwrap();
        assert_eq!(both.image.as_deref(), Some(image), "the staged image is not lost");
        assert_eq!(both.append_kernel_arguments, ["nosmt"]);
        assert_eq!(both.replaces.as_deref(), Some(&pending));

        let fourth = json!({"osImageURL": image, "kernelArguments": ["quiet"]});
        let next = after(&third, &fourth, &both).unwrap();
        assert_eq!(
            next.delete_kernel_arguments, [""; 0],
            "the running kernel has none of them"
        );
        assert_eq!(next.append_kernel_arguments, ["quiet"]);
        assert_eq!(
            next.replaces.as_deref().map(|it| it.replaces.is_none()),
            Some(true)
        );

        let back = after(&fourth, &first, &next).unwrap();
        assert!(back.is_plain_boot() && !back.is_empty(), "{back:?}");
    }

    #[test]
    fn a_package_mode_machine_takes_no_image() {
        let (old, new) = (
            config(&json!({})),
            config(&json!({"osImageURL": "quay.io/os@sha256:1"})),
        );
        let state = OsState::default();
        let place = OsChangeContext {
            backend: OsBackend::PackageMode,
            state: &state,
            architecture: "x86_64",
            pending: None,
        };
        assert_eq!(os_change(&old, &new, &diff(&old, &new), place).unwrap(), None);
    }
}
