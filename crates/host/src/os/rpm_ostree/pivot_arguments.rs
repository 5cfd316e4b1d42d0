//! `/etc/pivot/kernel-args`: kernel arguments that are added or removed with every change of the OS.

use crate::os::release::OsRelease;
use crate::os::{OsError, booted_kernel_arguments};
use crate::path::RootedPath;
use crate::root::{FsError, Root};

const FILE: &str = "/etc/pivot/kernel-args";
/// The only argument that Enterprise Linux supports here.
const ALLOWED: [&str; 1] = ["nosmt"];

/// Returns the options of `rpm-ostree kargs` for what the running kernel does not have yet.
pub(super) fn options(root: &Root) -> Result<Vec<String>, OsError> {
    let path = RootedPath::new(FILE).map_err(FsError::from)?;
    let Some(text) = root.read_text(&path, 1 << 20)? else {
        return Ok(Vec::new());
    };
    let any = !OsRelease::read(root)?.is_enterprise_coreos();
    let running = booted_kernel_arguments(root)?;
    let mut options = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((verb, argument)) = line.split_once(char::is_whitespace) else {
            tracing::warn!(line, "{FILE}: neither ADD nor DELETE; the line is ignored");
            continue;
        };
        let argument = argument.trim();
        let present = running.iter().any(|one| one == argument);
        match verb {
            _ if !any && !ALLOWED.contains(&argument) => {
                return Err(OsError::Unsupported {
                    what: "kernel arguments",
                    why: format!("{FILE} has {argument:?}, and only {ALLOWED:?} is supported on this system"),
                });
            }
            "ADD" if !present => options.push(format!("--append={argument}")),
            "DELETE" if present => options.push(format!("--delete={argument}")),
            "ADD" | "DELETE" => {}
            _ => tracing::warn!(line, "{FILE}: neither ADD nor DELETE; the line is ignored"),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    #[test]
    fn only_what_is_missing_changes_and_enterprise_linux_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["etc/pivot", "proc"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        let write = |path: &str, text: &str| std::fs::write(directory.path().join(path), text).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        write("proc/cmdline", "ro old=1 there");
        assert!(options(&root).unwrap().is_empty(), "no file");
        write("etc/os-release", "ID=fedora\nVARIANT_ID=coreos\n");
        write(
            "etc/pivot/kernel-args",
            "ADD nosmt\nADD there\nDELETE old=1\nDELETE gone\n\nKEEP x\nADD\n",
        );
        assert_eq!(options(&root).unwrap(), ["--append=nosmt", "--delete=old=1"]);
        write("etc/os-release", "ID=rhcos\n");
        let error = options(&root).unwrap_err().to_string();
        assert!(error.contains("\"there\""), "{error}");
        write("etc/pivot/kernel-args", "ADD nosmt\n");
        assert_eq!(options(&root).unwrap(), ["--append=nosmt"]);
    }
}
