//! Names of network interfaces across major versions of Enterprise Linux: without arguments that pin them, the next
//! major version may name interfaces differently, and the machine's network configuration no longer applies.

use thiserror::Error;
use tracing::{info, warn};

use super::kernel_arguments::split;
use super::release::OsRelease;
use crate::command::{CommandError, Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

/// Where nmstatectl writes the kernel arguments.
const DIRECTORY: &str = "/run/machine-config-daemon";
const OUTPUT: &str = "/run/machine-config-daemon/nic-kernel-arguments";
const LIMIT: u64 = 64 << 10;

#[derive(Debug, Error)]
pub enum NicNamesError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("the names of the network interfaces could not be pinned: {0}")]
    Command(#[from] CommandError),
}

/// Pins the names before an update to the next major version, and removes the pins after it. Returns the kernel
/// arguments that were changed for the next boot. Other systems are left as they are, and so are those without
/// nmstatectl.
pub fn persist_nic_names(root: &Root, commands: &dyn Commands) -> Result<Vec<String>, NicNamesError> {
    let release = OsRelease::read(root)?;
    let major = release.version_numbers().map(|(major, _)| major);
    let (mode, option): (&[&str], &str) = match major.filter(|_| release.is_enterprise_coreos()) {
        Some(9) => (&[], "--append-if-missing="),
        Some(10) => (&["--cleanup"], "--delete-if-present="),
        _ => return Ok(Vec::new()),
    };
    let directory = RootedPath::new(DIRECTORY).map_err(FsError::from)?;
    root.create_directories(&directory, Attributes::root(0o755))?;
    let output = RootedPath::new(OUTPUT).map_err(FsError::from)?;
    root.remove_file(&output)?;
    let arguments = [&["persist-nic-names", "--root", "/", "--kargs-out", OUTPUT], mode].concat();
    match succeed(commands, "nmstatectl", &arguments) {
        Ok(_) => {}
        Err(CommandError::Missing { .. }) => {
            info!("nmstatectl is not installed: names of network interfaces are not pinned");
            return Ok(Vec::new());
        }
        // A machine that has arrived works without the removal.
        Err(error) if !mode.is_empty() => {
            warn!("pinned names of network interfaces are not removed: {error}");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    }
    let found = split(&root.read_text(&output, LIMIT)?.unwrap_or_default());
    root.remove_file(&output)?;
    if found.is_empty() {
        return Ok(found);
    }
    let changes: Vec<String> = found
        .iter()
        .map(|argument| format!("{option}{argument}"))
        .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    succeed(commands, "rpm-ostree", &[&["kargs"], changes.as_slice()].concat())?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::command::CommandOutput;
    use crate::root::Ownership;

    /// nmstatectl that writes its arguments file, or fails, and rpm-ostree that records its calls.
    #[derive(Debug)]
    struct Tools {
        file: std::path::PathBuf,
        arguments: Option<&'static str>,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl Commands for Tools {
        fn run_with(
            &self,
            program: &str,
            arguments: &[&str],
            _: &[(&str, &str)],
        ) -> Result<CommandOutput, CommandError> {
            self.calls
                .lock()
                .unwrap()
                .push([&[program], arguments].concat().join(" "));
            let code = match (program, self.arguments) {
                ("nmstatectl", Some(text)) => {
                    fs::write(&self.file, text).unwrap();
                    0
                }
                ("nmstatectl", None) => 1,
                _ => 0,
            };
            Ok(CommandOutput {
                code: Some(code),
                ..CommandOutput::default()
            })
        }
    }

    fn check(
        release: &str,
        arguments: Option<&'static str>,
        expected: &[&str],
    ) -> Result<Vec<String>, NicNamesError> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("etc")).unwrap();
        fs::write(directory.path().join("etc/os-release"), release).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let calls = Arc::new(Mutex::default());
        let tools = Tools {
            file: directory
                .path()
                .join("run/machine-config-daemon/nic-kernel-arguments"),
            arguments,
            calls: Arc::clone(&calls),
        };
        let outcome = persist_nic_names(&root, &tools);
        assert_eq!(*calls.lock().unwrap(), expected, "{release}");
        outcome
    }

    const PIN: &str =
        "nmstatectl persist-nic-names --root / --kargs-out /run/machine-config-daemon/nic-kernel-arguments";

    #[test]
    fn names_are_pinned_on_version_9_and_released_on_version_10() {
        let nine = "ID=rhcos\nVERSION_ID=4.20\nRHEL_VERSION=9.6\n";
        let ten = "ID=rhcos\nRHEL_VERSION=10.0\n";
        let pins = Some("ifname=eno1:52:54:00:00:00:01 ifname=eno2:52:54:00:00:00:02\n");
        let cleanup = format!("{PIN} --cleanup");
        let pinned = check(
            nine,
            pins,
            &[
                PIN,
                "rpm-ostree kargs \
            --append-if-missing=ifname=eno1:52:54:00:00:00:01 --append-if-missing=ifname=eno2:52:54:00:00:00:02",
            ],
        );
        assert_eq!(pinned.unwrap().len(), 2);
        let released = check(
            ten,
            Some("ifname=eno1:a"),
            &[&cleanup, "rpm-ostree kargs --delete-if-present=ifname=eno1:a"],
        );
        assert_eq!(released.unwrap(), ["ifname=eno1:a"]);
        assert!(
            check(nine, Some("\n"), &[PIN]).unwrap().is_empty(),
            "nothing to pin"
        );
        assert!(
            check(nine, None, &[PIN]).is_err(),
            "a machine that would lose its names is not updated"
        );
        assert!(
            check(ten, None, &[&cleanup]).unwrap().is_empty(),
            "a failed removal does no harm"
        );
        assert!(check("ID=debian\nVERSION_ID=13\n", pins, &[]).unwrap().is_empty());
        assert!(
            check("ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=9\n", pins, &[])
                .unwrap()
                .is_empty()
        );
    }
}
