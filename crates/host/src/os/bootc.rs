//! `bootc`: OS images of systems that boot from container images.

use std::sync::Arc;

use serde::Deserialize;

use super::{OperatingSystem, OsBackend, OsChange, OsError, OsState, booted_kernel_arguments, finalization};
use crate::command::{CommandError, Commands, succeed};
use crate::root::Root;

const PROGRAM: &str = "bootc";

#[derive(Debug)]
pub struct Bootc {
    commands: Arc<dyn Commands>,
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
}

#[derive(Debug, Deserialize)]
struct Boot {
    image: Option<BootImage>,
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

impl BootImage {
    /// Returns the reference by digest, which identifies what runs; a tag may have moved.
    fn pinned(&self) -> String {
        let name = self.image.image.split('@').next().unwrap_or_default();
        let name = match name.rfind(':') {
            Some(at) if !name[at..].contains('/') => &name[..at],
            _ => name,
        };
        format!("{name}@{}", self.image_digest)
    }
}

impl Bootc {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    pub(super) fn responds(&self) -> bool {
        self.status().is_ok_and(|status| status.booted.is_some())
    }

    fn status(&self) -> Result<HostStatus, CommandError> {
        let text = succeed(self.commands.as_ref(), PROGRAM, &["status", "--json"])?;
        let host: BootcHost = serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
            command: format!("{PROGRAM} status --json"),
            why: error.to_string(),
        })?;
        Ok(host.status)
    }

    fn booted_image(&self) -> Result<Option<BootImage>, CommandError> {
        Ok(self.status()?.booted.and_then(|boot| boot.image))
    }
}

impl OperatingSystem for Bootc {
    fn backend(&self) -> OsBackend {
        OsBackend::Bootc
    }

    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(finalization::failure(self.commands.as_ref())?)
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        Ok(OsState {
            image: self.booted_image()?.map(|image| image.pinned()),
            kernel_arguments: booted_kernel_arguments(root)?,
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
        if !(change.append_kernel_arguments.is_empty() && change.delete_kernel_arguments.is_empty()) {
            return Err(OsError::Unsupported {
                what: "kernel arguments",
                why,
            });
        }
        Ok(())
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.check(root, change)?;
        if let Some(image) = &change.image {
            succeed(
                self.commands.as_ref(),
                PROGRAM,
                &["switch", "--quiet", "--", image],
            )?;
        }
        Ok(())
    }

    /// bootc has no command to discard a staged image; switching back to the booted one replaces it.
    fn discard(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        let status = self.status()?;
        if status.staged.is_none() {
            return Ok(());
        }
        if let Some(image) = status.booted.and_then(|boot| boot.image) {
            succeed(
                self.commands.as_ref(),
                PROGRAM,
                &["switch", "--quiet", "--", &image.pinned()],
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    #[test]
    fn images_are_switched_and_the_rest_is_refused() {
        let status = include_str!("fixtures/bootc-status.json");
        let recorded = Arc::new(Recorded::answering(&[
            ("bootc", ""),
            ("bootc status --json", status),
        ]));
        let system = Bootc::new(Arc::new(Arc::clone(&recorded)));
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let state = system.state(&root).unwrap();
        assert_eq!(
            state.image.as_deref(),
            Some("quay.io/fedora/fedora-bootc@sha256:cc33")
        );

        let image = OsChange {
            image: Some("quay.io/x:2".to_owned()),
            ..OsChange::default()
        };
        system.stage(&root, &image).unwrap();
        assert_eq!(
            recorded.invocations().last().unwrap(),
            "bootc switch --quiet -- quay.io/x:2"
        );

        let arguments = OsChange {
            append_kernel_arguments: vec!["nosmt".to_owned()],
            ..OsChange::default()
        };
        let error = system.check(&root, &arguments).unwrap_err().to_string();
        assert_eq!(
            error,
            "kernel arguments cannot be changed on this machine: it boots from a container image; build the change \
             into the image"
        );
    }
}
