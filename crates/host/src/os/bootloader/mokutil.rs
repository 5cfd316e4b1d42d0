//! `mokutil`: does the firmware check signatures?

use crate::command::{Commands, succeed};

/// Whether Secure Boot is on. A machine that cannot say is treated as if it were: an update too many does no harm.
pub(super) fn secure_boot(commands: &dyn Commands) -> bool {
    succeed(commands, "mokutil", &["--sb-state"]).map_or(true, |text| text.contains("SecureBoot enabled"))
}
