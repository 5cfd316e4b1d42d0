//! Differences as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mco_client::change_list;
use mco_client::comparison::ConfigComparison;
use mco_client::redaction;
use mco_core::config::diff::ConfigDiff;
use mco_core::config::disruption::Drain;
use mco_core::config::parsed_config::ParsedConfig;
use similar::TextDiff;

use crate::output;

/// Returns unified diffs of the text files and units that change, by path or name, with possible secrets redacted.
/// Files that are not world-readable are omitted.
pub fn unified(
    comparison: &ConfigComparison,
    old: &ParsedConfig,
    new: &ParsedConfig,
) -> BTreeMap<String, String> {
    let difference = |before: &str, after: &str| {
        let diff = TextDiff::from_lines(before, after);
        redaction::text(&diff.unified_diff().context_radius(3).to_string())
    };
    let files = comparison.texts(old, new).map(|(path, before, after)| {
        let text = if old.is_public(path) && new.is_public(path) {
            difference(&before, &after)
        } else {
            "[not shown: this file is not world-readable]".to_owned()
        };
        (path.to_owned(), text)
    });
    let units = comparison
        .unit_texts(old, new)
        .map(|(name, before, after)| (name.to_owned(), difference(&before, &after)));
    files.chain(units).collect()
}

pub fn describe(
    pool: Option<&str>,
    comparison: &ConfigComparison,
    texts: &BTreeMap<String, String>,
) -> String {
    let mut text = String::new();
    if let Some(pool) = pool {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "nothing".to_owned());
        let _ = writeln!(
            text,
            "pool {pool}: {} -> {}",
            name(&comparison.old),
            name(&comparison.new)
        );
    }
    if comparison.changes.is_empty() {
        text.push_str("  no change\n");
        return text;
    }
    describe_changes(&comparison.changes, texts, &mut text);
    for obstacle in &comparison.obstacles {
        let _ = writeln!(text, "  cannot be applied to running nodes: {obstacle}");
    }
    let _ = writeln!(text, "  cost: {}", comparison.level);
    for cause in &comparison.cost.causes {
        let actions = cause
            .actions
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(
            text,
            "    {}: {actions} ({})",
            output::escape_control_chars(&cause.change),
            cause.rule
        );
    }
    if let Drain::Needed { because } = &comparison.cost.drain {
        let _ = writeln!(
            text,
            "    drained first, because {}",
            output::escape_control_chars(because)
        );
    }
    text
}

fn describe_changes(changes: &ConfigDiff, texts: &BTreeMap<String, String>, text: &mut String) {
    for line in change_list::lines(changes) {
        let _ = writeln!(text, "  {}", output::escape_control_chars(&line.to_string()));
        let diff = texts
            .get(&line.name)
            .filter(|_| ["file", "unit"].contains(&line.what));
        for line in diff.into_iter().flat_map(|diff| diff.lines()) {
            let _ = writeln!(text, "      {}", output::escape_control_chars(line));
        }
    }
}
