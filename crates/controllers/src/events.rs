//! Kubernetes events about pools, nodes and configs.

use std::time::Duration;

use kube::Resource;
use mco_api::vocabulary::names;
use mco_core::rollout::{PlannedEvent, PlannedEventKind};
use mco_runtime::{EventQueue, EventRecorder, EventType, EventWriter, Repeats};

/// A drain that is blocked for hours reports the same event at this interval.
const REPEAT_INTERVAL: Duration = Duration::from_mins(5);
/// More events than this in one moment help no reader.
const CAPACITY: usize = 1024;

/// The controllers that events name as their reporter.
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

/// Queues events for the writer.
#[derive(Debug, Clone)]
pub(crate) struct ControllerEvents(EventRecorder);

/// Returns the two ends of the event queue.
pub(crate) fn channel() -> (ControllerEvents, EventWriter) {
    let queue = EventQueue {
        namespace: names::NAMESPACE,
        capacity: CAPACITY,
        repeats: Repeats::SuppressFor(REPEAT_INTERVAL),
    };
    let (recorder, writer) = queue.open();
    (ControllerEvents(recorder), writer)
}

impl ControllerEvents {
    pub fn record<K: Resource<DynamicType = ()>>(&self, reporter: Reporter, object: &K, event: PlannedEvent) {
        let type_ = match event.kind {
            PlannedEventKind::Normal => EventType::Normal,
            PlannedEventKind::Warning => EventType::Warning,
        };
        let regarding = object.object_ref(&());
        self.0.record(
            reporter.component(),
            regarding,
            type_,
            event.reason,
            event.message,
        );
    }
}
