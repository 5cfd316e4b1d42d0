//! Human-readable state of every pool and node: current step, what it waits for, since when, and the estimated
//! completion.
//!
//! A view of the objects; no decision is made here.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::MachineConfigNode;
use mco_api::machine_config_pool::MachineConfigPoolCondition;
use mco_api::vocabulary::conditions::machine_config_node as step;
use mco_api::vocabulary::conditions::{pool as condition, status};
use serde::Serialize;

use mco_core::rollout::pool_status::{NodeCounts, NodeReports};
use mco_core::rollout::target::reached_target;
use mco_core::rollout::{HeldReason, NodeView, PoolView, RolloutView, plan_pool};

use crate::build_status::BuildOverview;

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolOverview {
    pub name: String,
    pub state: PoolPhase,
    /// The rendered config that its nodes are updated to.
    pub target: String,
    pub total: usize,
    pub updated: usize,
    pub ready: usize,
    pub degraded: usize,
    /// Why it is degraded or makes no progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The time of the last transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The estimated completion time of the rollout, at its current rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Timestamp>,
    /// The newest build of an OS image for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildOverview>,
    /// In rollout order.
    pub nodes: Vec<NodeOverview>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PoolPhase {
    Updated,
    Updating,
    Paused,
    Degraded,
    /// Nothing has been rendered for it yet.
    Waiting,
}

impl PoolPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Updated => "Updated",
            Self::Updating => "Updating",
            Self::Paused => "Paused",
            Self::Degraded => "Degraded",
            Self::Waiting => "Waiting",
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverview {
    pub name: String,
    pub standing: NodeStanding,
    /// The daemon's state: Done, Working, Degraded...; empty until the daemon has reported.
    pub state: String,
    pub current: String,
    pub desired: String,
    pub ready: bool,
    pub cordoned: bool,
    /// The current step or what it waits for; continues a sentence whose subject is the node.
    pub doing: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The state of a node in its pool's rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStanding {
    Updated,
    Updating,
    Waiting,
    Degraded,
}

impl NodeStanding {
    fn of(node: &NodeView<'_>, held: Option<&HeldReason>) -> Self {
        match held {
            _ if node.is_degraded() => Self::Degraded,
            Some(HeldReason::FailingOnTarget(_)) => Self::Degraded,
            Some(HeldReason::UpToDate) => Self::Updated,
            Some(HeldReason::InProgress | HeldReason::DrainBlocked(_) | HeldReason::JoiningPool(_))
            | None => Self::Updating,
            Some(_) => Self::Waiting,
        }
    }
}

/// Returns the overviews of all pools, by name.
pub fn overview<'a>(
    view: &RolloutView<'_>,
    machine_config_nodes: impl IntoIterator<Item = &'a MachineConfigNode>,
    now: Timestamp,
) -> Vec<PoolOverview> {
    let progress: HashMap<&str, &MachineConfigNode> = machine_config_nodes
        .into_iter()
        .filter_map(|object| Some((object.metadata.name.as_deref()?, object)))
        .collect();
    view.pools
        .iter()
        .map(|pool| of_pool(view, pool, &progress, now))
        .collect()
}

fn of_pool(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    progress: &HashMap<&str, &MachineConfigNode>,
    now: Timestamp,
) -> PoolOverview {
    let plan = plan_pool(view, pool);
    let counts = NodeCounts::of(
        pool,
        reached_target(pool.pool, &pool.layering).as_ref(),
        NodeReports::Annotations,
    );
    let conditions = pool
        .pool
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let (state, condition) = state(pool, &counts, conditions);
    let since = condition.and_then(|condition| condition.last_transition_time.as_ref());
    let since = since.map(|time| time.0);
    let degraded = condition.filter(|_| state == PoolPhase::Degraded);
    let problem = plan
        .problem
        .clone()
        .or_else(|| degraded.map(|condition| said(condition).to_owned()))
        .or_else(|| plan.stalled())
        .filter(|text| !text.is_empty());
    let held: HashMap<&str, &HeldReason> = plan
        .held
        .iter()
        .map(|held| (held.node.as_str(), &held.reason))
        .collect();
    let nodes = pool
        .members
        .iter()
        .map(|node| {
            let held = held.get(node.name).copied();
            of_node(node, held, progress.get(node.name).copied(), now)
        })
        .collect();
    let expected = (state == PoolPhase::Updating)
        .then(|| expected(&counts, since?, finished_since(pool, progress, since?), now))
        .flatten();
    PoolOverview {
        name: pool.name.to_owned(),
        state,
        target: pool.pool.target_name().to_owned(),
        total: counts.total,
        updated: counts.updated,
        ready: counts.ready,
        degraded: counts.degraded,
        problem,
        since,
        expected,
        build: None,
        nodes,
    }
}

fn state<'c>(
    pool: &PoolView<'_>,
    counts: &NodeCounts,
    conditions: &'c [MachineConfigPoolCondition],
) -> (PoolPhase, Option<&'c MachineConfigPoolCondition>) {
    let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let degraded = find(condition::DEGRADED).filter(|condition| condition.status == status::TRUE);
    if degraded.is_some() {
        // The summary condition only reports a failure; the first specific condition names the cause.
        let causes = [condition::RENDER_DEGRADED, condition::NODE_DEGRADED];
        let cause = causes
            .into_iter()
            .filter_map(find)
            .find(|cause| cause.status == status::TRUE);
        return (PoolPhase::Degraded, cause.or(degraded));
    }
    if pool.pool.target_name().is_empty() {
        return (PoolPhase::Waiting, None);
    }
    match counts.all_updated() {
        true => (PoolPhase::Updated, find(condition::UPDATED)),
        false if pool.is_paused() => (PoolPhase::Paused, find(condition::UPDATED)),
        false => (PoolPhase::Updating, find(condition::UPDATING)),
    }
}

fn said(condition: &MachineConfigPoolCondition) -> &str {
    if condition.message.is_empty() {
        &condition.reason
    } else {
        &condition.message
    }
}

fn of_node(
    node: &NodeView<'_>,
    reason: Option<&HeldReason>,
    progress: Option<&MachineConfigNode>,
    now: Timestamp,
) -> NodeOverview {
    let step = progress.and_then(current_step);
    let (doing, since) = match (reason, step) {
        (Some(HeldReason::InProgress), Some(step)) => {
            (describe_step(node.name, step), Some(step.last_transition_time.0))
        }
        (Some(reason), step) => (
            reason.at(now),
            step.filter(|_| *reason == HeldReason::UpToDate)
                .map(|step| step.last_transition_time.0),
        ),
        (None, _) => ("is sent to the new config now".to_owned(), None),
    };
    NodeOverview {
        name: node.name.to_owned(),
        standing: NodeStanding::of(node, reason),
        state: node.state.to_owned(),
        current: node.current_config.to_owned(),
        desired: node.desired_config.to_owned(),
        ready: node.is_kubelet_healthy(),
        cordoned: node.is_unschedulable(),
        doing,
        since,
    }
}

/// Describes a node's step as the continuation of a sentence whose subject is the node.
fn describe_step(node: &str, at: &Condition) -> String {
    let is_done = at.status == status::TRUE;
    let words = match (at.type_.as_str(), is_done) {
        // The final condition of the previous update.
        (step::UPDATED, true) => "is about to be updated",
        (step::UPDATED, false) => "starts its update",
        (step::UPDATE_PREPARED, true) => "is ready to be updated",
        (step::CORDONED, true) => "is cordoned",
        (step::DRAINED, false) => "is being drained",
        (step::DRAINED, true) => "is drained",
        (step::IMAGE_PULLED_FROM_REGISTRY, false) => "is pulling its new image",
        (step::IMAGE_PULLED_FROM_REGISTRY, true) => "has pulled its new image",
        (step::APPLIED_FILES_AND_OS | step::APPLIED_FILES | step::APPLIED_OS_IMAGE, false) => {
            "is applying its new config"
        }
        (step::APPLIED_FILES_AND_OS | step::APPLIED_FILES | step::APPLIED_OS_IMAGE, true) => {
            "has applied its new config"
        }
        (step::UPDATE_POST_ACTION_COMPLETE, true) => "has completed its post-update actions",
        (step::REBOOTED_NODE, false) => "is rebooting",
        (step::REBOOTED_NODE | step::RESUMED, true) => "has rebooted",
        (step::UPDATE_COMPLETE | step::UNCORDONED, true) => "is schedulable again",
        _ => return sentence(node, &at.message),
    };
    words.to_owned()
}

/// Turns a step's message into the continuation of such a sentence.
fn sentence(node: &str, message: &str) -> String {
    let message = message.trim_end_matches('.');
    match message.strip_prefix(&format!("Node {node} ")) {
        Some(rest) => rest.to_owned(),
        None => format!("reports: {message}"),
    }
}

/// Returns the current step of a node: the latest that started, by time and then by the order of steps.
fn current_step(progress: &MachineConfigNode) -> Option<&Condition> {
    let status = progress.status.as_ref()?;
    let begun = status
        .conditions
        .iter()
        .enumerate()
        .filter(|(_, condition)| condition.status != status::FALSE || condition.type_ == step::UPDATED);
    begun
        .max_by_key(|(index, condition)| (condition.last_transition_time.0, *index))
        .map(|(_, condition)| condition)
}

/// Counts the nodes that have completed since the rollout started.
fn finished_since(
    pool: &PoolView<'_>,
    progress: &HashMap<&str, &MachineConfigNode>,
    start: Timestamp,
) -> usize {
    let arrived = |object: &&MachineConfigNode| {
        let conditions = object
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        conditions.iter().any(|condition| {
            condition.type_ == step::UPDATED
                && condition.status == status::TRUE
                && condition.last_transition_time.0 >= start
        })
    };
    let members = pool.members.iter();
    members
        .filter_map(|node| progress.get(node.name).copied())
        .filter(arrived)
        .count()
}

fn expected(counts: &NodeCounts, start: Timestamp, finished: usize, now: Timestamp) -> Option<Timestamp> {
    let remaining = i32::try_from(counts.total.saturating_sub(counts.updated)).ok()?;
    let finished = i32::try_from(finished).ok().filter(|finished| *finished > 0)?;
    let each: SignedDuration = now.duration_since(start).checked_div(finished)?;
    now.checked_add(each.checked_mul(remaining)?).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use mco_api::MachineConfigPool;
    use serde_json::{Value, json};

    use super::*;

    const START: &str = "2026-01-01T00:00:00Z";

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pool(conditions: &Value) -> MachineConfigPool {
        object(json!({
            "metadata": {"name": "worker"},
            "spec": {
                "configuration": {"name": "rendered-worker-2"},
                "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            },
            "status": {"conditions": conditions},
        }))
    }

    fn node(name: &str, current: &str, desired: &str, state: &str) -> Node {
        let prefix = "machineconfiguration.openshift.io";
        object(json!({
            "metadata": {
                "name": name,
                "labels": {"node-role.kubernetes.io/worker": ""},
                "annotations": {
                    format!("{prefix}/currentConfig"): current,
                    format!("{prefix}/desiredConfig"): desired,
                    format!("{prefix}/state"): state,
                },
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    fn progress(name: &str, type_: &str, status: &str, message: &str, at: &str) -> MachineConfigNode {
        object(json!({
            "metadata": {"name": name},
            "spec": {"node": {"name": name}, "pool": {"name": "worker"},
                "configVersion": {"desired": "rendered-worker-2"}},
            "status": {"conditions": [{"type": type_, "status": status, "reason": type_, "message": message,
                "lastTransitionTime": at}]},
        }))
    }

    #[test]
    fn a_rollout_overview_has_each_nodes_step_and_the_estimated_completion() {
        let conditions = json!([{"type": "Updating", "status": "True", "lastTransitionTime": START}]);
        let pools = [pool(&conditions)];
        let nodes = [
            node("a", "rendered-worker-2", "rendered-worker-2", "Done"),
            node("b", "rendered-worker-1", "rendered-worker-2", "Working"),
            node("c", "rendered-worker-1", "rendered-worker-1", "Done"),
        ];
        let steps = [
            progress("a", "Updated", "True", "Node a Updated", "2026-01-01T00:01:00Z"),
            progress(
                "b",
                "UpdateExecuted",
                "Unknown",
                "Draining Node",
                "2026-01-01T00:01:10Z",
            ),
        ];
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let overview = overview(&RolloutView::new(&pools, &nodes), &steps, now);
        let worker = &overview[0];
        assert_eq!(worker.state, PoolPhase::Updating);
        assert_eq!((worker.updated, worker.total), (1, 3));
        let doing: Vec<_> = worker.nodes.iter().map(|node| node.doing.as_str()).collect();
        assert_eq!(
            doing,
            ["is up to date", "reports: Draining Node", "waits for its turn"]
        );
        let standing: Vec<_> = worker.nodes.iter().map(|node| node.standing).collect();
        assert_eq!(
            standing,
            [
                NodeStanding::Updated,
                NodeStanding::Updating,
                NodeStanding::Waiting
            ]
        );
        assert_eq!(
            worker.expected,
            Some("2026-01-01T00:06:00Z".parse().unwrap()),
            "two minutes for each of the two that are left"
        );
    }

    #[test]
    fn steps_are_described_in_the_terms_of_kubectl() {
        let cases = [
            ("Cordoned", "True", "is cordoned"),
            ("Drained", "Unknown", "is being drained"),
            ("AppliedFilesAndOS", "Unknown", "is applying its new config"),
            ("RebootedNode", "Unknown", "is rebooting"),
            ("RebootedNode", "True", "has rebooted"),
        ];
        for (type_, status, expected) in cases {
            let object = progress("a", type_, status, "Node a has rebooted", START);
            let step = current_step(&object).unwrap();
            assert_eq!(describe_step("a", step), expected);
        }
    }

    #[test]
    fn a_degraded_pool_names_the_cause_and_not_the_summary() {
        let conditions = json!([
            {"type": "Degraded", "status": "True", "message": ""},
            {"type": "RenderDegraded", "status": "True", "message": "MachineConfig \"50-x\": bad"},
        ]);
        let pools = [pool(&conditions)];
        let overview = overview(
            &RolloutView::new(&pools, &[] as &[Node]),
            &[],
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(overview[0].state, PoolPhase::Degraded);
        assert_eq!(
            overview[0].problem.as_deref(),
            Some("MachineConfig \"50-x\": bad")
        );
    }
}
