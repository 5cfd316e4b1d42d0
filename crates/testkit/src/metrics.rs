//! The metric names in `docs/monitoring.md`, and those that a component exports.

use std::collections::BTreeSet;

use crate::repository_root;

/// Returns the documented metrics of a component.
pub fn documented(component: &str) -> BTreeSet<String> {
    let page = repository_root().join("docs/monitoring.md");
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`');
        (cells.next()? == component).then(|| name.to_owned())
    });
    rows.collect()
}

/// Returns the metrics in a scrape.
pub fn exposed_names(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
        .collect()
}
