//! `kernel-install`: boot entries of systemd-boot and of other loaders that follow the Boot Loader Specification.
//!
//! The entries of all kernels, also of those installed later, have the arguments in `/etc/kernel/cmdline`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{OsError, split_kernel_arguments};
use crate::command::{Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

const COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// See [`OriginalCommandLine`].
const ORIGINAL: &str = "/etc/machine-config-daemon/kernel-cmdline.orig";
/// Used without a file of the administrator, in this order.
const DEFAULTS: [&str; 2] = ["/usr/lib/kernel/cmdline", "/proc/cmdline"];
/// Added by the boot loader, not by the entry.
const BY_LOADER: [&str; 2] = ["BOOT_IMAGE=", "initrd="];
const ENTRIES: [&str; 3] = [
    "/boot/loader/entries",
    "/efi/loader/entries",
    "/boot/efi/loader/entries",
];
const MODULES: &str = "/usr/lib/modules";
const LARGEST: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct BootEntries {
    commands: Arc<dyn Commands>,
}

impl BootEntries {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    /// Returns whether a boot loader reads such entries. The program alone is part of every systemd.
    pub fn are_used(root: &Root) -> Result<bool, OsError> {
        for directory in ENTRIES {
            if root.exists(&path(directory)?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the arguments of a config, in place of those of the previous one.
    pub fn set(&self, root: &Root, arguments: &[String]) -> Result<(), OsError> {
        let (file, record) = (path(COMMAND_LINE)?, path(ORIGINAL)?);
        let known = root.read(&record, LARGEST)?;
        let known: Option<OriginalCommandLine> = known.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if arguments.is_empty() {
            restore(root, &file, &record, known)?;
        } else {
            let original = match known {
                Some(original) => original,
                None => keep(root, &file, &record)?,
            };
            let all: Vec<&str> = original
                .arguments
                .iter()
                .chain(arguments)
                .map(String::as_str)
                .collect();
            create_parent(root, &file)?;
            let text = format!("{}\n", all.join(" "));
            root.write_atomically(&file, Attributes::root(0o644), text.as_bytes())?;
        }
        self.write_entries(root)
    }

    /// Writes the entries of all installed kernels again.
    fn write_entries(&self, root: &Root) -> Result<(), OsError> {
        let all = succeed(self.commands.as_ref(), "kernel-install", &["add-all"]);
        let Err(error) = all else {
            return Ok(());
        };
        tracing::debug!(%error, "kernel-install is older than `add-all`");
        for version in root.list(&path(MODULES)?)? {
            let image = format!("{MODULES}/{version}/vmlinuz");
            let image = if root.exists(&path(&image)?)? {
                image
            } else {
                format!("/boot/vmlinuz-{version}")
            };
            if root.exists(&path(&image)?)? {
                succeed(
                    self.commands.as_ref(),
                    "kernel-install",
                    &["add", &version, &image],
                )?;
            }
        }
        Ok(())
    }
}

/// The arguments before the first change.
#[derive(Debug, Serialize, Deserialize)]
struct OriginalCommandLine {
    /// The administrator's file, if there was one.
    file: Option<String>,
    arguments: Vec<String>,
}

/// Records the arguments before the first change.
fn keep(root: &Root, file: &RootedPath, record: &RootedPath) -> Result<OriginalCommandLine, OsError> {
    let text = root.read_text(file, LARGEST)?;
    let original = OriginalCommandLine {
        arguments: match &text {
            Some(text) => split_kernel_arguments(text),
            None => defaults(root)?,
        },
        file: text,
    };
    create_parent(root, record)?;
    let text = serde_json::to_vec(&original).unwrap_or_default();
    root.write_atomically(record, Attributes::root(0o600), &text)?;
    Ok(original)
}

/// Puts the administrator's file back as it was.
fn restore(
    root: &Root,
    file: &RootedPath,
    record: &RootedPath,
    original: Option<OriginalCommandLine>,
) -> Result<(), OsError> {
    match original {
        Some(OriginalCommandLine { file: Some(text), .. }) => {
            root.write_atomically(file, Attributes::root(0o644), text.as_bytes())?;
        }
        Some(OriginalCommandLine { file: None, .. }) => {
            root.remove_file(file)?;
        }
        None => {}
    }
    root.remove_file(record)?;
    Ok(())
}

/// Returns the arguments of a machine without the administrator's file.
fn defaults(root: &Root) -> Result<Vec<String>, OsError> {
    for file in DEFAULTS {
        if let Some(text) = root.read_text(&path(file)?, LARGEST)? {
            let by_loader = |argument: &String| BY_LOADER.iter().any(|prefix| argument.starts_with(prefix));
            let arguments = split_kernel_arguments(&text);
            return Ok(arguments
                .into_iter()
                .filter(|argument| !by_loader(argument))
                .collect());
        }
    }
    Ok(Vec::new())
}

fn create_parent(root: &Root, path: &RootedPath) -> Result<(), OsError> {
    match path.parent() {
        Some(parent) => Ok(root.create_directories(&parent, Attributes::root(0o755))?),
        None => Ok(()),
    }
}

fn path(path: &str) -> Result<RootedPath, OsError> {
    Ok(RootedPath::new(path).map_err(FsError::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    fn machine(file: Option<&str>) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for path in [
            "boot/loader/entries",
            "etc/kernel",
            "proc",
            "usr/lib/modules/6.1.0",
        ] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        std::fs::write(directory.path().join("usr/lib/modules/6.1.0/vmlinuz"), "").unwrap();
        std::fs::write(
            directory.path().join("proc/cmdline"),
            "initrd=\\x root=UUID=1 ro\n",
        )
        .unwrap();
        if let Some(text) = file {
            std::fs::write(directory.path().join("etc/kernel/cmdline"), text).unwrap();
        }
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    fn owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn arguments_join_those_of_the_administrator_and_leave_no_trace_when_they_go() {
        for (original, with_ours) in [
            (None, "root=UUID=1 ro nosmt a=\"b c\"\n"),
            (
                Some("root=LABEL=r   quiet\n"),
                "root=LABEL=r quiet nosmt a=\"b c\"\n",
            ),
        ] {
            let (directory, root) = machine(original);
            let recorded = Arc::new(Recorded::answering(&[("kernel-install", "")]));
            let entries = BootEntries::new(Arc::new(Arc::clone(&recorded)));
            let file = directory.path().join("etc/kernel/cmdline");
            entries.set(&root, &owned(&["nosmt", "a=\"b c\""])).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), with_ours);
            // After the boot the running kernel has them too.
            std::fs::write(
                directory.path().join("proc/cmdline"),
                "root=UUID=1 ro nosmt a=\"b c\"",
            )
            .unwrap();
            entries.set(&root, &owned(&["nosmt"])).unwrap();
            entries.set(&root, &[]).unwrap();
            assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), original);
            assert!(
                !directory
                    .path()
                    .join("etc/machine-config-daemon/kernel-cmdline.orig")
                    .exists()
            );
            assert_eq!(recorded.invocations(), ["kernel-install add-all"; 3]);
        }
    }

    #[test]
    fn an_old_kernel_install_adds_each_kernel() {
        let (_directory, root) = machine(None);
        let recorded = Arc::new(Recorded::answering(&[("kernel-install", "")]).failing(
            "kernel-install add-all",
            1,
            "Unknown verb",
        ));
        let entries = BootEntries::new(Arc::new(Arc::clone(&recorded)));
        assert!(BootEntries::are_used(&root).unwrap());
        entries.set(&root, &owned(&["nosmt"])).unwrap();
        assert_eq!(
            recorded.invocations(),
            [
                "kernel-install add-all",
                "kernel-install add 6.1.0 /usr/lib/modules/6.1.0/vmlinuz"
            ]
        );
    }

    #[test]
    fn a_machine_without_entries_does_not_use_them() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        assert!(!BootEntries::are_used(&root).unwrap());
    }
}
