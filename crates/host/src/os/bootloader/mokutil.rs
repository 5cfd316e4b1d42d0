//! `mokutil`: reports whether Secure Boot is enabled.

use crate::command::{Commands, succeed};

/// Returns whether Secure Boot is enabled. If that cannot be determined it counts as enabled, because an unnecessary
/// update is harmless.
pub(super) fn secure_boot(commands: &dyn Commands) -> bool {
    succeed(commands, "mokutil", &["--sb-state"]).map_or(true, |text| text.contains("SecureBoot enabled"))
}
