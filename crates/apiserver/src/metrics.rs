//! Metrics of the server, in the text format of OpenMetrics.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::store::ObjectStore;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const CODE_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The metrics of one server. Clones share their values.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    values: Arc<MetricValues>,
}

#[derive(Debug)]
struct MetricValues {
    registry: Registry,
    requests: Family<CodeLabel, Counter>,
    watches: Family<VerbLabel, Gauge>,
    objects: Family<ResourceLabel, Gauge>,
    revision: Gauge,
    /// Serializes scrapes, each of which rebuilds the series of stored objects.
    scrape: Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

const WATCH: VerbLabel = VerbLabel { verb: "WATCH" };

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

/// Counts a watch as open until it is dropped.
#[derive(Debug)]
pub struct OpenWatch {
    values: Arc<MetricValues>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.values.watches.get_or_create(&WATCH).dec();
    }
}

impl Default for ApiMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::<CodeLabel, Counter>::default();
        for code in CODE_CLASSES {
            requests.get_or_create(&CodeLabel { code }).inc_by(0);
        }
        let watches = Family::<VerbLabel, Gauge>::default();
        watches.get_or_create(&WATCH).set(0);
        let objects = Family::<ResourceLabel, Gauge>::default();
        let revision = Gauge::default();
        registry.register(
            "apiserver_request",
            "Responses by class of status code",
            requests.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Open watches", watches.clone());
        registry.register(
            "apiserver_storage_objects",
            "Stored objects by resource",
            objects.clone(),
        );
        registry.register("apiserver_storage_revision", "Newest revision", revision.clone());
        let values = MetricValues {
            registry,
            requests,
            watches,
            objects,
            revision,
            scrape: Mutex::new(()),
        };
        Self {
            values: Arc::new(values),
        }
    }
}

impl ApiMetrics {
    pub(crate) fn count_response(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CODE_CLASSES.len());
        let code = CODE_CLASSES[class - 1];
        self.values.requests.get_or_create(&CodeLabel { code }).inc();
    }

    pub(crate) fn watch_opened(&self) -> OpenWatch {
        self.values.watches.get_or_create(&WATCH).inc();
        OpenWatch {
            values: Arc::clone(&self.values),
        }
    }

    /// Returns all metrics as text, with the number of objects that the store holds now.
    pub(crate) fn encode(&self, store: &ObjectStore) -> Result<String, fmt::Error> {
        let _scrape = self.values.scrape.lock();
        self.values.objects.clear();
        for resource in store.resource_names() {
            let objects = i64::try_from(store.count(&resource)).unwrap_or(i64::MAX);
            let label = ResourceLabel {
                resource: resource.to_string(),
            };
            self.values.objects.get_or_create(&label).set(objects);
        }
        let revision = i64::try_from(store.revision()).unwrap_or(i64::MAX);
        self.values.revision.set(revision);
        let mut encoded = String::new();
        text::encode(&mut encoded, &self.values.registry)?;
        mco_telemetry::append_to(&encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Retention;

    #[test]
    fn an_open_watch_and_responses_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(&directory.path().join("store.redb"), Retention::default()).unwrap();
        let metrics = ApiMetrics::default();
        let watch = metrics.watch_opened();
        metrics.count_response(StatusCode::CREATED);
        let text = metrics.encode(&store).unwrap();
        assert!(
            text.contains("apiserver_request_total{code=\"2xx\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("apiserver_request_total{code=\"5xx\"} 0\n"),
            "{text}"
        );
        let watches = "apiserver_longrunning_requests{verb=\"WATCH\"}";
        assert!(text.contains(&format!("{watches} 1\n")), "{text}");
        drop(watch);
        assert!(
            metrics
                .encode(&store)
                .unwrap()
                .contains(&format!("{watches} 0\n"))
        );
    }
}
