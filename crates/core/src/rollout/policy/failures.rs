//! Which nodes failed on a config, and how many more may.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mco_api::rollout_policy::{DrainTimeoutAction, NodeNote, PoolRolloutStatus, RolloutPolicy};

use super::super::budget::len;
use super::super::node::NodeView;
use super::super::node_annotations::NodeAnnotations;
use super::super::target::RolloutTarget;
use super::confirm;
use super::control::PoolControl;
use super::text::{in_words, parse_duration};
use crate::rollout::drain::DrainRecord;

/// The nodes of a pool that failed on the target or may still fail.
#[derive(Debug, Clone, Default)]
pub(super) struct FailureCount {
    pub failed: Vec<NodeNote>,
    /// Nodes that are being updated.
    pub under_way: usize,
    /// When the next node counts as failed if it does not recover.
    pub next_deadline: Option<Timestamp>,
}

impl FailureCount {
    pub(super) fn of(
        policy: &RolloutPolicy,
        members: &[NodeView<'_>],
        target: &RolloutTarget,
        (recorded, control): (Option<&PoolRolloutStatus>, &PoolControl),
        now: Timestamp,
    ) -> Self {
        let mut count = Self::default();
        for node in members {
            let acknowledged = control.acknowledged.iter().any(|name| name == node.name);
            let is_recovering = recorded.is_none_or(|recorded| had_failed(recorded, node));
            match failure(policy, node, target, is_recovering, now) {
                Verdict::Failed(_) if acknowledged => {}
                Verdict::Failed(message) => count.failed.push(NodeNote {
                    node: node.name.to_owned(),
                    message,
                }),
                Verdict::Fine { until } => {
                    let is_unconfirmed = !acknowledged && confirm::objection(policy, node, target).is_some();
                    if is_under_way(node, target) || is_unconfirmed {
                        count.under_way += 1;
                    }
                    count.next_deadline = [count.next_deadline, until].into_iter().flatten().min();
                }
            }
        }
        count
    }

    /// Returns `worker-3 and worker-9: reason of the first`.
    pub(super) fn describe(&self) -> String {
        let names: Vec<&str> = self.failed.iter().map(|note| note.node.as_str()).collect();
        let why = self.failed.first().map_or("", |note| note.message.as_str());
        format!("{}: {why}", super::text::names(&names))
    }
}

enum Verdict {
    Failed(String),
    Fine { until: Option<Timestamp> },
}

/// Whether the node is being updated, to this or to an older target, or is about to.
pub(super) fn is_under_way(node: &NodeView<'_>, target: &RolloutTarget) -> bool {
    let arriving = node.is_sent_to(target) && !node.is_done() && !node.is_degraded();
    node.is_in_flight() || node.was_sent_before_it_reported() || arriving
}

/// Whether the node still reports the failure that it had before it was sent to the config.
pub(super) fn had_failed(recorded: &PoolRolloutStatus, node: &NodeView<'_>) -> bool {
    let mut notes = recorded.recovering.iter();
    node.is_degraded() && notes.any(|note| note.node == node.name && note.message == node.reason)
}

/// A node failed if its daemon reports that, if it is not ready for longer than the deadline, or if it is in
/// quarantine. Drift of an updated node is not a failure of the rollout.
fn failure(
    policy: &RolloutPolicy,
    node: &NodeView<'_>,
    target: &RolloutTarget,
    is_recovering: bool,
    now: Timestamp,
) -> Verdict {
    if !node.is_sent_to(target) {
        return Verdict::Fine { until: None };
    }
    if node.is_in_flight() && node.is_degraded() && !is_recovering {
        let reason = if node.reason.is_empty() {
            "its daemon reports a failure"
        } else {
            node.reason
        };
        return Verdict::Failed(reason.to_owned());
    }
    let mut until = None;
    if let Some(deadline) = policy
        .spec
        .confirm
        .as_ref()
        .and_then(|confirm| parse_duration(&confirm.deadline))
        && let Some(since) = node.not_ready_since()
        && let Ok(due) = since.checked_add(deadline)
    {
        if due <= now {
            return Verdict::Failed(format!("not ready for {}", in_words(now.duration_since(since))));
        }
        until = Some(due);
    }
    match drain_deadline(policy, DrainTimeoutAction::Quarantine, node) {
        Some(due) if due <= now => Verdict::Failed(overdue_drain(node)),
        due => Verdict::Fine {
            until: [until, due].into_iter().flatten().min(),
        },
    }
}

/// Returns when the running drain of a node has timed out, if the policy then does this.
pub(super) fn drain_deadline(
    policy: &RolloutPolicy,
    action: DrainTimeoutAction,
    node: &NodeView<'_>,
) -> Option<Timestamp> {
    let rules = policy
        .spec
        .drain
        .as_ref()
        .filter(|rules| rules.on_timeout == action)?;
    let timeout = parse_duration(&rules.timeout)?;
    let annotations = NodeAnnotations::of_node(node.node);
    let request = annotations.pending_drain_request()?;
    let record = DrainRecord::of_node(node.node).filter(|record| record.request == request)?;
    if !request.starts_with("drain-") {
        return None;
    }
    record.since.checked_add(timeout).ok()
}

pub(super) fn overdue_drain(node: &NodeView<'_>) -> String {
    match node.drain_obstacle() {
        Some(obstacle) => format!("its drain took too long: waits for {obstacle}"),
        None => "its drain took too long".to_owned(),
    }
}

/// Whether the node is left cordoned while others are updated in its place.
pub(super) fn is_quarantined(policy: &RolloutPolicy, node: &NodeView<'_>, now: Timestamp) -> bool {
    drain_deadline(policy, DrainTimeoutAction::Quarantine, node).is_some_and(|due| due <= now)
}

/// Returns the number of nodes that may fail; `None` if the policy has no limit.
pub(super) fn allowed(policy: &RolloutPolicy, members: usize) -> Option<i64> {
    let count = policy.spec.max_failures.as_ref()?.count.as_ref()?;
    Some(share(count, members))
}

/// Returns a number, or a percentage of `total`, but at least 1: admission refuses 0.
pub(super) fn share(setting: &IntOrString, total: usize) -> i64 {
    let value = match setting {
        IntOrString::Int(count) => i64::from(*count),
        IntOrString::String(text) => {
            let percent: i64 = text
                .strip_suffix('%')
                .and_then(|number| number.parse().ok())
                .unwrap_or(0);
            percent.saturating_mul(len(total)) / 100
        }
    };
    value.max(1)
}
