//! Differences as a person reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mco_core::comparison::{Comparison, Entry};
use mco_core::diff::{ConfigDiff, Contents, FileChange, Kind, UnitChange, UserChange};
use mco_core::disruption::Drain;
use mco_core::redaction;
use similar::TextDiff;

use crate::input::count;
use crate::output;

/// Unified diffs of the text files and units that change, by path or name, with whatever looks like a secret removed.
/// Files that not everybody on a machine may read are not shown at all.
pub fn unified(comparison: &Comparison, old: &Entry, new: &Entry) -> BTreeMap<String, String> {
    let difference = |before: &str, after: &str| {
        let diff = TextDiff::from_lines(before, after);
        redaction::text(&diff.unified_diff().context_radius(3).to_string())
    };
    let files = comparison.texts(old, new).map(|(path, before, after)| {
        let text = if old.is_public(path) && new.is_public(path) {
            difference(&before, &after)
        } else {
            "[not shown: not everybody may read this file]".to_owned()
        };
        (path.to_owned(), text)
    });
    let units = comparison
        .unit_texts(old, new)
        .map(|(name, before, after)| (name.to_owned(), difference(&before, &after)));
    files.chain(units).collect()
}

pub fn describe(pool: Option<&str>, comparison: &Comparison, texts: &BTreeMap<String, String>) -> String {
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
            output::harmless(&cause.change),
            cause.rule
        );
    }
    if let Drain::Needed { because } = &comparison.cost.drain {
        let _ = writeln!(text, "    drained first, because {}", output::harmless(because));
    }
    text
}

fn describe_changes(changes: &ConfigDiff, texts: &BTreeMap<String, String>, text: &mut String) {
    for file in &changes.files {
        let _ = writeln!(
            text,
            "  {} file {}{}",
            sign(file.kind),
            output::harmless(&file.path),
            file_details(file)
        );
        describe_text(texts.get(&file.path), text);
    }
    for unit in &changes.units {
        let _ = writeln!(
            text,
            "  {} unit {}{}",
            sign(unit.kind),
            output::harmless(&unit.name),
            unit_details(unit)
        );
        describe_text(texts.get(&unit.name), text);
    }
    for user in &changes.users {
        let _ = writeln!(
            text,
            "  {} user {}{}",
            sign(user.kind),
            output::harmless(&user.name),
            user_details(user)
        );
    }
    for section in &changes.first_boot_sections {
        let _ = writeln!(text, "  ~ {section} (takes effect at first boot only)");
    }
    describe_spec(changes, text);
}

fn describe_text(difference: Option<&String>, text: &mut String) {
    for line in difference.into_iter().flat_map(|difference| difference.lines()) {
        let _ = writeln!(text, "      {}", output::harmless(line));
    }
}

fn describe_spec(changes: &ConfigDiff, text: &mut String) {
    let lists = [
        ("kernelArguments", &changes.kernel_arguments),
        ("extensions", &changes.extensions),
    ];
    for (name, change) in lists {
        if let Some(change) = change {
            let _ = writeln!(
                text,
                "  ~ {name}: [{}] -> [{}]",
                change.old.join(" "),
                change.new.join(" ")
            );
        }
    }
    let scalars = [
        (
            "kernelType",
            changes
                .kernel_type
                .as_ref()
                .map(|c| (c.old.to_owned(), c.new.to_owned())),
        ),
        (
            "fips",
            changes
                .fips
                .as_ref()
                .map(|c| (c.old.to_string(), c.new.to_string())),
        ),
        (
            "osImageURL",
            changes.os_image.as_ref().map(|c| (c.old.clone(), c.new.clone())),
        ),
        (
            "baseOSExtensionsContainerImage",
            changes
                .extensions_image
                .as_ref()
                .map(|c| (c.old.clone(), c.new.clone())),
        ),
    ];
    for (name, change) in scalars {
        if let Some((old, new)) = change {
            let _ = writeln!(text, "  ~ {name}: {old:?} -> {new:?}");
        }
    }
}

fn sign(kind: Kind) -> char {
    match kind {
        Kind::Added => '+',
        Kind::Removed => '-',
        Kind::Changed => '~',
    }
}

fn file_details(file: &FileChange) -> String {
    let mut details = Vec::new();
    if let Some(change) = &file.contents {
        let summary = |contents: &Contents| {
            let hash: String = contents.sha256.chars().take(12).collect();
            format!("{} bytes sha256:{hash}", contents.size)
        };
        details.push(match (&change.old, &change.new) {
            (Some(old), Some(new)) => format!("{} -> {}", summary(old), summary(new)),
            (None, Some(one)) | (Some(one), None) => summary(one),
            (None, None) => String::new(),
        });
    }
    for (name, change) in [("mode", &file.mode), ("owner", &file.owner)] {
        match change.as_ref().map(|change| (&change.old, &change.new)) {
            Some((Some(old), Some(new))) => details.push(format!("{name} {old} -> {new}")),
            Some((None, Some(new))) => details.push(format!("{name} {new}")),
            _ => {}
        }
    }
    if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    }
}

fn unit_details(unit: &UnitChange) -> String {
    let mut details = Vec::new();
    if unit.contents_changed {
        details.push("contents".to_owned());
    }
    let flag = |value: Option<bool>| value.map_or_else(|| "unset".to_owned(), |value| value.to_string());
    for (name, change) in [("enabled", &unit.enabled), ("mask", &unit.mask)] {
        if let Some(change) = change {
            details.push(format!("{name} {} -> {}", flag(change.old), flag(change.new)));
        }
    }
    details.extend(
        unit.dropins
            .iter()
            .map(|dropin| format!("{} drop-in {}", sign(dropin.kind), dropin.name)),
    );
    if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    }
}

fn user_details(user: &UserChange) -> String {
    let mut details = Vec::new();
    if user.keys_added + user.keys_removed > 0 {
        details.push(format!(
            "{} added, {} removed",
            count(user.keys_added, "key"),
            user.keys_removed
        ));
    }
    if user.password_changed {
        details.push("password changed".to_owned());
    }
    if user.other_fields_changed {
        details.push("other fields changed".to_owned());
    }
    if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    }
}
