//! The number of panics that were caught, by component.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComponentLabels {
    component: &'static str,
}

static PANICS: LazyLock<Family<ComponentLabels, Counter>> = LazyLock::new(Family::default);

pub(crate) fn register(registry: &mut Registry) {
    registry.register(
        "mco_panics",
        "Panics that ended one reconcile, request or background task",
        PANICS.clone(),
    );
}

/// Counts a panic that was caught. The panic hook has logged where it happened; the caller logs the object.
pub fn count_panic(component: &'static str) {
    PANICS.get_or_create(&ComponentLabels { component }).inc();
}

/// Exports the series of a component before its first panic: an increase is measured from an existing value.
pub fn export_panics_of(component: &'static str) {
    drop(PANICS.get_or_create(&ComponentLabels { component }));
}

/// Returns how many panics of a component were caught.
pub fn panics_of(component: &'static str) -> u64 {
    PANICS.get_or_create(&ComponentLabels { component }).get()
}
