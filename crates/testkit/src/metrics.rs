//! Which metrics there are: as `docs/monitoring.md` lists them, and as a component tells them. Names are those that one asks for.

use std::collections::BTreeSet;

use crate::repository_root;

/// The metrics of a component in the documentation.
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

/// The metrics of a scrape.
pub fn told(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
        .collect()
}
