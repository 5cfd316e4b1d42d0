//! The objects of the cluster that this process cannot decode.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing::{info, warn};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

static GAUGE: LazyLock<Family<KindLabels, Gauge>> = LazyLock::new(Family::default);

/// How many readers have reported each object, by kind and key. Several components of a process may watch one kind.
static OBJECTS: Mutex<BTreeMap<(String, String), usize>> = Mutex::new(BTreeMap::new());

pub(crate) fn register(registry: &mut Registry) {
    registry.register(
        "mco_unreadable_objects",
        "Objects of the cluster that cannot be decoded",
        GAUGE.clone(),
    );
}

/// A report of an object that cannot be decoded; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the report ends when it is dropped"]
pub struct UnreadableReport {
    kind: String,
    key: String,
}

/// Reports an object that cannot be decoded. It is logged once, although several readers may report it repeatedly.
pub fn report_unreadable(kind: &str, key: &str, reason: &str) -> UnreadableReport {
    let report = UnreadableReport {
        kind: kind.to_owned(),
        key: key.to_owned(),
    };
    let mut objects = OBJECTS.lock();
    let readers = objects
        .entry((report.kind.clone(), report.key.clone()))
        .or_default();
    *readers += 1;
    if *readers == 1 {
        gauge(kind).inc();
        warn!("{kind} {key:?} cannot be read: {reason}");
    }
    report
}

/// Returns kind and key of all objects that cannot be decoded.
pub fn unreadable_objects() -> Vec<(String, String)> {
    OBJECTS.lock().keys().cloned().collect()
}

impl Drop for UnreadableReport {
    fn drop(&mut self) {
        let mut objects = OBJECTS.lock();
        let entry = (std::mem::take(&mut self.kind), std::mem::take(&mut self.key));
        let Some(readers) = objects.get_mut(&entry) else {
            return;
        };
        *readers -= 1;
        if *readers == 0 {
            gauge(&entry.0).dec();
            info!("{} {:?} can be read again, or was deleted", entry.0, entry.1);
            objects.remove(&entry);
        }
    }
}

fn gauge(kind: &str) -> Gauge {
    let labels = KindLabels {
        kind: kind.to_owned(),
    };
    GAUGE.get_or_create(&labels).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_two_readers_report_counts_once() {
        let first = report_unreadable("Widget", "a", "broken");
        let second = report_unreadable("Widget", "a", "broken");
        let other = report_unreadable("Widget", "b", "broken");
        assert_eq!(gauge("Widget").get(), 2);
        drop(first);
        drop(other);
        assert_eq!(gauge("Widget").get(), 1);
        assert!(unreadable_objects().contains(&("Widget".to_owned(), "a".to_owned())));
        drop(second);
        assert_eq!(gauge("Widget").get(), 0);
    }
}
