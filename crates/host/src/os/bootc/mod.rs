//! `bootc`: OS images of systems that boot from container images.

use std::sync::Arc;

use serde::Deserialize;

use super::retry::{REBASE, Sleeper, ThreadSleeper};
use super::{
    OperatingSystem, OsBackend, OsChange, OsDeployment, OsError, OsHold, OsState, StagedDeployment,
    booted_kernel_arguments, credentials, finalization, image, lock, preflight,
};
use crate::command::{CommandError, Commands, succeed, succeed_with};
use crate::root::Root;

const PROGRAM: &str = "bootc";

#[derive(Debug)]
pub struct Bootc {
    commands: Arc<dyn Commands>,
    sleeper: Arc<dyn Sleeper>,
}

#[derive(Debug, Deserialize)]
struct BootcHost {
    status: HostStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostStatus {
    booted: Option<Boot>,
    staged: Option<Boot>,
    rollback: Option<Boot>,
}

#[derive(Debug, Deserialize)]
struct Boot {
    image: Option<BootImage>,
    #[serde(default)]
    ostree: Option<BootOstree>,
}

#[derive(Debug, Deserialize)]
struct BootOstree {
    checksum: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootImage {
    image: ImageReference,
    image_digest: String,
}

#[derive(Debug, Deserialize)]
struct ImageReference {
    image: String,
}

impl Boot {
    fn described(&self) -> OsDeployment {
        OsDeployment {
            image: self.image.as_ref().map(|image| image.image.image.clone()),
            digest: self.image.as_ref().map(|image| image.image_digest.clone()),
            checksum: self
                .ostree
                .as_ref()
                .map(|ostree| ostree.checksum.clone())
                .unwrap_or_default(),
            packages: Vec::new(),
        }
    }
}

impl Bootc {
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

    fn status(&self) -> Result<HostStatus, CommandError> {
        let text = succeed(self.commands.as_ref(), PROGRAM, &["status", "--json"])?;
        let host: BootcHost = serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: error.to_string(),
        })?;
        Ok(host.status)
    }

    fn booted(&self) -> Result<(OsDeployment, HostStatus), OsError> {
        let status = self.status()?;
        let booted = status.booted.as_ref().ok_or_else(|| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: "no deployment is booted".to_owned(),
        })?;
        Ok((booted.described(), status))
    }

    fn switch(&self, root: &Root, image: &str) -> Result<(), OsError> {
        credentials::link(root)?;
        let proxy = credentials::proxy(root)?;
        let proxy: Vec<(&str, &str)> = proxy
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let arguments = ["switch", "--quiet", "--", image];
        REBASE.run(&self.sleeper, || {
            succeed_with(self.commands.as_ref(), PROGRAM, &arguments, &proxy)
        })?;
        Ok(())
    }

    /// Removes what is staged. bootc has no command for it, but its deployments are ostree's.
    fn unstage(&self, root: &Root) -> Result<(), OsError> {
        let (booted, status) = self.booted()?;
        if status.staged.is_none() {
            return Ok(());
        }
        match succeed(self.commands.as_ref(), "ostree", &["admin", "undeploy", "0"]) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the staged deployment cannot be removed; the booted image replaces it");
                match booted.image {
                    Some(image) => self.switch(root, &image),
                    None => Err(error.into()),
                }
            }
        }
    }

    fn restage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.unstage(root)?;
        let Some(image) = &change.image else {
            return Ok(());
        };
        self.switch(root, image)
            .and_then(|()| self.verify_staged(root, change).map(|_| ()))
            .inspect_err(|_| {
                // The first failure is the one to report.
                let _ = self.unstage(root);
            })
    }
}

impl OperatingSystem for Bootc {
    fn backend(&self) -> OsBackend {
        OsBackend::Bootc
    }

    fn prepare(&self, root: &Root) -> Result<(), OsError> {
        credentials::link(root)
    }

    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(finalization::failure(self.commands.as_ref())?)
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        let (booted, status) = self.booted()?;
        Ok(OsState {
            image: booted.image,
            digest: booted.digest,
            kernel_arguments: booted_kernel_arguments(root)?,
            staged: status.staged.as_ref().map(Boot::described),
            rollback: status.rollback.as_ref().map(Boot::described),
            ..OsState::default()
        })
    }

    fn check(&self, _: &Root, change: &OsChange) -> Result<(), OsError> {
        let why = "it boots from a container image; build the change into the image".to_owned();
        if change.touches_packages() {
            return Err(OsError::Unsupported {
                what: "packages and kernels",
                why,
            });
        }
        if change.touches_kernel_arguments() {
            return Err(OsError::Unsupported {
                what: "kernel arguments",
                why: format!("{why} (a file in /usr/lib/bootc/kargs.d)"),
            });
        }
        Ok(())
    }

    fn preflight(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match &change.image {
            Some(image) => preflight::check(self.commands.as_ref(), root, image),
            None => Ok(()),
        }
    }

    fn stages_ahead(&self) -> bool {
        true
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.check(root, change)?;
        self.restage(root, change)
    }

    fn verify_staged(&self, _: &Root, change: &OsChange) -> Result<StagedDeployment, OsError> {
        let Some(wanted) = &change.image else {
            return Ok(StagedDeployment::default());
        };
        let status = self.status()?;
        let staged = status.staged.as_ref().map(Boot::described);
        let staged = staged.ok_or_else(|| OsError::Incomplete("altogether".to_owned()))?;
        if !image::is_deployed(staged.image.as_deref(), staged.digest.as_deref(), wanted) {
            return Err(OsError::Incomplete(format!("image {wanted}")));
        }
        Ok(StagedDeployment {
            checksum: Some(staged.checksum),
            digest: staged.digest,
        })
    }

    fn hold(&self, root: &Root, hold: OsHold) -> Result<(), OsError> {
        lock::set(root, hold)
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match &change.replaces {
            Some(replaced) => self.restage(root, replaced),
            None => self.unstage(root),
        }
    }

    fn roll_back(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        succeed(self.commands.as_ref(), PROGRAM, &["rollback"])?;
        Ok(())
    }

    fn remove_rollback(&self, _: &Root) -> Result<(), OsError> {
        let status = self.status()?;
        if status.rollback.is_some() {
            // Deployments are numbered in boot order: staged, booted, previous.
            let index = if status.staged.is_some() { "2" } else { "1" };
            succeed(self.commands.as_ref(), "ostree", &["admin", "undeploy", index])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
