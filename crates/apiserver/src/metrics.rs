//! Counters for `/metrics`, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::store::Store;

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    /// Answers by class: 1xx to 5xx.
    answers: [AtomicU64; 5],
    watches: AtomicU64,
}

/// Counts a watch for as long as it is held.
#[derive(Debug)]
pub struct OpenWatch {
    counters: Arc<Counters>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.counters.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn answered(&self, code: StatusCode) {
        let class = usize::from(code.as_u16() / 100).clamp(1, 5);
        self.counters.answers[class - 1].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_opened(&self) -> OpenWatch {
        self.counters.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch {
            counters: Arc::clone(&self.counters),
        }
    }

    pub(crate) fn text(&self, store: &Store) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Answers by class of status code.\n# TYPE apiserver_request_total counter\n",
        );
        // Writing to a string cannot fail.
        for (class, count) in self.counters.answers.iter().enumerate() {
            let _ = writeln!(
                text,
                "apiserver_request_total{{code=\"{}xx\"}} {}",
                class + 1,
                count.load(Ordering::Relaxed)
            );
        }
        text.push_str("# HELP apiserver_longrunning_requests Open watches.\n# TYPE apiserver_longrunning_requests gauge\n");
        let watches = self.counters.watches.load(Ordering::Relaxed);
        let _ = writeln!(text, "apiserver_longrunning_requests{{verb=\"WATCH\"}} {watches}");
        text.push_str(
            "# HELP apiserver_storage_objects Stored objects.\n# TYPE apiserver_storage_objects gauge\n",
        );
        let mut resources = store.resource_names();
        resources.sort();
        for resource in resources {
            let _ = writeln!(
                text,
                "apiserver_storage_objects{{resource=\"{resource}\"}} {}",
                store.count(&resource)
            );
        }
        text.push_str("# HELP apiserver_storage_revision The newest revision.\n# TYPE apiserver_storage_revision counter\n");
        let _ = writeln!(text, "apiserver_storage_revision {}", store.revision());
        text
    }
}
