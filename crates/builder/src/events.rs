//! Kubernetes events about builds, their MachineOSConfigs and pools.

use std::time::Duration;

use kube::Resource;
use mco_api::vocabulary::names;
use mco_runtime::{EventQueue, EventRecorder, EventType, EventWriter, Repeats};

/// The component that events name as their reporter.
const REPORTER: &str = "machineosbuilder";
const REPEAT_INTERVAL: Duration = Duration::from_mins(5);
const CAPACITY: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct BuilderEvents(EventRecorder);

pub(crate) fn channel() -> (BuilderEvents, EventWriter) {
    let queue = EventQueue {
        namespace: names::NAMESPACE,
        capacity: CAPACITY,
        repeats: Repeats::SuppressFor(REPEAT_INTERVAL),
    };
    let (recorder, writer) = queue.open();
    (BuilderEvents(recorder), writer)
}

impl BuilderEvents {
    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record(object, EventType::Normal, reason, message.into());
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record(object, EventType::Warning, reason, message.into());
    }

    fn record<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        type_: EventType,
        reason: &str,
        message: String,
    ) {
        self.0
            .record(REPORTER, object.object_ref(&()), type_, reason, message);
    }
}
