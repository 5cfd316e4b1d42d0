//! Executes a program of the machine whose root is mounted: a daemon in a container runs the machine's own tools this
//! way, without needing any tool of the container.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The search path of the machine, used if the container sets none or its own.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Changes the root of this process and executes a program of that root. Returns only on failure.
pub fn run_within(root: &Path, program: &OsString, arguments: &[OsString]) -> io::Error {
    let enter = || -> io::Result<()> {
        rustix::process::chroot(root)?;
        Ok(rustix::process::chdir("/")?)
    };
    match enter() {
        Ok(()) => Command::new(program)
            .args(arguments)
            .env("PATH", SEARCH_PATH)
            .exec(),
        Err(error) => error,
    }
}
