//! `findmnt`: which device `/boot` is on.

use crate::command::{CommandError, Commands, succeed};

/// Returns the device, without the subdirectory that a bind mount shows.
pub(super) fn source_of_boot(commands: &dyn Commands) -> Result<String, CommandError> {
    let text = succeed(commands, "findmnt", &["-n", "-o", "SOURCE", "--target", "/boot"])?;
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split('[').next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::testing::Recorded;

    #[test]
    fn a_mounted_directory_leads_to_its_device() {
        for (text, device) in [
            ("/dev/sda3\n", "/dev/sda3"),
            ("/dev/mapper/root[/ostree/deploy/rhcos]\n", "/dev/mapper/root"),
            ("\n", ""),
        ] {
            let recorded = Arc::new(Recorded::answering(&[("findmnt", text)]));
            assert_eq!(source_of_boot(&recorded).unwrap(), device);
        }
    }
}
