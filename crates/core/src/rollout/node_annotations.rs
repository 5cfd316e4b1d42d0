//! The annotation protocol between controller and daemon, read from one Node.
//!
//! The controller writes `desiredConfig`, `desiredImage` and `lastAppliedDrain`; the daemon writes `currentConfig`,
//! `currentImage`, `state`, `reason` and `desiredDrain`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::{
    ADOPTION_REQUEST, CONFIRM_DEADLINE, DRIFT_POLICY, node as annotation,
};
use mco_api::vocabulary::{node_state, taints, topology};

use super::control_plane::is_control_plane_node;
use super::drain::{DrainRecord, DrainVerb, timing};
use super::drift_policy::DriftPolicy;
use super::policy::duration_of;

/// The annotations of a Node that controller and daemon coordinate by. An empty annotation counts as absent.
///
/// `NodeAnnotations<&str>` borrows from the Node; the daemon keeps the owned form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAnnotations<S = String> {
    /// The rendered config proven on disk.
    pub current_config: Option<S>,
    /// The rendered config to reach.
    pub desired_config: Option<S>,
    /// The built OS image that runs; only in layered pools.
    pub current_image: Option<S>,
    /// The built OS image to reach; only in layered pools.
    pub desired_image: Option<S>,
    /// One of [`node_state`]; empty before the daemon's first report.
    pub state: S,
    pub reason: S,
    /// The daemon's drain or uncordon request.
    pub desired_drain: Option<S>,
    /// The latest request that the controller has completed.
    pub last_applied_drain: Option<S>,
    /// The controller's record of the drain under way, as JSON.
    pub drain_record: Option<S>,
    /// A reboot was initiated and not acknowledged yet.
    pub rebooting: bool,
    /// The control plane has a single node, and it is this one.
    pub single_replica: bool,
    /// The node's own drift policy; without one the pool's applies.
    pub drift_policy: Option<DriftPolicy>,
    /// Why the previous boot lost its staged deployment.
    pub finalization_failure: Option<S>,
    /// The resourceVersion of the ControllerConfig whose certificates are on disk.
    pub synced_controller_config: Option<S>,
    /// A user's request to compare, adopt or release the node.
    pub adoption_request: Option<S>,
    /// How long the node may take to be healthy with its target, such as `10m`.
    pub confirm_deadline: Option<S>,
    /// The node has the taint of a pending update: it waits for its turn, or is being updated.
    pub awaits_update: bool,
}

impl<'a> NodeAnnotations<&'a str> {
    /// Reads the annotations of a Node.
    pub fn of_node(node: &'a Node) -> Self {
        let annotations = node.metadata.annotations.as_ref();
        let read = annotations.map_or_else(Self::default, Self::read);
        Self {
            // The topology is annotated on all nodes; workers of a single-node control plane can be drained.
            single_replica: read.single_replica && is_control_plane_node(node),
            awaits_update: has_update_taint(node),
            ..read
        }
    }

    /// Reads a map of annotations, which do not include the node's role.
    pub fn read(annotations: &'a BTreeMap<String, String>) -> Self {
        let text = |key: &str| {
            annotations
                .get(key)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        Self {
            current_config: text(annotation::CURRENT_CONFIG),
            desired_config: text(annotation::DESIRED_CONFIG),
            current_image: text(annotation::CURRENT_IMAGE),
            desired_image: text(annotation::DESIRED_IMAGE),
            state: text(annotation::STATE).unwrap_or_default(),
            reason: text(annotation::REASON).unwrap_or_default(),
            desired_drain: text(annotation::DESIRED_DRAIN),
            last_applied_drain: text(annotation::LAST_APPLIED_DRAIN),
            drain_record: text(annotation::DRAIN_RECORD),
            rebooting: text(annotation::POST_CONFIG_ACTION) == Some(annotation::REBOOTING),
            single_replica: text(annotation::CONTROL_PLANE_TOPOLOGY) == Some(topology::SINGLE_REPLICA),
            drift_policy: text(DRIFT_POLICY).map(DriftPolicy::from_annotation),
            finalization_failure: text(annotation::OSTREE_FINALIZE_STAGED_FAILURE),
            synced_controller_config: text(annotation::LAST_SYNCED_CONTROLLER_CONFIG),
            adoption_request: text(ADOPTION_REQUEST),
            confirm_deadline: text(CONFIRM_DEADLINE),
            awaits_update: false,
        }
    }

    /// Returns the daemon's request unless the controller has completed it.
    pub fn pending_drain_request(&self) -> Option<&'a str> {
        self.desired_drain
            .filter(|_| self.desired_drain != self.last_applied_drain)
    }

    pub fn into_owned(self) -> NodeAnnotations {
        let owned = |value: Option<&str>| value.map(str::to_owned);
        NodeAnnotations {
            current_config: owned(self.current_config),
            desired_config: owned(self.desired_config),
            current_image: owned(self.current_image),
            desired_image: owned(self.desired_image),
            state: self.state.to_owned(),
            reason: self.reason.to_owned(),
            desired_drain: owned(self.desired_drain),
            last_applied_drain: owned(self.last_applied_drain),
            drain_record: owned(self.drain_record),
            rebooting: self.rebooting,
            single_replica: self.single_replica,
            drift_policy: self.drift_policy,
            finalization_failure: owned(self.finalization_failure),
            synced_controller_config: owned(self.synced_controller_config),
            adoption_request: owned(self.adoption_request),
            confirm_deadline: owned(self.confirm_deadline),
            awaits_update: self.awaits_update,
        }
    }
}

fn has_update_taint(node: &Node) -> bool {
    let mut found = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    found.any(|taint| taint.key == taints::UPDATE_IN_PROGRESS)
}

impl NodeAnnotations {
    /// Returns the daemon's request unless the controller has completed it.
    pub fn open_request(&self) -> Option<&str> {
        self.desired_drain
            .as_deref()
            .filter(|_| self.desired_drain != self.last_applied_drain)
    }
}

impl<S: Borrow<str> + PartialEq> NodeAnnotations<S> {
    pub fn is_done(&self) -> bool {
        self.state.borrow() == node_state::DONE
    }

    /// The daemon reports a failure: Degraded or Unreconcilable.
    pub fn is_failing(&self) -> bool {
        node_state::is_failure(self.state.borrow())
    }

    /// Returns how long the node may take to be healthy with its target; `None` for the default.
    pub fn confirm_deadline(&self) -> Option<Duration> {
        duration_of(self.confirm_deadline.as_ref()?.borrow())
    }

    /// Returns the controller's record of the drain under way; `None` if there is none or it cannot be parsed.
    pub fn drain_record(&self) -> Option<DrainRecord> {
        DrainRecord::parse(self.drain_record.as_ref()?.borrow())
    }

    /// Returns what blocks the requested drain; `None` when it has finished or nothing blocks it.
    pub fn drain_obstacle(&self) -> Option<String> {
        let request = self.desired_drain.as_ref()?;
        let is_pending = self.last_applied_drain.as_ref() != Some(request);
        self.drain_record()
            .filter(|record| is_pending && record.request == request.borrow())?
            .waiting_for
    }

    /// Returns when the daemon reports the pending request as timed out.
    ///
    /// The clock of a drain is the start in the controller's [`DrainRecord`], so that controller and daemon agree.
    /// Without a record of this request the clock is `requested`, when the daemon began to wait.
    pub fn drain_deadline(&self, requested: Timestamp) -> Option<Timestamp> {
        let request = self.desired_drain.as_ref()?.borrow();
        let start = match DrainVerb::of(request)? {
            DrainVerb::Drain => self
                .drain_record()
                .filter(|record| record.request == request)
                .map_or(requested, |record| record.since),
            DrainVerb::Uncordon => requested,
        };
        Some(timing::deadline(DrainVerb::of(request)?, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::drain::{CordonOrigin, DrainMarks};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn record(request: &str, since: i64) -> String {
        let record = DrainRecord {
            request: request.to_owned(),
            since: at(since),
            cordon: CordonOrigin::Made,
            waiting_for: Some("pod a/b".to_owned()),
            marks: DrainMarks::default(),
            evict_after: None,
        };
        record.to_annotation()
    }

    #[test]
    fn the_deadline_counts_from_the_controllers_record_of_the_same_request() {
        let cases = [
            ("drain-b", Some(record("drain-b", 100)), Some(100 + 3600)),
            ("drain-b", Some(record("drain-a", 100)), Some(500 + 3600)),
            ("drain-b", None, Some(500 + 3600)),
            ("uncordon-b", Some(record("drain-b", 100)), Some(500 + 600)),
            ("dance-b", None, None),
        ];
        for (request, record, expected) in cases {
            let mut all = annotations(&[(annotation::DESIRED_DRAIN, request)]);
            all.extend(record.map(|text| (annotation::DRAIN_RECORD.to_owned(), text)));
            let deadline = NodeAnnotations::read(&all).drain_deadline(at(500));
            assert_eq!(deadline, expected.map(at), "{request}");
        }
    }

    #[test]
    fn empty_annotations_are_absent() {
        let all = annotations(&[(annotation::CURRENT_CONFIG, ""), (annotation::DESIRED_DRAIN, "")]);
        let read = NodeAnnotations::read(&all);
        assert_eq!(read, NodeAnnotations::default());
        assert_eq!(read.pending_drain_request(), None);
    }

    #[test]
    fn workers_of_a_single_node_control_plane_are_drained() {
        for (role, expected) in [("control-plane", true), ("master", true), ("worker", false)] {
            let label = format!("node-role.kubernetes.io/{role}");
            let mut node = Node::default();
            node.metadata.labels = Some([(label, String::new())].into());
            node.metadata.annotations = Some(annotations(&[(
                annotation::CONTROL_PLANE_TOPOLOGY,
                topology::SINGLE_REPLICA,
            )]));
            assert_eq!(NodeAnnotations::of_node(&node).single_replica, expected, "{role}");
        }
    }

    #[test]
    fn a_completed_drain_has_no_obstacle() {
        let mut all = annotations(&[(annotation::DESIRED_DRAIN, "drain-b")]);
        all.insert(annotation::DRAIN_RECORD.to_owned(), record("drain-b", 1));
        assert_eq!(
            NodeAnnotations::read(&all).drain_obstacle().as_deref(),
            Some("pod a/b")
        );
        all.insert(annotation::LAST_APPLIED_DRAIN.to_owned(), "drain-b".to_owned());
        assert_eq!(NodeAnnotations::read(&all).drain_obstacle(), None);
        assert_eq!(NodeAnnotations::read(&all).into_owned().drain_obstacle(), None);
    }
}
