//! `rpm-ostree`: images, layered packages and kernel arguments of ostree systems.

use std::sync::Arc;

use serde::Deserialize;

use super::podman::{ExtensionsContent, Podman};
use super::{
    KernelSwap, OperatingSystem, OsBackend, OsChange, OsError, OsState, booted_kernel_arguments, bootloader,
    finalization, image,
};
use crate::command::{CommandError, Commands, succeed};
use crate::root::Root;

const PROGRAM: &str = "rpm-ostree";

#[derive(Debug)]
pub struct RpmOstree {
    commands: Arc<dyn Commands>,
}

#[derive(Debug, Deserialize)]
struct RpmOstreeStatus {
    deployments: Vec<RpmOstreeDeployment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct RpmOstreeDeployment {
    booted: bool,
    staged: bool,
    container_image_reference: Option<String>,
    custom_origin: Option<Vec<String>>,
    requested_packages: Vec<String>,
    requested_base_removals: Vec<String>,
}

impl RpmOstreeDeployment {
    fn image(&self) -> Option<String> {
        let reference = self
            .container_image_reference
            .as_deref()
            .and_then(image::reference_url);
        let origin = || self.custom_origin.as_ref()?.first()?.strip_prefix("pivot://");
        reference.or_else(origin).map(str::to_owned)
    }
}

impl RpmOstree {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    pub(super) fn responds(&self) -> bool {
        self.status().is_ok()
    }

    fn run(&self, arguments: &[&str]) -> Result<String, CommandError> {
        succeed(self.commands.as_ref(), PROGRAM, arguments)
    }

    fn status(&self) -> Result<RpmOstreeStatus, CommandError> {
        let text = self.run(&["status", "--json"])?;
        serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: error.to_string(),
        })
    }

    fn booted(&self) -> Result<RpmOstreeDeployment, OsError> {
        let booted = self
            .status()?
            .deployments
            .into_iter()
            .find(|deployment| deployment.booted);
        Ok(booted.ok_or_else(|| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: "no deployment is booted".to_owned(),
        })?)
    }

    fn stage_steps(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        let booted = self.booted()?;
        let _content = self.extensions_content(root, change, &booted)?;
        if change.image.is_some() || change.kernel.is_some() {
            self.reset_kernel(&booted)?;
        }
        if let Some(image) = &change.image {
            self.update_bootloader(root, image);
            self.rebase(image)?;
        }
        self.change_kernel_arguments(change)?;
        if let Some(KernelSwap::Replace { remove, install }) = &change.kernel {
            let mut arguments = vec!["override", "remove"];
            arguments.extend(remove.iter().map(String::as_str));
            arguments.extend(install.iter().flat_map(|package| ["--install", package]));
            self.run(&arguments)?;
        }
        self.change_packages(change)
    }

    /// Provides the extension packages. They must be available while any of them is layered, even if they do not
    /// change.
    fn extensions_content<'a>(
        &'a self,
        root: &'a Root,
        change: &OsChange,
        booted: &RpmOstreeDeployment,
    ) -> Result<Option<ExtensionsContent<'a>>, OsError> {
        let layered = !booted.requested_packages.is_empty() && change.image.is_some();
        match &change.packages_image {
            Some(image) if layered || change.touches_packages() => Ok(Some(
                Podman::new(Arc::clone(&self.commands)).extract_extensions(root, image)?,
            )),
            _ => Ok(None),
        }
    }

    /// Resets a replaced kernel, which cannot be carried over to another image. It is detected by both its parts.
    fn reset_kernel(&self, booted: &RpmOstreeDeployment) -> Result<(), OsError> {
        let removals: Vec<&str> = booted
            .requested_base_removals
            .iter()
            .map(String::as_str)
            .filter(|package| *package == "kernel" || package.starts_with("kernel-"))
            .collect();
        let layered: Vec<&str> = booted
            .requested_packages
            .iter()
            .map(String::as_str)
            .filter(|package| package.starts_with("kernel-rt-") || package.starts_with("kernel-64k-"))
            .collect();
        if removals.is_empty() || layered.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["override", "reset"];
        arguments.extend(removals);
        arguments.extend(layered.into_iter().flat_map(|package| ["--uninstall", package]));
        self.run(&arguments)?;
        Ok(())
    }

    /// Updates the boot loader. A failure is logged and ignored: most images boot with the existing loader.
    fn update_bootloader(&self, root: &Root, image: &str) {
        match bootloader::update(&self.commands, root, image) {
            Ok(done) => tracing::debug!(?done, "boot loader update finished"),
            Err(error) => tracing::warn!(%error, "could not update the boot loader"),
        }
    }

    fn rebase(&self, image: &str) -> Result<(), OsError> {
        let local = Podman::new(Arc::clone(&self.commands)).local_digest(image);
        let source = match local {
            Some(digest) => format!("ostree-unverified-image:containers-storage:{digest}"),
            None => format!("ostree-unverified-registry:{image}"),
        };
        self.run(&["rebase", "--experimental", &source])?;
        Ok(())
    }

    fn change_kernel_arguments(&self, change: &OsChange) -> Result<(), OsError> {
        let deletions = change
            .delete_kernel_arguments
            .iter()
            .map(|it| format!("--delete-if-present={it}"));
        let additions = change
            .append_kernel_arguments
            .iter()
            .map(|it| format!("--append={it}"));
        let options: Vec<String> = deletions.chain(additions).collect();
        if !options.is_empty() {
            let mut arguments = vec!["kargs"];
            arguments.extend(options.iter().map(String::as_str));
            self.run(&arguments)?;
        }
        Ok(())
    }

    fn change_packages(&self, change: &OsChange) -> Result<(), OsError> {
        if change.install_packages.is_empty() && change.uninstall_packages.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["update"];
        arguments.extend(
            change
                .install_packages
                .iter()
                .flat_map(|package| ["--install", package]),
        );
        arguments.extend(
            change
                .uninstall_packages
                .iter()
                .flat_map(|package| ["--uninstall", package]),
        );
        self.run(&arguments)?;
        let staged = self
            .status()?
            .deployments
            .into_iter()
            .find(|deployment| deployment.staged);
        let staged = staged.ok_or_else(|| OsError::Incomplete("altogether".to_owned()))?;
        let missing: Vec<&str> = change
            .install_packages
            .iter()
            .filter(|package| !staged.requested_packages.contains(package))
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(OsError::Incomplete(missing.join(", ")))
        }
    }
}

impl OperatingSystem for RpmOstree {
    fn backend(&self) -> OsBackend {
        OsBackend::RpmOstree
    }

    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(finalization::failure(self.commands.as_ref())?)
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        let booted = self.booted()?;
        Ok(OsState {
            image: booted.image(),
            kernel_arguments: booted_kernel_arguments(root)?,
            packages: booted.requested_packages,
            removed_packages: booted.requested_base_removals,
        })
    }

    fn check(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        self.booted().map(|_| ())
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.run(&["cleanup", "-p"])?;
        self.stage_steps(root, change).inspect_err(|_| {
            // The original failure matters more than a second one during cleanup; the next attempt starts with the same
            // cleanup.
            let _ = self.run(&["cleanup", "-p"]);
        })
    }

    fn discard(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        self.run(&["cleanup", "-p"])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    const STATUS: &str = include_str!("fixtures/rpm-ostree-status.json");
    const STAGED: &str = include_str!("fixtures/rpm-ostree-status-staged.json");

    fn system(status: &str) -> (Arc<Recorded>, RpmOstree, tempfile::TempDir, Root) {
        let recorded = Arc::new(Recorded::answering(&[
            ("rpm-ostree", ""),
            ("rpm-ostree status --json", status),
        ]));
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("proc")).unwrap();
        std::fs::write(
            directory.path().join("proc/cmdline"),
            "BOOT_IMAGE=x ro a=\"b c\" nosmt\n",
        )
        .unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (
            Arc::clone(&recorded),
            RpmOstree::new(Arc::new(recorded)),
            directory,
            root,
        )
    }

    #[test]
    fn the_booted_deployment_is_read() {
        let (_, system, _guard, root) = system(STATUS);
        let state = system.state(&root).unwrap();
        assert_eq!(state.image.as_deref(), Some("quay.io/openshift/os@sha256:aa11"));
        assert_eq!(
            state.kernel_arguments,
            ["BOOT_IMAGE=x", "ro", "a=\"b c\"", "nosmt"]
        );
        assert_eq!(state.packages, ["kernel-rt-core", "kernel-rt-modules", "sysstat"]);
    }

    #[test]
    fn kernel_arguments_are_deleted_and_appended_in_one_command() {
        let (recorded, system, _guard, root) = system(STATUS);
        let change = OsChange {
            delete_kernel_arguments: vec!["foo".to_owned(), "hello=world".to_owned()],
            append_kernel_arguments: vec!["hello=world".to_owned()],
            ..OsChange::default()
        };
        system.stage(&root, &change).unwrap();
        assert_eq!(
            recorded.invocations(),
            [
                "rpm-ostree cleanup -p",
                "rpm-ostree status --json",
                "rpm-ostree kargs --delete-if-present=foo --delete-if-present=hello=world --append=hello=world",
            ]
        );
    }

    #[test]
    fn a_new_image_first_undoes_the_swapped_kernel() {
        let (recorded, system, _guard, root) = system(STATUS);
        let change = OsChange {
            image: Some("quay.io/openshift/os@sha256:bb22".to_owned()),
            kernel: Some(KernelSwap::Replace {
                remove: vec!["kernel".to_owned(), "kernel-core".to_owned()],
                install: vec!["kernel-rt-core".to_owned()],
            }),
            ..OsChange::default()
        };
        system.stage(&root, &change).unwrap();
        let asked = recorded.invocations();
        assert_eq!(
            asked
                .iter()
                .filter(|it| it.starts_with("rpm-ostree") && !it.contains("status"))
                .collect::<Vec<_>>(),
            [
                "rpm-ostree cleanup -p",
                "rpm-ostree override reset kernel kernel-core --uninstall kernel-rt-core --uninstall kernel-rt-modules",
                "rpm-ostree rebase --experimental ostree-unverified-registry:quay.io/openshift/os@sha256:bb22",
                "rpm-ostree override remove kernel kernel-core --install kernel-rt-core",
            ]
        );
    }

    #[test]
    fn packages_must_be_in_the_staged_deployment() {
        let (_, system, _guard, root) = system(STAGED);
        let wants = |package: &str| OsChange {
            install_packages: vec![package.to_owned()],
            ..OsChange::default()
        };
        system.stage(&root, &wants("usbguard")).unwrap();
        let error = system.stage(&root, &wants("pacemaker")).unwrap_err();
        assert_eq!(error.to_string(), "staged deployment is missing pacemaker");
    }

    #[test]
    fn a_failed_rebase_leaves_nothing_staged() {
        let recorded = Arc::new(
            Recorded::answering(&[("rpm-ostree", ""), ("rpm-ostree status --json", STATUS)]).failing(
                "rpm-ostree rebase --experimental ostree-unverified-registry:bad",
                1,
                "error: manifest unknown",
            ),
        );
        let system = RpmOstree::new(Arc::new(Arc::clone(&recorded)));
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let change = OsChange {
            image: Some("bad".to_owned()),
            ..OsChange::default()
        };
        let error = system.stage(&root, &change).unwrap_err().to_string();
        assert!(error.contains("manifest unknown"), "{error}");
        assert_eq!(recorded.invocations().last().unwrap(), "rpm-ostree cleanup -p");
    }
}
