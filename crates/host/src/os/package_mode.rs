//! Package-based distributions: files, units and keys are managed; of the OS itself only kernel arguments, and those
//! only where the boot loader supports it.

use std::sync::Arc;

use super::grub::{Grub, Tool};
use super::{OperatingSystem, OsBackend, OsChange, OsError, OsState, booted_kernel_arguments};
use crate::command::Commands;
use crate::root::Root;

#[derive(Debug)]
pub struct PackageMode {
    grub: Grub,
}

impl PackageMode {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self {
            grub: Grub::new(commands),
        }
    }

    fn tool_for(&self, change: &OsChange) -> Result<Option<Tool>, OsError> {
        if change.append_kernel_arguments.is_empty() && change.delete_kernel_arguments.is_empty() {
            return Ok(None);
        }
        let why = || {
            "neither grubby nor update-grub is installed; set the arguments in the boot loader by hand and \
                      remove them from the configuration"
                .to_owned()
        };
        match self.grub.tool() {
            Some(tool) => Ok(Some(tool)),
            None => Err(OsError::Unsupported {
                what: "kernel arguments",
                why: why(),
            }),
        }
    }
}

impl OperatingSystem for PackageMode {
    fn backend(&self) -> OsBackend {
        OsBackend::PackageMode
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        Ok(OsState {
            kernel_arguments: booted_kernel_arguments(root)?,
            ..OsState::default()
        })
    }

    /// Accepts an image, because every rendered config has one; it is ignored here.
    fn check(&self, _: &Root, change: &OsChange) -> Result<(), OsError> {
        if change.touches_packages() {
            return Err(OsError::Unsupported {
                what: "packages and kernels",
                why: "it does not boot from an image; use its own package manager".to_owned(),
            });
        }
        self.tool_for(change).map(|_| ())
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.check(root, change)?;
        match self.tool_for(change)? {
            Some(tool) => self.grub.apply(root, tool, change).inspect_err(|_| {
                // As with every staged change, the first failure is the one to report.
                let _ = self.grub.undo(root, tool, change);
            }),
            None => Ok(()),
        }
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match self.tool_for(change)? {
            Some(tool) => self.grub.undo(root, tool, change),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    fn change() -> OsChange {
        OsChange {
            image: Some("quay.io/os@sha256:1".to_owned()),
            delete_kernel_arguments: vec!["a".to_owned()],
            append_kernel_arguments: vec!["a".to_owned(), "b=\"c d\"".to_owned()],
            ..OsChange::default()
        }
    }

    fn system(programs: &[&str]) -> (Arc<Recorded>, PackageMode, tempfile::TempDir, Root) {
        let answers: Vec<(&str, &str)> = programs.iter().map(|program| (*program, "")).collect();
        let recorded = Arc::new(Recorded::answering(&answers));
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (
            Arc::clone(&recorded),
            PackageMode::new(Arc::new(recorded)),
            directory,
            root,
        )
    }

    #[test]
    fn grubby_changes_all_boot_entries() {
        let (recorded, system, _guard, root) = system(&["grubby"]);
        system.stage(&root, &change()).unwrap();
        assert_eq!(
            recorded.invocations().last().unwrap(),
            "grubby --update-kernel=ALL --remove-args=a --args=a b=\"c d\""
        );
        system.discard(&root, &change()).unwrap();
        assert_eq!(
            recorded.invocations().last().unwrap(),
            "grubby --update-kernel=ALL --remove-args=a b=\"c d\" --args=a"
        );
    }

    #[test]
    fn update_grub_reads_a_file_of_ours() {
        let (recorded, system, guard, root) = system(&["update-grub"]);
        system.stage(&root, &change()).unwrap();
        let file = guard.path().join("etc/default/grub.d/99-machine-config.cfg");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX \"'a b=\"c d\"'\n");
        assert_eq!(recorded.invocations().last().unwrap(), "update-grub");
        let none = OsChange {
            delete_kernel_arguments: vec!["a".to_owned()],
            ..OsChange::default()
        };
        system.stage(&root, &none).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn without_a_known_boot_loader_kernel_arguments_are_refused() {
        let (_, system, _guard, root) = system(&[]);
        let error = system.stage(&root, &change()).unwrap_err().to_string();
        assert!(
            error.starts_with("kernel arguments cannot be changed on this machine: neither grubby"),
            "{error}"
        );
        let only_image = OsChange {
            image: Some("x".to_owned()),
            ..OsChange::default()
        };
        system.stage(&root, &only_image).unwrap();
    }
}
