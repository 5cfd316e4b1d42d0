//! Boot loaders of package-mode systems: `grubby` if installed, otherwise `update-grub` with a configuration file of
//! ours, otherwise `kernel-install` where boot entries are used.

use std::sync::Arc;

use super::bls::BootEntries;
use super::{OsChange, OsError, is_installed};
use crate::command::{Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

/// Read after the distribution's own files, because of its number.
const GRUB_FILE: &str = "/etc/default/grub.d/99-machine-config.cfg";
const GRUB_DIRECTORY: &str = "/etc/default/grub.d";

#[derive(Debug)]
pub(super) struct Grub {
    commands: Arc<dyn Commands>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Grubby,
    UpdateGrub,
    KernelInstall,
}

impl Grub {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    /// Returns the tool that is installed, if any.
    pub fn tool(&self, root: &Root) -> Result<Option<Tool>, OsError> {
        let installed = |program| is_installed(self.commands.as_ref(), program);
        Ok(if installed("grubby") {
            Some(Tool::Grubby)
        } else if installed("update-grub") {
            Some(Tool::UpdateGrub)
        } else if BootEntries::are_used(root)? && installed("kernel-install") {
            Some(Tool::KernelInstall)
        } else {
            None
        })
    }

    fn entries(&self) -> BootEntries {
        BootEntries::new(Arc::clone(&self.commands))
    }

    pub fn apply(&self, root: &Root, tool: Tool, change: &OsChange) -> Result<(), OsError> {
        match tool {
            Tool::Grubby => self.grubby(&change.delete_kernel_arguments, &change.append_kernel_arguments),
            Tool::UpdateGrub => self.update_grub(root, &change.append_kernel_arguments),
            Tool::KernelInstall => self.entries().set(root, &change.append_kernel_arguments),
        }
    }

    pub fn undo(&self, root: &Root, tool: Tool, change: &OsChange) -> Result<(), OsError> {
        match tool {
            Tool::Grubby => self.grubby(&change.append_kernel_arguments, &change.delete_kernel_arguments),
            Tool::UpdateGrub => self.update_grub(root, &change.delete_kernel_arguments),
            Tool::KernelInstall => self.entries().set(root, &change.delete_kernel_arguments),
        }
    }

    fn grubby(&self, delete: &[String], append: &[String]) -> Result<(), OsError> {
        let remove = format!("--remove-args={}", delete.join(" "));
        let add = format!("--args={}", append.join(" "));
        let mut arguments = vec!["--update-kernel=ALL"];
        if !delete.is_empty() {
            arguments.push(&remove);
        }
        if !append.is_empty() {
            arguments.push(&add);
        }
        succeed(self.commands.as_ref(), "grubby", &arguments)?;
        Ok(())
    }

    /// Writes all our arguments into one file, so that old ones need not be removed one by one.
    fn update_grub(&self, root: &Root, arguments: &[String]) -> Result<(), OsError> {
        let path = RootedPath::new(GRUB_FILE).map_err(FsError::from)?;
        if arguments.is_empty() {
            root.remove_file(&path)?;
        } else {
            root.create_directories(
                &RootedPath::new(GRUB_DIRECTORY).map_err(FsError::from)?,
                Attributes::root(0o755),
            )?;
            let quoted = arguments.join(" ").replace('\'', r"'\''");
            let text = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX \"'{quoted}'\n");
            root.write_atomically(&path, Attributes::root(0o644), text.as_bytes())?;
        }
        succeed(self.commands.as_ref(), "update-grub", &[])?;
        Ok(())
    }
}
