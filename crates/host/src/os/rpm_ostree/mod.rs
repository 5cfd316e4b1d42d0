//! `rpm-ostree`: images, layered packages and kernel arguments of ostree systems.

mod old_host;
mod pivot_arguments;
mod status;

use std::sync::Arc;

use super::podman::{ExtensionsContent, LocalImage, Podman};
use super::retry::{REBASE, Sleeper, ThreadSleeper};
use super::{
    KernelSwap, OperatingSystem, OsBackend, OsChange, OsError, OsHold, OsState, StagedDeployment,
    booted_kernel_arguments, bootloader, credentials, finalization, image, lock, policy, preflight,
};
use crate::command::{CommandError, Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};
use status::{RpmOstreeDeployment, RpmOstreeStatus};

const PROGRAM: &str = "rpm-ostree";
const SERVICE: &str = "rpm-ostreed.service";
const PROXY_DROP_IN: &str = "10-mco-proxy.conf";
const DROP_INS: &str = "/run/systemd/system/rpm-ostreed.service.d";
/// Without it the service cannot read files of the machine that a local image needs.
const SANDBOX_DROP_IN: (&str, &str) = ("bug2111817.conf", "[Service]\nInaccessiblePaths=\n");

#[derive(Debug)]
pub struct RpmOstree {
    commands: Arc<dyn Commands>,
    sleeper: Arc<dyn Sleeper>,
}

impl RpmOstree {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self {
            commands,
            sleeper: Arc::new(ThreadSleeper),
        }
    }

    /// Waits between retries in another way.
    #[must_use]
    pub fn with_sleeper(mut self, sleeper: Arc<dyn Sleeper>) -> Self {
        self.sleeper = sleeper;
        self
    }

    fn run(&self, arguments: &[&str]) -> Result<String, CommandError> {
        succeed(self.commands.as_ref(), PROGRAM, arguments)
    }

    fn podman(&self) -> Podman {
        Podman::new(Arc::clone(&self.commands)).with_sleeper(Arc::clone(&self.sleeper))
    }

    fn status(&self) -> Result<RpmOstreeStatus, CommandError> {
        let text = self.run(&["status", "--json"])?;
        serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: error.to_string(),
        })
    }

    fn booted(&self) -> Result<RpmOstreeDeployment, OsError> {
        booted(&self.status()?).cloned()
    }

    fn stage_steps(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        let booted = self.booted()?;
        let _content = self.extensions_content(root, change, &booted)?;
        if change.image.is_some() || change.kernel.is_some() {
            self.reset_kernel(&booted)?;
        }
        if let Some(image) = &change.image {
            self.update_bootloader(root, image);
            self.deploy(root, image, change.first_boot)?;
        }
        self.change_kernel_arguments(change)?;
        if let Some(KernelSwap::Replace { remove, install }) = &change.kernel {
            let mut arguments = vec!["override", "remove"];
            arguments.extend(remove.iter().map(String::as_str));
            arguments.extend(install.iter().flat_map(|package| ["--install", package]));
            self.run(&arguments)?;
        }
        self.change_packages(change)?;
        self.kargs(&pivot_arguments::options(root)?)
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
            Some(image) if layered || change.touches_packages() => {
                Ok(Some(self.podman().extract_extensions(root, image)?))
            }
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

    /// Deploys an image: from the local container storage if it is there, otherwise from its registry.
    fn deploy(&self, root: &Root, image: &str, first_boot: bool) -> Result<(), OsError> {
        if old_host::is_needed(self.commands.as_ref(), root, image, first_boot)? {
            return old_host::deploy(&self.commands, root, image);
        }
        credentials::link(root)?;
        if let Some(local) = self.podman().local_image(image) {
            match self.rebase_to_local(root, &local) {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "the local copy cannot be used; its registry is"),
            }
        }
        let source = format!("ostree-unverified-registry:{image}");
        REBASE.run(&self.sleeper, || self.run(&["rebase", "--experimental", &source]))?;
        Ok(())
    }

    fn rebase_to_local(&self, root: &Root, local: &LocalImage) -> Result<(), OsError> {
        let _policy = policy::accept_local(root, &self.commands, local)?;
        let source = format!("ostree-unverified-image:containers-storage:{}", local.reference);
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
        self.kargs(&deletions.chain(additions).collect::<Vec<_>>())
    }

    fn kargs(&self, options: &[String]) -> Result<(), OsError> {
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
        let install = change.install_packages.iter();
        arguments.extend(install.flat_map(|package| ["--install", package]));
        let uninstall = change.uninstall_packages.iter();
        arguments.extend(uninstall.flat_map(|package| ["--uninstall", package]));
        self.run(&arguments)?;
        Ok(())
    }

    /// Replaces what is staged by a change.
    fn restage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.run(&["cleanup", "-p"])?;
        if change.is_plain_boot() {
            return Ok(());
        }
        self.stage_steps(root, change)
            .and_then(|()| self.verify_staged(root, change).map(|_| ()))
            .inspect_err(|_| {
                // The original failure matters more than a second one during cleanup; the next attempt starts with the
                // same cleanup.
                let _ = self.run(&["cleanup", "-p"]);
            })
    }

    fn write_drop_ins(&self, root: &Root) -> Result<(), OsError> {
        let sandbox = write_drop_in(root, SANDBOX_DROP_IN.0, Some(SANDBOX_DROP_IN.1), 0o644)?;
        // Its hash covers the credentials of the proxy.
        let proxy = credentials::proxy_drop_in(root)?;
        let proxy = write_drop_in(root, PROXY_DROP_IN, proxy.as_deref(), 0o600)?;
        if sandbox || proxy {
            succeed(self.commands.as_ref(), "systemctl", &["daemon-reload"])?;
        }
        if proxy {
            // A service that runs has the environment of its start.
            succeed(self.commands.as_ref(), "systemctl", &["try-restart", SERVICE])?;
        }
        Ok(())
    }
}

/// Writes a drop-in of the service, or removes it without a text. Returns whether it differed.
fn write_drop_in(root: &Root, name: &str, text: Option<&str>, mode: u32) -> Result<bool, OsError> {
    let path = RootedPath::new(&format!("{DROP_INS}/{name}")).map_err(FsError::from)?;
    if root.read_text(&path, 64 << 10)?.as_deref() == text {
        return Ok(false);
    }
    let Some(text) = text else {
        root.remove_file(&path)?;
        return Ok(true);
    };
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(&path, Attributes::root(mode), text.as_bytes())?;
    Ok(true)
}

fn booted(status: &RpmOstreeStatus) -> Result<&RpmOstreeDeployment, OsError> {
    Ok(status.booted().ok_or_else(|| CommandError::Unexpected {
        command: format!("{PROGRAM} status --json"),
        why: "no deployment is booted".to_owned(),
    })?)
}

impl OperatingSystem for RpmOstree {
    fn backend(&self) -> OsBackend {
        OsBackend::RpmOstree
    }

    fn prepare(&self, root: &Root) -> Result<(), OsError> {
        policy::remove(root, self.commands.as_ref())?;
        self.write_drop_ins(root)?;
        credentials::link(root)
    }

    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(finalization::failure(self.commands.as_ref())?)
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        let status = self.status()?;
        let booted = booted(&status)?;
        Ok(OsState {
            image: booted.image(),
            digest: booted.digest(),
            kernel_arguments: booted_kernel_arguments(root)?,
            packages: booted.requested_packages.clone(),
            removed_packages: booted.requested_base_removals.clone(),
            local_changes: booted.local_changes(),
            staged: status.pending().map(RpmOstreeDeployment::described),
            rollback: status.rollback().map(RpmOstreeDeployment::described),
        })
    }

    fn check(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        self.booted().map(|_| ())
    }

    fn preflight(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match &change.image {
            Some(image) if self.podman().local_image(image).is_none() => {
                preflight::check(self.commands.as_ref(), root, image)
            }
            _ => Ok(()),
        }
    }

    fn stages_ahead(&self) -> bool {
        true
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.restage(root, change)
    }

    fn verify_staged(&self, _: &Root, change: &OsChange) -> Result<StagedDeployment, OsError> {
        if change.is_plain_boot() {
            return Ok(StagedDeployment::default());
        }
        let status = self.status()?;
        let staged = status
            .pending()
            .ok_or_else(|| OsError::Incomplete("altogether".to_owned()))?;
        if let Some(wanted) = &change.image
            && !image::is_deployed(staged.image().as_deref(), staged.digest().as_deref(), wanted)
        {
            return Err(OsError::Incomplete(format!("image {wanted}")));
        }
        let kernel = match &change.kernel {
            Some(KernelSwap::Replace { install, .. }) => install.as_slice(),
            Some(KernelSwap::Reset) | None => &[],
        };
        let wanted = change.install_packages.iter().chain(kernel);
        let missing: Vec<&str> = wanted
            .filter(|package| !staged.requested_packages.contains(package))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Err(OsError::Incomplete(missing.join(", ")));
        }
        let staged = staged.described();
        Ok(StagedDeployment {
            checksum: Some(staged.checksum),
            digest: staged.digest,
        })
    }

    fn hold(&self, root: &Root, hold: OsHold) -> Result<(), OsError> {
        lock::set(root, hold)
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        if let Some(replaced) = &change.replaces {
            return self.restage(root, replaced);
        }
        self.run(&["cleanup", "-p"])?;
        Ok(())
    }

    fn roll_back(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        self.run(&["rollback"])?;
        Ok(())
    }

    fn remove_rollback(&self, _: &Root) -> Result<(), OsError> {
        if self.status()?.rollback().is_some() {
            self.run(&["cleanup", "-r"])?;
        }
        Ok(())
    }

    fn absent_packages(&self, _: &Root, packages: &[&str]) -> Result<Vec<String>, OsError> {
        let mut absent = Vec::new();
        for package in packages {
            let output = self.commands.run("rpm", &["-q", package])?;
            match output.code {
                Some(0) => {}
                Some(1) => absent.push((*package).to_owned()),
                code => {
                    return Err(OsError::Command(CommandError::Failed {
                        command: format!("rpm -q {package}"),
                        code,
                        complaint: output.stderr.trim().to_owned(),
                    }));
                }
            }
        }
        Ok(absent)
    }
}

#[cfg(test)]
mod tests;
