//! Kubernetes events about the node, for `kubectl describe node` and alerts.

use k8s_openapi::api::core::v1::ObjectReference;
use mco_api::vocabulary::names;
use mco_runtime::{EventQueue, EventRecorder, EventType, Repeats};

const COMPONENT: &str = "machineconfigdaemon";
/// An API server that does not answer must not make the queue grow without limit.
const CAPACITY: usize = 25;

/// Queues events about one node, which a background task writes.
#[derive(Debug, Clone)]
pub(super) struct NodeEvents {
    recorder: EventRecorder,
    node: ObjectReference,
}

impl NodeEvents {
    /// Starts the task; it ends when the last handle is dropped.
    pub fn start(client: kube::Client, node: String) -> Self {
        let queue = EventQueue {
            namespace: names::NAMESPACE,
            capacity: CAPACITY,
            // Each step of each update counts, even if it is the same again.
            repeats: Repeats::Write,
        };
        let (recorder, writer) = queue.open();
        tokio::spawn(writer.run(client));
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.clone()),
            // As the kubelet does: `kubectl describe node` selects events by this uid.
            uid: Some(node.clone()),
            ..ObjectReference::default()
        };
        Self {
            recorder: recorder.with_instance(node),
            node: reference,
        }
    }

    pub fn normal(&self, reason: &'static str, message: impl Into<String>) {
        self.record(EventType::Normal, reason, message.into());
    }

    pub fn warning(&self, reason: &'static str, message: impl Into<String>) {
        self.record(EventType::Warning, reason, message.into());
    }

    fn record(&self, type_: EventType, reason: &'static str, message: String) {
        self.recorder
            .record(COMPONENT, self.node.clone(), type_, reason, message);
    }
}
