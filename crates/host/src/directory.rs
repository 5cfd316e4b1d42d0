//! A minimal machine in a directory: just enough accounts, units and directories to apply configs to.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const DIRECTORIES: [&str; 6] = [
    "etc/systemd/system",
    "home/core",
    "run",
    "usr/lib/systemd/system",
    "usr/lib/systemd/system-preset",
    "var/lib",
];

const FILES: [(&str, u32, &str); 6] = [
    (
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000:core:/home/core:/bin/bash\n",
    ),
    ("etc/group", 0o644, "root:x:0:\ncore:x:1000:\n"),
    (
        "etc/shadow",
        0o600,
        "root:*:19000::::::\ncore:*:19000:0:99999:7:::\n",
    ),
    (
        "etc/os-release",
        0o644,
        "ID=simulated\nVERSION_ID=1\nPRETTY_NAME=\"A simulated machine in a directory\"\n",
    ),
    ("etc/hostname", 0o644, "localhost\n"),
    (
        "usr/lib/systemd/system-preset/99-default.preset",
        0o644,
        "disable *\n",
    ),
];

/// Creates what is missing; existing files are kept.
pub(crate) fn lay_out(root: &Path) -> io::Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    for (path, mode, text) in FILES {
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(root.join(path));
        match file {
            Ok(mut file) => file.write_all(text.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn a_directory_becomes_a_machine_and_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("nodes/worker-1");
        Machine::create_directory(&root).unwrap();
        fs::write(root.join("etc/hostname"), "worker-1\n").unwrap();
        let machine = Machine::create_directory(&root).unwrap();
        assert_eq!(
            machine.accounts().user("core").unwrap().map(|user| user.uid),
            Some(1000)
        );
        assert_eq!(
            fs::read_to_string(root.join("etc/hostname")).unwrap(),
            "worker-1\n"
        );
    }
}
