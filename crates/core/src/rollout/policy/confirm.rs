//! Whether an updated node is confirmed: the checks that it must pass before it counts as updated in waves, in the order
//! of policies and in budgets.

use std::time::Duration;

use mco_api::rollout_policy::{ConfirmationCheck, RolloutPolicy};

use super::super::node::NodeView;
use super::super::target::RolloutTarget;

/// No machine boots and starts its kubelet faster, so a shorter deadline reverts every config.
pub const SHORTEST_DEADLINE: Duration = Duration::from_mins(1);
/// What to write instead of a deadline that is too short.
pub const DEADLINE_HINT: &str = "use at least 1m, such as 10m or 1h30m";

/// The checks of a policy that names none.
const ALL: [ConfirmationCheck; 2] = [ConfirmationCheck::NodeReady, ConfirmationCheck::ReadinessTaints];

/// Returns why a node that has the target is not confirmed; `None` for any other node.
pub(super) fn objection(
    policy: &RolloutPolicy,
    node: &NodeView<'_>,
    target: &RolloutTarget,
) -> Option<String> {
    if !node.is_updated_to(target) {
        return None;
    }
    let named = policy
        .spec
        .confirm
        .as_ref()
        .map(|confirm| confirm.checks.as_slice());
    let checks = named.filter(|checks| !checks.is_empty()).unwrap_or(&ALL);
    checks.iter().find_map(|check| match check {
        ConfirmationCheck::NodeReady if node.is_kubelet_healthy() => None,
        ConfirmationCheck::NodeReady => node.unready(),
        ConfirmationCheck::ReadinessTaints => {
            let taint = node.readiness_taint()?;
            Some(format!("node {} still has the taint {taint}", node.name))
        }
    })
}

/// Whether a node has the target and passes all checks.
pub(super) fn is_confirmed(policy: &RolloutPolicy, node: &NodeView<'_>, target: &RolloutTarget) -> bool {
    node.is_updated_to(target) && objection(policy, node, target).is_none()
}
