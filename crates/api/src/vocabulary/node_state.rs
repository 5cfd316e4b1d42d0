//! The values of a Node's state annotation.

/// The node has what it shall have. A missing state means the same.
pub const DONE: &str = "Done";
/// The node is on its way. Draining and rebooting are part of it.
pub const WORKING: &str = "Working";
/// The way failed; the daemon keeps trying.
pub const DEGRADED: &str = "Degraded";
/// There is no way from here to there.
pub const UNRECONCILABLE: &str = "Unreconcilable";

/// Whether the daemon of a node in this state reports a failure.
pub fn is_failure(state: &str) -> bool {
    matches!(state, DEGRADED | UNRECONCILABLE)
}
