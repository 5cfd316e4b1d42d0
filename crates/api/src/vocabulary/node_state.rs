//! The values of a Node's state annotation.

/// The node is up to date. A missing state means the same.
pub const DONE: &str = "Done";
/// The node is being updated, which includes draining and rebooting.
pub const WORKING: &str = "Working";
/// The update failed; the daemon retries it.
pub const DEGRADED: &str = "Degraded";
/// The change is not reconcilable.
pub const UNRECONCILABLE: &str = "Unreconcilable";

/// Returns whether the daemon of a node in this state reports a failure.
pub fn is_failure(state: &str) -> bool {
    matches!(state, DEGRADED | UNRECONCILABLE)
}
