//! Process-wide metrics that every component exposes: panics by component, and objects that cannot be decoded.
//!
//! They are process-wide because the code that observes them, the controller runtime and the HTTP edge, has no
//! registry of its own. The metrics endpoint appends them to the metrics of its component.

mod panics;
mod unreadable;

use std::fmt;
use std::sync::LazyLock;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use panics::{count_panic, export_panics_of, panics_of};
pub use unreadable::{UnreadableReport, report_unreadable, unreadable_objects};

/// The end marker of the text format, which occurs once.
const END: &str = "# EOF\n";

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    panics::register(&mut registry);
    unreadable::register(&mut registry);
    registry
});

/// Appends the process-wide metrics to those of a component, both in the Prometheus text format.
pub fn append_to(metrics: &str) -> Result<String, fmt::Error> {
    let mut all = metrics.strip_suffix(END).unwrap_or(metrics).to_owned();
    text::encode(&mut all, &REGISTRY)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_marker_occurs_once() {
        count_panic("append");
        let text = append_to("# HELP a A.\n# TYPE a gauge\na 1\n# EOF\n").unwrap();
        assert_eq!(text.matches("# EOF").count(), 1, "{text}");
        assert!(text.ends_with(END), "{text}");
        assert!(
            text.contains("\nmco_panics_total{component=\"append\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn a_component_without_panics_has_a_series() {
        export_panics_of("calm");
        let text = append_to("").unwrap();
        assert!(
            text.contains("\nmco_panics_total{component=\"calm\"} 0\n"),
            "{text}"
        );
    }

    #[test]
    fn every_metric_is_documented() {
        export_panics_of("documented");
        let _report = report_unreadable("Documented", "a", "broken");
        let exposed = mco_testkit::metrics::exposed_names(&append_to("").unwrap());
        assert_eq!(exposed, mco_testkit::metrics::documented("all"));
    }
}
