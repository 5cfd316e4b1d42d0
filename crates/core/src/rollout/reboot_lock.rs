//! Reboots by the update agents of nodes: requested in an annotation, and granted within the budget of the pool as if
//! they were updates.
//!
//! A granted request is a hold of the node, so that it is not updated meanwhile, and takes a place in the budgets until
//! the agent releases it, also if that never happens: a node that did not come back must not be followed by others.

use jiff::{SignedDuration, Timestamp};
use mco_api::vocabulary::annotations::{REBOOT_LOCK, REBOOT_REQUEST};

use super::node::NodeView;

/// The value of a granted request, which is shown as the reason of the hold.
pub(super) const GRANTED: &str = "its update agent may reboot it";
/// A request that was not granted for this long is forgotten: its agent does not wait any more.
const REQUEST_TTL: SignedDuration = SignedDuration::from_secs(20);

/// Whether the update agent of a node waits for its turn.
pub(super) fn is_requested(node: &NodeView<'_>, now: Timestamp) -> bool {
    let asked = node.annotation(REBOOT_REQUEST).and_then(|at| at.parse().ok());
    let is_fresh = asked.is_some_and(|asked: Timestamp| now.duration_since(asked).abs() <= REQUEST_TTL);
    is_fresh && node.annotation(REBOOT_LOCK).is_none()
}
