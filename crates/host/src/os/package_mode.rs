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

    fn tool_for(&self, root: &Root, change: &OsChange) -> Result<Option<Tool>, OsError> {
        if !change.touches_kernel_arguments() {
            return Ok(None);
        }
        let tool = self.grub.tool(root)?;
        tool.map(Some).ok_or_else(|| OsError::Unsupported {
            what: "kernel arguments",
            why: "neither grubby, update-grub nor kernel-install with boot entries is installed; set the arguments in the \
                  boot loader by hand and remove them from the configuration"
                .to_owned(),
        })
    }

    fn apply(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match self.tool_for(root, change)? {
            Some(tool) => self.grub.apply(root, tool, change).inspect_err(|_| {
                // As with every staged change, the first failure is the one to report.
                let _ = self.grub.undo(root, tool, change);
            }),
            None => Ok(()),
        }
    }

    fn undo(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        match self.tool_for(root, change)? {
            Some(tool) => self.grub.undo(root, tool, change),
            None => Ok(()),
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

    /// Accepts an image, because every rendered config has one; it is ignored here. The daemon refuses one that was built
    /// for the pool before.
    fn check(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        if change.touches_packages() {
            return Err(OsError::Unsupported {
                what: "packages and kernels",
                why: "it does not boot from an image; use its own package manager".to_owned(),
            });
        }
        self.tool_for(root, change).map(|_| ())
    }

    /// A boot loader has no staged state: a change that another one replaces is undone first.
    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.check(root, change)?;
        if let Some(replaced) = &change.replaces {
            self.undo(root, replaced)?;
        }
        self.apply(root, change)
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.undo(root, change)?;
        match &change.replaces {
            Some(replaced) => self.apply(root, replaced),
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
        // As grub-mkconfig reads it, in a real shell.
        let script = format!(
            "GRUB_CMDLINE_LINUX=quiet; . '{}'; printf %s \"$GRUB_CMDLINE_LINUX\"",
            file.display()
        );
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&shell.stdout), "quiet a b=\"c d\"");
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
    fn a_second_change_before_the_boot_starts_from_what_is_booted() {
        let (recorded, system, _guard, root) = system(&["grubby"]);
        let pending = change();
        let second = OsChange {
            delete_kernel_arguments: vec!["a".to_owned()],
            append_kernel_arguments: vec!["x".to_owned()],
            replaces: Some(Box::new(pending)),
            ..OsChange::default()
        };
        system.stage(&root, &second).unwrap();
        system.discard(&root, &second).unwrap();
        let changes: Vec<String> = recorded.invocations();
        let changes: Vec<&String> = changes.iter().filter(|it| it.contains("--update")).collect();
        assert_eq!(
            changes,
            [
                "grubby --update-kernel=ALL --remove-args=a b=\"c d\" --args=a",
                "grubby --update-kernel=ALL --remove-args=a --args=x",
                "grubby --update-kernel=ALL --remove-args=x --args=a",
                "grubby --update-kernel=ALL --remove-args=a --args=a b=\"c d\"",
            ]
        );
    }

    #[test]
    fn boot_entries_are_written_where_a_loader_reads_them() {
        let (recorded, system, guard, root) = system(&["kernel-install"]);
        assert!(system.stage(&root, &change()).is_err(), "no loader reads them");
        std::fs::create_dir_all(guard.path().join("efi/loader/entries")).unwrap();
        system.stage(&root, &change()).unwrap();
        let text = std::fs::read_to_string(guard.path().join("etc/kernel/cmdline")).unwrap();
        assert_eq!(text, "a b=\"c d\"\n");
        assert_eq!(recorded.invocations().last().unwrap(), "kernel-install add-all");
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
