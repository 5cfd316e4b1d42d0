//! `journalctl`: why the previous boot could not finalize its staged deployment.

use crate::command::{CommandError, Commands};

const UNIT: &str = "ostree-finalize-staged.service";

/// Returns the first error of the service that finalizes a deployment during shutdown; `None` without an error or
/// without a journal of that boot.
pub(super) fn failure(commands: &dyn Commands) -> Result<Option<String>, CommandError> {
    let unit = format!("--unit={UNIT}");
    let arguments = ["--boot=-1", &unit, "--output=cat", "--quiet", "--no-pager"];
    match commands.run("journalctl", &arguments) {
        Ok(output) if output.code == Some(0) => Ok(output
            .stdout
            .lines()
            .find(|line| line.starts_with("error:"))
            .map(str::to_owned)),
        // A machine in its first boot has no previous boot.
        Ok(_) | Err(CommandError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::testing::Recorded;

    #[test]
    fn the_first_error_of_the_previous_boot_is_reported() {
        let journal = "Starting Finalize Staged Deployment...\nerror: Installing kernel: No space left on device\nerror: later\n";
        let commands = Arc::new(Recorded::answering(&[("journalctl", journal)]));
        assert_eq!(
            failure(&commands).unwrap().as_deref(),
            Some("error: Installing kernel: No space left on device")
        );
        let quiet = Arc::new(Recorded::answering(&[(
            "journalctl",
            "Finished Finalize Staged Deployment.\n",
        )]));
        assert_eq!(failure(&quiet).unwrap(), None);
    }

    #[test]
    fn a_machine_without_a_journal_has_no_failure() {
        assert_eq!(failure(&Arc::new(Recorded::answering(&[]))).unwrap(), None);
    }
}
