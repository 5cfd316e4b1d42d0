//! Tells people what happened, as Kubernetes events.
//!
//! Fire and forget: nothing waits for an event, and a lost one is only logged. kube's own recorder is not used because it
//! counts different messages with one reason as repetitions of the first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use mco_api::vocabulary::names;
use mco_core::rollout::{Event, EventKind};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// What the API server takes as a message.
const LONGEST_NOTE: usize = 1024;
/// The same is not said again for this long.
const REPEAT_AFTER: Duration = Duration::from_mins(5);
/// Events waiting to be written; more than this in a moment is not read by anybody.
const WAITING: usize = 1024;

/// Who reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporter {
    Rollout,
    Render,
    Registries,
    Kubelet,
}

impl Reporter {
    fn component(self) -> &'static str {
        match self {
            Self::Rollout => "machineconfigcontroller-nodecontroller",
            Self::Render => "machineconfigcontroller-rendercontroller",
            Self::Registries => "machineconfigcontroller-containerruntimeconfigcontroller",
            Self::Kubelet => "machineconfigcontroller-kubeletconfigcontroller",
        }
    }
}

#[derive(Debug)]
struct Letter {
    reporter: Reporter,
    about: ObjectReference,
    event: Event,
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    letters: mpsc::Sender<Letter>,
}

/// Writes what was sent, one after the other.
#[derive(Debug)]
pub(crate) struct Writer {
    letters: mpsc::Receiver<Letter>,
}

pub(crate) fn channel() -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Events { letters: sender }, Writer { letters: receiver })
}

impl Events {
    pub fn tell<K: Resource<DynamicType = ()>>(&self, reporter: Reporter, about: &K, event: Event) {
        let mut about = about.object_ref(&());
        // Events about cluster-wide objects live with the components, where people look for them.
        about.namespace.get_or_insert_with(|| names::NAMESPACE.to_owned());
        about.resource_version = None;
        let letter = Letter {
            reporter,
            about,
            event,
        };
        if let Err(lost) = self.letters.try_send(letter) {
            debug!("an event is lost: {lost}");
        }
    }
}

impl Writer {
    pub async fn run(mut self, client: Client) {
        let mut said = Said::default();
        while let Some(letter) = self.letters.recv().await {
            let key = format!("{:?} {:?}", letter.about, letter.event);
            if said.is_news(key, Instant::now()) {
                write(&client, letter).await;
            }
        }
    }
}

/// What was said lately, and when. What is swallowed was not said: whatever goes on is said again from time to time.
#[derive(Debug, Default)]
struct Said(HashMap<String, Instant>);

impl Said {
    fn is_news(&mut self, what: String, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
        match self.0.entry(what) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
        }
    }
}

async fn write(client: &Client, letter: Letter) {
    let Letter {
        reporter,
        about,
        event,
    } = letter;
    info!(
        about = %format!("{} {}", about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default()),
        reason = %event.reason,
        "{}", event.message
    );
    let namespace = about.namespace.clone().unwrap_or_default();
    let now = Timestamp::now();
    let stored = StoredEvent {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}.{:x}",
                about.name.as_deref().unwrap_or_default(),
                now.as_nanosecond()
            )),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some(event.reason.clone()),
        reason: Some(event.reason),
        note: Some(shortened(event.message)),
        type_: Some(
            match event.kind {
                EventKind::Normal => "Normal",
                EventKind::Warning => "Warning",
            }
            .to_owned(),
        ),
        event_time: Some(MicroTime(now)),
        regarding: Some(about),
        reporting_controller: Some(reporter.component().to_owned()),
        reporting_instance: Some(reporter.component().to_owned()),
        ..StoredEvent::default()
    };
    let events: Api<StoredEvent> = Api::namespaced(client.clone(), &namespace);
    match events.create(&PostParams::default(), &stored).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            warn!("events may not be written: {}", status.message);
        }
        Err(problem) => debug!("an event could not be written: {problem}"),
    }
}

fn shortened(mut note: String) -> String {
    if note.len() > LONGEST_NOTE {
        let mut end = LONGEST_NOTE - '…'.len_utf8();
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
    fn what_goes_on_is_said_every_five_minutes() {
        let (start, mut said) = (Instant::now(), Said::default());
        let minutes: Vec<u64> = (0..12)
            .filter(|minute| said.is_news("blocked".to_owned(), start + Duration::from_mins(*minute)))
            .collect();
        assert_eq!(minutes, [0, 5, 10]);
        assert!(said.is_news("something else".to_owned(), start + Duration::from_mins(11)));
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("ä".repeat(2_000));
        assert!(
            long.len() <= LONGEST_NOTE && long.ends_with("ä…"),
            "{}",
            long.len()
        );
    }
}
