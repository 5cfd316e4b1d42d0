//! Events about the node, for `kubectl describe node` and alerts. They are told, never waited for.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use mco_api::vocabulary::names;
use tokio::sync::mpsc;

const COMPONENT: &str = "machineconfigdaemon";
/// An API server that does not answer must not make us collect events for ever.
const WAITING: usize = 25;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Warning,
}

#[derive(Debug)]
struct Told {
    kind: Kind,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// Hands events to a task of its own.
#[derive(Debug, Clone)]
pub(super) struct Events(mpsc::Sender<Told>);

impl Events {
    /// The task ends when the last handle is dropped.
    pub fn start(client: kube::Client, node: String) -> Self {
        let (sender, told) = mpsc::channel(WAITING);
        tokio::spawn(publish(client, node, told));
        Self(sender)
    }

    pub fn normal(&self, reason: &'static str, message: impl Into<String>) {
        self.tell(Kind::Normal, reason, message.into());
    }

    pub fn warning(&self, reason: &'static str, message: impl Into<String>) {
        self.tell(Kind::Warning, reason, message.into());
    }

    fn tell(&self, kind: Kind, reason: &'static str, message: String) {
        let told = Told {
            kind,
            reason,
            message,
            at: Timestamp::now(),
        };
        if self.0.try_send(told).is_err() {
            tracing::debug!(reason, "too many events are waiting; this one is dropped");
        }
    }
}

async fn publish(client: kube::Client, node: String, mut told: mpsc::Receiver<Told>) {
    let events: Api<Event> = Api::namespaced(client, names::NAMESPACE);
    while let Some(one) = told.recv().await {
        let reason = one.reason;
        match events.create(&PostParams::default(), &event(&node, one)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                tracing::warn!("events may not be written: {}", status.message);
            }
            Err(error) => tracing::debug!(reason, %error, "the event was not written"),
        }
    }
}

fn event(node: &str, told: Told) -> Event {
    let at = Time(told.at);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{node}.{:x}", told.at.as_nanosecond())),
            namespace: Some(names::NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            // Nodes have none, but an event must live where what it is about does, and people look where we live.
            namespace: Some(names::NAMESPACE.to_owned()),
            // What kubelets write: `kubectl describe node` looks for it.
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        },
        reason: Some(told.reason.to_owned()),
        message: Some(told.message),
        type_: Some(format!("{:?}", told.kind)),
        count: Some(1),
        first_timestamp: Some(at.clone()),
        last_timestamp: Some(at),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
