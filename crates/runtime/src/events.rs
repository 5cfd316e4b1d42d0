//! Writes Kubernetes events in the background. No caller waits for an event, and a lost one is only logged.
//!
//! kube's `Recorder` is not used because it aggregates events by reason: different messages with one reason would be
//! counted as repetitions of the first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// The longest `note` that the API server accepts.
const MAX_NOTE: usize = 1024;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What happens to an event that is recorded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Every event is written.
    Write,
    /// The same event about the same object is not written again for this long.
    SuppressFor(Duration),
}

/// How events are queued and written.
#[derive(Debug, Clone, Copy)]
pub struct EventQueue {
    /// The namespace for events about cluster-scoped objects.
    pub namespace: &'static str,
    /// Events beyond this number that wait to be written are dropped.
    pub capacity: usize,
    pub repeats: Repeats,
}

#[derive(Debug)]
struct QueuedEvent {
    controller: &'static str,
    /// The controller's own name where it has only one instance.
    instance: Option<String>,
    regarding: ObjectReference,
    type_: EventType,
    reason: String,
    message: String,
    at: Timestamp,
}

/// Queues events for an [`EventWriter`]. Clones share the queue.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<QueuedEvent>,
    namespace: &'static str,
    instance: Option<String>,
}

/// Writes queued events, one after the other.
#[derive(Debug)]
pub struct EventWriter {
    queue: mpsc::Receiver<QueuedEvent>,
    repeats: Repeats,
}

impl EventQueue {
    /// Creates the two ends of a queue.
    pub fn open(self) -> (EventRecorder, EventWriter) {
        let (sender, receiver) = mpsc::channel(self.capacity);
        let recorder = EventRecorder {
            queue: sender,
            namespace: self.namespace,
            instance: None,
        };
        let writer = EventWriter {
            queue: receiver,
            repeats: self.repeats,
        };
        (recorder, writer)
    }
}

impl EventRecorder {
    /// Names the instance that reports, for example its node.
    #[must_use]
    pub fn with_instance(self, instance: impl Into<String>) -> Self {
        Self {
            instance: Some(instance.into()),
            ..self
        }
    }

    /// Queues an event about an object; drops it if the queue is full.
    pub fn record(
        &self,
        controller: &'static str,
        mut regarding: ObjectReference,
        type_: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        // The API server requires a namespace, and `kubectl get events` finds them beside the components.
        regarding
            .namespace
            .get_or_insert_with(|| self.namespace.to_owned());
        regarding.resource_version = None;
        let event = QueuedEvent {
            controller,
            instance: self.instance.clone(),
            regarding,
            type_,
            reason: reason.into(),
            message: message.into(),
            at: Timestamp::now(),
        };
        if let Err(dropped) = self.queue.try_send(event) {
            debug!("event dropped: {dropped}");
        }
    }
}

impl EventWriter {
    /// Writes events until every recorder is dropped.
    pub async fn run(mut self, client: Client) {
        let mut recent = RecentEvents::default();
        while let Some(event) = self.queue.recv().await {
            let is_new = match self.repeats {
                Repeats::Write => true,
                Repeats::SuppressFor(interval) => {
                    let QueuedEvent {
                        regarding,
                        reason,
                        message,
                        ..
                    } = &event;
                    let key = format!("{regarding:?} {:?} {reason} {message}", event.type_);
                    recent.is_new(key, Instant::now(), interval)
                }
            };
            if is_new {
                write(&client, event).await;
            }
        }
    }
}

/// When each event was last written. Suppressed events do not extend the interval, so a lasting problem is reported
/// again from time to time.
#[derive(Debug, Default)]
struct RecentEvents(HashMap<String, Instant>);

impl RecentEvents {
    fn is_new(&mut self, key: String, now: Instant, interval: Duration) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < interval);
        match self.0.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
        }
    }
}

async fn write(client: &Client, event: QueuedEvent) {
    let regarding = &event.regarding;
    info!(
        object = %format!(
            "{} {}",
            regarding.kind.as_deref().unwrap_or_default(),
            regarding.name.as_deref().unwrap_or_default()
        ),
        reason = %event.reason,
        "{}", event.message
    );
    let namespace = regarding.namespace.clone().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let parameters = PostParams {
        field_manager: Some(event.controller.to_owned()),
        ..PostParams::default()
    };
    match events.create(&parameters, &stored(event, namespace)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            warn!("not allowed to write events: {}", status.message);
        }
        Err(problem) => debug!("event not written: {problem}"),
    }
}

fn stored(event: QueuedEvent, namespace: String) -> Event {
    let object = event.regarding.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{:x}", event.at.as_nanosecond())),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        action: Some(event.reason.clone()),
        reason: Some(event.reason),
        note: Some(truncate(event.message)),
        type_: Some(event.type_.as_str().to_owned()),
        event_time: Some(MicroTime(event.at)),
        regarding: Some(event.regarding),
        reporting_controller: Some(event.controller.to_owned()),
        reporting_instance: Some(event.instance.unwrap_or_else(|| event.controller.to_owned())),
        ..Event::default()
    }
}

fn truncate(mut note: String) -> String {
    if note.len() > MAX_NOTE {
        let mut end = MAX_NOTE - '…'.len_utf8();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_repeats_is_written_once_per_interval() {
        let (start, mut recent) = (Instant::now(), RecentEvents::default());
        let mut is_new = |key: &str, minute: u64| {
            let now = start + Duration::from_mins(minute);
            recent.is_new(key.to_owned(), now, Duration::from_mins(5))
        };
        let minutes: Vec<u64> = (0..12).filter(|minute| is_new("blocked", *minute)).collect();
        assert_eq!(minutes, [0, 5, 10]);
        assert!(is_new("something else", 11));
    }

    #[test]
    fn a_message_is_truncated_between_characters() {
        assert_eq!(truncate("short".to_owned()), "short");
        let long = truncate("ä".repeat(2_000));
        assert!(long.len() <= MAX_NOTE && long.ends_with("ä…"), "{}", long.len());
    }
}
