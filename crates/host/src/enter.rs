//! Becoming a program of the machine whose root is mounted somewhere: how a daemon in a container runs the machine's own
//! tools, without needing any tool of the container.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Where a machine keeps its tools, for a container that does not say or means its own.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes a directory the root of this process and replaces the process by a program of that root. Returns only to say
/// why that was impossible.
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
