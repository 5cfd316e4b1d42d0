//! Events about the node, for `kubectl describe node` and alerts. They are written in the background and never awaited.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use mco_api::vocabulary::names;
use tokio::sync::mpsc;

const COMPONENT: &str = "machineconfigdaemon";
/// The queue is bounded, because an API server that does not respond must not let events pile up.
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

/// Enqueues events for a background task that writes them.
#[derive(Debug, Clone)]
pub(super) struct Events(mpsc::Sender<Told>);

impl Events {
    /// Starts the background task, which ends when the last handle is dropped.
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
            tracing::debug!(reason, "the event queue is full; dropping this event");
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
                tracing::warn!("not authorized to write events: {}", status.message);
            }
            Err(error) => tracing::debug!(reason, %error, "could not write the event"),
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
            // An event must be in the namespace of its involved object. Nodes have none, so both use ours, where users
            // expect it.
            namespace: Some(names::NAMESPACE.to_owned()),
            // `kubectl describe node` searches for the name as the UID, because that is what the kubelet writes.
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
